//! What the controller remembers of each Job, and loses with a restart: nothing that the cluster could not tell again.

use bayplan_model::keyed::{KeyedMap, KeyedSet};

use super::backoff::Record;

/// What is remembered of all Jobs.
#[derive(Debug, Default)]
pub(super) struct Memory {
    by_key: KeyedMap<String, Remembered>,
}

/// What is remembered of one Job.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    uid: String,
    /// Its failures since the last success.
    pub(super) backoff: Record,
    /// It was written as finished, and the cache may not show it yet.
    pub(super) finished: bool,
    /// The pods whose finalizer was removed, and the cache may not show it yet.
    pub(super) releasing: KeyedSet<String>,
    /// The version of its last status that this controller wrote.
    pub(super) written: String,
    /// The last version that somebody else wrote: whoever it was may have counted pods.
    pub(super) foreign: String,
}

impl Memory {
    /// The memory of a Job; another Job of its name is a stranger.
    pub(super) fn entry(&mut self, key: &str, uid: &str) -> &mut Remembered {
        let remembered = self.by_key.entry(key.into()).or_default();
        if remembered.uid != uid {
            *remembered = Remembered { uid: uid.into(), ..Remembered::default() };
        }
        remembered
    }

    /// A pod's finalizer is seen to be gone.
    pub(super) fn released(&mut self, key: &str, pod: &str) {
        if let Some(remembered) = self.by_key.get_mut(key) {
            remembered.releasing.remove(pod);
        }
    }

    /// The Job is gone; one that has taken its name since is not.
    pub(super) fn forget(&mut self, key: &str, uid: Option<&str>) {
        if self.by_key.get(key).is_some_and(|remembered| uid.is_none_or(|uid| uid == remembered.uid)) {
            self.by_key.remove(key);
        }
    }
}
