//! The streams of an HTTP/2 connection: each runs as a task of its own, which ends at the deadline of its response.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::Executor;
use tokio::time::{Instant, Sleep};

/// How long a client may take nothing of a response. Less than a request waits for a seat (15 s), so that answers which
/// nobody reads do not get others refused; more than a link of 4 KB/s needs for a chunk of 32 KiB.
const UNREAD_MAX: Duration = Duration::from_secs(10);

/// When the last byte of a response must have been sent: an extension of the response. A client that has not read it
/// by then, or takes nothing of it for a while, loses its stream, or its HTTP/1.1 connection.
#[derive(Clone, Debug)]
pub struct SendBy(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    at: Instant,
    made: Instant,
    /// When something was last taken, in milliseconds after it was made.
    taken: AtomicU64,
    lifted: AtomicBool,
}

impl SendBy {
    /// A deadline at a time.
    pub fn new(at: Instant) -> SendBy {
        SendBy(Arc::new(Inner { at, made: Instant::now(), taken: AtomicU64::new(0), lifted: AtomicBool::new(false) }))
    }

    /// Lifts the deadline: what follows has none. The start of a watch has a deadline, its events have none.
    pub fn lift(&self) {
        self.0.lifted.store(true, Ordering::Relaxed);
    }

    /// The client has taken something.
    pub(crate) fn taken(&self) {
        let after = u64::try_from(self.0.made.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.taken.store(after, Ordering::Relaxed);
    }

    pub(crate) fn at(&self) -> Option<Instant> {
        let Inner { at, made, taken, lifted } = &*self.0;
        let unread = *made + Duration::from_millis(taken.load(Ordering::Relaxed)) + UNREAD_MAX;
        (!lifted.load(Ordering::Relaxed)).then(|| unread.min(*at))
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
        loop {
            let deadline = CURRENT.with(|current| current.borrow().as_ref().and_then(SendBy::at));
            let Some(deadline) = deadline else {
                self.sleep = None;
                return Poll::Pending;
            };
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
            if sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            if deadline <= Instant::now() {
                tracing::debug!("a response was not read in time");
                return Poll::Ready(());
            }
            // Something was taken since the timer was set.
            sleep.as_mut().reset(deadline);
        }
    }
}
