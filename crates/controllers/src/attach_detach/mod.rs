//! Attaches volumes to the nodes whose pods need them, and detaches them when nobody does any more.
//!
//! ```text
//!   pods ─▶ claims ─▶ volumes           needed on the node ─┐
//!   VolumeAttachments, Node's status    present on the node ─┴▶ detach, attach, report in the Node's status
//! ```
//!
//! A volume is attached by a VolumeAttachment, which the driver's external attacher carries out. The status of the Node
//! says what is attached, and the kubelet says there what it uses (`volumesInUse`) before it looks. Before a volume is
//! detached it is therefore taken out of the status first, and then the newest Node is asked whether it is in use.
//!
//! One key is one node, and there is one worker: whether a volume may go to a node depends on all others.

mod index;
pub(crate) mod object;
mod operations;
mod pod_volumes;
mod round;
#[cfg(test)]
mod tests;
mod volume;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bayplan_model::api::{DeleteOptions, Request, Verb, decode};
use bayplan_model::delta::Delta;
use bayplan_model::meta::PartialObjectMetadata;
use bayplan_model::status::{Status, reason};
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Value, json};

pub use self::pod_volumes::PodVolumes;

use self::index::Index;
use self::operations::Operations;
use self::round::{Link, Needed, Round};
use self::volume::AttachableVolume;
use crate::cache::{AnyDelta, Cache, Kind};
use crate::controller::{Context, Controller, Requeue, Wakeup, lock};
use crate::error::{Error, not_found};
use crate::node::{AttachedVolume, Node, patch_status};
use crate::pod::Pod;
use crate::requests::{self, NODES, VOLUME_ATTACHMENTS};
use crate::workload::event_reference;

/// The taint of a node that will not come back: what it has may be taken from it.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// How long a volume that nobody needs stays mounted on a node that is not ready before it is taken from it.
const UNMOUNT_MAX: Duration = Duration::from_secs(6 * 60);

/// How long an external attacher is waited for before pods are told.
const ATTACH_MAX: Duration = Duration::from_secs(2 * 60);

/// The reason of the events about volumes that are not attached.
const FAILED: &str = "FailedAttachVolume";

#[derive(Debug, Default)]
struct State {
    index: Index,
    operations: Operations,
    /// The list of attached volumes that was written last, by node, and the version of the Node that it replaced.
    written: BTreeMap<String, (String, Vec<Value>)>,
}

/// The controller.
pub struct AttachDetachController {
    cache: Arc<Cache>,
    state: Mutex<State>,
    /// Whether volumes are taken from nodes that are not ready.
    forces_detach: bool,
}

/// What a reconcile has still to wait for, and what went wrong.
#[derive(Default)]
struct Waiting {
    next: Option<Duration>,
    failures: Vec<String>,
}

impl Waiting {
    fn until(&mut self, after: Duration) {
        self.next = Some(self.next.map_or(after, |next| next.min(after)));
    }
}

/// A volume to detach.
struct Detachment {
    unique: String,
    volume: AttachableVolume,
    /// Whether the newest Node has the last word.
    is_verified: bool,
}

impl AttachDetachController {
    /// A controller over this cache; upstream's `--disable-force-detach-on-timeout` is `!forces_detach`.
    pub fn new(cache: Arc<Cache>, forces_detach: bool) -> Self {
        AttachDetachController { cache, state: Mutex::default(), forces_detach }
    }

    async fn reconcile(&self, name: &str, context: Context<'_>) -> Result<Requeue, Error> {
        let (mut round, mut waiting) = (self.look(name), Waiting::default());
        self.detach(&mut round, context, &mut waiting).await?;
        for (unique, needed) in &round.needed {
            self.attach(&round, unique, needed, context, &mut waiting).await;
        }
        self.report(&round, &BTreeSet::new(), context).await?;
        let kept = round.needed.keys().chain(round.present.keys()).cloned().collect();
        let mut state = lock(&self.state);
        state.operations.keep(name, &kept);
        if round.node.is_none() {
            state.written.remove(name);
        }
        let after = waiting.next.unwrap_or(UNMOUNT_MAX);
        Ok(match (waiting.failures.is_empty(), waiting.next) {
            (false, _) => Requeue::Failed { why: waiting.failures.join("; "), after },
            (true, Some(_)) => Requeue::After(after),
            (true, None) => Requeue::OnChange,
        })
    }

