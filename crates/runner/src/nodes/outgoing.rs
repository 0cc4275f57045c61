//! The requests of simulated nodes that wait or are in flight, and how fast they are sent.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, ready};
use std::time::Duration;

use bayplan_client::Client;
use bayplan_model::api::{Api, Request, Verb};
use bayplan_model::status::{Status, reason};
use bayplan_model::token_bucket::TokenBucket;
use bayplan_sim::{Effect, Ticket};
use bytes::Bytes;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

/// Requests in flight at once: enough to keep a server busy, few enough for one connection each.
pub(super) const REQUESTS_MAX: usize = 64;
/// A request that the server refused for now is retried after this, doubled each time,
const RETRY_MIN: Duration = Duration::from_millis(200);
/// but never later than this.
const RETRY_MAX: Duration = Duration::from_secs(5);
/// How often a patch that met a conflict is retried.
const CONFLICTS_MAX: u32 = 10;

/// How fast requests are sent, per second; without a limit as fast as the server answers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates {
    /// Registrations.
    pub registrations: Option<f64>,
    /// All requests but heartbeats, which are a tenth of the number of nodes.
    pub requests: Option<f64>,
}

/// Lets so many pass in a second, evenly.
struct Pace(Option<(TokenBucket, Instant)>);

impl Pace {
    fn new(per_second: Option<f64>) -> Self {
        Pace(per_second.map(|rate| (TokenBucket::new(rate, 1), Instant::now())))
    }

    fn admits(&mut self) -> bool {
        self.0.as_mut().is_none_or(|(bucket, origin)| bucket.try_take(origin.elapsed()))
    }
}

/// How often a queue that a rate holds back is looked at: a thousandth of a second each, at the fastest rates several
/// requests at once.
pub(super) const PACE_INTERVAL: Duration = Duration::from_millis(1);

/// Final answers, each with what it is the answer to.
pub(super) type Answers = Vec<(Ticket, Result<Bytes, Status>)>;

/// Requests that wait or are in flight: at most one status and one deletion per pod, and a few per node.
pub(super) struct Outgoing {
    api: Arc<dyn Api>,
    heartbeats: VecDeque<Effect>,
    registrations: VecDeque<Effect>,
    others: VecDeque<Effect>,
    registration_pace: Pace,
    request_pace: Pace,
    under_way: JoinSet<(Ticket, Result<Bytes, Status>)>,
    /// Heartbeats that were sent since something else was.
    heartbeats_in_turn: usize,
}

/// How many heartbeats may go before one other request that waits.
const HEARTBEATS_IN_TURN: usize = 3;

impl Outgoing {
    pub(super) fn new(client: &Client, rates: Rates) -> Self {
        Outgoing {
            api: Arc::new(client.clone()),
            heartbeats: VecDeque::new(),
            registrations: VecDeque::new(),
            others: VecDeque::new(),
            registration_pace: Pace::new(rates.registrations),
            request_pace: Pace::new(rates.requests),
            under_way: JoinSet::new(),
            heartbeats_in_turn: 0,
        }
    }

    /// Heartbeats have a queue of their own: a node must not look unreachable because many pods start.
    pub(super) fn add(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            let queue = if is_heartbeat(&effect.request) {
                &mut self.heartbeats
            } else if effect.ticket.is_registration() {
                &mut self.registrations
            } else {
                &mut self.others
            };
            queue.push_back(effect);
        }
    }

    /// Sends what may be sent now.
    pub(super) fn send(&mut self) {
        while self.under_way.len() < REQUESTS_MAX
            && let Some(effect) = self.next()
        {
            self.under_way.spawn(deliver(Arc::clone(&self.api), effect));
        }
    }

    /// Heartbeats go before others, but a server that cannot keep up with them must not stop everything else.
    fn next(&mut self) -> Option<Effect> {
        let others_turn = self.heartbeats_in_turn >= HEARTBEATS_IN_TURN;
        if others_turn || self.heartbeats.is_empty() {
            self.heartbeats_in_turn = 0;
            if let Some(effect) = self.next_but_heartbeats() {
                return Some(effect);
            }
        }
        self.heartbeats_in_turn += 1;
        self.heartbeats.pop_front()
    }

    fn next_but_heartbeats(&mut self) -> Option<Effect> {
        let registers = !self.registrations.is_empty() && self.registration_pace.admits();
        let queue = if registers { &mut self.registrations } else { &mut self.others };
        if queue.is_empty() || !self.request_pace.admits() {
            return None;
        }
        queue.pop_front()
    }

    /// Whether a rate holds something back that could be sent.
    pub(super) fn is_held_back(&self) -> bool {
        let waiting = !(self.registrations.is_empty() && self.others.is_empty());
        waiting && self.under_way.len() < REQUESTS_MAX
    }

    /// The next final answers, all that are there; `None` while nothing is in flight.
    pub(super) async fn answers(&mut self) -> Option<Answers> {
        poll_fn(|context| self.poll_answers(context)).await
    }

    /// As [`answers`](Self::answers).
    pub(super) fn poll_answers(&mut self, context: &mut TaskContext<'_>) -> Poll<Option<Answers>> {
        let Some(first) = ready!(self.under_way.poll_join_next(context)) else { return Poll::Ready(None) };
        let more = std::iter::from_fn(|| self.under_way.try_join_next());
        let ended = std::iter::once(first).chain(more);
        let answer =
            |end: Result<_, JoinError>| end.inspect_err(|error| tracing::error!("a request task ended: {error}")).ok();
        Poll::Ready(Some(ended.filter_map(answer).collect()))
    }

    /// Forgets what waits, and waits for what is in flight: a registration must not arrive after the removal.
    pub(super) async fn finish(&mut self, patience: Duration, mut answered: impl FnMut(Ticket, Result<Bytes, Status>)) {
        let answers = async {
            while let Some(answers) = self.answers().await {
                answers.into_iter().for_each(|(ticket, answer)| answered(ticket, answer));
            }
        };
        if tokio::time::timeout(patience, answers).await.is_err() {
            self.under_way.abort_all();
        }
    }
}

