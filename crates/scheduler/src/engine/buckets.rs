//! Feasible nodes, sorted so that the best one is found without looking at all of them.
//!
//! A node's score is a sum. One part depends on the node alone; the other part is the same for all nodes with equal
//! values before normalisation (the bucket's key). So nodes are in buckets by key, and within a bucket on levels by the
//! first part: the best nodes of a bucket are on its top level, and a decision compares buckets.
//!
//! Every placed pod moves one node in the buckets of every signature, and only one move in a thousand is followed by a
//! decision there. So a move touches little memory: a node stores only its level, and a level only how many nodes it
//! has in each block of nodes. A search through one block finds the nodes themselves.

use rustc_hash::FxHashMap;

use crate::cluster::NodeId;

/// A bucket; reused once it is empty.
pub(super) type BucketId = u32;

/// A level among those of all buckets; reused once it is empty.
type LevelId = u32;

/// The level of a node that is in no bucket.
const NO_LEVEL: LevelId = 0;

/// The level of a node that fails a filter on the node object, or does not exist.
const EXCLUDED: LevelId = LevelId::MAX;

/// The nodes of a bucket with the same score.
#[derive(Clone, Debug, Default)]
struct Level {
    bucket: BucketId,
    score: i32,
    /// The number of nodes.
    nodes: usize,
}

/// The feasible nodes of one key.
#[derive(Clone, Debug, Default)]
pub(super) struct Bucket {
    /// The values that the nodes have in common.
    pub(super) key: Box<[i64]>,
    /// The number of nodes.
    pub(super) nodes: usize,
    /// The scores of the nodes, ascending, with their levels.
    levels: Vec<(i32, LevelId)>,
}

/// A block has at least 2 to the power of this many nodes: smaller ones are not searched faster.
const BLOCK_BITS_MIN: u32 = 10;

/// The number of recently used levels that are found without a search.
const RECENT: usize = 64;

/// The most blocks: choosing a node goes over the blocks of a level, and then over the nodes of one block.
const BLOCKS_MAX: usize = 256;

/// All feasible nodes.
#[derive(Clone, Debug)]
pub(super) struct Buckets {
    /// By node.
    level_of: Vec<LevelId>,
    buckets: Vec<Bucket>,
    free: Vec<BucketId>,
    by_key: FxHashMap<Box<[i64]>, BucketId>,
    levels: Vec<Level>,
    free_levels: Vec<LevelId>,
    /// Recently used levels, by a hash of bucket and score.
    recent: [LevelId; RECENT],
    /// The number of nodes, by level and block.
    in_block: Vec<u32>,
    blocks: usize,
    block_bits: u32,
}

impl Default for Buckets {
    fn default() -> Self {
        Buckets {
            level_of: Vec::new(),
            buckets: Vec::new(),
            free: Vec::new(),
            by_key: FxHashMap::default(),
            levels: vec![Level::default()],
            free_levels: Vec::new(),
            recent: [NO_LEVEL; RECENT],
            in_block: vec![0],
            blocks: 1,
            block_bits: BLOCK_BITS_MIN,
        }
    }
}

impl Buckets {
    /// Makes space for nodes.
    pub(super) fn reserve(&mut self, nodes: usize) {
        if nodes <= self.level_of.len() {
            return;
        }
        self.level_of.resize(nodes, EXCLUDED);
        if nodes <= self.blocks << self.block_bits {
            return;
        }
        while nodes.div_ceil(1 << self.block_bits) > BLOCKS_MAX {
            self.block_bits += 1;
        }
        self.blocks = nodes.div_ceil(1 << self.block_bits);
        self.in_block = vec![0; self.levels.len() * self.blocks];
        for node in 0..nodes {
            if self.level(NodeId(node as u32)).is_some() {
                *self.block_mut(self.level_of[node], node) += 1;
            }
        }
    }

    fn block_mut(&mut self, level: LevelId, node: usize) -> &mut u32 {
        &mut self.in_block[level as usize * self.blocks + (node >> self.block_bits)]
    }

    /// The buckets that have nodes.
    pub(super) fn iter(&self) -> impl Iterator<Item = (BucketId, &Bucket)> {
        self.buckets.iter().enumerate().filter(|(_, bucket)| bucket.nodes > 0).map(|(at, bucket)| (at as u32, bucket))
    }

    pub(super) fn get(&self, bucket: BucketId) -> &Bucket {
        &self.buckets[bucket as usize]
    }

