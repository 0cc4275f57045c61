//! The rate limit of a client: requests per second with a burst, granted in order.

use std::sync::Mutex;

use bayplan_model::token_bucket::TokenBucket;
use tokio::time::Instant;

pub(crate) struct Limiter {
    bucket: Mutex<TokenBucket>,
    origin: Instant,
}

impl Limiter {
    pub(crate) fn new(requests_per_second: f64, burst: u32) -> Self {
        Limiter { bucket: Mutex::new(TokenBucket::new(requests_per_second, burst)), origin: Instant::now() }
    }

    /// Waits until one more request may be sent.
    pub(crate) async fn admit(&self) {
        let wait = {
            let mut bucket = self.bucket.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            bucket.reserve(self.origin.elapsed())
        };
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }
}
