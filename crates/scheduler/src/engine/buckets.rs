//! Feasible nodes, sorted so that the best is found without looking at all of them.
//!
//! What Score says of a node is a sum. One part depends on the node alone; the rest is the same for all nodes that agree
//! in a few values (the bucket's key), however it is normalised. So nodes lie in buckets by key, and within a bucket by
//! the first part: the best node of a bucket is on its top level, and a decision compares buckets.
//!
//! Every pod that any shape places moves a node in the buckets of every other shape, so a move touches as little memory as
//! it can: the node's own place and the end of one list. The node's former entry stays behind, out of date, until somebody
//! meets it or half of its list are such.

use rustc_hash::FxHashMap;

use super::places::{Column, Place, UNFIT};
use crate::cluster::NodeId;

/// Names a bucket; reused once the bucket is empty.
pub(super) type BucketId = u32;

/// Names a level among those of all buckets; reused once the level is empty.
type LevelId = u32;

/// That a node came to a level. It has left since if its stamp is another one.
#[derive(Clone, Copy, Debug)]
struct Entry {
    node: NodeId,
    stamp: u32,
}

impl Entry {
    fn is_current(&self, places: &Column<'_>) -> bool {
        places.get(self.node).stamp == self.stamp
    }
}

/// The nodes of a bucket with the same score of their own.
#[derive(Clone, Debug, Default)]
struct Level {
    bucket: BucketId,
    score: i32,
    /// How many nodes are here.
    nodes: usize,
    /// Those, and some that have left. An empty one keeps its memory for the next level.
    entries: Vec<Entry>,
}

impl Level {
    fn current(&self, places: &Column<'_>) -> impl Iterator<Item = NodeId> {
        self.entries.iter().filter(|entry| entry.is_current(places)).map(|entry| entry.node)
    }
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
    /// The scores that nodes here have, ascending, with their levels.
    levels: Vec<(i32, LevelId)>,
}

/// All feasible nodes.
#[derive(Clone, Debug, Default)]
pub(super) struct Buckets {
    buckets: Vec<Bucket>,
    free: Vec<BucketId>,
    by_key: FxHashMap<Box<[i64]>, BucketId>,
    levels: Vec<Level>,
    free_levels: Vec<LevelId>,
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
    pub(super) fn nodes(&self, places: &Column<'_>, bucket: BucketId) -> impl Iterator<Item = (i64, NodeId)> {
        let levels = self.get(bucket).levels.iter().map(|(_, level)| &self.levels[*level as usize]);
        levels.flat_map(|level| level.current(places).map(|node| (i64::from(level.score), node)))
    }

    fn top(&self, bucket: BucketId) -> Option<&Level> {
        self.get(bucket).levels.last().map(|(_, level)| &self.levels[*level as usize])
    }

    /// The highest score of the nodes of a bucket, and how many have it; none when the bucket is empty.
    pub(super) fn highest(&self, bucket: BucketId) -> Option<(i64, usize)> {
        self.top(bucket).map(|level| (i64::from(level.score), level.nodes))
    }

    /// The nodes of a bucket with the highest score.
    pub(super) fn best(&self, places: &Column<'_>, bucket: BucketId) -> impl Iterator<Item = NodeId> {
        self.top(bucket).into_iter().flat_map(|level| level.current(places))
    }

    /// Draws one of the nodes of a bucket with the highest score, all with the same chance; none when the bucket is empty.
    pub(super) fn draw(
        &mut self,
        places: &Column<'_>,
        bucket: BucketId,
        mut below: impl FnMut(usize) -> usize,
    ) -> Option<NodeId> {
        let (_, level) = *self.get(bucket).levels.last()?;
        let entries = &mut self.levels[level as usize].entries;
        while !entries.is_empty() {
            let at = below(entries.len());
            let entry = entries[at];
            if entry.is_current(places) {
                return Some(entry.node);
            }
            entries.swap_remove(at);
        }
        None
    }

    /// The bucket a node lies in.
    pub(super) fn bucket_of(&self, places: &Column<'_>, node: NodeId) -> Option<BucketId> {
        let level = places.get(node).level.checked_sub(1)?;
        Some(self.levels[level as usize].bucket)
    }

    /// Puts a node where it belongs, or moves it there.
    pub(super) fn put(&mut self, places: &mut Column<'_>, node: NodeId, key: &[i64], score: i32) {
        if self.bucket_of(places, node).is_some_and(|bucket| *self.get(bucket).key == *key) {
            self.rescore(places, node, score);
            return;
        }
        self.hide(places, node);
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
        self.enter(places, node, bucket, score);
    }

    /// Gives a node another score in the bucket where it lies; false when it lies nowhere.
    pub(super) fn rescore(&mut self, places: &mut Column<'_>, node: NodeId, score: i32) -> bool {
        let Place { level, score: former, .. } = *places.get(node);
        let Some(level) = level.checked_sub(1) else { return false };
        if score != former {
            // First there and then away, so that the bucket is never empty.
            let bucket = self.levels[level as usize].bucket;
            self.enter(places, node, bucket, score);
            self.leave(places, level);
        }
        true
    }

    /// Takes a node out that does not fit (any more).
    pub(super) fn remove(&mut self, places: &mut Column<'_>, node: NodeId) {
        self.hide(places, node);
        places.get_mut(node).score = UNFIT;
    }

    /// Takes a node out, if it lies anywhere, and remembers its score.
    pub(super) fn hide(&mut self, places: &mut Column<'_>, node: NodeId) {
        let place = places.get_mut(node);
        let Some(level) = std::mem::take(&mut place.level).checked_sub(1) else { return };
        place.stamp = place.stamp.wrapping_add(1);
        self.leave(places, level);
    }

