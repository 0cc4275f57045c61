//! The client and its informers against a service in this process that plays an API server by script.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bayplan_client::informer::Event;
use bayplan_client::{Client, Informer, Scope};
use bayplan_model::api::{Api, Request, Resource, Verb};
use bayplan_model::delta::Delta;
use bayplan_model::meta::PartialObjectMetadata;
use bayplan_model::status::reason;
use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::StreamBody;

const PODS: Resource = Resource::new("", "v1", "pods");

/// How the server answers one request: a code and the pieces of its body, the last of which may never come.
struct Answer {
    code: u16,
    pieces: Vec<String>,
    hangs: bool,
}

#[derive(Clone, Default)]
struct Script {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Script {
    fn then(self, code: u16, hangs: bool, pieces: &[&str]) -> Self {
        let pieces = pieces.iter().map(|piece| piece.to_string()).collect();
        self.answers.lock().unwrap().push_back(Answer { code, pieces, hangs });
        self
    }

    fn client(&self) -> Client {
        let script = self.clone();
        Client::from_service(tower::service_fn(move |request: http::Request<bayplan_client::Body>| {
            let header = |name: &str| request.headers().get(name).map_or("", |v| v.to_str().unwrap()).to_owned();
            let line =
                format!("{} {} {} {}", request.method(), request.uri(), header("user-agent"), header("authorization"));
            script.requests.lock().unwrap().push(line.trim_end().to_owned());
            let answer = script.answers.lock().unwrap().pop_front();
            async move {
                let Some(answer) = answer else { return std::future::pending().await };
                let pieces = futures::stream::iter(answer.pieces);
                let frames = futures::StreamExt::map(pieces, |p| Ok::<_, Infallible>(Frame::data(Bytes::from(p))));
                let end = futures::stream::unfold(answer.hangs, async |hangs| match hangs {
                    true => std::future::pending().await,
                    false => None,
                });
                let body = StreamBody::new(futures::StreamExt::chain(frames, end));
                let code = StatusCode::from_u16(answer.code).unwrap();
                Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
            }
        }))
    }

    fn requests(&self) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        let without_agent = |r: &String| r.split(' ').take(2).collect::<Vec<_>>().join(" ");
        let without_timeout = |r: String| r.split("&timeoutSeconds").next().unwrap().to_owned();
        requests.iter().map(without_agent).map(without_timeout).collect()
    }
}

