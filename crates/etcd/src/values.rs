//! Entries as etcd has them and as the store shows them.

use std::sync::Arc;

use bayplan_store::{Effect, Entry, Observed, Revision, Unreadable, ValueCodec};
use bytes::Bytes;

use crate::client::proto::{Event, EventType, KeyValue};
use crate::keys::Keys;

/// How keys and values are translated.
#[derive(Clone)]
pub(crate) struct Values {
    pub(crate) keys: Keys,
    pub(crate) codec: Arc<dyn ValueCodec>,
}

/// A revision as the trait counts it; etcd never sends a negative one.
pub(crate) fn revision(of_etcd: i64) -> Revision {
    Revision::try_from(of_etcd).unwrap_or(0)
}

/// A revision as etcd counts it.
pub(crate) fn etcd_revision(revision: Revision) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

impl Values {
    /// The key of an entry; keys that are not text are nobody's, and are left out with a word in the log.
    fn key(&self, stored: &[u8]) -> Option<Arc<str>> {
        let key = self.keys.key(stored);
        if key.is_none() {
            tracing::warn!(key = %stored.escape_ascii(), "a key in etcd is not text and is left out");
        }
        key
    }

    /// A value as the caller knows it, or why it cannot be read.
    fn read(&self, key: &str, stored: Vec<u8>) -> Result<Bytes, Arc<str>> {
        self.codec.read(key, stored.into()).map_err(Into::into)
    }

    /// An entry, or why it cannot be read; `None` when its key is not text.
    pub(crate) fn entry(&self, stored: KeyValue) -> Option<Result<Entry, Unreadable>> {
        let key = self.key(&stored.key)?;
        let (create_revision, mod_revision) = (revision(stored.create_revision), revision(stored.mod_revision));
        Some(match self.read(&key, stored.value) {
            Ok(value) => Ok(Entry { key, value, create_revision, mod_revision }),
            Err(reason) => Err(Unreadable { key, mod_revision, reason }),
        })
    }

    /// What an event did; `None` when its key is not text.
    pub(crate) fn observed(&self, event: Event) -> Option<Observed> {
        let deleted = event.r#type == EventType::Delete as i32;
        let stored = event.kv?;
        let (key, at) = (self.key(&stored.key)?, revision(stored.mod_revision));
        if deleted {
            return Some(Observed { revision: at, key, effect: Effect::Deleted });
        }
        let value = self.read(&key, stored.value);
        if let Err(reason) = &value {
            tracing::error!(%key, revision = at, %reason, "a value in etcd cannot be read and is left out");
        }
        let create_revision = revision(stored.create_revision);
        Some(Observed { revision: at, key, effect: Effect::Put { value, create_revision } })
    }
}
