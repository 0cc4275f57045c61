//! Limits the requests in flight: others wait for a seat, and get a 429 if the queue is full or the wait too long.

use std::time::Duration;

use bayplan_model::status::Status;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::request::RequestInfo;
use crate::status_errors;

/// The most requests in flight: upstream's 400 readers and 200 writers. With bodies of up to 3 MiB each they take
/// 1.8 GiB at most.
const SEATS_MAX: usize = 600;
/// The most requests that wait for a seat; their bodies are not read yet, so each costs a few KiB.
const QUEUED_MAX: usize = 5_000;
/// The longest wait for a seat: a quarter of the request timeout, as upstream.
const WAIT_MAX: Duration = Duration::from_secs(15);

/// The seats, and the queue for them.
pub(crate) struct InFlight {
    seats: Semaphore,
    queue: Semaphore,
}

impl Default for InFlight {
    fn default() -> InFlight {
        InFlight::new(SEATS_MAX, QUEUED_MAX)
    }
}

impl InFlight {
    fn new(seats: usize, queued: usize) -> InFlight {
        InFlight { seats: Semaphore::new(seats), queue: Semaphore::new(queued) }
    }

    /// Waits for a seat. Some requests need none: watches, which last long; leases, without which a busy server would
    /// lose its leaders and nodes; and health checks.
    pub(crate) async fn enter(&self, info: &RequestInfo) -> Result<Option<SemaphorePermit<'_>>, Status> {
        let health = ["/healthz", "/livez", "/readyz"];
        let exempt = match info.is_resource {
            true => info.long_running() || info.plural == "leases",
            false => health.iter().any(|prefix| info.path.starts_with(prefix)),
        };
        if exempt {
            return Ok(None);
        }
        if let Ok(seat) = self.seats.try_acquire() {
            return Ok(Some(seat));
        }
        let busy = || status_errors::too_many_requests("too many requests, please try again later", 1);
        let _queued = self.queue.try_acquire().map_err(|_| busy())?;
        match tokio::time::timeout(WAIT_MAX, self.seats.acquire()).await {
            Ok(Ok(seat)) => Ok(Some(seat)),
            _ => Err(busy()),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::request::Query;

    fn info(path: &str, query: &str) -> RequestInfo {
        RequestInfo::parse(&Method::GET, path, &Query::parse(query))
    }

    #[tokio::test(start_paused = true)]
    async fn requests_wait_for_a_seat_and_are_refused_when_too_many_wait() {
        let in_flight = InFlight::new(1, 1);
        let pods = info("/api/v1/pods", "");
        let first = in_flight.enter(&pods).await.unwrap();
        assert!(first.is_some());
        // One request waits too long, the other finds the queue full.
        let (waited, refused) = tokio::join!(in_flight.enter(&pods), in_flight.enter(&pods));
        for status in [waited.unwrap_err(), refused.unwrap_err()] {
            assert_eq!((status.code, &*status.reason), (429, "TooManyRequests"));
            assert_eq!(status.details.unwrap().retry_after_seconds, 1);
        }
        let (waited, ()) = tokio::join!(in_flight.enter(&pods), async { drop(first) });
        assert!(waited.unwrap().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn watches_leases_and_health_checks_never_wait() {
        let in_flight = InFlight::new(0, 0);
        for (path, query) in [
            ("/api/v1/pods", "watch=true"),
            ("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n", ""),
            ("/livez", ""),
            ("/readyz/etcd", ""),
        ] {
            assert!(in_flight.enter(&info(path, query)).await.unwrap().is_none(), "{path}");
        }
        assert!(in_flight.enter(&info("/version", "")).await.is_err());
    }
}
