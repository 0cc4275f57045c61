//! Virtual time.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bayplan_model::api::Timer;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use jiff::Timestamp;

type OnSleep = Box<dyn FnMut(Duration) + Send>;

/// The time as a test says it is; clones share it.
///
/// As a [`Timer`] it never waits: a sleep moves the time and ends at once.
#[derive(Clone, Default)]
pub struct VirtualClock {
    nanoseconds: Arc<AtomicI64>,
    on_sleep: Arc<Mutex<Option<OnSleep>>>,
}

impl VirtualClock {
    /// A clock that stands at this time; [`VirtualClock::default`] stands at the Unix epoch.
    pub fn at(time: Timestamp) -> Self {
        let clock = VirtualClock::default();
        clock.set(time);
        clock
    }

    /// Calls the function with the length of every sleep, before the sleep ends: what happens meanwhile.
    #[must_use]
    pub fn on_sleep(self, run: impl FnMut(Duration) + Send + 'static) -> Self {
        *self.on_sleep.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(run));
        self
    }

    /// Moves the clock to this time.
    pub fn set(&self, time: Timestamp) {
        let nanoseconds = i64::try_from(time.as_nanosecond()).unwrap();
        self.nanoseconds.store(nanoseconds, Ordering::Relaxed);
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.nanoseconds.fetch_add(i64::try_from(by.as_nanos()).unwrap(), Ordering::Relaxed);
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_nanosecond(self.nanoseconds.load(Ordering::Relaxed).into()).unwrap()
    }
}

impl Timer for VirtualClock {
    fn now(&self) -> Timestamp {
        VirtualClock::now(self)
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.advance(duration);
        if let Some(run) = &mut *self.on_sleep.lock().unwrap_or_else(PoisonError::into_inner) {
            run(duration);
        }
        ready(()).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_moves_the_time_of_every_clone_and_runs_what_happens_meanwhile() {
        let slept = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&slept);
        let start = Timestamp::from_second(100).unwrap();
        let clock = VirtualClock::at(start).on_sleep(move |duration| seen.lock().unwrap().push(duration));
        let other = clock.clone();
        assert!(clock.sleep(Duration::from_secs(3)).now_or_never().is_some());
        assert_eq!(other.now(), start + Duration::from_secs(3));
        assert_eq!(*slept.lock().unwrap(), [Duration::from_secs(3)]);
    }
}
