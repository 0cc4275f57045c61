//! The simulated network: carries every request of every part to a server, in virtual time, and loses, delays, cuts and
//! refuses what the plan says.

mod asked;
mod stream;

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bayplan_client::{Body, Client};
use bytes::Bytes;
use futures::future::{BoxFuture, pending, poll_fn};
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use serde_json::{Value, json};
use tokio::time::sleep;
use tower::{BoxError, Service, ServiceExt};

use crate::bugs::Bug;
use crate::parts::identity;
use crate::plan::{Fault, Part};
use crate::points::{Point, Sort};
use crate::server::Server;
use crate::shared::{Ask, Shared};
use asked::Sent;

/// The body of an answer as it comes out of the network.
pub(crate) type Answered = UnsyncBoxBody<Bytes, BoxError>;

type Outcome = Result<Response<Answered>, BoxError>;

/// The connection of one life of a part with its server.
#[derive(Clone)]
pub(crate) struct Link {
    pub(crate) shared: Arc<Shared>,
    pub(crate) part: Part,
    pub(crate) life: u64,
}

impl Link {
    /// A client over this connection.
    pub(crate) fn client(self) -> Client {
        Client::from_service(self)
    }

    pub(crate) fn lives(&self) -> bool {
        self.shared.lives(self.part, self.life)
    }

    /// The time that something takes from one end to the other.
    pub(crate) async fn travel(&self) {
        let mut millis = self.shared.draw(4);
        if self.shared.lasts(Point::NetworkSlow, Some(self.part)) {
            millis += 100 + self.shared.draw(800);
        }
        sleep(Duration::from_millis(millis)).await;
    }
}

impl Service<Request<Body>> for Link {
    type Response = Response<Answered>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Outcome>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let link = self.clone();
        Box::pin(async move {
            let asked = Sent::of(request).await;
            let outcome = link.exchange(&asked).await;
            link.tell(&asked, &outcome);
            outcome
        })
    }
}

/// What the network does with a request that has come through.
enum Way {
    /// It is served.
    On(Option<Fault>),
    /// It is not.
    Back(Outcome),
}

impl Link {
    fn tell(&self, asked: &Sent, outcome: &Outcome) {
        let back = match outcome {
            Ok(answer) => answer.status().as_u16().to_string(),
            Err(error) => error.to_string(),
        };
        let matters = outcome.as_ref().map_or(true, |answer| answer.status().is_server_error());
        let trace =
            |matters| self.shared.trace().tell(self.shared.elapsed(), self.part.name(), asked.text(), back, matters);
        trace(matters && self.lives());
    }

    async fn exchange(&self, asked: &Sent) -> Outcome {
        let fault = match self.there(asked).await {
            Way::On(fault) => fault,
            Way::Back(outcome) => return outcome,
        };
        if let Some(outcome) = self.forgets_to_send(asked) {
            return outcome;
        }
        let Some(server) = self.shared.server_of(self.part) else { return Err("connection refused".into()) };
        if fault.is_some_and(|fault| fault.point == Point::Raced) {
            race(&server, asked).await;
        }
        let served = server.service(self.part.name()).oneshot(asked.request());
        let answer = match fault.filter(|fault| fault.point == Point::ServerKilledInRequest) {
            Some(fault) => self.served_by_a_mortal(&server, served, fault.amount % 12).await??,
            None => tokio::select! {
                biased;
                () = server.death() => return Err(self.unsure(asked, "connection reset: the server died")),
                answer = served => answer?,
            },
        };
        if asked.is(Sort::Watch) && answer.status().is_success() {
            let stream = stream::deliver(self.clone(), &server, asked, answer.into_body());
            return Ok(Response::new(StreamBody::new(stream).boxed_unsync()));
        }
        let status = answer.status();
        let body = tokio::select! {
            biased;
            () = server.death() => return Err(self.unsure(asked, "connection reset: the server died")),
            body = answer.into_body().collect() => body.map_err(BoxError::from)?.to_bytes(),
        };
        if status.is_success() && asked.is(Sort::Write) {
            self.shared.ledger().acknowledged(self.part, &asked.text(), &asked.body, &body);
            self.check_leads(asked);
            self.bind_again(&server, asked).await;
        }
        self.back(asked, fault, status, body).await
    }

