//! How long to wait after the nth failure in a row.

use std::time::Duration;

/// client-go's first delay.
const DELAY_MIN: Duration = Duration::from_millis(800);

/// Counts failures in a row.
#[derive(Debug)]
pub(crate) struct Backoff {
    failures: u32,
    longest: Duration,
}

impl Backoff {
    /// Delays that grow to `longest`, before they are stretched.
    pub(crate) fn up_to(longest: Duration) -> Self {
        Backoff { failures: 0, longest }
    }

    /// Something worked.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    /// True when nothing worked since the last failure.
    pub(crate) fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// Something failed: the delay doubles, and is stretched by up to as much again.
    pub(crate) fn next(&mut self, jitter: f64) -> Duration {
        let factor = 1u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        self.failures = self.failures.saturating_add(1);
        DELAY_MIN.saturating_mul(factor).min(self.longest).mul_f64(1.0 + jitter.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest_and_start_over_after_success() {
        let mut backoff = Backoff::up_to(Duration::from_secs(30));
        let delays: Vec<u128> = (0..8).map(|_| backoff.next(0.0).as_millis()).collect();
        assert_eq!(delays, [800, 1600, 3200, 6400, 12800, 25600, 30000, 30000]);
        assert_eq!(backoff.next(0.5).as_millis(), 45000);
        backoff.reset();
        assert_eq!(backoff.next(1.0).as_millis(), 1600);
    }
}
