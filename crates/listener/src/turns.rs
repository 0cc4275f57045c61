//! Turns for handshakes, whose steps are the most that a client without credentials can make the server compute.
//!
//! A step of a handshake takes a good part of a millisecond. Ten thousand that come at once would stand in the
//! runtime's queue before everything else: probes, requests on other connections, and the acceptance of new ones. Here
//! they wait apart, and a few at a time have their turn, for one step each. Every other turn goes to the newest of
//! them, so that whoever comes in the middle of a flood is served next, and the others to the oldest, so that nobody
//! is passed over for ever.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// The turns of one listener.
pub(crate) struct Turns(Mutex<Line>);

struct Line {
    /// Turns that nobody has.
    free: usize,
    /// The number of the next one who has to wait.
    next: u64,
    /// Those who wait, by when they came.
    waiting: BTreeMap<u64, Waker>,
    /// Those whose turn it is and who have not taken it yet.
    called: BTreeSet<u64>,
    /// The next turn is for the oldest of those who wait.
    oldest_is_next: bool,
}

impl Turns {
    /// As many turns at once as there are cores less one, which is left for everything else.
    pub(crate) fn new() -> Arc<Turns> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Turns::of(cores.saturating_sub(1).max(1))
    }

    fn of(free: usize) -> Arc<Turns> {
        let (waiting, called) = (BTreeMap::new(), BTreeSet::new());
        Arc::new(Turns(Mutex::new(Line { free, next: 0, waiting, called, oldest_is_next: false })))
    }

    /// Does some work, each step of it in a turn of its own.
    pub(crate) async fn step_by_step<F: Future>(self: &Arc<Self>, work: F) -> F::Output {
        let mut work = pin!(work);
        let mut place = InLine { turns: self, number: None };
        std::future::poll_fn(|context| {
            if place.poll(context).is_pending() {
                return Poll::Pending;
            }
            let _turn = Turn(self);
            work.as_mut().poll(context)
        })
        .await
    }

    fn line(&self) -> std::sync::MutexGuard<'_, Line> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the next one, if anyone waits.
    fn pass_on(&self) {
        let mut line = self.line();
        let next = if line.oldest_is_next { line.waiting.pop_first() } else { line.waiting.pop_last() };
        let Some((number, waker)) = next else {
            line.free += 1;
            return;
        };
        line.oldest_is_next = !line.oldest_is_next;
        line.called.insert(number);
        drop(line);
        waker.wake();
    }
}

/// A turn, which ends with the step.
struct Turn<'t>(&'t Turns);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.pass_on();
    }
}

/// Someone's place in line; none between two steps.
struct InLine<'t> {
    turns: &'t Turns,
    number: Option<u64>,
}

impl InLine<'_> {
    /// Ready when it is their turn.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut line = self.turns.line();
        match self.number {
            None if line.free > 0 => {
                line.free -= 1;
                Poll::Ready(())
            }
            Some(number) if line.called.remove(&number) => {
                self.number = None;
                Poll::Ready(())
            }
            waiting => {
                let number = waiting.unwrap_or(line.next);
                line.next = line.next.max(number + 1);
                line.waiting.insert(number, context.waker().clone());
                self.number = Some(number);
                Poll::Pending
            }
        }
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut line = self.turns.line();
        line.waiting.remove(&number);
        let was_called = line.called.remove(&number);
        drop(line);
        if was_called {
            self.turns.pass_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use futures::FutureExt;
    use futures::future::join_all;
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn the_newest_and_the_oldest_have_their_turns_in_turn() {
        let turns = Turns::of(1);
        let order = &RefCell::new(String::new());
        let step = |name: char| turns.step_by_step(async move { order.borrow_mut().push(name) });
        // All of them come while someone else has the only turn.
        let held = Turn(&turns);
        turns.line().free = 0;
        let mut waiting: Vec<_> = "abcdef".chars().map(|name| Box::pin(step(name))).collect();
        for one in &mut waiting {
            assert!(one.as_mut().now_or_never().is_none());
        }
        drop(held);
        join_all(waiting).await;
        assert_eq!(*order.borrow(), "faebdc");
        assert_eq!(turns.line().free, 1);
    }

    #[tokio::test]
    async fn a_step_that_waits_for_the_client_keeps_no_turn() {
        let turns = Turns::of(1);
        let mut silent = Box::pin(turns.step_by_step(std::future::pending::<()>()));
        assert!(silent.as_mut().now_or_never().is_none());
        turns.step_by_step(yield_now()).await;
        assert_eq!(turns.line().free, 1);
    }

    #[tokio::test]
    async fn who_leaves_passes_the_turn_on() {
        let turns = Turns::of(1);
        let held = Turn(&turns);
        turns.line().free = 0;
        let (mut leaves, mut stays) = (Box::pin(turns.step_by_step(async {})), Box::pin(turns.step_by_step(async {})));
        assert!(stays.as_mut().now_or_never().is_none());
        assert!(leaves.as_mut().now_or_never().is_none());
        drop(held);
        // The newest was called, and is gone before it could answer.
        drop(leaves);
        stays.await;
        let line = turns.line();
        assert_eq!((line.free, line.called.len(), line.waiting.len()), (1, 0, 0));
    }
}