    /// The way there.
    async fn there(&self, asked: &Sent) -> Way {
        let refuse = |code, reason, message| Way::Back(Ok(refusal(code, reason, message)));
        if !self.lives() {
            sleep(Duration::from_millis(1)).await;
            return Way::Back(Err("the process is dead".into()));
        }
        let leads = asked.path.contains("/namespaces/kube-system/leases");
        let lasts = |point| self.shared.lasts(point, Some(self.part));
        if lasts(Point::CutOff) || (leads && lasts(Point::LeaseCutOff)) {
            sleep(Duration::from_millis(200)).await;
            return Way::Back(Err("no route to the server".into()));
        }
        if self.shared.plan.lists && asked.is(Sort::Stream) {
            self.shared.reach(Point::StreamsUnknown);
            return refuse(422, "Invalid", "sendInitialEvents is forbidden");
        }
        let fault = self.shared.meet_request(self.part, &asked.sorts);
        self.travel().await;
        let Some(met) = fault else { return Way::On(None) };
        self.shared.stress(self.part.name(), format!("{} meets {}", asked.text(), met.point.name()), "");
        match met.point {
            Point::RequestLost | Point::DiscoveryLost | Point::ListLost => Way::Back(Err("connection reset".into())),
            Point::RequestHangs => pending().await,
            Point::RequestLate => {
                sleep(Duration::from_millis(met.amount)).await;
                if self.lives() { Way::On(None) } else { Way::Back(Err("the process is dead".into())) }
            }
            Point::KilledBeforeRequest => {
                self.shared.ask(Ask::Kill(self.part));
                pending().await
            }
            Point::RefusedBusy | Point::WatchBusy => refuse(429, "TooManyRequests", "too many requests"),
            Point::RefusedInternal | Point::WatchFailed => refuse(500, "InternalError", "an error on the server"),
            Point::RefusedUnavailable => refuse(503, "ServiceUnavailable", "the server is not ready"),
            Point::WatchGone => refuse(410, "Expired", "too old resource version"),
            Point::StreamRefused => refuse(422, "Invalid", "sendInitialEvents is forbidden"),
            Point::WatchShut => Way::Back(Ok(Response::new(whole(Bytes::new())))),
            _ => Way::On(Some(met)),
        }
    }

    /// The way back.
    async fn back(&self, asked: &Sent, fault: Option<Fault>, status: StatusCode, body: Bytes) -> Outcome {
        self.travel().await;
        if self.shared.lasts(Point::HalfCutOff, Some(self.part)) {
            return Err(self.unsure(asked, "the answer was lost"));
        }
        match fault.map(|fault| (fault.point, fault.amount)) {
            Some((Point::AnswerLost, _)) => return Err(self.unsure(asked, "the answer was lost")),
            Some((Point::AnswerHangs, _)) => {
                self.unsure(asked, "");
                return pending().await;
            }
            Some((Point::KilledAfterApplied, _)) => {
                self.unsure(asked, "");
                self.shared.ask(Ask::Kill(self.part));
                return pending().await;
            }
            Some((Point::AnswerLate, millis)) => sleep(Duration::from_millis(millis)).await,
            Some((Point::AnswerCut | Point::ListCut, _)) => {
                self.unsure(asked, "");
                let half = body.slice(..body.len() / 2);
                let frames = [Ok(http_body::Frame::data(half)), Err("the connection broke".into())];
                return Ok(Response::new(StreamBody::new(futures::stream::iter(frames)).boxed_unsync()));
            }
            Some((Point::AnswerGarbage, _)) => {
                self.unsure(asked, "");
                let mut answer = Response::new(whole(Bytes::from_static(b"<html>Bad Gateway</html>")));
                *answer.status_mut() = StatusCode::BAD_GATEWAY;
                return Ok(answer);
            }
            Some((Point::AppliedTimeout, _)) => {
                self.unsure(asked, "");
                return Ok(refusal(504, "Timeout", "the server did not answer in time"));
            }
            _ => {}
        }
        let mut answer = Response::new(whole(body));
        *answer.status_mut() = status;
        Ok(answer)
    }

