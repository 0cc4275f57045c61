//! Feasible nodes, sorted so that the best is found without looking at all of them.
//!
//! What Score says of a node is a sum. One part depends on the node alone; the rest is the same for all nodes that agree
//! in a few values (the bucket's key), however it is normalised. So nodes lie in buckets by key, and within a bucket by
//! the first part: the best node of a bucket is on its top level, and a decision compares buckets.
//!
//! Every pod that any shape places moves a node in the buckets of every other shape, so a move touches as little memory as
//! it can: the node's own place and the ends of two lists. The node's former entry stays behind, out of date, until
//! somebody meets it or half of its list are such.

use rustc_hash::FxHashMap;

use crate::cluster::NodeId;

/// Names a bucket; reused once the bucket is empty.
pub(super) type BucketId = u32;

/// That a node came to a level. It has left since if its stamp is another one.
#[derive(Clone, Copy, Debug)]
struct Entry {
    node: NodeId,
    stamp: u32,
}

/// The nodes of a bucket with the same score of their own.
#[derive(Clone, Debug, Default)]
struct Level {
    /// How many nodes are here.
    nodes: usize,
    /// Those, and some that have left.
    entries: Vec<Entry>,
}

/// Entries that may be out of date beyond half of a level: fewer are not worth looking for.
const OUTDATED_SPARE: usize = 16;

/// The feasible nodes of one key.
#[derive(Clone, Debug, Default)]
pub(super) struct Bucket {
    /// What the nodes here have in common.
    pub(super) key: Box<[i64]>,
    /// How many nodes are here.
    pub(super) nodes: usize,
    /// The scores that nodes here have or had, ascending: apart from the levels, so that a search stays in a cache line or two.
    scores: Vec<i32>,
    /// By score.
    levels: Vec<Level>,
    /// The highest level with any nodes.
    top: usize,
}

impl Bucket {
    /// The highest score of the nodes here, and how many have it; none when the bucket is empty.
    pub(super) fn best(&self) -> Option<(i64, usize)> {
        let nodes = self.levels.get(self.top)?.nodes;
        (nodes > 0).then(|| (i64::from(self.scores[self.top]), nodes))
    }

    fn enter(&mut self, score: i32, entry: Entry) {
        let at = match self.scores.binary_search(&score) {
            Ok(at) => at,
            Err(at) => {
                self.scores.insert(at, score);
                self.levels.insert(at, Level::default());
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
        let level = &mut self.levels[at];
        level.nodes += 1;
        level.entries.push(entry);
    }

    /// One node less of this score; whose, its stamp tells.
    fn leave(&mut self, score: i32, places: &[Place]) {
        let at = self.scores.binary_search(&score).expect("the node's level is there");
        let level = &mut self.levels[at];
        level.nodes -= 1;
        if level.nodes == 0 {
            level.entries.clear();
        } else if level.entries.len() > 2 * level.nodes + OUTDATED_SPARE {
            level.entries.retain(|entry| entry.is_current(places));
        }
        self.nodes -= 1;
        while self.top > 0 && self.levels[self.top].nodes == 0 {
            self.top -= 1;
        }
    }
}

impl Entry {
    fn is_current(&self, places: &[Place]) -> bool {
        places[self.node.0 as usize].stamp == self.stamp
    }
}

/// Stands for the score of a node that does not fit; scores are never below 0.
const UNFIT: i32 = -1;

/// What is known of a node.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// One more than the bucket; 0 when the node lies nowhere.
    bucket: u32,
    /// Another one after every move.
    stamp: u32,
    /// Kept while the node is hidden.
    score: i32,
    base: i32,
}

const NOWHERE: Place = Place { bucket: 0, stamp: 0, score: UNFIT, base: UNFIT };

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

