//! A token bucket that takes the time as an argument: the rate limiter of work queues, clients and event filters.

use std::time::Duration;

/// A bucket of `burst` tokens, refilled at a steady rate. `now` counts from any fixed origin and never goes back.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    tokens_per_second: f64,
    burst: f64,
    tokens: f64,
    filled_at: Duration,
}

impl TokenBucket {
    /// A full bucket. The rate must be above zero: a bucket that never refills would make callers wait for ever.
    pub fn new(tokens_per_second: f64, burst: u32) -> Self {
        let tokens_per_second = if tokens_per_second > 0.0 { tokens_per_second } else { f64::MIN_POSITIVE };
        let burst = f64::from(burst.max(1));
        TokenBucket { tokens_per_second, burst, tokens: burst, filled_at: Duration::ZERO }
    }

    /// Takes a token even if there is none yet; returns how long to wait until it is there.
    pub fn reserve(&mut self, now: Duration) -> Duration {
        self.refill(now);
        self.tokens -= 1.0;
        let wait = (-self.tokens / self.tokens_per_second).max(0.0);
        Duration::try_from_secs_f64(wait).unwrap_or(Duration::MAX)
    }

    /// Takes a token if there is one.
    pub fn try_take(&mut self, now: Duration) -> bool {
        self.refill(now);
        let taken = self.tokens >= 1.0;
        if taken {
            self.tokens -= 1.0;
        }
        taken
    }

    fn refill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.filled_at).as_secs_f64();
        self.tokens = (self.tokens + passed * self.tokens_per_second).min(self.burst);
        self.filled_at = self.filled_at.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_beyond_the_burst_waits_its_turn() {
        let mut bucket = TokenBucket::new(10.0, 2);
        let waits: Vec<u128> = (0..4).map(|_| bucket.reserve(Duration::ZERO).as_millis()).collect();
        assert_eq!(waits, [0, 0, 100, 200]);
        assert_eq!(bucket.reserve(Duration::from_millis(300)).as_millis(), 0);
    }

    #[test]
    fn a_bucket_never_holds_more_than_its_burst() {
        let mut bucket = TokenBucket::new(1.0, 2);
        let hour = Duration::from_secs(3600);
        assert_eq!((0..4).filter(|_| bucket.try_take(hour)).count(), 2);
        assert!(bucket.try_take(hour + Duration::from_secs(1)));
    }

    #[test]
    fn a_rate_of_nothing_waits_instead_of_dividing_by_zero() {
        let mut bucket = TokenBucket::new(0.0, 1);
        assert_eq!(bucket.reserve(Duration::ZERO), Duration::ZERO);
        assert_eq!(bucket.reserve(Duration::ZERO), Duration::MAX);
    }
}
