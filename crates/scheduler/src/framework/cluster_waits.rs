//! Waits of binding cycles for what the cluster state will show: volumes that are bound, devices that are ready.
//!
//! A binding cycle runs outside the task that owns the cluster, so it leaves a question behind. The owner asks all
//! questions at every tick, which costs no request to the API server and no failure of one.

use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::channel::oneshot;
use jiff::Timestamp;

use crate::cluster::Cluster;

/// Asks about the cluster; true when nobody needs to ask again.
type Question = Box<dyn FnMut(&Cluster, Timestamp) -> bool + Send>;

/// The open questions of the binding cycles of one profile.
#[derive(Default)]
pub struct ClusterWaits(Mutex<Vec<Question>>);

impl ClusterWaits {
    /// Waits for an answer. The question is asked at every tick of the scheduler, about once a second, with the cluster
    /// state and the time.
    pub async fn until<T: Send + 'static>(
        &self,
        mut ask: impl FnMut(&Cluster, Timestamp) -> Option<T> + Send + 'static,
    ) -> T {
        let (sender, answer) = oneshot::channel();
        let mut sender = Some(sender);
        self.lock().push(Box::new(move |cluster, now| {
            // A binding cycle that was cancelled waits no longer.
            if sender.as_ref().is_none_or(oneshot::Sender::is_canceled) {
                return true;
            }
            let Some(answer) = ask(cluster, now) else { return false };
            if let Some(sender) = sender.take() {
                // It was there a moment ago; if it has gone since, nobody needs the answer.
                let _ = sender.send(answer);
            }
            true
        }));
        match answer.await {
            Ok(answer) => answer,
            // The scheduler is gone.
            Err(_) => std::future::pending().await,
        }
    }

    /// Asks all questions.
    pub(crate) fn ask(&self, cluster: &Cluster, now: Timestamp) {
        let mut open = std::mem::take(&mut *self.lock());
        if open.is_empty() {
            return;
        }
        open.retain_mut(|question| !question(cluster, now));
        let mut new = self.lock();
        open.append(&mut new);
        *new = open;
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Question>> {
        // Questions are asked outside the lock, so nothing panics while holding it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::FutureExt;

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    #[test]
    fn a_wait_ends_when_its_question_is_answered_and_leaves_nothing_behind() {
        let (waits, cluster) = (ClusterWaits::default(), Cluster::new());
        let mut asked = 0;
        let mut wait = Box::pin(waits.until(move |_, _| {
            asked += 1;
            (asked == 2).then_some("answer")
        }));
        assert_eq!((&mut wait).now_or_never(), None);
        waits.ask(&cluster, NOW);
        assert_eq!((&mut wait).now_or_never(), None);
        waits.ask(&cluster, NOW);
        assert_eq!((&mut wait).now_or_never(), Some("answer"));
        assert_eq!(waits.len(), 0);
    }

    #[test]
    fn a_cancelled_wait_is_asked_no_more() {
        let (waits, cluster, asked) = (ClusterWaits::default(), Cluster::new(), Arc::new(Mutex::new(0)));
        let count = Arc::clone(&asked);
        let mut wait = Box::pin(waits.until(move |_, _| {
            *count.lock().unwrap() += 1;
            None::<()>
        }));
        assert_eq!((&mut wait).now_or_never(), None);
        drop(wait);
        waits.ask(&cluster, NOW);
        assert_eq!((*asked.lock().unwrap(), waits.len()), (0, 0));
    }
}
