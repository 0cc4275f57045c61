//! Which of several equally good nodes is chosen; upstream's `selectHost`.

use super::score::Scores;

/// How ties between equally good nodes are broken.
#[derive(Clone, Debug)]
pub enum TieBreak {
    /// At random, with a seeded generator.
    Random(Rng),
    /// By the smallest name, for tests that compare decisions.
    SmallestName,
}

impl TieBreak {
    /// Chooses one of the best nodes; none when nothing was scored.
    pub fn choose(&mut self, scores: &Scores) -> Option<usize> {
        let best = scores.best();
        match self {
            TieBreak::SmallestName => best.into_iter().min_by_key(|&i| &scores.nodes[i]),
            TieBreak::Random(rng) => {
                let at = rng.below(best.len());
                best.into_iter().nth(at)
            }
        }
    }

    /// A random number; 0 with [`TieBreak::SmallestName`].
    pub fn random(&mut self) -> u64 {
        match self {
            TieBreak::SmallestName => 0,
            TieBreak::Random(rng) => rng.next(),
        }
    }
}

/// A small seeded generator (splitmix64): the core has no randomness of its own.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator that gives the same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        Rng(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        if n <= 1 { 0 } else { (self.next() % n as u64) as usize }
    }
}
