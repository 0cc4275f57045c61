//! Requests about much data, which compute for a while: apart from the threads that answer everybody else, few at once.
//!
//! Every step of a request is linear in its size, so that the largest body takes a fraction of a second. That is still
//! thousands of times as long as a thread of the runtime may be kept: health checks, leases and bindings would wait.

use std::pin::pin;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;

/// From how many bytes on a request is worked on apart: about a millisecond of work. Handing over a thread of the
/// runtime takes some ten microseconds, which hardly any object is large enough to pay.
const BIG_BYTES: usize = 64 * 1024;

/// The places for big requests.
pub(crate) struct BigWork {
    places: Semaphore,
}

impl Default for BigWork {
    /// One core is left for the others. Each request also takes some fifty times its size in memory, for as long as it
    /// has a place.
    fn default() -> BigWork {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        BigWork::new(cores.saturating_sub(1).max(1))
    }
}

impl BigWork {
    fn new(places: usize) -> BigWork {
        BigWork { places: Semaphore::new(places) }
    }

    /// Runs a request with a body of so many bytes. A big one waits for a place first; its deadline goes on meanwhile.
    pub(crate) async fn run<F: Future>(&self, bytes: usize, request: F) -> F::Output {
        if bytes < BIG_BYTES {
            return request.await;
        }
        let _place = self.places.acquire().await;
        apart(bytes, request).await
    }
}

/// Runs work on so many bytes apart if they are many, without a place.
pub(crate) async fn apart<F: Future>(bytes: usize, work: F) -> F::Output {
    let mut work = pin!(work);
    // Each step on its own, so that a deadline can fall between two of them.
    std::future::poll_fn(|context| apart_now(bytes, || work.as_mut().poll(context))).await
}

/// Computes something about so many bytes apart if they are many.
pub(crate) fn apart_now<T>(bytes: usize, compute: impl FnOnce() -> T) -> T {
    let on_many_threads = || Handle::try_current().is_ok_and(|own| own.runtime_flavor() == RuntimeFlavor::MultiThread);
    if bytes < BIG_BYTES || !on_many_threads() { compute() } else { tokio::task::block_in_place(compute) }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn others_are_answered_while_a_big_request_computes() {
        let big = Arc::new(BigWork::new(1));
        let (answer, answered) = mpsc::channel();
        let computing = tokio::spawn(async move { big.run(BIG_BYTES, async move { answered.recv() }).await });
        // The runtime has one thread: this task can only run if the request does not keep it.
        let other = tokio::spawn(async move { answer.send("readyz") });
        other.await.unwrap().unwrap();
        assert_eq!(computing.await.unwrap(), Ok("readyz"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_for_a_place_counts_against_the_deadline_of_a_big_request_alone() {
        let big = BigWork::new(1);
        let endless = big.run(BIG_BYTES, std::future::pending::<()>());
        let waiting = tokio::time::timeout(Duration::from_secs(60), big.run(BIG_BYTES, async {}));
        let small = big.run(BIG_BYTES - 1, async { 1 });
        tokio::select! {
            biased;
            () = endless => unreachable!("it never ends"),
            (waited, small) = async { tokio::join!(waiting, small) } => {
                assert!(waited.is_err());
                assert_eq!(small, 1);
            }
        }
    }
}
