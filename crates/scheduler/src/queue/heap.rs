//! A binary heap whose entries can be found, changed and removed by UID.

use rustc_hash::FxHashMap;

use super::QueuedPod;

/// Says which of two pods goes first.
pub(super) type Less<'a> = &'a dyn Fn(&QueuedPod, &QueuedPod) -> bool;

#[derive(Default)]
pub(super) struct Heap {
    entries: Vec<QueuedPod>,
    index: FxHashMap<String, usize>,
}

impl Heap {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn peek(&self) -> Option<&QueuedPod> {
        self.entries.first()
    }

    pub(super) fn get_mut(&mut self, uid: &str) -> Option<&mut QueuedPod> {
        self.index.get(uid).map(|&at| &mut self.entries[at])
    }

    pub(super) fn contains(&self, uid: &str) -> bool {
        self.index.contains_key(uid)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &QueuedPod> {
        self.entries.iter()
    }

    pub(super) fn push(&mut self, pod: QueuedPod, less: Less<'_>) {
        self.index.insert(pod.info.uid().to_owned(), self.entries.len());
        self.entries.push(pod);
        self.up(self.entries.len() - 1, less);
    }

    pub(super) fn pop(&mut self, less: Less<'_>) -> Option<QueuedPod> {
        if self.entries.is_empty() { None } else { Some(self.take(0, less)) }
    }

    pub(super) fn remove(&mut self, uid: &str, less: Less<'_>) -> Option<QueuedPod> {
        let at = *self.index.get(uid)?;
        Some(self.take(at, less))
    }

    /// Restores the order after the entry of this UID was changed.
    pub(super) fn fix(&mut self, uid: &str, less: Less<'_>) {
        if let Some(&at) = self.index.get(uid) {
            self.up(at, less);
            self.down(self.index[uid], less);
        }
    }

    fn take(&mut self, at: usize, less: Less<'_>) -> QueuedPod {
        let last = self.entries.len() - 1;
        self.swap(at, last);
        let pod = self.entries.pop().expect("at is the index of an entry");
        self.index.remove(pod.info.uid());
        if at < self.entries.len() {
            self.up(at, less);
            self.down(at, less);
        }
        pod
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.entries.swap(a, b);
        for at in [a, b] {
            if let Some(place) = self.index.get_mut(self.entries[at].info.uid()) {
                *place = at;
            }
        }
    }

    fn up(&mut self, mut at: usize, less: Less<'_>) {
        while at > 0 {
            let parent = (at - 1) / 2;
            if !less(&self.entries[at], &self.entries[parent]) {
                break;
            }
            self.swap(at, parent);
            at = parent;
        }
    }

    fn down(&mut self, mut at: usize, less: Less<'_>) {
        loop {
            let mut first = 2 * at + 1;
            if first >= self.entries.len() {
                break;
            }
            if first + 1 < self.entries.len() && less(&self.entries[first + 1], &self.entries[first]) {
                first += 1;
            }
            if !less(&self.entries[first], &self.entries[at]) {
                break;
            }
            self.swap(first, at);
            at = first;
        }
    }
}
