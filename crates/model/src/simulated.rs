//! What stands in for the clock and for chance in a deterministic world: one thread, one seed, virtual time.
//!
//! Shells ask here before they read the real ones. Nothing is installed outside such a world, and the cores still take
//! `now` and their inputs as arguments.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;

use jiff::Timestamp;

/// The time and the chance of a world.
pub trait World {
    /// The time on the wall.
    fn now(&self) -> Timestamp;
    /// The next number, of all 64-bit numbers.
    fn draw(&self) -> u64;
}

thread_local! {
    static WORLD: RefCell<Option<Rc<dyn World>>> = const { RefCell::new(None) };
}

/// Lets everything on this thread live in a world, until the answer is dropped.
#[must_use = "dropping it takes the world away again"]
pub fn install(world: Rc<dyn World>) -> Installed {
    WORLD.set(Some(world));
    Installed(PhantomData)
}

/// A world is installed on this thread as long as this lives.
#[derive(Debug)]
pub struct Installed(PhantomData<Rc<()>>);

impl Drop for Installed {
    fn drop(&mut self) {
        WORLD.set(None);
    }
}

/// The time of this thread's world, if it has one.
pub fn now() -> Option<Timestamp> {
    ask(|world| world.now())
}

/// The next number of this thread's world, if it has one.
pub fn draw() -> Option<u64> {
    ask(|world| world.draw())
}

fn ask<T>(question: impl FnOnce(&dyn World) -> T) -> Option<T> {
    // A thread that is ending has no world any more.
    WORLD.try_with(|world| world.borrow().as_deref().map(question)).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Still;

    impl World for Still {
        fn now(&self) -> Timestamp {
            Timestamp::UNIX_EPOCH
        }

        fn draw(&self) -> u64 {
            7
        }
    }

    #[test]
    fn a_world_is_there_until_it_is_dropped_and_on_its_own_thread_alone() {
        assert_eq!((now(), draw()), (None, None));
        let world = install(Rc::new(Still));
        assert_eq!((now(), draw()), (Some(Timestamp::UNIX_EPOCH), Some(7)));
        assert_eq!(std::thread::spawn(draw).join().unwrap(), None);
        drop(world);
        assert_eq!(now(), None);
    }
}
