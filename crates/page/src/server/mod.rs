//! Serves the page on loopback.

mod respond;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bayplan_listener::{Handler, Limits, RequestBody, ResponseBody};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Limited};
use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

use crate::access::{Access, Entry};
use crate::answers::{self, Unanswered};
use crate::assets;
use crate::cluster_view::ClusterView;
use crate::request::{NoQuestion, Question, Trial, question};
use respond::{json, problem, redirect, static_file};

/// Browsers hold six connections for each tab; these are ten tabs.
const CONNECTIONS_MAX: usize = 64;
/// Questions that wait for the state or are being answered; more are told to come again.
const QUESTIONS_MAX: usize = 16;
/// Tabs that wait for a change; more are answered at once and ask again.
const WAITERS_MAX: usize = 32;
/// How long a tab waits for a change before it is told that there is none: less than proxies and browsers allow.
const WAIT_MAX: Duration = Duration::from_secs(25);
/// How long after a change others are told together with it, so that a busy cluster is not drawn at every change.
const GATHER: Duration = Duration::from_millis(200);
/// The longest change: what proven changes are is a few objects of some KiB.
const BODY_MAX: usize = 1 << 20;
/// How long a body may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// A page that is being served.
pub struct PageServer {
    address: SocketAddr,
    token: String,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

struct Shared {
    access: Access,
    view: Arc<ClusterView>,
    questions: Arc<Semaphore>,
    waiters: Semaphore,
    stopping: watch::Receiver<bool>,
}

impl PageServer {
    /// Serves on an open port to those who know the token.
    pub fn start(listener: TcpListener, token: &str, view: Arc<ClusterView>) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        let (stop, stopping) = watch::channel(false);
        let shared = Arc::new(Shared {
            access: Access::new(token.to_owned(), address.port()),
            view,
            questions: Arc::new(Semaphore::new(QUESTIONS_MAX)),
            waiters: Semaphore::new(WAITERS_MAX),
            stopping: stopping.clone(),
        });
        let handler: Handler = Arc::new(move |request| {
            let shared = Arc::clone(&shared);
            Box::pin(async move { answer(&shared, request).await })
        });
        let serving = bayplan_listener::serve_plain(listener, Limits::new(CONNECTIONS_MAX), stopping, handler);
        Ok(PageServer { address, token: token.to_owned(), stop, serving: tokio::spawn(serving) })
    }

    /// What to open in a browser.
    pub fn url(&self) -> String {
        format!("http://{}/?token={}", self.address, self.token)
    }

    /// Stops; questions in progress are answered within a limit.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        let _ = self.serving.await;
    }
}

async fn answer(shared: &Arc<Shared>, request: Request<RequestBody>) -> Response<ResponseBody> {
    let (head, body) = request.into_parts();
    match shared.access.check(&head.method, &head.uri, &head.headers) {
        Entry::Refused(why) => return problem(403, why),
        Entry::SetCookie(cookie) => return redirect("/", &cookie),
        Entry::Allowed => {}
    }
    let asked = match question(&head.method, head.uri.path(), head.uri.query().unwrap_or_default()) {
        Ok(asked) => asked,
        Err(NoQuestion::NotFound) => return problem(404, "there is nothing at this path"),
        Err(NoQuestion::Method) => return problem(405, "this path takes another method"),
        Err(NoQuestion::Parameter(name)) => {
            return problem(400, &format!("the parameter {name} is missing or too long"));
        }
    };
    match asked {
        Question::Asset(path) => match assets::find(&path) {
            Some(found) => static_file(found, &head.headers),
            None => problem(404, "there is nothing at this path"),
        },
        Question::Events { seen } => wait_for_change(shared, seen.as_deref()).await,
        Question::Try => match read(body).await {
            Ok(trial) => decide(shared, move |view, now| answers::try_change(view, &trial, now)).await,
            Err(why) => problem(400, &why),
        },
        asked => decide(shared, move |view, now| about(view, &asked, now)).await,
    }
}

/// The answers that read the state.
fn about(view: &ClusterView, asked: &Question, now: Timestamp) -> Result<Bytes, Unanswered> {
    match asked {
        Question::Nodes => Ok(answers::nodes(view)),
        Question::Pending => Ok(answers::pending(view, now)),
        Question::Why { pod } => answers::why(view, pod, now),
        Question::Find { text } => Ok(answers::find(view, text)),
        Question::Node { name, pod } => answers::node(view, name, pod.as_deref(), now),
        Question::Decisions { since } => Ok(answers::decisions(view, *since)),
        Question::Summary | Question::Asset(_) | Question::Events { .. } | Question::Try => Ok(answers::summary(view)),
    }
}

/// Answers on a thread that may be busy for a while. Few questions wait at once: each may take the state for seconds.
async fn decide<F>(shared: &Arc<Shared>, question: F) -> Response<ResponseBody>
where
    F: FnOnce(&ClusterView, Timestamp) -> Result<Bytes, Unanswered> + Send + 'static,
{
    let Ok(permit) = Arc::clone(&shared.questions).try_acquire_owned() else {
        return problem(503, "too many questions at once; ask again in a moment");
    };
    let view = Arc::clone(&shared.view);
    let answered = tokio::task::spawn_blocking(move || {
        let answer = question(&view, Timestamp::now());
        drop(permit);
        answer
    });
    match answered.await {
        Ok(Ok(answer)) => json(answer),
        Ok(Err(Unanswered::NotFound(why))) => problem(404, &why),
        Ok(Err(Unanswered::Refused(why))) => problem(422, &why),
        Err(error) => {
            tracing::error!(%error, "a question of the page failed");
            problem(500, "the question failed; bayplan's log says why")
        }
    }
}

async fn read(body: RequestBody) -> Result<Trial, String> {
    let limited = Limited::new(body, BODY_MAX).collect();
    match tokio::time::timeout(BODY_TIMEOUT, limited).await {
        Err(_) => Err("the change took too long to arrive".into()),
        Ok(Err(_)) => Err("the change is cut, or longer than 1 MiB".into()),
        Ok(Ok(body)) => {
            serde_json::from_slice(&body.to_bytes()).map_err(|error| format!("the change cannot be read: {error}"))
        }
    }
}

/// Waits until the version is another than the one that was seen, for a while.
async fn wait_for_change(shared: &Shared, seen: Option<&str>) -> Response<ResponseBody> {
    let view = &shared.view;
    if let (Some(seen), Ok(_waiting)) = (seen, shared.waiters.try_acquire()) {
        let mut versions = view.versions();
        let mut stopping = shared.stopping.clone();
        let changed = versions.wait_for(|version| view.seen(*version) != seen);
        tokio::select! {
            changed = changed => drop(changed),
            () = tokio::time::sleep(WAIT_MAX) => return json(answers::events(view)),
            _ = stopping.wait_for(|stop| *stop) => return problem(503, "the server stops"),
        }
        tokio::time::sleep(GATHER).await;
    }
    json(answers::events(view))
}
