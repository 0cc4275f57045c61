//! The control loops of one process, stepped by hand: for replays and simulations, which run in one thread, under
//! virtual time and in an order of their choice.
//!
//! ```text
//!   observe(delta) ─▶ queues ─▶ take ─▶ Job::run(context) ─▶ finish(outcome) ─▶ queues
//! ```

use std::sync::Arc;
use std::time::Duration;

use bayplan_model::delta::Delta;
use bayplan_model::meta::PartialObjectMetadata;
use bayplan_model::work_queue::WorkQueue;

use crate::cache::{AnyDelta, Cache};
use crate::controller::{Context, Controller, Requeue, Wakeup};
use crate::discovery::ApiResource;
use crate::error::Error;

struct Loop {
    controller: Arc<dyn Controller>,
    queue: WorkQueue<String>,
}

/// The loops, their queues and the cache they share. Dropping it is a crash: nothing else keeps state.
pub struct Process {
    cache: Arc<Cache>,
    loops: Vec<Loop>,
    /// The loop whose queue is read first next time, so that none starves another.
    turn: usize,
}

/// A key handed out to be reconciled; [`Process::finish`] takes it back.
pub struct Job {
    controller: Arc<dyn Controller>,
    key: String,
    index: usize,
}

impl Job {
    /// Upstream's name of the controller.
    pub fn controller(&self) -> &'static str {
        self.controller.name()
    }

    /// The component its events come from.
    pub fn component(&self) -> &'static str {
        self.controller.component()
    }

    /// The key to reconcile.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Reconciles the key; the future may be dropped at any point.
    pub async fn run(&self, context: Context<'_>) -> Result<Requeue, Error> {
        self.controller.sync(&self.key, context).await
    }
}

impl Process {
    /// A process of these loops over this cache.
    pub fn new(cache: Arc<Cache>, controllers: impl IntoIterator<Item = Arc<dyn Controller>>) -> Self {
        let make = |controller: Arc<dyn Controller>| {
            let mut queue = WorkQueue::new(controller.retry_limits());
            for wakeup in controller.start() {
                queue.add_after(wakeup.key, wakeup.after, Duration::ZERO);
            }
            Loop { controller, queue }
        };
        Process { cache, loops: controllers.into_iter().map(make).collect(), turn: 0 }
    }

    /// The cache the loops share.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Wakes every loop that a change concerns; the cache has the change already.
    pub fn observe(&mut self, delta: &AnyDelta, now: Duration) {
        for each in &mut self.loops {
            for wakeup in each.controller.observe(delta) {
                each.queue.add_after(wakeup.key, wakeup.after, now);
            }
        }
    }

    /// Wakes every loop that follows a resource and that a change of one of its objects concerns.
    pub fn observe_metadata(
        &mut self,
        resource: &ApiResource,
        delta: &Delta<Arc<PartialObjectMetadata>>,
        now: Duration,
    ) {
        for each in self.loops.iter_mut().filter(|each| each.controller.follows(resource)) {
            for wakeup in each.controller.observe_metadata(resource, delta) {
                each.queue.add_after(wakeup.key, wakeup.after, now);
            }
        }
    }

    /// Adds keys to the queue of one loop.
    pub fn wake(&mut self, controller: &str, wakeups: Vec<Wakeup>, now: Duration) {
        for each in self.loops.iter_mut().filter(|each| each.controller.name() == controller) {
            for wakeup in wakeups.iter().cloned() {
                each.queue.add_after(wakeup.key, wakeup.after, now);
            }
        }
    }

    /// Hands out the next ready key, loop by loop in turn.
    pub fn take(&mut self, now: Duration) -> Option<Job> {
        self.take_of(now, |_| true)
    }

    /// Hands out the next ready key of the loops whose name is accepted.
    pub fn take_of(&mut self, now: Duration, accepts: impl Fn(&str) -> bool) -> Option<Job> {
        for offset in 0..self.loops.len() {
            let index = (self.turn + offset) % self.loops.len();
            let each = &mut self.loops[index];
            if !accepts(each.controller.name()) {
                continue;
            }
            if let Some(key) = each.queue.get(now) {
                self.turn = index + 1;
                return Some(Job { controller: each.controller.clone(), key, index });
            }
        }
        None
    }

    /// Takes a key back, and requeues it when its outcome asks for that.
    pub fn finish(&mut self, job: Job, outcome: Result<Requeue, Error>, now: Duration) {
        let Job { controller, key, index } = job;
        let queue = &mut self.loops[index].queue;
        let again = match outcome {
            Ok(Requeue::OnChange) => false,
            Ok(Requeue::After(delay)) => {
                queue.add_after(key.clone(), delay, now);
                false
            }
            Ok(Requeue::RateLimited) => true,
            Ok(Requeue::Failed { after, .. }) => {
                queue.add_after(key.clone(), after, now);
                true
            }
            Ok(Requeue::Keys { keys, again }) => {
                for wakeup in keys {
                    queue.add_after(wakeup.key, wakeup.after, now);
                }
                again
            }
            Err(error) => !error.is_namespace_terminating() && queue.requeues(&key) < controller.max_retries(),
        };
        if again {
            queue.add_rate_limited(key.clone(), now);
        } else {
            queue.forget(&key);
        }
        queue.done(&key);
    }

    /// When the next waiting key becomes ready.
    pub fn next_deadline(&mut self) -> Option<Duration> {
        self.loops.iter_mut().filter_map(|each| each.queue.next_deadline()).min()
    }

    /// How many keys are ready now.
    pub fn ready(&self) -> usize {
        self.loops.iter().map(|each| each.queue.len()).sum()
    }
}
