//! The streams of an HTTP/2 connection: each runs as a task of its own, which ends at the deadline of its response.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use hyper::rt::Executor;
use tokio::time::{Instant, Sleep};

/// When the last byte of a response must have been sent: an extension of the response. A client that has not read it
/// by then loses its stream, or its HTTP/1.1 connection.
#[derive(Clone, Debug)]
pub struct SendBy {
    at: Instant,
    lifted: Arc<AtomicBool>,
}

impl SendBy {
    /// A deadline at a time.
    pub fn new(at: Instant) -> SendBy {
        SendBy { at, lifted: Arc::default() }
    }

    /// Lifts the deadline: what follows has none. The start of a watch has a deadline, its events have none.
    pub fn lift(&self) {
        self.lifted.store(true, Ordering::Relaxed);
    }

    pub(crate) fn at(&self) -> Option<Instant> {
        (!self.lifted.load(Ordering::Relaxed)).then_some(self.at)
    }
}

tokio::task_local! {
    /// The deadline of the stream whose task runs.
    static CURRENT: RefCell<Option<SendBy>>;
}

/// Sets the deadline of the current stream; false outside of a stream's task.
pub(crate) fn send_by(deadline: &SendBy) -> bool {
    CURRENT.try_with(|current| current.replace(Some(deadline.clone()))).is_ok()
}

/// Runs the streams of a connection.
#[derive(Clone)]
pub(crate) struct Streams;

impl<F> Executor<F> for Streams
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, stream: F) {
        let stream = Stream { inner: Box::pin(stream), sleep: None };
        tokio::spawn(CURRENT.scope(RefCell::default(), stream));
    }
}

struct Stream<F> {
    inner: Pin<Box<F>>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl<F: Future> Future for Stream<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.inner.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let deadline = CURRENT.with(|current| current.borrow().as_ref().and_then(SendBy::at));
        let Some(deadline) = deadline else {
            self.sleep = None;
            return Poll::Pending;
        };
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if sleep.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        // A lifted deadline shows when the stream is polled next, which the timer has just done.
        tracing::debug!("a response was not read in time");
        Poll::Ready(())
    }
}
