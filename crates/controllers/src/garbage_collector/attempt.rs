//! Decides by live reads whether one object is deleted, and how; upstream's `attemptToDeleteItem` and
//! `attemptToOrphan`.

use bayplan_model::api::{DeleteOptions, ObjectReference, PatchKind, Preconditions, Request, Verb, decode};
use bayplan_model::keyed::KeyedSet;
use bayplan_model::meta::{ObjectMeta, OwnerReference, PartialObjectMetadata};
use bayplan_model::status::{Status, reason};
use futures::future::join_all;
use serde_json::{Value, json};

use super::graph::{FOREGROUND, Identity, Node, ORPHAN, Task};
use super::{GarbageCollector, next};
use crate::controller::{Context, Requeue, lock};
use crate::discovery::ApiResource;
use crate::error::{Error, not_found};
use crate::requests;

/// How often the removal of a finalizer that met a conflict is tried.
const CONFLICT_TRIES: usize = 5;

/// The owners of an object, sorted by their state.
#[derive(Default)]
struct Owners {
    /// Exist, and are not being deleted in the foreground.
    solid: Vec<OwnerReference>,
    /// Do not exist.
    dangling: Vec<OwnerReference>,
    /// Exist, and wait for their dependents to be deleted.
    waiting: Vec<OwnerReference>,
}

impl GarbageCollector {
    pub(super) async fn attempt_to_delete(&self, uid: &str, context: Context<'_>) -> Result<Requeue, Error> {
        let Some(node) = lock(&self.graph).node(uid).map(Node::outline) else { return Ok(Requeue::OnChange) };
        if node.being_deleted && !node.deleting_dependents {
            return Ok(Requeue::OnChange);
        }
        let Some(resource) = self.resource_of(&node.identity)? else { return Ok(Requeue::OnChange) };
        let Some(live) = self.live(&resource, &node.identity, context).await? else {
            return Ok(next(lock(&self.graph).missing(&node.identity), false));
        };
        if node.deleting_dependents {
            return self.process_deleting_dependents(&resource, &live, context).await;
        }
        if live.owner_references.is_empty() {
            return Ok(next(Vec::new(), node.is_virtual));
        }
        let Some(owners) = self.classify(&resource, &node, &live, context).await? else { return Ok(Requeue::OnChange) };
        let outcome = self.act(&resource, &node, &live, owners, context).await;
        match outcome {
            Err(Error::Api(status)) if not_found(&status) => Ok(next(lock(&self.graph).missing(&node.identity), false)),
            outcome => outcome.map(|()| next(Vec::new(), node.is_virtual)),
        }
    }

    /// The resource of an object. None for a cluster-scoped object that claims a namespaced kind: it can never be
    /// looked up, and a retry does not help.
    fn resource_of(&self, identity: &Identity) -> Result<Option<ApiResource>, Error> {
        let Identity { api_version, kind, namespace, .. } = identity;
        let unknown = || Error::Invalid(format!("no matches for kind \"{kind}\" in version \"{api_version}\""));
        let resource = self.resources.of_kind(api_version, kind).ok_or_else(unknown)?;
        Ok((!resource.namespaced || !namespace.is_empty()).then_some(resource))
    }

    /// The live object; none when it no longer exists or another one has its name.
    async fn live(
        &self,
        resource: &ApiResource,
        identity: &Identity,
        context: Context<'_>,
    ) -> Result<Option<ObjectMeta>, Error> {
        let namespace = if resource.namespaced { identity.namespace.as_str() } else { "" };
        let request = Request::object(&resource.resource, namespace, &identity.name, Verb::Get).metadata_only();
        match context.api.call(request).await {
            Err(status) if not_found(&status) => Ok(None),
            answer => {
                let live: PartialObjectMetadata = decode(&answer?)?;
                Ok((live.metadata.uid == identity.uid).then_some(live.metadata))
            }
        }
    }

    async fn process_deleting_dependents(
        &self,
        resource: &ApiResource,
        live: &ObjectMeta,
        context: Context<'_>,
    ) -> Result<Requeue, Error> {
        let blocking = lock(&self.graph).blocking_dependents(&live.uid);
        match blocking {
            None => remove_finalizer(resource, live, FOREGROUND, context).await.map(|()| Requeue::OnChange),
            Some(waiting) => Ok(next(waiting.into_iter().map(Task::Delete).collect(), false)),
        }
    }