    fn look(&self, name: &str) -> Round {
        let State { index, operations, .. } = &mut *lock(&self.state);
        Round::look(name, &self.cache, index, operations)
    }

    /// Detaches what nobody needs.
    async fn detach(&self, round: &mut Round, context: Context<'_>, waiting: &mut Waiting) -> Result<(), Error> {
        let due = self.due(round, context.now, waiting);
        if due.is_empty() {
            return Ok(());
        }
        let withdrawn = due.iter().map(|one| one.unique.clone()).collect();
        self.report(round, &withdrawn, context).await?;
        for one in &due {
            lock(&self.state).operations.of(&one.unique, &round.name).is_withdrawn = true;
        }
        let newest = match due.iter().any(|one| one.is_verified) {
            true => newest(&round.name, context).await.map_err(|status| Error::Step {
                doing: format!("cannot read node {} to detach from it", round.name),
                why: status,
            })?,
            false => None,
        };
        let in_use: BTreeSet<String> = newest.into_iter().flat_map(|node| node.status.volumes_in_use).collect();
        for one in due {
            if one.is_verified && in_use.contains(&one.unique) {
                waiting.failures.push(format!("volume {} is still in use by node {}", one.unique, round.name));
                lock(&self.state).operations.of(&one.unique, &round.name).fail(context.now);
                continue;
            }
            let outcome = delete(&one.volume.attachment_name(&round.name), context).await;
            let State { operations, .. } = &mut *lock(&self.state);
            let operation = operations.of(&one.unique, &round.name);
            match outcome {
                Ok(uid) => {
                    operation.succeed();
                    operation.is_created = false;
                    let known = round.present.get(&one.unique).map(|present| present.uid.clone());
                    operation.deleted = uid.or(known).filter(|uid| !uid.is_empty());
                    if let Some(present) = round.present.get_mut(&one.unique) {
                        present.link = Link::Leaving;
                    }
                }
                Err(status) => {
                    waiting.failures.push(format!("cannot detach {}: {status}", one.unique));
                    operation.fail(context.now);
                }
            }
        }
        self.wait_for_failed(round, context.now, waiting);
        Ok(())
    }

    /// What failed is tried again when it has rested.
    fn wait_for_failed(&self, round: &Round, now: Timestamp, waiting: &mut Waiting) {
        let State { operations, .. } = &mut *lock(&self.state);
        for unique in round.present.keys() {
            if let Some(rest) = operations.of(unique, &round.name).rests(now) {
                waiting.until(rest);
            }
        }
    }