    /// All nodes of a bucket with their scores.
    pub(super) fn nodes(&self, bucket: BucketId) -> impl Iterator<Item = (i64, NodeId)> {
        let bucket = self.get(bucket);
        bucket.scores.iter().zip(&bucket.levels).flat_map(|(score, level)| {
            let current = level.entries.iter().filter(|entry| entry.is_current(&self.places));
            current.map(|entry| (i64::from(*score), entry.node))
        })
    }

    /// The nodes of a bucket with the highest score.
    pub(super) fn best(&self, bucket: BucketId) -> impl Iterator<Item = NodeId> {
        let bucket = self.get(bucket);
        let entries = bucket.levels.get(bucket.top).map_or(&[][..], |level| &level.entries);
        entries.iter().filter(|entry| entry.is_current(&self.places)).map(|entry| entry.node)
    }

    /// Draws one of the nodes of a bucket with the highest score, all with the same chance; none when the bucket is empty.
    pub(super) fn draw(&mut self, bucket: BucketId, mut below: impl FnMut(usize) -> usize) -> Option<NodeId> {
        let bucket = &mut self.buckets[bucket as usize];
        let level = bucket.levels.get_mut(bucket.top)?;
        while !level.entries.is_empty() {
            let at = below(level.entries.len());
            let entry = level.entries[at];
            if entry.is_current(&self.places) {
                return Some(entry.node);
            }
            level.entries.swap_remove(at);
        }
        None
    }

    /// The bucket a node lies in.
    pub(super) fn bucket_of(&self, node: NodeId) -> Option<BucketId> {
        self.places.get(node.0 as usize)?.bucket.checked_sub(1)
    }

    /// Makes room for nodes.
    pub(super) fn reserve(&mut self, nodes: usize) {
        if self.places.len() < nodes {
            self.places.resize(nodes, NOWHERE);
        }
    }

    /// The score of a node that fits, whether it is hidden or not.
    pub(super) fn score(&self, node: NodeId) -> Option<i32> {
        Some(self.places.get(node.0 as usize)?.score).filter(|score| *score != UNFIT)
    }

    /// The part of a node's score that only changes with the node; none when the node is out of the question.
    ///
    /// It is kept here for who computes scores: where the rest of the node is.
    pub(super) fn base(&self, node: NodeId) -> Option<i32> {
        Some(self.places[node.0 as usize].base).filter(|base| *base != UNFIT)
    }

    /// Keeps what [`Buckets::base`] answers.
    pub(super) fn set_base(&mut self, node: NodeId, base: Option<i32>) {
        self.places[node.0 as usize].base = base.unwrap_or(UNFIT);
    }

    /// Puts a node where it belongs, or moves it there.
    pub(super) fn put(&mut self, node: NodeId, key: &[i64], score: i32) {
        let place = self.places[node.0 as usize];
        if place.bucket > 0 && *self.buckets[place.bucket as usize - 1].key == *key {
            self.rescore(node, score);
            return;
        }
        self.hide(node);
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
        self.enter(node, bucket, score);
    }

    /// Gives a node another score in the bucket where it lies; false when it lies nowhere.
    pub(super) fn rescore(&mut self, node: NodeId, score: i32) -> bool {
        let place = &mut self.places[node.0 as usize];
        let Some(bucket) = place.bucket.checked_sub(1) else { return false };
        if place.score != score {
            let former = place.score;
            place.stamp = place.stamp.wrapping_add(1);
            self.buckets[bucket as usize].leave(former, &self.places);
            self.enter(node, bucket, score);
        }
        true
    }

    fn enter(&mut self, node: NodeId, bucket: BucketId, score: i32) {
        let place = &mut self.places[node.0 as usize];
        place.bucket = bucket + 1;
        place.score = score;
        self.buckets[bucket as usize].enter(score, Entry { node, stamp: place.stamp });
    }

    /// Takes a node out that does not fit (any more).
    pub(super) fn remove(&mut self, node: NodeId) {
        self.hide(node);
        if let Some(place) = self.places.get_mut(node.0 as usize) {
            place.score = UNFIT;
        }
    }