    /// Looks every owner up. None when one of them can never be looked up.
    async fn classify(
        &self,
        resource: &ApiResource,
        node: &Node,
        live: &ObjectMeta,
        context: Context<'_>,
    ) -> Result<Option<Owners>, Error> {
        let mut owners = Owners::default();
        let namespace = if resource.namespaced { live.namespace.as_str() } else { "" };
        for owner in &live.owner_references {
            let here = Identity::of_owner(owner, namespace);
            let clusterwide = Identity::of_owner(owner, "");
            // Reported for each dependent, also when an earlier one found out that the owner is absent.
            self.warn_of_wrong_namespace(owner, node, &here, context);
            {
                let graph = lock(&self.graph);
                if graph.is_absent(&here) || graph.is_absent(&clusterwide) {
                    owners.dangling.push(owner.clone());
                    continue;
                }
            }
            let Some(owner_resource) = self.resource_of(&here)? else { return Ok(None) };
            match self.live(&owner_resource, &here, context).await? {
                None => {
                    let identity = if owner_resource.namespaced { here } else { clusterwide };
                    lock(&self.graph).set_absent(identity);
                    owners.dangling.push(owner.clone());
                }
                Some(meta) if meta.deletion_timestamp.is_some() && meta.finalizers.iter().any(|f| f == FOREGROUND) => {
                    owners.waiting.push(owner.clone());
                }
                Some(_) => owners.solid.push(owner.clone()),
            }
        }
        Ok(Some(owners))
    }

    /// Records an event when an owner is in another namespace: such a reference has no effect, which users do not
    /// expect.
    fn warn_of_wrong_namespace(&self, owner: &OwnerReference, node: &Node, looked: &Identity, context: Context<'_>) {
        let elsewhere = lock(&self.graph).node(&owner.uid).is_some_and(|known| {
            !known.is_virtual && !known.identity.namespace.is_empty() && known.identity.namespace != looked.namespace
        });
        if !elsewhere {
            return;
        }
        let OwnerReference { api_version, kind, name, uid, .. } = owner;
        let namespace = &looked.namespace;
        let note = format!(
            "ownerRef [{api_version}/{kind}, namespace: {namespace}, name: {name}, uid: {uid}] does not exist in \
             namespace \"{namespace}\""
        );
        let regarding = ObjectReference {
            api_version: node.identity.api_version.clone(),
            kind: node.identity.kind.clone(),
            namespace: node.identity.namespace.clone(),
            name: node.identity.name.clone(),
            uid: node.identity.uid.clone(),
            resource_version: String::new(),
        };
        context.warning(regarding, "OwnerRefInvalidNamespace", note);
    }

    async fn act(
        &self,
        resource: &ApiResource,
        node: &Node,
        live: &ObjectMeta,
        owners: Owners,
        context: Context<'_>,
    ) -> Result<(), Error> {
        let Owners { solid, dangling, waiting } = owners;
        if !solid.is_empty() {
            let gone: Vec<_> = dangling.iter().chain(&waiting).map(|owner| owner.uid.clone()).collect();
            if !gone.is_empty() {
                remove_owners(resource, live, &gone, context).await?;
            }
            return Ok(());
        }
        let uid = &node.identity.uid;
        if !waiting.is_empty() && lock(&self.graph).has_dependents(uid) {
            let circular = lock(&self.graph).may_be_circular(uid);
            if circular {
                unblock_owners(resource, live, context).await?;
                // The patch raised the version that the deletion's precondition names.
                let fresh = ObjectMeta { resource_version: String::new(), ..live.clone() };
                return Ok(delete(resource, &fresh, "Foreground", context).await?);
            }
            return Ok(delete(resource, live, "Foreground", context).await?);
        }
        let has = |finalizer: &str| live.finalizers.iter().any(|f| f == finalizer);
        let policy = match (has(ORPHAN), has(FOREGROUND)) {
            (true, _) => "Orphan",
            (false, true) => "Foreground",
            (false, false) => "Background",
        };
        Ok(delete(resource, live, policy, context).await?)
    }

    pub(super) async fn attempt_to_orphan(&self, uid: &str, context: Context<'_>) -> Result<Requeue, Error> {
        let (owner, dependents) = {
            let graph = lock(&self.graph);
            let Some(owner) = graph.node(uid).map(Node::outline) else { return Ok(Requeue::OnChange) };
            let dependents: Vec<Node> = graph.dependents(uid).map(Node::outline).collect();
            (owner, dependents)
        };
        let Some(resource) = self.resource_of(&owner.identity)? else { return Ok(Requeue::OnChange) };
        let outcomes = join_all(dependents.iter().map(|dependent| self.orphan(uid, dependent, context))).await;
        Error::collect(outcomes.into_iter().filter_map(Result::err).collect())?;
        let live = self.live(&resource, &owner.identity, context).await?;
        if let Some(live) = live {
            remove_finalizer(&resource, &live, ORPHAN, context).await?;
        }
        Ok(Requeue::OnChange)
    }

    async fn orphan(&self, owner: &str, dependent: &Node, context: Context<'_>) -> Result<(), Error> {
        let Some(resource) = self.resource_of(&dependent.identity)? else { return Ok(()) };
        let meta = ObjectMeta {
            name: dependent.identity.name.clone(),
            namespace: dependent.identity.namespace.clone(),
            uid: dependent.identity.uid.clone(),
            owner_references: dependent.owners.clone(),
            ..ObjectMeta::default()
        };
        match remove_owners(&resource, &meta, &[owner.to_owned()], context).await {
            Err(status) if !not_found(&status) => Err(status.into()),
            _ => Ok(()),
        }
    }
}

