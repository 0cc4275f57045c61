//! Shuffle sharding: each flow gets a hand of queues, so that two flows rarely share all of them.
//!
//! The hash of a flow is read as a number in a mixed base: its first digit picks one of all queues, the next one of the
//! queues that are left, and so on. Equal flows get equal hands in every server.

/// The largest hand: of 16 queues, more than 15 take more than the bits of a hash.
pub const HAND_MAX: usize = 15;
/// The bits of a hash from which hands are dealt: with more of them, the last card would be dealt unevenly.
const HASH_BITS: f64 = 60.0;
/// The largest deck: upstream's.
const DECK_MAX: usize = 1 << 26;

/// True if hands of this size can be dealt from so many queues.
pub fn can_deal(deck: usize, size: usize) -> bool {
    let bits = || ((deck as f64).log2() * size as f64).ceil();
    (1..=deck).contains(&size) && size <= HAND_MAX && deck <= DECK_MAX && bits() <= HASH_BITS
}

/// Deals `size` different queues out of `deck` into `hand`.
pub fn deal(mut hash: u64, deck: usize, size: usize, hand: &mut [usize; HAND_MAX]) -> &[usize] {
    let size = size.min(deck).min(HAND_MAX);
    for taken in 0..size {
        let left = (deck - taken) as u64;
        // Among the queues that are left; those taken before it are skipped, the lowest first.
        let mut card = (hash % left) as usize;
        hash /= left;
        let mut at = 0;
        while at < taken && hand[at] <= card {
            card += 1;
            at += 1;
        }
        // The queues taken so far are kept in order.
        hand.copy_within(at..taken, at + 1);
        hand[at] = card;
    }
    &hand[..size]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hand(hash: u64, deck: usize, size: usize) -> Vec<usize> {
        deal(hash, deck, size, &mut [0; HAND_MAX]).to_vec()
    }

    #[test]
    fn hands_are_those_that_upstream_deals() {
        for (hash, deck, expected) in [
            (0, 128, &[0, 1, 2, 3, 4, 5][..]),
            (6, 128, &[0, 1, 2, 3, 4, 6]),
            (123_456_789, 128, &[0, 1, 21, 35, 62, 69]),
            (u64::MAX, 128, &[1, 6, 7, 56, 91, 127]),
            (crate::flow("global-default", "alice"), 128, &[1, 55, 62, 105, 125, 126]),
            (crate::flow("global-default", "bob"), 128, &[46, 53, 57, 58, 101, 116]),
            (crate::flow("kube-scheduler", ""), 128, &[39, 41, 53, 79, 90, 126]),
            (6, 16, &[0, 1, 2, 6]),
            (u64::MAX, 16, &[0, 7, 8, 15]),
            (u64::MAX, 3, &[0, 1, 2]),
        ] {
            assert_eq!(hand(hash, deck, expected.len()), expected, "{hash} of {deck}");
        }
    }

    #[test]
    fn a_hand_takes_no_more_than_the_bits_of_a_hash() {
        for (deck, size, possible) in [
            (1, 1, true),
            (16, 15, true),
            (15, 15, true),
            (16, 16, false),
            (1024, 6, true),
            (1024, 7, false),
            (10_000_000, 2, true),
            (10_000_000, 3, false),
            (1 << 26, 2, true),
            ((1 << 26) + 1, 1, false),
            (2, 3, false),
            (2, 0, false),
            (0, 0, false),
        ] {
            assert_eq!(can_deal(deck, size), possible, "{size} of {deck}");
        }
        assert_eq!(hand(u64::MAX, 15, 15), (0..15).collect::<Vec<_>>());
    }

    #[test]
    fn two_flows_seldom_share_a_hand() {
        let flows: Vec<_> = (0..200).map(|user| hand(crate::flow("fs", &format!("user-{user}")), 128, 6)).collect();
        let shared = |a: &[usize], b: &[usize]| a.iter().filter(|queue| b.contains(queue)).count();
        let most = flows.iter().enumerate().flat_map(|(at, a)| flows[..at].iter().map(move |b| shared(a, b))).max();
        assert!(most.unwrap() < 5, "{most:?} of 6 queues");
    }
}
