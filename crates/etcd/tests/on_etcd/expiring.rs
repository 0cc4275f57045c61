//! Keys with a time to live.

use std::time::Duration;

use bayplan_store::Store;

use crate::{connect, take, with_etcd};

#[test]
fn keys_that_share_a_lease_expire_together_in_one_revision() {
    with_etcd("keys_that_share_a_lease_expire_together_in_one_revision", |etcd| async move {
        let store = connect(&etcd).await;
        let mut watch = store.watch("/", "0", 1).await.unwrap();
        let second = Duration::from_secs(1);
        let mut kept = store.create_expiring("/registry/kept", "1".into(), second).await.unwrap();
        let mut renewed = store.create_expiring("/registry/renewed", "1".into(), second).await.unwrap();
        let keys: Vec<String> = (0..50).map(|n| format!("/registry/e/{n:02}")).collect();
        let hour = Duration::from_secs(3600);
        futures::future::join_all(keys.iter().map(|key| store.create_expiring(key, "1".into(), second))).await;
        // A write without a time to live takes the key off its lease, one with another puts it on another.
        kept = store.update("/registry/kept", "2".into(), kept).await.unwrap();
        renewed = store.update_expiring("/registry/renewed", "2".into(), renewed, hour).await.unwrap();
        let written = take(&mut *watch, 54).await;
        assert_eq!(written.last().unwrap().revision, 55);
        let expired = take(&mut *watch, 50).await;
        assert!(expired.iter().all(|change| change.current.is_none() && change.previous.is_some()));
        let revisions: std::collections::BTreeSet<u64> = expired.iter().map(|change| change.revision).collect();
        assert!(revisions.len() <= 10, "{} revisions for 50 keys", revisions.len());
        assert_eq!(watch.progress(), *revisions.last().unwrap());
        let left = store.range("/", "0", None, 0).await.unwrap();
        let left: Vec<_> = left.entries.iter().map(|entry| (&*entry.key, entry.mod_revision)).collect();
        assert_eq!(left, [("/registry/kept", kept), ("/registry/renewed", renewed)]);
    });
}
