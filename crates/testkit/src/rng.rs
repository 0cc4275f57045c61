//! A seeded generator of numbers.

/// SplitMix64: the same seed gives the same numbers everywhere, and neighbouring seeds give unrelated ones.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator that repeats itself for the same seed.
    pub fn new(seed: u64) -> Self {
        Rng(seed)
    }

    /// The next number, of all 64-bit numbers.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`; 0 when `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next_u64() % n.max(1) as u64) as usize
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_numbers_and_another_has_others() {
        let numbers = |seed| {
            let mut rng = Rng::new(seed);
            (0..8).map(|_| rng.next_u64()).collect::<Vec<_>>()
        };
        assert_eq!(numbers(1), numbers(1));
        assert_ne!(numbers(1), numbers(2));
        // The reference values of SplitMix64 for seed 0.
        assert_eq!(numbers(0)[..2], [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
    }

    #[test]
    fn numbers_below_a_bound_reach_all_of_it_and_nothing_else() {
        let mut rng = Rng::new(7);
        let mut seen = [0u32; 6];
        (0..600).for_each(|_| seen[rng.below(6)] += 1);
        assert!(seen.iter().all(|count| (60..140).contains(count)), "{seen:?}");
        assert_eq!(rng.below(0), 0);
    }
}