    /// Takes a node out, if it lies anywhere, and remembers its score.
    pub(super) fn hide(&mut self, node: NodeId) {
        let Some(place) = self.places.get_mut(node.0 as usize) else { return };
        let Some(id) = place.bucket.checked_sub(1) else { return };
        let score = place.score;
        place.bucket = 0;
        place.stamp = place.stamp.wrapping_add(1);
        let bucket = &mut self.buckets[id as usize];
        bucket.leave(score, &self.places);
        if bucket.nodes == 0 {
            let key = std::mem::take(bucket).key;
            self.by_key.remove(&key);
            self.free.push(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// The plain form: every node with its key and score.
    fn check(buckets: &Buckets, plain: &BTreeMap<u32, ([i64; 1], i32)>) {
        let mut seen = BTreeMap::new();
        for (id, bucket) in buckets.iter() {
            let all: Vec<_> = buckets.nodes(id).collect();
            assert_eq!(all.len(), bucket.nodes);
            let (best, count) = bucket.best().unwrap();
            assert_eq!(Some(best), all.iter().map(|(score, _)| *score).max());
            let mut who: Vec<NodeId> = buckets.best(id).collect();
            who.sort();
            let mut expected: Vec<NodeId> = all.iter().filter(|(score, _)| *score == best).map(|(_, n)| *n).collect();
            expected.sort();
            assert_eq!((who, count), (expected.clone(), expected.len()));
            for (score, node) in all {
                assert_eq!(buckets.bucket_of(node), Some(id));
                assert_eq!(buckets.score(node).map(i64::from), Some(score));
                seen.insert(node.0, ([bucket.key[0]], score as i32));
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
            let (node, key, score) = ((seed >> 33) as u32 % 50, (seed >> 43) as i64 % 3, (seed >> 53) as i32 % 7);
            let known = plain.get(&node).copied();
            match (seed >> 20) % 8 {
                0 => {
                    buckets.remove(NodeId(node));
                    assert_eq!(buckets.score(NodeId(node)), None);
                    plain.remove(&node);
                }
                1 if known.is_some() => {
                    buckets.hide(NodeId(node));
                    assert_eq!(buckets.score(NodeId(node)), known.map(|(_, score)| score));
                    plain.remove(&node);
                }
                2 | 3 => {
                    assert_eq!(buckets.rescore(NodeId(node), score), known.is_some());
                    if let Some((key, _)) = known {
                        plain.insert(node, (key, score));
                    }
                }
                _ => {
                    buckets.put(NodeId(node), &[key], score);
                    plain.insert(node, ([key], score));
                }
            }
            check(&buckets, &plain);
            let ids: Vec<BucketId> = buckets.iter().map(|(id, _)| id).collect();
            for id in ids.into_iter().filter(|_| (seed >> 17).is_multiple_of(3)) {
                let drawn = buckets.draw(id, |n| (seed >> 9) as usize % n).unwrap();
                assert!(buckets.best(id).any(|node| node == drawn));
                check(&buckets, &plain);
            }
        }
    }

    #[test]
    fn every_node_of_the_best_is_drawn_with_the_same_chance() {
        let mut buckets = Buckets::default();
        buckets.reserve(8);
        for node in 0..8 {
            buckets.put(NodeId(node), &[0], 5);
        }
        // Two have left, one of them came back.
        buckets.rescore(NodeId(3), 1);
        buckets.rescore(NodeId(6), 1);
        buckets.rescore(NodeId(6), 5);
        let mut seed = 1u64;
        let mut drawn = [0; 8];
        for _ in 0..7000 {
            let below = |n: usize| {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (seed >> 33) as usize % n
            };
            drawn[buckets.draw(0, below).unwrap().0 as usize] += 1;
        }
        assert_eq!(drawn[3], 0);
        assert!(drawn.iter().enumerate().all(|(node, count)| node == 3 || (900..1100).contains(count)), "{drawn:?}");
    }
}
