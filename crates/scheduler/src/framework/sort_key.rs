//! Sort keys: numbers that compare the way the QueueSort plugin does.

use jiff::Timestamp;

/// The rank of a pod in the active queue; the smallest is tried first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SortKey([u64; 3]);

impl SortKey {
    /// Orders by priority (highest first), then time (earliest first), then sequence (lowest first).
    pub fn new(priority: i32, timestamp: Timestamp, sequence: u64) -> Self {
        // Timestamps reach from the year -9999 to 9999: fewer than 2^70 nanoseconds on either side of 1970.
        let nanoseconds = (timestamp.as_nanosecond() + (1 << 70)) as u128;
        let descending = (i64::from(i32::MAX) - i64::from(priority)) as u128;
        let first = (descending << 80) | nanoseconds;
        SortKey([(first >> 64) as u64, first as u64, sequence])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_compare_as_priority_then_time_then_sequence() {
        let at = |nanoseconds: i128| Timestamp::from_nanosecond(nanoseconds).unwrap();
        let mut cases = Vec::new();
        for priority in [i32::MIN, -1, 0, 1, 2_000_000_000, i32::MAX] {
            for time in [Timestamp::MIN, at(-1), at(0), at(1), at(1_700_000_000_000_000_000), Timestamp::MAX] {
                for sequence in [0, 1, u64::MAX] {
                    cases.push((-i64::from(priority), time, sequence, SortKey::new(priority, time, sequence)));
                }
            }
        }
        for a in &cases {
            for b in &cases {
                assert_eq!((a.0, a.1, a.2).cmp(&(b.0, b.1, b.2)), a.3.cmp(&b.3), "{a:?} {b:?}");
            }
        }
    }
}
