//! What each user holds of the server's memory outside of its seats: requests that wait, bodies, answers not yet read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The most requests of one user that wait for the rest of their body or for a resource version. Each holds a stream
/// and some KiB: 1,000 take about 16 MiB.
const WAITING_MAX: usize = 1_000;
/// The most bytes of one user's large bodies: ten of the largest.
const BODIES_MAX: usize = 32 * 1024 * 1024;
/// The most bytes of all users' large bodies together.
const ALL_BODIES_MAX: usize = 1024 * 1024 * 1024;
/// The most bytes of one user's large answers that wait to be read. One answer alone may be larger.
const UNSENT_MAX: usize = 32 * 1024 * 1024;

/// The most logs that one user follows, and sessions. Each holds a stream and, over HTTP/1.1, a connection.
const STREAMS_MAX: usize = 200;

/// Bodies and answers up to this size are not counted: the requests in flight and in queues bound them.
pub(crate) const SMALL: usize = 16 * 1024;

/// What the users hold.
#[derive(Default)]
pub(crate) struct Usage {
    users: Mutex<Users>,
}

#[derive(Default)]
struct Users {
    by_name: HashMap<Box<str>, Holding>,
    bodies: usize,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Holding {
    waiting: usize,
    bodies: usize,
    unsent: usize,
    streams: usize,
}

/// A part of what a user holds, given back when it is dropped.
pub(crate) struct Held {
    usage: Arc<Usage>,
    user: Box<str>,
    part: Holding,
}

impl Usage {
    /// A request waits.
    pub(crate) fn wait(self: &Arc<Self>, user: &str) -> Option<Held> {
        self.hold(user, Holding { waiting: 1, ..Holding::default() })
    }

    /// A request has a body of so many bytes.
    pub(crate) fn body(self: &Arc<Self>, user: &str, bytes: usize) -> Option<Held> {
        self.hold(user, Holding { bodies: bytes, ..Holding::default() })
    }

    /// So many bytes of an answer wait to be read.
    pub(crate) fn unsent(self: &Arc<Self>, user: &str, bytes: usize) -> Option<Held> {
        self.hold(user, Holding { unsent: bytes, ..Holding::default() })
    }

    /// A log is followed, or a session is open.
    pub(crate) fn stream(self: &Arc<Self>, user: &str) -> Option<Held> {
        self.hold(user, Holding { streams: 1, ..Holding::default() })
    }

    fn hold(self: &Arc<Self>, user: &str, part: Holding) -> Option<Held> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let held = users.by_name.get(user).copied().unwrap_or_default();
        let sum = Holding {
            waiting: held.waiting + part.waiting,
            bodies: held.bodies + part.bodies,
            unsent: held.unsent + part.unsent,
            streams: held.streams + part.streams,
        };
        let fits = sum.waiting <= WAITING_MAX
            && sum.streams <= STREAMS_MAX
            && sum.bodies <= BODIES_MAX
            && users.bodies + part.bodies <= ALL_BODIES_MAX
            && (held.unsent == 0 || part.unsent == 0 || sum.unsent <= UNSENT_MAX);
        if !fits {
            return None;
        }
        users.bodies += part.bodies;
        users.by_name.insert(user.into(), sum);
        Some(Held { usage: self.clone(), user: user.into(), part })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut users = self.usage.users.lock().unwrap_or_else(PoisonError::into_inner);
        users.bodies -= self.part.bodies;
        let Some(held) = users.by_name.get_mut(&self.user) else { return };
        held.waiting -= self.part.waiting;
        held.bodies -= self.part.bodies;
        held.unsent -= self.part.unsent;
        held.streams -= self.part.streams;
        if *held == Holding::default() {
            users.by_name.remove(&self.user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_limits_of_its_own_and_leaves_nothing_behind() {
        let usage = Arc::new(Usage::default());
        let waiting: Vec<_> = (0..WAITING_MAX).map(|_| usage.wait("a").unwrap()).collect();
        assert!(usage.wait("a").is_none());
        let other = usage.wait("b").unwrap();
        let bodies = usage.body("a", BODIES_MAX).unwrap();
        assert!(usage.body("a", 1).is_none());
        // A single answer may have any size; a second one must fit.
        let answer = usage.unsent("a", 10 * UNSENT_MAX).unwrap();
        assert!(usage.unsent("a", 1).is_none());
        assert!(usage.unsent("a", 0).is_some());
        let streams: Vec<_> = (0..STREAMS_MAX).map(|_| usage.stream("a").unwrap()).collect();
        assert!(usage.stream("a").is_none() && usage.stream("b").is_some());
        drop((waiting, other, bodies, answer, streams));
        assert!(usage.users.lock().unwrap().by_name.is_empty());
        assert_eq!(usage.users.lock().unwrap().bodies, 0);
    }

    #[test]
    fn all_bodies_together_have_a_limit() {
        let usage = Arc::new(Usage::default());
        let users = ALL_BODIES_MAX / BODIES_MAX;
        let held: Vec<_> = (0..users).map(|user| usage.body(&user.to_string(), BODIES_MAX).unwrap()).collect();
        assert!(usage.body("another", 1).is_none());
        drop(held);
        assert!(usage.body("another", 1).is_some());
    }
}