/// Patches owner references; resources without strategic merge (custom ones) get the whole list instead.
async fn patch_owners(
    resource: &ApiResource,
    meta: &ObjectMeta,
    changes: Vec<Value>,
    rest: impl FnOnce(ObjectMeta) -> Vec<OwnerReference>,
    context: Context<'_>,
) -> Result<(), Status> {
    let patch = json!({"metadata": {"uid": meta.uid, "ownerReferences": changes}});
    match requests::patch(context.api, &resource.resource, meta, PatchKind::Strategic, &patch).await {
        Err(status) if status.code == 415 => {}
        outcome => return outcome.map(|_| ()),
    }
    let live: PartialObjectMetadata =
        requests::get(context.api, &resource.resource, &meta.namespace, &meta.name).await?;
    let version = live.metadata.resource_version.clone();
    let owners = rest(live.metadata);
    let patch = json!({"metadata": {"resourceVersion": version, "uid": meta.uid, "ownerReferences": owners}});
    requests::patch(context.api, &resource.resource, meta, PatchKind::Merge, &patch).await.map(|_| ())
}

async fn remove_owners(
    resource: &ApiResource,
    meta: &ObjectMeta,
    gone: &[String],
    context: Context<'_>,
) -> Result<(), Status> {
    let changes = gone.iter().map(|uid| json!({"$patch": "delete", "uid": uid})).collect();
    let gone: KeyedSet<&String> = gone.iter().collect();
    let rest = |live: ObjectMeta| live.owner_references.into_iter().filter(|o| !gone.contains(&o.uid)).collect();
    patch_owners(resource, meta, changes, rest, context).await
}

/// Breaks a cycle of owners that block one another's deletion.
async fn unblock_owners(resource: &ApiResource, meta: &ObjectMeta, context: Context<'_>) -> Result<(), Status> {
    let unblocked = |mut owner: OwnerReference| {
        owner.block_owner_deletion = Some(false);
        owner
    };
    let changes = meta.owner_references.iter().cloned().map(|owner| json!(unblocked(owner))).collect();
    let rest = |live: ObjectMeta| live.owner_references.into_iter().map(unblocked).collect();
    patch_owners(resource, meta, changes, rest, context).await
}

/// Deletes the object at the version that was read. When it changed meanwhile but its owners did not, the reasons to
/// delete it still hold, and the deletion is retried.
async fn delete(resource: &ApiResource, live: &ObjectMeta, policy: &str, context: Context<'_>) -> Result<(), Status> {
    let options = |version: &str| DeleteOptions {
        propagation_policy: Some(policy.into()),
        preconditions: Some(Preconditions {
            uid: Some(live.uid.clone()),
            resource_version: (!version.is_empty()).then(|| version.to_owned()),
        }),
        ..DeleteOptions::default()
    };
    let first = requests::delete(context.api, &resource.resource, live, options(&live.resource_version)).await;
    match first {
        Err(status) if status.is(reason::CONFLICT) => {
            let now: PartialObjectMetadata =
                requests::get(context.api, &resource.resource, &live.namespace, &live.name).await?;
            let now = now.metadata;
            let moved = now.resource_version != live.resource_version;
            if now.uid == live.uid && moved && now.owner_references == live.owner_references {
                return requests::delete(context.api, &resource.resource, live, options("")).await;
            }
            Err(status)
        }
        outcome => outcome,
    }
}

/// Removes a finalizer from an object.
async fn remove_finalizer(
    resource: &ApiResource,
    live: &ObjectMeta,
    finalizer: &str,
    context: Context<'_>,
) -> Result<(), Error> {
    let mut meta = live.clone();
    for _ in 0..CONFLICT_TRIES {
        let rest: Vec<&String> = meta.finalizers.iter().filter(|f| *f != finalizer).collect();
        if rest.len() == meta.finalizers.len() {
            return Ok(());
        }
        let patch = json!({"metadata": {"resourceVersion": meta.resource_version, "finalizers": rest}});
        match requests::patch(context.api, &resource.resource, &meta, PatchKind::Merge, &patch).await {
            Err(status) if status.is(reason::CONFLICT) => {}
            Err(status) if not_found(&status) => return Ok(()),
            outcome => return outcome.map(|_| ()).map_err(Error::from),
        }
        let fresh: Result<PartialObjectMetadata, _> =
            requests::get(context.api, &resource.resource, &meta.namespace, &meta.name).await;
        match fresh {
            Err(status) if not_found(&status) => return Ok(()),
            fresh => meta = fresh?.metadata,
        }
        if meta.uid != live.uid {
            return Ok(());
        }
    }
    Err(Status::failure(409, reason::CONFLICT, format!("{} keeps changing", meta.key())).into())
}
