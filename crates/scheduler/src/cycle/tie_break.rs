//! Which of several equally good nodes is chosen; upstream's `selectHost`.

use std::sync::Arc;

use super::score::Scores;

/// How ties between equally good nodes are broken.
#[derive(Clone, Debug)]
pub enum TieBreak {
    /// At random, with a seeded generator.
    Random(Rng),
    /// By the smallest name, for tests that compare decisions.
    SmallestName,
    /// As it was recorded.
    Recorded {
        /// The node that was chosen; the smallest name when it is not among the best.
        node: Arc<str>,
        /// The number that was drawn for preemption.
        random: u64,
    },
}

impl TieBreak {
    /// Chooses one of the best nodes; none when nothing was scored.
    pub fn choose(&mut self, scores: &Scores) -> Option<usize> {
        let best = scores.best();
        match self {
            TieBreak::SmallestName => best.into_iter().min_by_key(|&i| &scores.nodes[i]),
            TieBreak::Recorded { node, .. } => {
                best.into_iter().min_by_key(|&i| (scores.nodes[i] != *node, &scores.nodes[i]))
            }
            TieBreak::Random(rng) => {
                let at = rng.below(best.len());
                best.into_iter().nth(at)
            }
        }
    }

    /// Forgets what was drawn for other pods.
    pub(crate) fn forget_draws(&mut self) {
        if let TieBreak::Random(rng) = self {
            (rng.last, rng.among) = (0, None);
        }
    }

    /// Forgets among how many nodes one was chosen.
    pub(crate) fn forget_among(&mut self) {
        if let TieBreak::Random(rng) = self {
            rng.among = None;
        }
    }

    /// The last number that was drawn, and among how many nodes one was chosen, since they were forgotten.
    pub(crate) fn last_draw(&self) -> (u64, Option<u32>) {
        match self {
            TieBreak::Random(rng) => (rng.last, rng.among),
            TieBreak::Recorded { random, .. } => (*random, None),
            TieBreak::SmallestName => (0, None),
        }
    }

    /// A random number; 0 with [`TieBreak::SmallestName`].
    pub fn random(&mut self) -> u64 {
        match self {
            TieBreak::SmallestName => 0,
            TieBreak::Recorded { random, .. } => *random,
            TieBreak::Random(rng) => rng.next(),
        }
    }
}

/// A small seeded generator (splitmix64): the core has no randomness of its own.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
    /// What was drawn last, for a record of the decision.
    last: u64,
    /// Among how many one was chosen last.
    among: Option<u32>,
}

impl Rng {
    /// A generator that gives the same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        Rng { state: seed, last: 0, among: None }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.last = z ^ (z >> 31);
        self.last
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.among = u32::try_from(n).ok();
        if n <= 1 { 0 } else { (self.next() % n as u64) as usize }
    }
}