    /// The volumes that are to be detached now.
    fn due(&self, round: &Round, now: Timestamp, waiting: &mut Waiting) -> Vec<Detachment> {
        let State { operations, .. } = &mut *lock(&self.state);
        let node = round.node.as_deref();
        let is_ready = node.is_some_and(Node::is_ready);
        let is_out_of_service =
            node.is_some_and(|node| node.spec.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE));
        let mut due = Vec::new();
        for (unique, present) in &round.present {
            if round.needed.contains_key(unique) || present.link == Link::Leaving {
                continue;
            }
            let operation = operations.of(unique, &round.name);
            let since = *operation.unneeded_since.get_or_insert(now);
            if let Some(rest) = operation.rests(now) {
                waiting.until(rest);
                continue;
            }
            let waited = Duration::try_from(now.duration_since(since)).unwrap_or(Duration::ZERO);
            let is_overdue = waited > UNMOUNT_MAX && self.forces_detach;
            let is_forced = is_out_of_service || (is_overdue && !is_ready);
            if round.is_in_use(unique) && !is_forced {
                if !is_ready && self.forces_detach {
                    waiting.until(UNMOUNT_MAX.saturating_sub(waited) + Duration::from_millis(1));
                }
                continue;
            }
            let is_verified = !is_overdue && !is_out_of_service;
            due.push(Detachment { unique: unique.clone(), volume: present.volume.clone(), is_verified });
        }
        due
    }

    /// Attaches a volume that pods need, or tells them why it is not attached.
    async fn attach(&self, round: &Round, unique: &str, needed: &Needed, context: Context<'_>, waiting: &mut Waiting) {
        if !self.may_ask(round, unique, needed, context, waiting) {
            return;
        }
        let body = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
            "metadata": {"name": needed.volume.attachment_name(&round.name)},
            "spec": {
                "attacher": needed.volume.driver, "nodeName": round.name,
                "source": {"persistentVolumeName": needed.volume.name},
            },
        });
        // Before the call: should its answer be lost, the VolumeAttachment may be there.
        lock(&self.state).operations.of(unique, &round.name).is_created = true;
        let answer: Result<Value, Status> = requests::create(context.api, &VOLUME_ATTACHMENTS, "", &body).await;
        let State { operations, .. } = &mut *lock(&self.state);
        let operation = operations.of(unique, &round.name);
        match answer {
            Err(status) if !status.is(reason::ALREADY_EXISTS) => {
                operation.fail(context.now);
                operation.is_created = status.code == 0 || status.code >= 500;
                let why = format!("kubernetes.io/csi: attacher.Attach failed: {status}");
                tell_failure(needed, &why, context);
                waiting.until(operation.rests(context.now).unwrap_or_default());
                waiting.failures.push(format!("cannot attach {unique} to {}: {status}", round.name));
            }
            _ => {
                operation.waits_since = Some(context.now);
                waiting.until(ATTACH_MAX);
            }
        }
    }

    /// Whether a VolumeAttachment has to be created; tells the pods what there is to say about one that is there.
    fn may_ask(
        &self,
        round: &Round,
        unique: &str,
        needed: &Needed,
        context: Context<'_>,
        waiting: &mut Waiting,
    ) -> bool {
        let State { index, operations, .. } = &mut *lock(&self.state);
        let operation = operations.of(unique, &round.name);
        operation.unneeded_since = None;
        let link = round.present.get(unique).map(|present| &present.link);
        match link {
            Some(Link::Leaving) => return false,
            Some(Link::Attached) => {
                operation.succeed();
                operation.is_withdrawn = false;
                operation.refusal_told = false;
                if !std::mem::replace(&mut operation.success_told, true) && !round.is_reported(unique) {
                    tell_success(needed, context);
                }
                return false;
            }
            _ => {}
        }
        if let Some(rest) = operation.rests(context.now) {
            waiting.until(rest);
            return false;
        }
        if let Some(Link::Requested(error)) = link {
            let since = *operation.waits_since.get_or_insert(context.now);
            let waited = Duration::try_from(context.now.duration_since(since)).unwrap_or(Duration::ZERO);
            let why = match error {
                Some(message) => message.clone(),
                None if waited < ATTACH_MAX => {
                    waiting.until(ATTACH_MAX - waited);
                    return false;
                }
                None => {
                    let AttachableVolume { driver, handle, .. } = &needed.volume;
                    format!("timed out waiting for external-attacher of {driver} CSI driver to attach volume {handle}")
                }
            };
            tell_failure(needed, &why, context);
            operation.fail(context.now);
            waiting.until(operation.rests(context.now).unwrap_or_default());
            return false;
        }
        if round.node.is_none() {
            return false;
        }
        needed.volume.is_shared || self.is_free(round, unique, needed, (index, operations), context)
    }

    /// Whether no other node has a volume that only one may have. Its pods are told if one has.
    fn is_free(
        &self,
        round: &Round,
        unique: &str,
        needed: &Needed,
        (index, operations): (&Index, &mut Operations),
        context: Context<'_>,
    ) -> bool {
        let mut holders = BTreeSet::new();
        let mut is_busy = false;
        for attachment in index.attachments_of(&needed.volume.name, &self.cache) {
            let node = &attachment.spec.node_name;
            if *node == round.name {
                continue;
            }
            let operation = operations.elsewhere(unique, &round.name).find(|(other, _)| *other == node);
            let operation = operation.map(|(_, operation)| operation);
            let leaves = operation.is_some_and(|one| one.deleted.as_deref() == Some(attachment.metadata.uid.as_str()));
            match Link::of(&attachment) {
                Link::Attached if !leaves => drop(holders.insert(node.clone())),
                // An attempt that failed elsewhere does not keep it, as upstream.
                Link::Requested(_) if !leaves => is_busy |= operation.is_none_or(|one| one.is_pending(context.now)),
                _ => is_busy = true,
            }
        }
        is_busy |= operations
            .elsewhere(unique, &round.name)
            .any(|(_, operation)| operation.is_created && operation.is_pending(context.now));
        if !holders.is_empty() && !is_busy {
            let operation = operations.of(unique, &round.name);
            if !std::mem::replace(&mut operation.refusal_told, true) {
                self.tell_refusal(needed, &holders, index, context);
            }
        }
        holders.is_empty() && !is_busy
    }

    /// Tells pods that another node has the volume that they need, and which pods use it there.
    fn tell_refusal(&self, needed: &Needed, holders: &BTreeSet<String>, index: &Index, context: Context<'_>) {
        let volume = self.cache.volumes().get("", &needed.volume.name);
        let claim = volume.as_ref().and_then(|volume| volume.spec.claim_ref.as_ref());
        let uses = |pod: &Arc<Pod>| {
            !pod.is_stopped
                && claim.is_some_and(|claim| {
                    pod.metadata.namespace == claim.namespace && pod.claim_names().any(|name| name == claim.name)
                })
        };
        let on_holders = holders.iter().flat_map(|node| index.pods_on(node, &self.cache));
        let users: Vec<Arc<Pod>> = on_holders.filter(uses).collect();
        let names: Vec<&str> = users.iter().map(|pod| pod.metadata.name.as_str()).collect();
        let why = match names.is_empty() {
            true => {
                "Volume is already exclusively attached to one node, waiting on detach before it can be attached to \
                     another node"
                    .to_owned()
            }
            // A claim's users are all in its namespace.
            false => format!("Volume is already used by pod(s) {}", names.join(", ")),
        };
        let note = format!("Waiting for detach for volume \"{}\" {why}", needed.volume.name);
        tell(needed, |pod| context.warning(pod, FAILED, note.clone()));
    }

    /// Writes which volumes the node may use, all but those that are withdrawn.
    async fn report(&self, round: &Round, withdrawn: &BTreeSet<String>, context: Context<'_>) -> Result<(), Error> {
        let Some(node) = &round.node else { return Ok(()) };
        let list = self.reportable(round, node, withdrawn);
        let known: Vec<Value> = node.status.volumes_attached.iter().map(|one| json!(one)).collect();
        let version = &node.metadata.resource_version;
        let is_known = match lock(&self.state).written.get(&round.name) {
            // Our own write, which the cache does not have yet.
            Some((replaced, written)) if replaced == version => *written == list,
            _ => known == list,
        };
        if is_known {
            return Ok(());
        }
        let value = if list.is_empty() { Value::Null } else { json!(list) };
        let patch = json!({"status": {"volumesAttached": value}});
        match patch_status(context.api, &NODES, &node.metadata, patch).await {
            Err(status) if !not_found(&status) => Err(status.into()),
            _ => {
                lock(&self.state).written.insert(round.name.clone(), (version.clone(), list));
                Ok(())
            }
        }
    }

    /// The list for the status: volumes of other plugins as they are, then ours by name.
    fn reportable(&self, round: &Round, node: &Node, withdrawn: &BTreeSet<String>) -> Vec<Value> {
        let State { operations, .. } = &mut *lock(&self.state);
        let listed = &node.status.volumes_attached;
        let others = listed.iter().filter(|one| AttachableVolume::named(&one.name).is_none());
        let mut list: Vec<Value> = others.map(|one| json!(one)).collect();
        let known: BTreeMap<&str, &AttachedVolume> = listed.iter().map(|one| (one.name.as_str(), one)).collect();
        for (unique, present) in &round.present {
            let is_needed = round.needed.contains_key(unique);
            let stays = match present.link {
                Link::Attached if is_needed => true,
                // What nobody needs and the node still uses stays as it is.
                Link::Attached => round.is_reported(unique) && !operations.of(unique, &round.name).is_withdrawn,
                Link::Reported => !is_needed && !operations.of(unique, &round.name).is_withdrawn,
                Link::Requested(_) | Link::Leaving => false,
            };
            if stays && !withdrawn.contains(unique) {
                let known = known.get(unique.as_str());
                list.push(known.map_or_else(|| json!({"name": unique, "devicePath": ""}), |one| json!(one)));
            }
        }
        list
    }
}

