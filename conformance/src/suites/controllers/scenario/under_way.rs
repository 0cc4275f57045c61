//! A reconcile that is under way, stopped after each of its writes so that others can run in between.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use bayplan_controllers::{Context, Error, Job, Requeue};
use bayplan_model::api::{Api, Event, Recorder, Request, Verb};
use bayplan_model::status::Status;
use bytes::Bytes;
use futures::future::{BoxFuture, poll_fn};
use jiff::Timestamp;

use super::pod_metrics::PodMetrics;

/// The events that a reconcile recorded, before they are correlated.
#[derive(Default)]
pub(super) struct Recorded(Mutex<Vec<Event>>);

impl Recorded {
    /// Those since the last time.
    pub(super) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Recorder for Recorded {
    fn record(&self, event: Event) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }
}

/// The API server, whose answers to writes wait until the reconcile may go on.
struct Gate {
    api: Arc<PodMetrics>,
    /// Whether it stops at all.
    stops: bool,
    /// Counts how often it was let go on.
    turn: AtomicUsize,
    stopped: AtomicBool,
}

impl Gate {
    async fn pass(&self, request: Request) -> Result<Bytes, Status> {
        let writes = !matches!(request.verb, Verb::Get | Verb::List(_));
        let answer = self.api.call(request).await;
        if writes && self.stops {
            let turn = self.turn.load(Ordering::Relaxed);
            self.stopped.store(true, Ordering::Relaxed);
            poll_fn(|polling| match self.turn.load(Ordering::Relaxed) > turn {
                true => Poll::Ready(()),
                false => {
                    polling.waker().wake_by_ref();
                    Poll::Pending
                }
            })
            .await;
        }
        answer
    }
}

impl Api for Gate {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Bytes, Status>> {
        Box::pin(self.pass(request))
    }
}

type Outcome = (Job, Result<Requeue, Error>);

/// The reconcile.
pub(super) struct UnderWay {
    pub(super) controller: &'static str,
    pub(super) component: &'static str,
    pub(super) recorded: Arc<Recorded>,
    gate: Arc<Gate>,
    reconcile: Pin<Box<dyn Future<Output = Outcome> + Send>>,
}

impl UnderWay {
    pub(super) fn begin(job: Job, now: Timestamp, api: Arc<PodMetrics>, stops: bool) -> Self {
        let (controller, component) = (job.controller(), job.component());
        let gate = Arc::new(Gate { api, stops, turn: AtomicUsize::new(0), stopped: AtomicBool::new(false) });
        let recorded = Arc::new(Recorded::default());
        let (api, recorder) = (gate.clone(), recorded.clone());
        let reconcile = Box::pin(async move {
            let outcome = job.run(Context { now, api: &*api, recorder: &*recorder }).await;
            (job, outcome)
        });
        UnderWay { controller, component, recorded, gate, reconcile }
    }

    /// Lets it go on until it has written something, if it stops there, or has ended.
    pub(super) async fn until_next_write(&mut self) -> Option<Outcome> {
        self.gate.stopped.store(false, Ordering::Relaxed);
        self.gate.turn.fetch_add(1, Ordering::Relaxed);
        poll_fn(|polling| match self.reconcile.as_mut().poll(polling) {
            Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
            Poll::Pending if self.gate.stopped.load(Ordering::Relaxed) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await
    }
}
