//! Shuffle sharding: each flow gets a hand of queues, so that two flows rarely share all of them.
//!
//! The hash of a flow is read as a number in a mixed base: its first digit picks one of all queues, the next one of the
//! queues that are left, and so on. Equal flows get equal hands in every server.

/// The largest hand: seven queues of 128 already take 49 of the 60 bits that a hash gives.
pub const HAND_MAX: usize = 8;

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
    fn two_flows_seldom_share_a_hand() {
        let flows: Vec<_> = (0..200).map(|user| hand(crate::flow("fs", &format!("user-{user}")), 128, 6)).collect();
        let shared = |a: &[usize], b: &[usize]| a.iter().filter(|queue| b.contains(queue)).count();
        let most = flows.iter().enumerate().flat_map(|(at, a)| flows[..at].iter().map(move |b| shared(a, b))).max();
        assert!(most.unwrap() < 5, "{most:?} of 6 queues");
    }
}