    /// A client does not hear what became of its request. The scheduler then forgets a pod that may be bound.
    fn unsure(&self, asked: &Sent, what: &str) -> BoxError {
        if asked.path.ends_with("/binding") {
            self.shared.ledger().bindings_unsure = true;
        }
        what.into()
    }

    /// Serves a request until the server dies in the middle of it, at a poll.
    async fn served_by_a_mortal<F: Future>(
        &self,
        server: &Server,
        served: F,
        polls: u64,
    ) -> Result<F::Output, BoxError> {
        let (mut served, mut left) = (Box::pin(served), polls);
        let answer = poll_fn(|context| match served.as_mut().poll(context) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => {
                left -= 1;
                Poll::Pending
            }
        })
        .await;
        answer.ok_or_else(|| {
            self.shared.ledger().bindings_unsure = true;
            self.shared.ask(Ask::KillServer(server.number));
            "connection reset: the server died".into()
        })
    }

    /// Only who leads writes.
    fn check_leads(&self, asked: &Sent) {
        let elected = matches!(self.part, Part::Controllers | Part::StandbyControllers);
        if !elected || asked.path.contains("/leases") || asked.path.contains("/events") {
            return;
        }
        let who = identity(self.part, self.life);
        let broken = self.shared.ledger().wrote(&who, &asked.text(), self.shared.elapsed());
        broken.into_iter().for_each(|broken| self.shared.violate(broken));
    }

    /// Planted: what is taken for done was never sent.
    fn forgets_to_send(&self, asked: &Sent) -> Option<Outcome> {
        let binds = self.part == Part::Scheduler && asked.path.ends_with("/binding");
        let reports = self.part == Part::Kubelets && asked.path.contains("/pods/") && asked.path.ends_with("/status");
        let loops = matches!(self.part, Part::Controllers | Part::StandbyControllers);
        let works =
            loops && asked.is(Sort::Write) && !asked.path.contains("/leases") && !asked.path.contains("/events");
        let forgotten = (works && self.shared.bug_strikes(Bug::LostRequeue, 30))
            || (binds && self.shared.bug_strikes(Bug::ForgottenBinding, 8))
            || (reports && self.shared.bug_strikes(Bug::LostStatus, 8));
        forgotten.then(|| Ok(Response::new(whole(asked.body.clone()))))
    }

    /// Planted: a pod that is bound is bound to another node.
    async fn bind_again(&self, server: &Server, asked: &Sent) {
        if !asked.path.ends_with("/binding") || !self.shared.bug_strikes(Bug::DoubleBinding, 6) {
            return;
        }
        let pod = asked.path.trim_end_matches("/binding");
        // The store that the world has moves a pod that says so.
        let patch = json!({"metadata": {"annotations": {"bound": "again"}}});
        patch_as_admin(server, pod, &patch).await;
    }
}

/// Somebody else changes the object first.
async fn race(server: &Server, asked: &Sent) {
    let path = asked.path.split("/status").next().unwrap_or(&asked.path).trim_end_matches("/binding");
    let patch = json!({"metadata": {"annotations": {"bayplan.dev/raced": "yes"}}});
    patch_as_admin(server, path, &patch).await;
}

async fn patch_as_admin(server: &Server, path: &str, patch: &Value) {
    let request = Request::builder()
        .method("PATCH")
        .uri(path)
        .header("Content-Type", "application/merge-patch+json")
        .body(Full::new(Bytes::from(patch.to_string())))
        .expect("a path that was asked for is one");
    tokio::select! {
        biased;
        () = server.death() => {}
        answer = server.service("rival").oneshot(request) => drop(answer),
    }
}

/// A body that is there at once.
fn whole(body: Bytes) -> Answered {
    Full::new(body).map_err(|never| match never {}).boxed_unsync()
}

fn refusal(code: u16, reason: &str, message: &str) -> Response<Answered> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
        "reason": reason, "code": code, "details": {"retryAfterSeconds": if code == 429 { 1 } else { 0 }},
    });
    let mut answer = Response::new(whole(Bytes::from(status.to_string())));
    *answer.status_mut() = StatusCode::from_u16(code).expect("a code of HTTP");
    answer
}
