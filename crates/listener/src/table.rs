//! The open connections, and which of them is closed when there is no room for another.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::{Limits, SendBy};

/// The part of all connections that is closed at once when the table is full, so that looking through the table costs
/// little per connection: 10,000 connections are looked through once for every 100 that come.
const CLOSED_SHARE: usize = 100;

/// How long a connection is left alone after each step it took, whoever else wants its place: a client on a busy
/// machine needs some time to say something. Those who come meanwhile wait to be accepted.
const GRACE: Duration = Duration::from_millis(50);

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

    /// Closes connections without a request in flight, unless they have just come: first those that came least far, and
    /// among them those that have waited longest. Answers how many.
    pub(crate) fn close_some(&self) -> usize {
        let mut open = self.lock();
        let may_go = |state: &State| state.idle() && state.since_elapsed() >= GRACE;
        let idle = open.iter().filter(|(_, state)| may_go(state));
        let mut idle: Vec<_> = idle.map(|(id, state)| (state.stage(), state.since(), *id)).collect();
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

/// How far a connection has come. The further, the more it has cost its client, and the later it makes room: however
/// many say nothing, they do not take the place of one that is in its handshake.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Stage {
    Silent,
    Handshake,
    Connected,
    Used,
}

/// What a connection is doing. Times are milliseconds after the epoch; 0 stands for never.
pub(crate) struct State {
    epoch: Instant,
    /// Requests in flight: from the end of the head to the last byte of the response.
    requests: AtomicUsize,
    /// A [`Stage`].
    stage: AtomicU8,
    /// Since when there is no request; before the first, since when it is on its stage.
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
            stage: AtomicU8::new(Stage::Silent as u8),
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

    fn stage(&self) -> u8 {
        self.stage.load(Ordering::Relaxed)
    }

    fn used(&self) -> bool {
        self.stage() == Stage::Used as u8
    }

    /// The client said something: the first bytes of its handshake.
    pub(crate) fn spoke(&self) {
        self.stage.store(Stage::Handshake as u8, Ordering::Relaxed);
        self.restart();
    }

    /// The handshake is done.
    pub(crate) fn connected(&self) {
        self.stage.store(Stage::Connected as u8, Ordering::Relaxed);
        self.restart();
    }

    fn since(&self) -> u64 {
        self.since.load(Ordering::Relaxed)
    }

    fn since_elapsed(&self) -> Duration {
        Duration::from_millis(self.now().saturating_sub(self.since()))
    }

    /// The time without a request starts now.
    fn restart(&self) {
        self.head_since.store(0, Ordering::Relaxed);
        self.since.store(self.now(), Ordering::Relaxed);
    }

    pub(crate) fn begin(self: &Arc<Self>) -> InFlight {
        self.requests.fetch_add(1, Ordering::AcqRel);
        self.stage.store(Stage::Used as u8, Ordering::Relaxed);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn connections_that_came_least_far_make_room_first_and_the_oldest_among_them() {
        let table = Arc::new(Table::new(1));
        let mut places = Vec::new();
        for stage in ["used", "connected", "handshake", "silent", "silent too", "in flight"] {
            let place = table.open();
            if stage == "handshake" {
                place.state.spoke();
            } else if stage == "connected" {
                place.state.connected();
            }
            let request = ["used", "in flight"].contains(&stage).then(|| place.state.begin());
            let request = request.filter(|_| stage == "in flight");
            places.push((stage, place, request));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let newest = table.open();
        for closed in ["silent", "silent too", "handshake", "connected", "used"] {
            assert_eq!(table.close_some(), 1);
            let position = places.iter().position(|(_, place, _)| !table.lock().contains_key(&place.id));
            assert_eq!(places.remove(position.unwrap()).0, closed);
        }
        assert_eq!(table.close_some(), 0, "neither a request in flight nor one who just came makes room");
        tokio::time::advance(GRACE).await;
        assert_eq!(table.close_some(), 1);
        assert!(!table.lock().contains_key(&newest.id));
    }
}