fn tell(needed: &Needed, event: impl Fn(bayplan_model::api::ObjectReference)) {
    needed.pods.iter().for_each(|pod| event(event_reference("v1", "Pod", &pod.metadata)));
}

fn tell_success(needed: &Needed, context: Context<'_>) {
    let note = format!("AttachVolume.Attach succeeded for volume \"{}\" ", needed.volume.name);
    tell(needed, |pod| context.normal(pod, "SuccessfulAttachVolume", note.clone()));
}

fn tell_failure(needed: &Needed, why: &str, context: Context<'_>) {
    let note = format!("AttachVolume.Attach failed for volume \"{}\" : {why}", needed.volume.name);
    tell(needed, |pod| context.warning(pod, FAILED, note.clone()));
}

/// The newest Node; none if it is gone.
async fn newest(name: &str, context: Context<'_>) -> Result<Option<Node>, Status> {
    match requests::get(context.api, &NODES, "", name).await {
        Ok(node) => Ok(Some(node)),
        Err(status) if not_found(&status) => Ok(None),
        Err(status) => Err(status),
    }
}

/// Deletes a VolumeAttachment; its UID, if it was there.
async fn delete(name: &str, context: Context<'_>) -> Result<Option<String>, Status> {
    let request = Request::object(&VOLUME_ATTACHMENTS, "", name, Verb::Delete(DeleteOptions::default()));
    match context.api.call(request).await {
        Ok(last) => Ok(decode::<PartialObjectMetadata>(&last).ok().map(|last| last.metadata.uid)),
        Err(status) if not_found(&status) => Ok(None),
        Err(status) => Err(status),
    }
}

