//! The current roles and bindings, kept up to date by watching the store.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bayplan_store::{Change, Entry, ReadError, Revision, Store};
use tokio::sync::watch;

use super::policy::{Binding, Policy, Role};

/// How long the writer of a role or binding waits for the index to see the write. The watch delivers within
/// microseconds; after this long something is broken, and a response is better than a hang.
const CATCH_UP_LIMIT: Duration = Duration::from_secs(1);
/// How long the index waits before it watches again after the store failed.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// The kinds that the index watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RbacKind {
    ClusterRoles,
    Roles,
    ClusterRoleBindings,
    RoleBindings,
}

const KINDS: [RbacKind; 4] =
    [RbacKind::ClusterRoles, RbacKind::Roles, RbacKind::ClusterRoleBindings, RbacKind::RoleBindings];

impl RbacKind {
    fn plural(self) -> &'static str {
        match self {
            RbacKind::ClusterRoles => "clusterroles",
            RbacKind::Roles => "roles",
            RbacKind::ClusterRoleBindings => "clusterrolebindings",
            RbacKind::RoleBindings => "rolebindings",
        }
    }

    fn prefix(self) -> String {
        format!("/registry/{}/", self.plural())
    }

    /// The first key after the prefix: `0` follows `/` in ASCII.
    fn end(self) -> String {
        format!("/registry/{}0", self.plural())
    }
}

/// The current roles and bindings, shared by every request.
pub(crate) struct PolicyIndex {
    policy: RwLock<Arc<Policy>>,
    /// For each of [`KINDS`], the revision up to which the policy is complete.
    seen: [watch::Sender<Revision>; 4],
}

impl Default for PolicyIndex {
    fn default() -> Self {
        PolicyIndex { policy: RwLock::default(), seen: std::array::from_fn(|_| watch::Sender::new(0)) }
    }
}

