//! Values that cannot be read are named, and stay as they are.

use std::sync::Arc;

use bayplan_etcd::{EtcdStore, Options};
use bayplan_store::{ReadError, Store, ValueCodec, WriteError};
use bytes::Bytes;

use crate::{connect, take, with_etcd};

/// Stores values with a mark, and reads only those that have it.
struct Marked;

impl ValueCodec for Marked {
    fn read(&self, _key: &str, stored: Bytes) -> Result<Bytes, String> {
        match stored.strip_prefix(b"mark:") {
            Some(value) => Ok(Bytes::copy_from_slice(value)),
            None => Err("it is not marked".to_owned()),
        }
    }

    fn write(&self, _key: &str, value: Bytes) -> Result<Bytes, String> {
        if value.is_empty() {
            return Err("it is empty".to_owned());
        }
        Ok([b"mark:", &*value].concat().into())
    }
}

#[test]
fn a_value_that_cannot_be_read_is_named_and_not_overwritten() {
    with_etcd("a_value_that_cannot_be_read_is_named_and_not_overwritten", |etcd| async move {
        let plain = connect(&etcd).await;
        let marked = Options { codec: Arc::new(Marked), ..Options::new([etcd.url()]) };
        let good = plain.create("/registry/p/a", "mark:good".into()).await.unwrap();
        let bad = plain.create("/registry/p/b", "bad".into()).await.unwrap();
        let store = EtcdStore::connect(marked).await.unwrap();
        let mut watch = store.watch("/registry/p/", "/registry/p0", bad).await.unwrap();
        for round in 0..2 {
            let Err(ReadError::Unreadable(why)) = store.get("/registry/p/b").await else { panic!("it was read") };
            let expected = "the value of /registry/p/b at revision 3 cannot be read: it is not marked";
            assert_eq!(why.to_string(), expected, "{round}");
            // In memory first, then as etcd has it at an old revision.
            let at = [None, Some(bad)][round];
            let range = store.range("/registry/p/", "/registry/p0", at, 0).await.unwrap();
            assert_eq!((&*range.entries[0].value, range.entries.len()), (&b"good"[..], 1));
            assert_eq!(range.unreadable, std::slice::from_ref(&why));
            let refused = store.create("/registry/p/b", "x".into()).await;
            assert_eq!(refused, Err(WriteError::Unreadable(why.clone())));
            let refused = store.update("/registry/p/b", "x".into(), bad).await;
            assert_eq!(refused, Err(WriteError::Unreadable(why)));
        }
        // A key that turns unreadable stays for watchers as they know it, until it can be read again.
        let hidden = plain.update("/registry/p/a", "bad".into(), good).await.unwrap();
        let back = plain.update("/registry/p/a", "mark:back".into(), hidden).await.unwrap();
        let changes = take(&mut *watch, 1).await;
        assert_eq!((changes[0].revision, &*changes[0].previous.as_ref().unwrap().value), (back, &b"good"[..]));
        assert_eq!(changes[0].current.as_ref().unwrap().value, "back");
        // Who knows its revision can delete what cannot be read.
        let deleted = store.delete("/registry/p/b", bad).await.unwrap();
        assert_eq!(store.get("/registry/p/b").await, Ok(None));
        let created = store.create("/registry/p/b", "new".into()).await.unwrap();
        assert!(created > deleted);
        let changes = take(&mut *watch, 1).await;
        assert_eq!(
            (changes[0].revision, changes[0].previous.as_ref()),
            (created, None),
            "nobody was told of the other"
        );
        assert_eq!(plain.get("/registry/p/b").await.unwrap().unwrap().value, "mark:new");
        let unwritable = store.create("/registry/p/c", "".into()).await;
        assert!(matches!(&unwritable, Err(WriteError::Unavailable(why)) if why.contains("it is empty")));
    });
}