fn wake(nodes: impl IntoIterator<Item = String>) -> Vec<Wakeup> {
    nodes.into_iter().map(Wakeup::now).collect()
}

/// Whether a change of a node can change what is attached to it.
fn concerns(old: &Node, new: &Node) -> bool {
    let told =
        |node: &Node| (node.status.volumes_attached.clone(), node.status.volumes_in_use.clone(), node.is_ready());
    told(old) != told(new)
        || old.spec.taints != new.spec.taints
        || old.metadata.annotations != new.metadata.annotations
        || old.metadata.uid != new.metadata.uid
}

impl AttachDetachController {
    /// The nodes whose pods use the claim that a volume is bound to.
    fn nodes_of_volume(&self, state: &State, name: &str) -> BTreeSet<String> {
        let volume = self.cache.volumes().get("", name);
        let claim = volume.as_ref().and_then(|volume| volume.spec.claim_ref.as_ref());
        let key = claim.map(|claim| format!("{}/{}", claim.namespace, claim.name));
        let mut nodes = key.map(|key| state.index.nodes_of_claim(&key, &self.cache)).unwrap_or_default();
        let attached = state.index.attachments_of(name, &self.cache);
        nodes.extend(attached.iter().map(|attachment| attachment.spec.node_name.clone()));
        nodes
    }

