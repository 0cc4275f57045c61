//! Sets of completion indexes, kept as intervals: a Job of a million indexes has a status of a few bytes.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::pod::Pod;

/// The annotation and label with a pod's index.
pub const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// Ascending intervals `(first, last)`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Indexes(Vec<(i64, i64)>);

impl Indexes {
    /// Reads the text of a status or policy. What is corrupt is skipped, and what is beyond the number of indexes is
    /// left out.
    pub fn parse(text: &str, count: i64) -> Self {
        let mut intervals: Vec<(i64, i64)> = Vec::new();
        for part in text.split(',') {
            let mut limits = part.split('-');
            let Some(Ok(first)) = limits.next().map(str::parse::<i64>) else { continue };
            if first >= count {
                break;
            }
            let last = match limits.next().map(str::parse::<i64>) {
                None => first,
                Some(Ok(last)) => last.min(count - 1),
                Some(Err(_)) => continue,
            };
            match intervals.last_mut() {
                Some(before) if before.1.checked_add(1) == Some(first) => before.1 = last,
                _ => intervals.push((first, last)),
            }
        }
        Indexes(intervals)
    }

    /// These and others.
    pub fn union(&self, others: &Indexes) -> Indexes {
        let mut all: Vec<(i64, i64)> = Vec::with_capacity(self.0.len() + others.0.len());
        let (mut left, mut right) = (self.0.iter().peekable(), others.0.iter().peekable());
        loop {
            let next = match (left.peek(), right.peek()) {
                (Some(a), Some(b)) if a.0 < b.0 => left.next(),
                (_, Some(_)) => right.next(),
                _ => left.next(),
            };
            let Some(&(first, last)) = next else { break };
            match all.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
                _ => all.push((first, last)),
            }
        }
        Indexes(all)
    }

    /// How many there are.
    pub fn total(&self) -> i64 {
        self.0.iter().map(|(first, last)| last.saturating_sub(*first).saturating_add(1)).fold(0, i64::saturating_add)
    }

    /// Whether an index is one of them.
    pub fn contains(&self, index: i64) -> bool {
        let at = self.0.partition_point(|(_, last)| *last < index);
        self.0.get(at).is_some_and(|(first, _)| *first <= index)
    }

    /// None at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many of them are among others.
    pub(super) fn overlap(&self, others: &Indexes) -> i64 {
        let (mut a, mut b, mut common) = (0, 0, 0_i64);
        while let (Some(one), Some(other)) = (self.0.get(a), others.0.get(b)) {
            let shared = one.1.min(other.1).saturating_sub(one.0.max(other.0)).saturating_add(1);
            common = common.saturating_add(shared.max(0));
            a += usize::from(one.1 <= other.1);
            b += usize::from(other.1 <= one.1);
        }
        common
    }

    /// The first `wanted` indexes below `count` that are none of them.
    pub fn first_missing(&self, wanted: usize, count: i64) -> Vec<i64> {
        let mut missing = Vec::new();
        let mut candidate = 0;
        for &(first, last) in self.0.iter().chain([&(count, count)]) {
            let room = wanted.saturating_sub(missing.len());
            missing.extend((candidate..first.min(count)).take(room));
            candidate = candidate.max(last.saturating_add(1));
        }
        missing
    }
}

impl FromIterator<i64> for Indexes {
    fn from_iter<T: IntoIterator<Item = i64>>(indexes: T) -> Self {
        let sorted: BTreeSet<i64> = indexes.into_iter().collect();
        let mut intervals: Vec<(i64, i64)> = Vec::new();
        for index in sorted {
            match intervals.last_mut() {
                Some(before) if before.1.checked_add(1) == Some(index) => before.1 = index,
                _ => intervals.push((index, index)),
            }
        }
        Indexes(intervals)
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, &(first, last)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match last.saturating_sub(first) {
                ..=0 => write!(f, "{comma}{first}")?,
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

/// The index of a pod; none when it has none that is a number from 0.
pub fn completion_index(pod: &Pod) -> Option<i64> {
    pod.metadata.annotations.get(COMPLETION_INDEX)?.parse().ok().filter(|index| *index >= 0)
}

/// The indexes of pods.
pub fn of_pods<'a>(pods: impl IntoIterator<Item = &'a Arc<Pod>>) -> Indexes {
    pods.into_iter().filter_map(|pod| completion_index(pod)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_read_and_written_as_upstream_does() {
        for (text, count, expected, total) in [
            ("", 5, "", 0),
            ("0,1-2,4,11", 11, "0-2,4", 4),
            ("2-3,5-6,8,10-13", 10, "2,3,5,6,8", 5),
            ("1,x,3-y,4", 9, "1,4", 2),
            ("7-20", 9, "7,8", 2),
            ("0-1,2-5", 100, "0-5", 6),
            ("9223372036854775806-9223372036854775807", i64::MAX, "9223372036854775806", 1),
        ] {
            let indexes = Indexes::parse(text, count);
            assert_eq!((indexes.to_string().as_str(), indexes.total()), (expected, total), "{text}");
        }
    }

    #[test]
    fn sets_are_joined_searched_and_completed() {
        let set = |text: &str| Indexes::parse(text, 1000);
        for (a, b, joined) in [("", "", ""), ("1-3,7", "4,8-9", "1-4,7-9"), ("0-9", "2,3", "0-9"), ("5", "1", "1,5")] {
            assert_eq!(set(a).union(&set(b)).to_string(), joined);
            assert_eq!(set(b).union(&set(a)).to_string(), joined);
        }
        assert!(set("1-3,7").contains(3) && set("1-3,7").contains(7) && !set("1-3,7").contains(5));
        assert_eq!(set("1-3,7").first_missing(4, 9), [0, 4, 5, 6]);
        assert_eq!(set("1-3,7").first_missing(9, 9), [0, 4, 5, 6, 8]);
        assert_eq!(set("").first_missing(2, 1), [0]);
        assert_eq!(set("0-3,8-9").overlap(&set("2-8")), 3);
    }
}