impl PolicyIndex {
    /// The roles and bindings of this moment.
    pub(crate) fn policy(&self) -> Arc<Policy> {
        self.policy.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads every role and binding; to be called before the first request.
    pub(crate) async fn load(&self, store: &dyn Store) -> Result<(), ReadError> {
        for kind in KINDS {
            self.reload(kind, store).await?;
        }
        Ok(())
    }

    /// Watches the store until the task is dropped; to be spawned after [`PolicyIndex::load`].
    pub(crate) async fn follow(self: Arc<Self>, store: Arc<dyn Store>) {
        let follow = |kind| {
            let (index, store) = (self.clone(), store.clone());
            async move {
                loop {
                    if let Err(error) = index.follow_kind(kind, &*store).await {
                        tracing::debug!(kind = kind.plural(), %error, "the RBAC index watches again");
                    }
                    tokio::time::sleep(RETRY_PAUSE).await;
                    if let Err(error) = index.reload(kind, &*store).await {
                        tracing::warn!(kind = kind.plural(), %error, "the RBAC index cannot read the store");
                    }
                }
            }
        };
        let [a, b, c, d] = KINDS.map(follow);
        tokio::join!(a, b, c, d);
    }

    /// Waits until the index has seen the write of a role or binding at `revision`, so that the next request is decided
    /// by it. Returns at once for other resources.
    pub(crate) async fn wait_until_seen(&self, plural: &str, revision: Revision) {
        let Some(at) = KINDS.iter().position(|kind| kind.plural() == plural) else { return };
        let mut seen = self.seen[at].subscribe();
        if tokio::time::timeout(CATCH_UP_LIMIT, seen.wait_for(|seen| *seen >= revision)).await.is_err() {
            tracing::warn!(plural, revision, "the RBAC index is behind");
        }
    }

    /// Reads a kind again, for writes whose revision is not known. Returns at once for other resources.
    pub(crate) async fn refresh(&self, plural: &str, store: &dyn Store) {
        let Some(kind) = KINDS.into_iter().find(|kind| kind.plural() == plural) else { return };
        if let Err(error) = self.reload(kind, store).await {
            tracing::warn!(plural, %error, "the RBAC index cannot read the store");
        }
    }

    async fn follow_kind(&self, kind: RbacKind, store: &dyn Store) -> Result<(), ReadError> {
        let after = *self.seen[kind as usize].borrow();
        let mut watch = store.watch(&kind.prefix(), &kind.end(), after).await?;
        loop {
            let changes = watch.next().await?;
            if let Some(last) = changes.last() {
                self.change(kind, last.revision, |policy, seen| {
                    let unseen = changes.iter().filter(|change| change.revision > seen);
                    unseen.for_each(|change| apply(kind, policy, change));
                });
            }
        }
    }

    async fn reload(&self, kind: RbacKind, store: &dyn Store) -> Result<(), ReadError> {
        let range = store.range(&kind.prefix(), &kind.end(), None, 0).await?;
        self.change(kind, range.revision, |policy, _| {
            clear(kind, policy);
            range.entries.iter().for_each(|entry| put(kind, policy, entry));
        });
        Ok(())
    }

    /// Edits the policy and advances it to `revision`, unless it is there already: a reload and the watch may overtake
    /// each other, and neither may bring back what the other has removed. `edit` gets the revision before.
    fn change(&self, kind: RbacKind, revision: Revision, edit: impl FnOnce(&mut Policy, Revision)) {
        let mut current = self.policy.write().unwrap_or_else(PoisonError::into_inner);
        let seen = *self.seen[kind as usize].borrow();
        // The first load of an empty store has revision 0 and must count.
        if revision <= seen && seen > 0 {
            return;
        }
        let mut next = Policy::clone(&current);
        edit(&mut next, seen);
        *current = Arc::new(next);
        self.seen[kind as usize].send_replace(revision);
    }
}

fn apply(kind: RbacKind, policy: &mut Policy, change: &Change) {
    match &change.current {
        Some(entry) => put(kind, policy, entry),
        None => remove(kind, policy, &change.key),
    }
}

fn clear(kind: RbacKind, policy: &mut Policy) {
    match kind {
        RbacKind::ClusterRoles => policy.cluster_roles.clear(),
        RbacKind::Roles => policy.roles.clear(),
        RbacKind::ClusterRoleBindings => policy.cluster_role_bindings.clear(),
        RbacKind::RoleBindings => policy.role_bindings.clear(),
    }
}

fn put(kind: RbacKind, policy: &mut Policy, entry: &Entry) {
    let decoded = match kind {
        RbacKind::ClusterRoles => decode::<Role>(entry).map(|role| {
            policy.cluster_roles.insert(role.metadata.name.clone(), role);
        }),
        RbacKind::Roles => decode::<Role>(entry).map(|role| {
            insert(&mut policy.roles, &role.metadata.namespace.clone(), role.metadata.name.clone(), role);
        }),
        RbacKind::ClusterRoleBindings => decode::<Binding>(entry).map(|binding| {
            policy.cluster_role_bindings.insert(binding.metadata.name.clone(), binding);
        }),
        RbacKind::RoleBindings => decode::<Binding>(entry).map(|binding| {
            let namespace = binding.metadata.namespace.clone();
            insert(&mut policy.role_bindings, &namespace, binding.metadata.name.clone(), binding);
        }),
    };
    if let Err(error) = decoded {
        // An unreadable role grants nothing, and its older version must not grant either.
        tracing::warn!(key = &*entry.key, %error, "unreadable RBAC object");
        remove(kind, policy, &entry.key);
    }
}

fn decode<T: serde::de::DeserializeOwned>(entry: &Entry) -> Result<Arc<T>, serde_json::Error> {
    serde_json::from_slice(&entry.value).map(Arc::new)
}

fn insert<T>(map: &mut BTreeMap<String, BTreeMap<String, Arc<T>>>, namespace: &str, name: String, value: Arc<T>) {
    map.entry(namespace.to_owned()).or_default().insert(name, value);
}

fn remove(kind: RbacKind, policy: &mut Policy, key: &str) {
    fn within<T>(map: &mut BTreeMap<String, BTreeMap<String, Arc<T>>>, path: &str) {
        let Some((namespace, name)) = path.split_once('/') else { return };
        if let Some(inner) = map.get_mut(namespace) {
            inner.remove(name);
            if inner.is_empty() {
                map.remove(namespace);
            }
        }
    }
    let Some(path) = key.strip_prefix(&kind.prefix()) else { return };
    match kind {
        RbacKind::ClusterRoles => {
            policy.cluster_roles.remove(path);
        }
        RbacKind::Roles => within(&mut policy.roles, path),
        RbacKind::ClusterRoleBindings => {
            policy.cluster_role_bindings.remove(path);
        }
        RbacKind::RoleBindings => within(&mut policy.role_bindings, path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn entry(key: &str, value: &'static str) -> Entry {
        Entry { key: key.into(), value: Bytes::from_static(value.as_bytes()), create_revision: 1, mod_revision: 1 }
    }

    #[test]
    fn changes_of_the_store_reach_the_policy() {
        let index = PolicyIndex::default();
        let key = "/registry/rolebindings/ns/b";
        let binding = entry(key, r#"{"metadata":{"name":"b","namespace":"ns"},"roleRef":{"kind":"Role","name":"r"}}"#);
        index.change(RbacKind::RoleBindings, 1, |policy, _| put(RbacKind::RoleBindings, policy, &binding));
        assert_eq!(index.policy().role_bindings["ns"]["b"].role_ref.name, "r");
        let gone = Change { revision: 2, key: key.into(), current: None, previous: Some(binding.clone()) };
        index.change(RbacKind::RoleBindings, 2, |policy, _| apply(RbacKind::RoleBindings, policy, &gone));
        index.change(RbacKind::RoleBindings, 1, |policy, _| put(RbacKind::RoleBindings, policy, &binding));
        assert!(index.policy().role_bindings.is_empty());
    }

    #[test]
    fn an_unreadable_role_grants_nothing() {
        let index = PolicyIndex::default();
        let key = "/registry/clusterroles/c";
        index.change(RbacKind::ClusterRoles, 1, |p, _| {
            put(RbacKind::ClusterRoles, p, &entry(key, r#"{"metadata":{"name":"c"},"rules":null}"#))
        });
        assert!(index.policy().cluster_roles.contains_key("c"));
        index.change(RbacKind::ClusterRoles, 2, |p, _| {
            put(RbacKind::ClusterRoles, p, &entry(key, r#"{"metadata":{"name":"c"},"rules":7}"#))
        });
        assert!(!index.policy().cluster_roles.contains_key("c"));
    }

    #[tokio::test]
    async fn a_write_of_another_kind_is_not_waited_for() {
        let index = PolicyIndex::default();
        index.wait_until_seen("pods", 7).await;
        index.seen[RbacKind::Roles as usize].send_replace(7);
        index.wait_until_seen("roles", 7).await;
    }

    #[tokio::test]
    async fn an_acknowledged_write_is_seen_by_the_next_request() {
        let store: Arc<dyn Store> = Arc::new(bayplan_store::LogStore::in_memory().unwrap());
        let index = Arc::new(PolicyIndex::default());
        index.load(&*store).await.unwrap();
        let following = tokio::spawn(index.clone().follow(store.clone()));
        for round in 0..20 {
            let key = format!("/registry/clusterroles/c{round}");
            let value = format!(r#"{{"metadata":{{"name":"c{round}"}}}}"#);
            let revision = store.create(&key, value.into()).await.unwrap();
            index.wait_until_seen("clusterroles", revision).await;
            assert!(index.policy().cluster_roles.contains_key(&format!("c{round}")));
            let revision = store.delete(&key, revision).await.unwrap();
            index.wait_until_seen("clusterroles", revision).await;
            assert!(index.policy().cluster_roles.is_empty());
        }
        // A writer that does not know its revision, among other writes.
        store.create("/registry/clusterroles/last", r#"{"metadata":{"name":"last"}}"#.into()).await.unwrap();
        store.create("/registry/pods/ns/p", "{}".into()).await.unwrap();
        index.refresh("clusterroles", &*store).await;
        assert!(index.policy().cluster_roles.contains_key("last"));
        following.abort();
    }
}