    fn observe_pod(&self, delta: &Delta<Arc<Pod>>) -> Vec<Wakeup> {
        let has_claims = |pod: &Pod| pod.claim_names().next().is_some();
        let (old, new) = match delta {
            Delta::Added(pod) | Delta::Deleted(pod) => (None, pod),
            Delta::Updated { old, new } => (Some(old), new),
        };
        if !has_claims(new) && !old.is_some_and(|old| has_claims(old)) {
            return Vec::new();
        }
        lock(&self.state).index.observe_pod(delta);
        let same = |old: &Arc<Pod>| {
            (&old.node_name, old.is_stopped, &old.metadata.uid) == (&new.node_name, new.is_stopped, &new.metadata.uid)
        };
        if old.is_some_and(same) {
            return Vec::new();
        }
        let nodes: BTreeSet<String> = old.into_iter().chain([new]).map(|pod| pod.node_name.clone()).collect();
        wake(nodes.into_iter().filter(|node| !node.is_empty()))
    }
}

impl Controller for AttachDetachController {
    fn name(&self) -> &'static str {
        "persistentvolume-attach-detach-controller"
    }

    fn component(&self) -> &'static str {
        "attachdetach-controller"
    }

    fn watches(&self) -> &'static [Kind] {
        &[Kind::Pod, Kind::Node, Kind::VolumeClaim, Kind::Volume, Kind::CsiDriver, Kind::VolumeAttachment]
    }

    fn workers(&self) -> usize {
        1
    }

    fn observe(&self, delta: &AnyDelta) -> Vec<Wakeup> {
        match delta {
            AnyDelta::Pod(delta) => self.observe_pod(delta),
            AnyDelta::Node(Delta::Updated { old, new }) if !concerns(old, new) => Vec::new(),
            AnyDelta::Node(Delta::Added(node) | Delta::Updated { new: node, .. } | Delta::Deleted(node)) => {
                vec![Wakeup::now(node.metadata.name.clone())]
            }
            AnyDelta::VolumeClaim(Delta::Updated { old, new })
                if old.status.phase == new.status.phase && old.spec.volume_name == new.spec.volume_name =>
            {
                Vec::new()
            }
            AnyDelta::VolumeClaim(Delta::Added(claim) | Delta::Updated { new: claim, .. } | Delta::Deleted(claim)) => {
                wake(lock(&self.state).index.nodes_of_claim(&claim.metadata.key(), &self.cache))
            }
            AnyDelta::Volume(Delta::Updated { old, new }) if old.spec == new.spec => Vec::new(),
            AnyDelta::Volume(Delta::Added(volume) | Delta::Updated { new: volume, .. } | Delta::Deleted(volume)) => {
                let state = lock(&self.state);
                wake(self.nodes_of_volume(&state, &volume.metadata.name))
            }
            AnyDelta::CsiDriver(_) => wake(lock(&self.state).index.nodes()),
            AnyDelta::VolumeAttachment(delta) => {
                let state = &mut *lock(&self.state);
                state.index.observe_attachment(delta);
                let (Delta::Added(one) | Delta::Updated { new: one, .. } | Delta::Deleted(one)) = delta;
                let volume = one.spec.source.persistent_volume_name.as_deref().unwrap_or_default();
                let mut nodes = self.nodes_of_volume(state, volume);
                nodes.insert(one.spec.node_name.clone());
                wake(nodes)
            }
            _ => Vec::new(),
        }
    }

    fn sync<'a>(&'a self, key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Requeue, Error>> {
        Box::pin(self.reconcile(key, context))
    }
}
