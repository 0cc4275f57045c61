//! Feasible nodes, sorted so that the best is found without looking at all of them.
//!
//! What Score says of a node is a sum. One part depends on the node alone; the rest is the same for all nodes that agree
//! in a few values (the bucket's key), however it is normalised. So nodes lie in buckets by key, and within a bucket by
//! the first part: the best node of a bucket is on its top level, and a decision compares buckets.

use rustc_hash::FxHashMap;

use crate::cluster::NodeId;

/// Names a bucket; reused once the bucket is empty.
pub(super) type BucketId = u32;

/// The nodes of a bucket with the same score of their own.
#[derive(Clone, Debug)]
struct Level {
    score: i64,
    nodes: Vec<NodeId>,
}

/// The feasible nodes of one key.
#[derive(Clone, Debug, Default)]
pub(super) struct Bucket {
    /// What the nodes here have in common.
    pub(super) key: Box<[i64]>,
    /// How many nodes are here.
    pub(super) nodes: usize,
    /// By ascending score; those above `top` are empty.
    levels: Vec<Level>,
    top: usize,
}

impl Bucket {
    /// The highest score of the nodes here, and who has it; none when the bucket is empty.
    pub(super) fn best(&self) -> Option<(i64, &[NodeId])> {
        let level = self.levels.get(self.top)?;
        (!level.nodes.is_empty()).then_some((level.score, &level.nodes))
    }

    /// All nodes here with their scores.
    pub(super) fn iter(&self) -> impl Iterator<Item = (i64, NodeId)> {
        self.levels.iter().flat_map(|level| level.nodes.iter().map(|node| (level.score, *node)))
    }

    fn insert(&mut self, score: i64, node: NodeId) -> u32 {
        let at = match self.levels.binary_search_by_key(&score, |level| level.score) {
            Ok(at) => at,
            Err(at) => {
                self.levels.insert(at, Level { score, nodes: Vec::new() });
                if at <= self.top && self.nodes > 0 {
                    self.top += 1;
                }
                at
            }
        };
        if self.nodes == 0 || at > self.top {
            self.top = at;
        }
        self.nodes += 1;
        let nodes = &mut self.levels[at].nodes;
        nodes.push(node);
        nodes.len() as u32 - 1
    }

    /// Takes a node out; the one that takes its place in the level is returned.
    fn remove(&mut self, score: i64, place: u32) -> Option<NodeId> {
        let at = self.levels.binary_search_by_key(&score, |level| level.score).expect("the node's level is there");
        let nodes = &mut self.levels[at].nodes;
        nodes.swap_remove(place as usize);
        let moved = nodes.get(place as usize).copied();
        self.nodes -= 1;
        while self.top > 0 && self.levels[self.top].nodes.is_empty() {
            self.top -= 1;
        }
        moved
    }
}

/// Where a node lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    /// One more than the bucket; 0 when the node lies nowhere.
    bucket: u32,
    place: u32,
    score: i64,
}

/// All feasible nodes.
#[derive(Clone, Debug, Default)]
pub(super) struct Buckets {
    buckets: Vec<Bucket>,
    free: Vec<BucketId>,
    by_key: FxHashMap<Box<[i64]>, BucketId>,
    places: Vec<Place>,
}

impl Buckets {
    /// The buckets with any nodes.
    pub(super) fn iter(&self) -> impl Iterator<Item = (BucketId, &Bucket)> {
        self.buckets.iter().enumerate().filter(|(_, bucket)| bucket.nodes > 0).map(|(at, bucket)| (at as u32, bucket))
    }

    pub(super) fn get(&self, bucket: BucketId) -> &Bucket {
        &self.buckets[bucket as usize]
    }

    /// The bucket a node lies in.
    pub(super) fn bucket_of(&self, node: NodeId) -> Option<BucketId> {
        self.places.get(node.0 as usize)?.bucket.checked_sub(1)
    }

    /// Makes room for nodes.
    pub(super) fn reserve(&mut self, nodes: usize) {
        if self.places.len() < nodes {
            self.places.resize(nodes, Place::default());
        }
    }

    /// Puts a node where it belongs, or moves it there.
    pub(super) fn put(&mut self, node: NodeId, key: &[i64], score: i64) {
        let place = self.places[node.0 as usize];
        if place.bucket > 0 {
            let same_key = *self.buckets[place.bucket as usize - 1].key == *key;
            if same_key && place.score == score {
                return;
            }
            if same_key && self.buckets[place.bucket as usize - 1].nodes > 1 {
                self.take(node);
                return self.insert(node, place.bucket - 1, score);
            }
            self.take(node);
        }
        let bucket = match self.by_key.get(key) {
            Some(bucket) => *bucket,
            None => {
                let bucket = self.free.pop().unwrap_or_else(|| {
                    self.buckets.push(Bucket::default());
                    self.buckets.len() as u32 - 1
                });
                self.buckets[bucket as usize].key = key.into();
                self.by_key.insert(key.into(), bucket);
                bucket
            }
        };
        self.insert(node, bucket, score);
    }

    fn insert(&mut self, node: NodeId, bucket: BucketId, score: i64) {
        let place = self.buckets[bucket as usize].insert(score, node);
        self.places[node.0 as usize] = Place { bucket: bucket + 1, place, score };
    }

    /// Takes a node out, if it lies anywhere, and says with which score.
    pub(super) fn take(&mut self, node: NodeId) -> Option<i64> {
        let Place { bucket, place, score } = std::mem::take(self.places.get_mut(node.0 as usize)?);
        let id = bucket.checked_sub(1)?;
        let bucket = &mut self.buckets[id as usize];
        if let Some(moved) = bucket.remove(score, place) {
            self.places[moved.0 as usize].place = place;
        }
        if bucket.nodes == 0 {
            let key = std::mem::take(bucket).key;
            self.by_key.remove(&key);
            self.free.push(id);
        }
        Some(score)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// The plain form: every node with its key and score.
    fn check(buckets: &Buckets, plain: &BTreeMap<u32, ([i64; 1], i64)>) {
        let mut seen = BTreeMap::new();
        for (id, bucket) in buckets.iter() {
            let all: Vec<_> = bucket.iter().collect();
            assert_eq!(all.len(), bucket.nodes);
            let (best, who) = bucket.best().unwrap();
            assert_eq!(Some(best), all.iter().map(|(score, _)| *score).max());
            assert_eq!(who.len(), all.iter().filter(|(score, _)| *score == best).count());
            for (score, node) in all {
                assert_eq!(buckets.bucket_of(node), Some(id));
                seen.insert(node.0, ([bucket.key[0]], score));
            }
        }
        assert_eq!(&seen, plain);
    }

    #[test]
    fn nodes_that_come_move_and_go_are_found_where_they_belong() {
        let mut buckets = Buckets::default();
        buckets.reserve(50);
        let mut plain = BTreeMap::new();
        let mut seed = 7u64;
        for _ in 0..4000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (node, key, score) = ((seed >> 33) as u32 % 50, (seed >> 43) as i64 % 3, (seed >> 53) as i64 % 7);
            if (seed >> 20).is_multiple_of(4) {
                assert_eq!(buckets.take(NodeId(node)), plain.remove(&node).map(|(_, score)| score));
            } else {
                buckets.put(NodeId(node), &[key], score);
                plain.insert(node, ([key], score));
            }
            check(&buckets, &plain);
        }
    }
}
