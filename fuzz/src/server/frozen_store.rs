//! A store that is filled and then only read: a write after that is a dry run that was not dry.

use std::sync::atomic::{AtomicBool, Ordering};

use bayplan_store::{Entry, LogStore, Range, ReadError, Revision, Store, Watch, WriteError};
use bytes::Bytes;
use futures::future::BoxFuture;

pub(crate) struct FrozenStore {
    inner: LogStore,
    pub(crate) frozen: AtomicBool,
}

impl FrozenStore {
    pub(crate) fn new() -> FrozenStore {
        FrozenStore { inner: LogStore::in_memory().expect("two threads"), frozen: AtomicBool::new(false) }
    }

    fn check(&self, what: &str, key: &str) {
        assert!(!self.frozen.load(Ordering::Relaxed), "a dry run wants to {what} {key}");
    }
}

impl Store for FrozenStore {
    fn revision(&self) -> BoxFuture<'_, Result<Revision, ReadError>> {
        self.inner.revision()
    }

    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Entry>, ReadError>> {
        self.inner.get(key)
    }

    fn range<'a>(
        &'a self,
        start: &'a str,
        end: &'a str,
        at: Option<Revision>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Range, ReadError>> {
        self.inner.range(start, end, at, limit)
    }

    fn create<'a>(&'a self, key: &'a str, value: Bytes) -> BoxFuture<'a, Result<Revision, WriteError>> {
        self.check("create", key);
        self.inner.create(key, value)
    }

    fn update<'a>(
        &'a self,
        key: &'a str,
        value: Bytes,
        expected: Revision,
    ) -> BoxFuture<'a, Result<Revision, WriteError>> {
        self.check("update", key);
        self.inner.update(key, value, expected)
    }

    fn delete<'a>(&'a self, key: &'a str, expected: Revision) -> BoxFuture<'a, Result<Revision, WriteError>> {
        self.check("delete", key);
        self.inner.delete(key, expected)
    }

    fn watch<'a>(
        &'a self,
        start: &'a str,
        end: &'a str,
        after: Revision,
    ) -> BoxFuture<'a, Result<Box<dyn Watch>, ReadError>> {
        self.inner.watch(start, end, after)
    }

    /// History is kept, as everything else is.
    fn compact(&self, _oldest: Revision) -> BoxFuture<'_, Result<(), ReadError>> {
        Box::pin(async { Ok(()) })
    }
}