    fn enter(&mut self, places: &mut Column<'_>, node: NodeId, id: BucketId, score: i32) {
        let bucket = &mut self.buckets[id as usize];
        bucket.nodes += 1;
        let level = match bucket.levels.binary_search_by_key(&score, |(score, _)| *score) {
            Ok(at) => bucket.levels[at].1,
            Err(at) => {
                let level = self.free_levels.pop().unwrap_or_else(|| {
                    self.levels.push(Level::default());
                    self.levels.len() as LevelId - 1
                });
                bucket.levels.insert(at, (score, level));
                (self.levels[level as usize].bucket, self.levels[level as usize].score) = (id, score);
                level
            }
        };
        let place = places.get_mut(node);
        (place.level, place.stamp, place.score) = (level + 1, place.stamp.wrapping_add(1), score);
        let level = &mut self.levels[level as usize];
        level.nodes += 1;
        level.entries.push(Entry { node, stamp: place.stamp });
    }

    /// One node less on a level; whose entry it is, its stamp tells.
    fn leave(&mut self, places: &Column<'_>, id: LevelId) {
        let level = &mut self.levels[id as usize];
        let bucket = &mut self.buckets[level.bucket as usize];
        bucket.nodes -= 1;
        level.nodes -= 1;
        if level.nodes == 0 {
            level.entries.clear();
            let at = bucket.levels.binary_search_by_key(&level.score, |(score, _)| *score);
            bucket.levels.remove(at.expect("the level is one of its bucket's"));
            self.free_levels.push(id);
        } else if level.entries.len() > 2 * level.nodes + OUTDATED_SPARE {
            level.entries.retain(|entry| entry.is_current(places));
        }
        if bucket.nodes == 0 {
            self.by_key.remove(&std::mem::take(&mut bucket.key));
            self.free.push(level.bucket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::places::Places;
    use super::*;
    use std::collections::BTreeMap;

    /// The plain form: every node with its key and score.
    fn check(buckets: &Buckets, places: &Column<'_>, plain: &BTreeMap<u32, ([i64; 1], i32)>) {
        let mut seen = BTreeMap::new();
        for (id, bucket) in buckets.iter() {
            let all: Vec<_> = buckets.nodes(places, id).collect();
            assert_eq!(all.len(), bucket.nodes);
            let (best, count) = buckets.highest(id).unwrap();
            assert_eq!(Some(best), all.iter().map(|(score, _)| *score).max());
            let mut who: Vec<NodeId> = buckets.best(places, id).collect();
            who.sort();
            let mut expected: Vec<NodeId> = all.iter().filter(|(score, _)| *score == best).map(|(_, n)| *n).collect();
            expected.sort();
            assert_eq!((who, count), (expected.clone(), expected.len()));
            for (score, node) in all {
                assert_eq!(buckets.bucket_of(places, node), Some(id));
                assert_eq!(places.score(node).map(i64::from), Some(score));
                seen.insert(node.0, ([bucket.key[0]], score as i32));
            }
        }
        assert_eq!(&seen, plain);
    }

    #[test]
    fn nodes_that_come_move_and_go_are_found_where_they_belong() {
        let mut buckets = Buckets::default();
        let mut grid = Places::default();
        grid.reserve(50);
        let column = grid.add();
        let places = &mut grid.column(column);
        let mut plain = BTreeMap::new();
        let mut seed = 7u64;
        for _ in 0..4000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (node, key, score) = ((seed >> 33) as u32 % 50, (seed >> 43) as i64 % 3, (seed >> 53) as i32 % 7);
            let known = plain.get(&node).copied();
            match (seed >> 20) % 8 {
                0 => {
                    buckets.remove(places, NodeId(node));
                    assert_eq!(places.score(NodeId(node)), None);
                    plain.remove(&node);
                }
                1 if known.is_some() => {
                    buckets.hide(places, NodeId(node));
                    assert_eq!(places.score(NodeId(node)), known.map(|(_, score)| score));
                    plain.remove(&node);
                }
                2 | 3 => {
                    assert_eq!(buckets.rescore(places, NodeId(node), score), known.is_some());
                    if let Some((key, _)) = known {
                        plain.insert(node, (key, score));
                    }
                }
                _ => {
                    buckets.put(places, NodeId(node), &[key], score);
                    plain.insert(node, ([key], score));
                }
            }
            check(&buckets, places, &plain);
            let ids: Vec<BucketId> = buckets.iter().map(|(id, _)| id).collect();
            for id in ids.into_iter().filter(|_| (seed >> 17).is_multiple_of(3)) {
                let drawn = buckets.draw(places, id, |n| (seed >> 9) as usize % n).unwrap();
                assert!(buckets.best(places, id).any(|node| node == drawn));
                check(&buckets, places, &plain);
            }
        }
    }

    #[test]
    fn every_node_of_the_best_is_drawn_with_the_same_chance() {
        let mut buckets = Buckets::default();
        let mut grid = Places::default();
        grid.reserve(8);
        let column = grid.add();
        let places = &mut grid.column(column);
        for node in 0..8 {
            buckets.put(places, NodeId(node), &[0], 5);
        }
        // Two have left, one of them came back.
        buckets.rescore(places, NodeId(3), 1);
        buckets.rescore(places, NodeId(6), 1);
        buckets.rescore(places, NodeId(6), 5);
        let mut seed = 1u64;
        let mut drawn = [0; 8];
        for _ in 0..7000 {
            let below = |n: usize| {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (seed >> 33) as usize % n
            };
            drawn[buckets.draw(places, 0, below).unwrap().0 as usize] += 1;
        }
        assert_eq!(drawn[3], 0);
        assert!(drawn.iter().enumerate().all(|(node, count)| node == 3 || (900..1100).contains(count)), "{drawn:?}");
    }
}
