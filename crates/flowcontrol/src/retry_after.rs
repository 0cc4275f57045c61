//! After how many seconds a refused client should try again: longer while many are refused.

use std::collections::VecDeque;
use std::time::Duration;

/// The longest time, as upstream.
const MAX: u64 = 32;

/// The refusals of a level.
#[derive(Clone, Debug)]
pub(crate) struct RetryAfter {
    /// Refusals by second, oldest first.
    refused: VecDeque<(u64, u64)>,
    seconds: u64,
    raised_at: Option<u64>,
}

impl Default for RetryAfter {
    fn default() -> Self {
        RetryAfter { refused: VecDeque::new(), seconds: 1, raised_at: None }
    }
}

impl RetryAfter {
    /// Counts a refusal; answers the seconds for the client.
    ///
    /// The time doubles when there were three refusals a second over its length, at most once in its length, and is a
    /// second shorter when there was less than one a second.
    pub(crate) fn refuse(&mut self, now: Duration) -> u64 {
        let second = now.as_secs();
        match self.refused.back_mut() {
            Some((last, count)) if *last == second => *count += 1,
            _ => {
                self.adjust(second);
                self.refused.push_back((second, 1));
            }
        }
        self.seconds
    }

    fn adjust(&mut self, second: u64) {
        let recent = self.refused.iter().filter(|(at, _)| second - at <= self.seconds);
        let count: u64 = recent.map(|(_, count)| count).sum();
        let may_rise = self.raised_at.is_none_or(|at| second - at >= self.seconds);
        if may_rise && count >= 3 * self.seconds {
            self.seconds = (self.seconds * 2).min(MAX);
            self.raised_at = Some(second);
        } else if count < self.seconds && self.seconds > 1 {
            self.seconds -= 1;
        }
        while self.refused.front().is_some_and(|(at, _)| second - at > MAX) {
            self.refused.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_refusals_double_the_time_and_few_shorten_it_by_a_second() {
        let mut retry = RetryAfter::default();
        let mut refuse = |second: u64, count: usize| {
            let answers: Vec<u64> = (0..count).map(|_| retry.refuse(Duration::from_secs(second))).collect();
            assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
            answers[0]
        };
        assert_eq!(refuse(0, 2), 1);
        assert_eq!(refuse(1, 3), 1);
        assert_eq!(refuse(2, 50), 2);
        // Not again before two seconds have passed.
        assert_eq!(refuse(3, 50), 2);
        assert_eq!([4, 5, 6, 7, 8, 9].map(|second| refuse(second, 50)), [4, 4, 4, 4, 8, 8]);
        assert_eq!((10..60).map(|second| refuse(second, 50)).last(), Some(32));
        // Two minutes of silence make it one second shorter at the next refusal.
        assert_eq!(refuse(200, 1), 31);
        assert_eq!(refuse(201, 1), 30);
    }
}
