//! The open connections, and which of them is closed when there is no room for another.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::{Limits, SendBy};

/// The part of all connections that is closed at once when the table is full, so that looking through the table costs
/// little per connection: 10,000 connections are looked through once for every 100 that come.
const CLOSED_SHARE: usize = 100;

pub(crate) struct Table {
    max: usize,
    /// The time from which the times of connections count.
    epoch: Instant,
    next_id: AtomicU64,
    open: Mutex<HashMap<u64, Arc<State>>>,
    closed: Notify,
}

impl Table {
    pub(crate) fn new(max: usize) -> Table {
        Table { max, epoch: Instant::now(), next_id: AtomicU64::new(0), open: Mutex::default(), closed: Notify::new() }
    }

    /// Adds a connection, which stays in the table as long as the answer is kept.
    pub(crate) fn open(self: &Arc<Self>) -> Place {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let state = Arc::new(State::new(self.epoch));
        self.lock().insert(id, state.clone());
        Place { table: self.clone(), id, state }
    }

    /// True if there is room for another connection, after closing some if need be.
    pub(crate) fn make_room(&self) -> bool {
        self.lock().len() < self.max || self.close_some() > 0
    }

    /// Closes connections without a request in flight: first those that never had one, then those that have been
    /// without one longest. Answers how many.
    pub(crate) fn close_some(&self) -> usize {
        let mut open = self.lock();
        let idle = open.iter().filter(|(_, state)| state.requests.load(Ordering::Acquire) == 0);
        let mut idle: Vec<_> = idle.map(|(id, state)| (state.used(), state.since(), *id)).collect();
        let count = (self.max / CLOSED_SHARE).max(1).min(idle.len());
        if count > 0 {
            idle.select_nth_unstable(count - 1);
        }
        for (_, _, id) in &idle[..count] {
            if let Some(state) = open.remove(id) {
                state.close.notify_one();
            }
        }
        count
    }

    /// Waits until a connection is closed.
    pub(crate) async fn one_closed(&self) {
        self.closed.notified().await;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Arc<State>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection's place in the table.
pub(crate) struct Place {
    table: Arc<Table>,
    id: u64,
    pub(crate) state: Arc<State>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.table.lock().remove(&self.id);
        self.table.closed.notify_one();
    }
}

/// What a connection is doing. Times are milliseconds after the epoch; 0 stands for never.
pub(crate) struct State {
    epoch: Instant,
    /// Requests in flight: from the end of the head to the last byte of the response.
    requests: AtomicUsize,
    /// A request has been made.
    used: AtomicBool,
    /// Since when there is no request; the time of the handshake before the first.
    since: AtomicU64,
    /// When the first byte after the last request came.
    head_since: AtomicU64,
    /// Since when the client has read nothing of what waits for it.
    blocked_since: AtomicU64,
    /// When the response of an HTTP/1.1 connection must have been sent.
    send_by: Mutex<Option<SendBy>>,
    /// The table needs the room.
    pub(crate) close: Notify,
}

impl State {
    fn new(epoch: Instant) -> State {
        let state = State {
            epoch,
            requests: AtomicUsize::new(0),
            used: AtomicBool::new(false),
            since: AtomicU64::new(0),
            head_since: AtomicU64::new(0),
            blocked_since: AtomicU64::new(0),
            send_by: Mutex::default(),
            close: Notify::new(),
        };
        state.restart();
        state
    }

    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX).max(1)
    }

    fn used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    fn since(&self) -> u64 {
        self.since.load(Ordering::Relaxed)
    }

    /// The time without a request starts now.
    pub(crate) fn restart(&self) {
        self.head_since.store(0, Ordering::Relaxed);
        self.since.store(self.now(), Ordering::Relaxed);
    }

    pub(crate) fn begin(self: &Arc<Self>) -> InFlight {
        self.requests.fetch_add(1, Ordering::AcqRel);
        self.used.store(true, Ordering::Relaxed);
        InFlight(self.clone())
    }

    pub(crate) fn idle(&self) -> bool {
        self.requests.load(Ordering::Acquire) == 0
    }

    pub(crate) fn send_by(&self, deadline: SendBy) {
        *self.send_by.lock().unwrap_or_else(PoisonError::into_inner) = Some(deadline);
    }

    /// Bytes were read.
    pub(crate) fn read(&self) {
        if self.idle() && self.head_since.load(Ordering::Relaxed) == 0 {
            self.head_since.store(self.now(), Ordering::Relaxed);
        }
    }

    /// The client takes no more.
    pub(crate) fn blocked(&self) {
        if self.blocked_since.load(Ordering::Relaxed) == 0 {
            self.blocked_since.store(self.now(), Ordering::Relaxed);
        }
    }

    /// The client took something.
    pub(crate) fn unblocked(&self) {
        if self.blocked_since.load(Ordering::Relaxed) != 0 {
            self.blocked_since.store(0, Ordering::Relaxed);
        }
    }

    /// The next time at which the connection has lasted too long, if nothing happens.
    pub(crate) fn deadline(&self, limits: &Limits, http1: bool) -> Option<Instant> {
        let after = |since: u64, limit: Duration| self.epoch + Duration::from_millis(since) + limit;
        let head_since = self.head_since.load(Ordering::Relaxed);
        let waiting = match (self.idle(), self.used()) {
            (false, _) => None,
            (true, false) => Some(after(self.since(), limits.first_request)),
            // Frames of HTTP/2 come without a request, too.
            (true, true) if http1 && head_since != 0 => Some(after(head_since, limits.head)),
            (true, true) => Some(after(self.since(), limits.idle)),
        };
        let blocked_since = self.blocked_since.load(Ordering::Relaxed);
        let stalled = (blocked_since != 0).then(|| after(blocked_since, limits.write_stall));
        let response = self.send_by.lock().unwrap_or_else(PoisonError::into_inner).as_ref().and_then(SendBy::at);
        [waiting, stalled, response].into_iter().flatten().min()
    }
}

/// A request in flight.
pub(crate) struct InFlight(Arc<State>);

impl Drop for InFlight {
    fn drop(&mut self) {
        *self.0.send_by.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.0.restart();
        self.0.requests.fetch_sub(1, Ordering::AcqRel);
    }
}
