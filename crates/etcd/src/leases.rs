//! Leases for keys with a time to live, each shared by many keys.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::client::proto::{LeaseGrantRequest, LeaseGrantResponse};
use crate::client::{CallError, Client, LEASE_GRANT};

/// Keys on one lease, as upstream: etcd deletes them together when it expires, in one revision.
const KEYS_PER_LEASE_MAX: usize = 1000;
/// How much longer than asked for a lease may last, so that later keys can share it, as upstream: a twentieth of the
/// time to live, and a minute at most.
const EXTRA_DIVISOR: u32 = 20;
const EXTRA_MAX: Duration = Duration::from_secs(60);

/// How long a write waits for another that is being granted a lease.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// A lease that later keys may share.
struct Lease {
    id: i64,
    expires: Instant,
    keys: usize,
}

/// The lease that was granted last.
#[derive(Default)]
pub(crate) struct Leases(Mutex<Option<Lease>>);

fn extra(time_to_live: Duration) -> Duration {
    (time_to_live / EXTRA_DIVISOR).min(EXTRA_MAX)
}

impl Lease {
    /// Whether a key that wants to live so long may join: neither too short nor much too long.
    fn fits(&self, now: Instant, time_to_live: Duration) -> bool {
        let wanted = now + time_to_live;
        self.keys < KEYS_PER_LEASE_MAX && wanted <= self.expires && self.expires <= wanted + extra(time_to_live)
    }
}

impl Leases {
    /// The lease for a key that is to live at least so long.
    pub(crate) async fn lease(&self, client: &Client, time_to_live: Duration) -> Result<i64, CallError> {
        // Held while one is granted, so that writes at the same time share it. While etcd does not answer they must not
        // wait for each other's deadlines.
        let waited = tokio::time::timeout(WAIT_MAX, self.0.lock()).await;
        let mut last =
            waited.map_err(|_| CallError::NotSent(format!("grant a lease: others wait for one since {WAIT_MAX:?}")))?;
        let now = Instant::now();
        if let Some(lease) = last.as_mut().filter(|lease| lease.fits(now, time_to_live)) {
            lease.keys += 1;
            return Ok(lease.id);
        }
        let lifetime = time_to_live + extra(time_to_live);
        // Whole seconds, and at least one, or etcd chooses by itself.
        let ttl_seconds =
            i64::try_from(lifetime.as_secs() + u64::from(lifetime.subsec_nanos() > 0)).unwrap_or(i64::MAX);
        let request = LeaseGrantRequest { ttl_seconds: ttl_seconds.max(1) };
        let granted: LeaseGrantResponse = client.call(LEASE_GRANT, request).await?;
        *last = Some(Lease { id: granted.id, expires: now + lifetime, keys: 1 });
        Ok(granted.id)
    }

    /// Does not use a lease again.
    pub(crate) async fn forget(&self, id: i64) {
        let mut last = self.0.lock().await;
        if last.as_ref().is_some_and(|lease| lease.id == id) {
            *last = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_share_a_lease_that_lasts_neither_too_short_nor_much_too_long() {
        let now = Instant::now();
        let hour = Duration::from_secs(3600);
        let lease = |keys| Lease { id: 1, expires: now + hour + extra(hour), keys };
        let after = |seconds| now + Duration::from_secs(seconds);
        for (keys, at, time_to_live, fits) in [
            (1, 0, hour, true),
            (999, 60, hour, true),
            (1000, 0, hour, false),
            (1, 61, hour, false),
            (1, 0, hour * 2, false),
            (1, 0, hour / 2, false),
        ] {
            assert_eq!(lease(keys).fits(after(at), time_to_live), fits, "{keys} keys, after {at} s, {time_to_live:?}");
        }
        assert_eq!(extra(Duration::from_secs(100)), Duration::from_secs(5));
        assert_eq!(extra(hour * 24), Duration::from_secs(60));
    }
}