fn event(kind: &str, name: &str, version: u32) -> String {
    let object = format!(r#"{{"metadata":{{"name":"{name}","namespace":"shop","resourceVersion":"{version}"}}}}"#);
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

fn complete(version: u32) -> String {
    let annotations = r#"{"k8s.io/initial-events-end":"true"}"#;
    let metadata = format!(r#"{{"resourceVersion":"{version}","annotations":{annotations}}}"#);
    format!("{{\"type\":\"BOOKMARK\",\"object\":{{\"metadata\":{metadata}}}}}\n")
}

fn name(event: &Event<PartialObjectMetadata>) -> String {
    match event {
        Event::Delta(Delta::Added(object)) => format!("+{}", object.metadata.name),
        Event::Delta(Delta::Updated { new, .. }) => format!("~{}", new.metadata.name),
        Event::Delta(Delta::Deleted(object)) => format!("-{}", object.metadata.name),
        Event::Synced => "synced".into(),
    }
}

#[tokio::test(start_paused = true)]
async fn an_informer_survives_a_lost_watch_and_a_forgetful_server() {
    let cut = event("ADDED", "a", 1);
    let (first, rest) = cut.split_at(20);
    let script = Script::default()
        .then(200, false, &[first, rest, &event("ADDED", "b", 2), &complete(3), &event("MODIFIED", "a", 4)])
        .then(500, false, &["overloaded"])
        .then(410, false, &[r#"{"kind":"Status","code":410,"reason":"Expired"}"#])
        .then(200, true, &[&event("ADDED", "a", 4), &event("ADDED", "c", 7), &complete(8)]);
    let mut informer =
        Informer::<PartialObjectMetadata>::new(&script.client(), Scope::all(&PODS).fields("spec.nodeName!="));
    informer.jitter(|| 0.0);
    let cache = informer.cache(&[]);
    let mut changes = informer.subscribe(16);
    let handle = informer.spawn();
    handle.synced().await;

    let mut seen = Vec::new();
    while seen.len() < 6 {
        seen.push(name(&changes.recv().await.unwrap()));
    }
    assert_eq!(seen, ["+a", "+b", "synced", "~a", "+c", "-b"]);
    assert_eq!(cache.list_namespace("shop").len(), 2);
    let stream = "GET /api/v1/pods?fieldSelector=spec.nodeName%21%3D&watch=true&allowWatchBookmarks=true\
                  &sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let resumed =
        "GET /api/v1/pods?fieldSelector=spec.nodeName%21%3D&watch=true&allowWatchBookmarks=true&resourceVersion=4";
    assert_eq!(script.requests(), [stream, resumed, resumed, stream]);
}

#[tokio::test(start_paused = true)]
async fn a_dead_connection_is_given_up_and_resumed() {
    let script = Script::default().then(200, true, &[&complete(3)]).then(200, true, &[&event("ADDED", "late", 9)]);
    let mut informer = Informer::<PartialObjectMetadata>::new(&script.client(), Scope::all(&PODS));
    let mut changes = informer.subscribe(16);
    let _handle = informer.spawn();
    assert_eq!(name(&changes.recv().await.unwrap()), "synced");
    assert_eq!(name(&changes.recv().await.unwrap()), "+late", "although the server never ended the first watch");
}

#[tokio::test(start_paused = true)]
async fn everything_is_told_again_at_the_period_that_was_asked_for() {
    let script = Script::default()
        .then(200, true, &[&event("ADDED", "b", 1), &event("ADDED", "a", 2), &complete(3)])
        .then(200, true, &[&event("DELETED", "b", 4)]);
    let mut informer = Informer::<PartialObjectMetadata>::new(&script.client(), Scope::all(&PODS));
    informer.jitter(|| 0.5);
    informer.resync(Duration::from_secs(200));
    let mut changes = informer.subscribe(16);
    let _handle = informer.spawn();
    let begin = tokio::time::Instant::now();
    let mut seen = Vec::new();
    while seen.len() < 8 {
        let change = name(&changes.recv().await.unwrap());
        seen.push(format!("{}s {change}", begin.elapsed().as_secs()));
    }
    // The first watch lasts 450 s, and 15 more until it is given up.
    assert_eq!(seen, ["0s +b", "0s +a", "0s synced", "300s ~a", "300s ~b", "465s -b", "600s ~a", "900s ~a"]);
}

#[tokio::test(start_paused = true)]
async fn calls_carry_identity_and_come_back_as_bytes_or_status() {
    let script = Script::default().then(200, false, &["{\"a\":", "1}"]).then(
        404,
        false,
        &[r#"{"kind":"Status","code":404,"reason":"NotFound","message":"no such pod"}"#],
    );
    let client = script.client().with_user_agent("tester").unwrap().with_bearer_token("secret").unwrap();
    let get = || Request::object(&PODS, "shop", "web", Verb::Get);
    assert_eq!(client.call(get()).await.unwrap(), Bytes::from_static(b"{\"a\":1}"));
    assert!(client.call(get()).await.unwrap_err().is(reason::NOT_FOUND));

    let silent = client.with_timeout(Duration::from_secs(5));
    let status = silent.call(get()).await.unwrap_err();
    assert_eq!((status.code, &*status.reason), (0, reason::SERVICE_UNAVAILABLE));
    let requests = script.requests.lock().unwrap().clone();
    assert_eq!(requests[0], "GET /api/v1/namespaces/shop/pods/web tester Bearer secret");
    assert_eq!(requests[2], "GET /api/v1/namespaces/shop/pods/web?timeout=5s tester Bearer secret");
}

#[tokio::test(start_paused = true)]
async fn a_lane_is_throttled_only_when_asked_to() {
    let script = (0..30).fold(Script::default(), |script, _| script.then(200, false, &["{}"]));
    let start = tokio::time::Instant::now();
    let free = script.client();
    for _ in 0..20 {
        free.call(Request::object(&PODS, "a", "b", Verb::Get)).await.unwrap();
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    let lane = free.with_limit(2.0, 4);
    for _ in 0..10 {
        lane.call(Request::object(&PODS, "a", "b", Verb::Get)).await.unwrap();
    }
    assert_eq!(start.elapsed().as_millis(), 3000, "four at once, six more at two a second");
}