    /// All nodes with their buckets and scores.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (NodeId, BucketId, i32)> {
        let all = (0..self.level_of.len()).map(|node| NodeId(node as u32));
        all.filter_map(|node| self.level(node).map(|level| (node, level.bucket, level.score)))
    }

    /// The highest score in a bucket, and how many nodes have it; none when the bucket is empty.
    pub(super) fn highest(&self, bucket: BucketId) -> Option<(i64, usize)> {
        let (score, level) = *self.get(bucket).levels.last()?;
        Some((score.into(), self.levels[level as usize].nodes))
    }

    /// The nodes with the highest score in a bucket.
    pub(super) fn best(&self, bucket: BucketId) -> impl Iterator<Item = NodeId> {
        let top = self.get(bucket).levels.last().map(|(_, level)| *level);
        let all = self.level_of.iter().enumerate();
        all.filter(move |(_, level)| Some(**level) == top).map(|(node, _)| NodeId(node as u32))
    }

    /// The `nth` of the nodes with the highest score in a bucket.
    pub(super) fn nth_best(&self, bucket: BucketId, mut nth: usize) -> Option<NodeId> {
        let (_, level) = *self.get(bucket).levels.last()?;
        let blocks = &self.in_block[level as usize * self.blocks..][..self.blocks];
        let block = blocks.iter().position(|nodes| {
            let is_here = nth < *nodes as usize;
            nth -= if is_here { 0 } else { *nodes as usize };
            is_here
        })?;
        let first = block << self.block_bits;
        // Counting 64 nodes at once is faster than looking at each of them.
        for (at, some) in self.level_of[first..].chunks(64).enumerate() {
            let here = some.iter().map(|other| u32::from(*other == level)).sum::<u32>() as usize;
            if nth < here {
                let at = first + 64 * at;
                let mut nodes = (at..at + some.len()).filter(|node| self.level_of[*node] == level);
                return nodes.nth(nth).map(|node| NodeId(node as u32));
            }
            nth -= here;
        }
        None
    }

    fn level(&self, node: NodeId) -> Option<&Level> {
        match self.level_of[node.0 as usize] {
            NO_LEVEL | EXCLUDED => None,
            level => Some(&self.levels[level as usize]),
        }
    }

    /// The bucket of a node.
    pub(super) fn bucket_of(&self, node: NodeId) -> Option<BucketId> {
        self.level(node).map(|level| level.bucket)
    }

    /// The score of a node that is in a bucket.
    pub(super) fn score(&self, node: NodeId) -> Option<i32> {
        self.level(node).map(|level| level.score)
    }

    /// True when a node is excluded.
    pub(super) fn is_excluded(&self, node: NodeId) -> bool {
        self.level_of[node.0 as usize] == EXCLUDED
    }

    /// Excludes a node, or ends its exclusion; either way it leaves its bucket.
    pub(super) fn exclude(&mut self, node: NodeId, excluded: bool) {
        self.remove(node);
        self.level_of[node.0 as usize] = if excluded { EXCLUDED } else { NO_LEVEL };
    }

    /// Puts a node into a bucket, or moves it there.
    pub(super) fn put(&mut self, node: NodeId, key: &[i64], score: i32) {
        if self.bucket_of(node).is_some_and(|bucket| *self.get(bucket).key == *key) {
            self.rescore(node, score);
            return;
        }
        self.remove(node);
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
        self.buckets[bucket as usize].nodes += 1;
        let level = self.level_for(bucket, score);
        self.add_to_level(node, level);
    }

    /// Changes the score of a node in its bucket; false when it is in none.
    pub(super) fn rescore(&mut self, node: NodeId, score: i32) -> bool {
        let from = self.level_of[node.0 as usize];
        let Some(&Level { bucket, score: former, .. }) = self.level(node) else { return false };
        if score != former {
            let to = self.level_for(bucket, score);
            self.add_to_level(node, to);
            self.remove_from_level(node, from);
        }
        true
    }

    /// Takes a node out of its bucket, if it is in one.
    pub(super) fn remove(&mut self, node: NodeId) {
        if self.level(node).is_some() {
            let level = std::mem::replace(&mut self.level_of[node.0 as usize], NO_LEVEL);
            let bucket = self.levels[level as usize].bucket;
            self.remove_from_level(node, level);
            let left = &mut self.buckets[bucket as usize];
            left.nodes -= 1;
            if left.nodes == 0 {
                self.by_key.remove(&std::mem::take(&mut left.key));
                self.free.push(bucket);
            }
        }
    }

    /// The level of a score in a bucket.
    fn level_for(&mut self, id: BucketId, score: i32) -> LevelId {
        let recent = (score as usize ^ (id as usize) << 3) % RECENT;
        let level = &self.levels[self.recent[recent] as usize];
        if level.score != score || level.bucket != id || level.nodes == 0 {
            self.recent[recent] = self.find_level(id, score);
        }
        self.recent[recent]
    }

    fn find_level(&mut self, id: BucketId, score: i32) -> LevelId {
        let bucket = &mut self.buckets[id as usize];
        match bucket.levels.binary_search_by_key(&score, |(score, _)| *score) {
            Ok(at) => bucket.levels[at].1,
            Err(at) => {
                let level = self.free_levels.pop().unwrap_or_else(|| {
                    self.levels.push(Level::default());
                    self.in_block.resize(self.levels.len() * self.blocks, 0);
                    self.levels.len() as LevelId - 1
                });
                bucket.levels.insert(at, (score, level));
                self.levels[level as usize] = Level { bucket: id, score, nodes: 0 };
                level
            }
        }
    }

    fn add_to_level(&mut self, node: NodeId, level: LevelId) {
        self.levels[level as usize].nodes += 1;
        *self.block_mut(level, node.0 as usize) += 1;
        self.level_of[node.0 as usize] = level;
    }

    fn remove_from_level(&mut self, node: NodeId, id: LevelId) {
        *self.block_mut(id, node.0 as usize) -= 1;
        let level = &mut self.levels[id as usize];
        level.nodes -= 1;
        if level.nodes == 0 {
            let levels = &mut self.buckets[level.bucket as usize].levels;
            let at = levels.binary_search_by_key(&level.score, |(score, _)| *score);
            levels.remove(at.expect("the level is one of its bucket's"));
            self.free_levels.push(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bayplan_testkit::Rng;

    use super::*;

    /// The plain form: every node with its key and score.
    type Plain = BTreeMap<u32, ([i64; 1], i32)>;

    fn check(buckets: &Buckets, plain: &Plain) {
        let seen = buckets.nodes().map(|(node, bucket, score)| (node.0, ([buckets.get(bucket).key[0]], score)));
        assert_eq!(&seen.collect::<Plain>(), plain);
        for (id, bucket) in buckets.iter() {
            let of_key = plain.iter().filter(|(_, (key, _))| *bucket.key == *key);
            let highest = of_key.clone().map(|(_, (_, score))| *score).max().unwrap();
            let nodes = of_key.clone().filter(|(_, (_, score))| *score == highest);
            let best: Vec<NodeId> = nodes.map(|(node, _)| NodeId(*node)).collect();
            assert_eq!(bucket.nodes, of_key.count());
            assert_eq!(buckets.highest(id), Some((highest.into(), best.len())));
            assert_eq!(buckets.best(id).collect::<Vec<_>>(), best);
            let each: Vec<NodeId> = (0..best.len()).filter_map(|nth| buckets.nth_best(id, nth)).collect();
            assert_eq!(each, best);
            assert_eq!(buckets.nth_best(id, best.len()), None);
        }
    }

    #[test]
    fn nodes_that_come_move_and_go_are_found_where_they_belong() {
        let mut buckets = Buckets::default();
        let mut plain = Plain::new();
        let mut rng = Rng::new(7);
        for step in 0..6000 {
            // More nodes than a block has, and more of them all the time.
            let nodes = 1000 + step / 4;
            buckets.reserve(nodes);
            // Many steps are about few nodes, so that they meet again.
            let among = if step % 2 == 0 { 9 } else { nodes };
            let node = NodeId((nodes - 1 - rng.below(among)) as u32);
            let (key, score) = (rng.below(3) as i64, rng.below(7) as i32);
            let known = plain.get(&node.0).copied();
            match rng.below(8) {
                0 => {
                    buckets.remove(node);
                    assert_eq!(buckets.score(node), None);
                    plain.remove(&node.0);
                }
                1 => {
                    buckets.exclude(node, true);
                    assert!(buckets.is_excluded(node) && buckets.bucket_of(node).is_none());
                    plain.remove(&node.0);
                    buckets.exclude(node, false);
                    assert!(!buckets.is_excluded(node));
                }
                2 | 3 => {
                    assert_eq!(buckets.rescore(node, score), known.is_some());
                    if let Some((key, _)) = known {
                        plain.insert(node.0, (key, score));
                    }
                }
                _ => {
                    buckets.put(node, &[key], score);
                    plain.insert(node.0, ([key], score));
                }
            }
            let known = plain.get(&node.0);
            assert_eq!(buckets.score(node), known.map(|(_, score)| *score));
            assert_eq!(buckets.bucket_of(node).map(|id| buckets.get(id).key[0]), known.map(|([key], _)| *key));
            if step % 50 < 3 {
                check(&buckets, &plain);
            }
        }
        assert!(buckets.blocks > 2);
    }

    #[test]
    fn blocks_grow_with_the_nodes() {
        let mut buckets = Buckets::default();
        let last = |nodes: usize| NodeId(nodes as u32 - 1);
        for nodes in [1, 1024, 1025, 300_000, 1_000_000] {
            buckets.reserve(nodes);
            assert!(buckets.blocks <= BLOCKS_MAX && buckets.blocks << buckets.block_bits >= nodes);
            buckets.put(last(nodes), &[], 1);
        }
        let all: Vec<u32> = (0..6).filter_map(|nth| buckets.nth_best(0, nth)).map(|node| node.0).collect();
        assert_eq!(all, [0, 1023, 1024, 299_999, 999_999]);
    }
}