fn is_heartbeat(request: &Request) -> bool {
    request.resource.plural == "leases" && matches!(request.verb, Verb::Patch(..) | Verb::Create(_))
}

/// Sends a request, and retries it, until the answer is final.
async fn deliver(api: Arc<dyn Api>, effect: Effect) -> (Ticket, Result<Bytes, Status>) {
    let mut tries = 0;
    loop {
        let answer = api.call(effect.request.clone()).await;
        let Some(delay) = answer.as_ref().err().and_then(|status| retry_after(&effect.request, status, tries)) else {
            if let Err(status) = &answer
                && !matches!(&*status.reason, reason::NOT_FOUND | reason::ALREADY_EXISTS)
            {
                tracing::debug!(object = effect.request.name, code = status.code, "refused: {status}");
            }
            return (effect.ticket, answer);
        };
        tries += 1;
        tokio::time::sleep(delay).await;
    }
}

/// The delay before a refused request is retried; none when a retry is pointless.
fn retry_after(request: &Request, status: &Status, tries: u32) -> Option<Duration> {
    // A late heartbeat is useless; the next one is due soon.
    if is_heartbeat(request) && status.code == 0 {
        return None;
    }
    let conflict = status.is(reason::CONFLICT) && matches!(request.verb, Verb::Patch(..)) && tries < CONFLICTS_MAX;
    let unwilling = matches!(status.code, 0 | 429 | 500..);
    if !conflict && !unwilling {
        return None;
    }
    let asked_for = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    let delay = RETRY_MIN.saturating_mul(1u32.checked_shl(tries).unwrap_or(u32::MAX)).min(RETRY_MAX);
    let jittered = delay.mul_f64(1.0 + bayplan_client::clock::fraction());
    Some(jittered.max(Duration::from_secs(asked_for.into()).min(RETRY_MAX)))
}

#[cfg(test)]
mod tests {
    use bayplan_model::api::{DeleteOptions, PatchKind, Resource};

    use super::*;

    const PODS: Resource = Resource::new("", "v1", "pods");

    #[test]
    fn only_what_may_succeed_later_is_sent_again() {
        let leases = Resource::new("coordination.k8s.io", "v1", "leases");
        let patch = Request::object(&PODS, "a", "b", Verb::Patch(PatchKind::Merge, Default::default()));
        let delete = Request::object(&PODS, "a", "b", Verb::Delete(DeleteOptions::default()));
        let renewal = Request::object(&leases, "a", "b", Verb::Patch(PatchKind::Merge, Default::default()));
        for (request, code, reason, tries, again) in [
            (&patch, 0, reason::SERVICE_UNAVAILABLE, 1000, true),
            (&patch, 503, reason::SERVICE_UNAVAILABLE, 0, true),
            (&patch, 429, reason::TOO_MANY_REQUESTS, 0, true),
            (&patch, 409, reason::CONFLICT, 0, true),
            (&patch, 409, reason::CONFLICT, CONFLICTS_MAX, false),
            (&patch, 404, reason::NOT_FOUND, 0, false),
            (&patch, 422, reason::INVALID, 0, false),
            (&delete, 409, reason::CONFLICT, 0, false),
            (&renewal, 0, reason::SERVICE_UNAVAILABLE, 0, false),
        ] {
            let status = Status::failure(code, reason, "");
            assert_eq!(retry_after(request, &status, tries).is_some(), again, "{code} {reason} after {tries}");
        }
    }
}
