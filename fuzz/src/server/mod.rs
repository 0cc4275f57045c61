//! Requests to a whole API server in this process: paths and queries, headers, and writes with their bodies.
//!
//! ```text
//!   paths     <METHOD> <url>                                     sent by an administrator and by nobody
//!   headers   <name>: <value>, a line each                       sent with reads, and with the question "who am I?"
//!   writes    <METHOD> <url> <content type>, newline, the body   sent by an administrator, as a dry run
//! ```
//!
//! Every write is a dry run and the store refuses to be written to, so that each input meets the same server.

mod frozen_store;

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bayplan_apiserver::certificates::{Names, Pki};
use bayplan_apiserver::{ApiServer, Config, InProcess, ResponseBody, User};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use serde_json::{Value, json};
use tower::ServiceExt;

use self::frozen_store::FrozenStore;
use crate::{bounded, first_line};

/// Bytes allocated for each byte of a request. Most is the answer: the whole OpenAPI document, or all of discovery, is
/// allowed besides.
const FACTOR: u64 = 16384;
/// What the largest documents take: OpenAPI v2 as JSON is 4 MB, made from parts.
const DOCUMENT_BYTES: usize = 16 << 10;
/// What a failure may say: its words, and what it quotes of a request.
const FAILURE_FACTOR: usize = 16;
/// What a failure may say besides: 8 KiB of errors in a CEL expression, escaped, in the message and as a cause.
const FAILURE_BYTES: usize = 64 * 1024;
/// How long an answer may go on; watches do for ever. The time is virtual.
const READ_TIMEOUT: Duration = Duration::from_millis(10);

/// What anybody may ask for.
const PUBLIC: [&str; 4] = ["/healthz", "/livez", "/readyz", "/version"];
const WHO_AM_I: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const ADMIN: &str = "admin";

struct Served {
    runtime: tokio::runtime::Runtime,
    admin: InProcess,
    nobody: InProcess,
}

thread_local! {
    static SERVED: RefCell<Option<Served>> = const { RefCell::new(None) };
}

struct Answer {
    code: u16,
    body: Vec<u8>,
}

/// A line of method and URL.
pub(crate) fn paths(data: &[u8]) {
    let (line, _) = first_line(data);
    let Some((method, url)) = line.split_once(' ') else { return };
    let Some(request) = request(method, url, &[], &[]) else { return };
    let answer = exchange(data.len(), |served| (&served.admin, request.clone()));
    failures_are_statuses(&request, &answer, data.len());
    let answer = exchange(data.len(), |served| (&served.nobody, request.clone()));
    failures_are_statuses(&request, &answer, data.len());
    let public = PUBLIC.iter().any(|path| request.uri().path().starts_with(path));
    assert!(public || answer.code >= 300, "{line}: nobody was answered {}", answer.code);
}

/// Lines of headers.
pub(crate) fn headers(data: &[u8]) {
    let headers: Vec<(HeaderName, HeaderValue)> = data.split(|byte| *byte == b'\n').filter_map(header).collect();
    for url in ["/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/configmaps/c?pretty=1", "/openapi/v2"] {
        let Some(request) = request("GET", url, &headers, &[]) else { return };
        let answer = exchange(data.len(), |served| (&served.admin, request.clone()));
        failures_are_statuses(&request, &answer, data.len());
        let answer = exchange(data.len(), |served| (&served.nobody, request.clone()));
        failures_are_statuses(&request, &answer, data.len());
        assert!(answer.code >= 300, "{url}: nobody was answered {}", answer.code);
    }
    who_am_i(&headers, data.len());
}

/// Whoever asks to be somebody else is them or is refused; whoever does not is themselves.
fn who_am_i(headers: &[(HeaderName, HeaderValue)], input: usize) {
    let kept = headers.iter().filter(|(name, _)| *name != http::header::CONTENT_TYPE && *name != http::header::ACCEPT);
    let headers: Vec<(HeaderName, HeaderValue)> = kept.cloned().collect();
    let Some(request) = request("POST", WHO_AM_I, &headers, b"{}") else { return };
    let answer = exchange(input, |served| (&served.admin, request.clone()));
    failures_are_statuses(&request, &answer, input);
    let named = |name: &HeaderName| {
        let part = name.as_str().strip_prefix("impersonate-").unwrap_or_default();
        matches!(part, "user" | "group" | "uid") || part.starts_with("extra-")
    };
    let wanted = headers.iter().find(|(name, _)| name == "impersonate-user").map(|(_, value)| value);
    let any = headers.iter().any(|(name, value)| named(name) && !value.is_empty());
    if answer.code == 201 {
        let review: Value = serde_json::from_slice(&answer.body).expect("a review is JSON");
        let name = review["status"]["userInfo"]["username"].as_str().unwrap_or_default();
        match wanted {
            Some(wanted) if !wanted.is_empty() => assert_eq!(name.as_bytes(), wanted.as_bytes(), "somebody else"),
            _ => assert_eq!((name, any), (ADMIN, false), "a part of an impersonation was dropped"),
        }
    }
    let answer = exchange(input, |served| (&served.nobody, request.clone()));
    assert!(answer.code >= 300, "nobody became somebody by {headers:?}");
}

/// A line of method, URL and content type, and a body.
pub(crate) fn writes(data: &[u8]) {
    let (line, body) = first_line(data);
    let mut words = line.split(' ');
    let (Some(method), Some(url)) = (words.next(), words.next()) else { return };
    if matches!(method, "GET" | "HEAD" | "CONNECT" | "OPTIONS" | "TRACE") {
        return;
    }
    let content_type = words.next().and_then(|word| HeaderValue::from_str(word).ok());
    let headers: Vec<_> = content_type.map(|value| (http::header::CONTENT_TYPE, value)).into_iter().collect();
    let Some(body) = dry(method, body) else { return };
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    let url = format!("{path}?dryRun=All&{query}");
    let Some(request) = request(method, &url, &headers, &body) else { return };
    let answer = exchange(data.len(), |served| (&served.admin, request.clone()));
    failures_are_statuses(&request, &answer, data.len());
    let answer = exchange(data.len(), |served| (&served.nobody, request.clone()));
    assert!(answer.code >= 300, "{line}: nobody was answered {}", answer.code);
}

/// The options of a delete stand in its body, so that is where a dry run is asked for; in any other it is the query.
fn dry(method: &str, body: &[u8]) -> Option<Vec<u8>> {
    if method != "DELETE" || body.is_empty() {
        return Some(body.to_vec());
    }
    let mut options: Value = serde_json::from_slice(body).ok()?;
    options.as_object_mut()?.insert("dryRun".to_owned(), json!(["All"]));
    Some(options.to_string().into_bytes())
}

fn header(line: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let value = line.get(colon + 1..)?.trim_ascii();
    Some((HeaderName::from_bytes(&line[..colon]).ok()?, HeaderValue::from_bytes(value).ok()?))
}

/// A request, if HTTP can carry it.
fn request(
    method: &str,
    url: &str,
    headers: &[(HeaderName, HeaderValue)],
    body: &[u8],
) -> Option<Request<Full<Bytes>>> {
    let method = Method::from_bytes(method.as_bytes()).ok()?;
    // What arrives over a connection is a path and a query, never a whole URL. A fragment would hide that it is a dry
    // run.
    if !url.starts_with('/') || url.contains('#') {
        return None;
    }
    let mut request = Request::builder().method(method).uri(url);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    request.body(Full::new(Bytes::copy_from_slice(body))).ok()
}

fn exchange(input: usize, ask: impl FnOnce(&Served) -> (&InProcess, Request<Full<Bytes>>)) -> Answer {
    SERVED.with_borrow_mut(|served| {
        let served = served.get_or_insert_with(start);
        let (service, request) = ask(served);
        let service = service.clone();
        bounded::work(input + DOCUMENT_BYTES, FACTOR, "a request", || {
            served.runtime.block_on(async {
                let answered = service.oneshot(request).await.expect("every failure is an answer");
                read(answered).await
            })
        })
    })
}

async fn read(answer: Response<ResponseBody>) -> Answer {
    let code = answer.status().as_u16();
    let (mut stream, mut body) = (answer.into_body(), Vec::new());
    // A watch goes on for ever.
    while let Ok(Some(Ok(frame))) = tokio::time::timeout(READ_TIMEOUT, stream.frame()).await {
        body.extend_from_slice(&frame.into_data().unwrap_or_default());
    }
    Answer { code, body }
}

/// What a body in protobuf begins with.
const PROTOBUF_MAGIC: &[u8] = b"k8s\0";

fn failures_are_statuses(request: &Request<Full<Bytes>>, answer: &Answer, input: usize) {
    let Answer { code, body } = answer;
    let text = String::from_utf8_lossy(body);
    let line = format!("{} {}", request.method(), request.uri());
    // A few refusals are 500 as upstream's are; a panic is one too, and says so.
    assert!(!text.contains("caused apiserver to panic"), "{line}: {code} {text}");
    if *code < 400 {
        return;
    }
    let allowed = FAILURE_BYTES + FAILURE_FACTOR * input;
    assert!(body.len() <= allowed, "{line}: a failure of {} bytes about {input} bytes", body.len());
    let yaml = request.headers().get(http::header::ACCEPT).is_some_and(|accept| accept.as_bytes().contains(&b'y'));
    // Upstream's router answers so for a group that nobody serves.
    let unrouted = *code == 404 && text.trim_end() == "404 page not found";
    if body.starts_with(PROTOBUF_MAGIC) {
        assert!(text.contains("v1\u{12}\u{6}Status"), "{line}: {code} {text}");
    } else if request.method() != Method::HEAD && !yaml && !unrouted && request.uri().path().starts_with("/api") {
        let status: Value = serde_json::from_slice(body).unwrap_or_else(|_| panic!("{line}: {code} {text}"));
        assert_eq!((&status["kind"], &status["code"]), (&json!("Status"), &json!(code)), "{line}: {text}");
    }
}

fn start() -> Served {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (admin, nobody) = runtime.block_on(async {
        let store = Arc::new(FrozenStore::new());
        let names = Names::standard(None, [10, 96, 0, 1].into());
        let pki = Pki::in_memory(&names, Timestamp::now()).expect("certificates");
        let address = ([127, 0, 0, 1], 6443).into();
        let mut config = Config::new(pki.service_account_key.clone(), address);
        config.plugins.service_account = false;
        let server = ApiServer::new(config, store.clone()).await.expect("a server");
        let admin = server.service(User::new(ADMIN, ["system:masters"]));
        for (path, object) in objects() {
            let created = request("POST", path, &[], object.to_string().as_bytes()).expect("a request of ours");
            let answer = read(admin.clone().oneshot(created).await.expect("an answer")).await;
            assert_eq!(answer.code, 201, "{path}: {}", String::from_utf8_lossy(&answer.body));
        }
        store.frozen.store(true, Ordering::Relaxed);
        // From here on nothing waits for another thread, so time can pass whenever nothing else is left to do.
        tokio::time::pause();
        (admin, server.network_service())
    });
    Served { runtime, admin, nobody }
}

/// What the paths and writes are about.
fn objects() -> [(&'static str, Value); 4] {
    let pods = json!({"containers": [{"name": "c", "image": "i", "env": [{"name": "E", "value": "v"}]}]});
    let labels = json!({"app": "web"});
    let template = json!({"metadata": {"labels": labels}, "spec": pods});
    [
        ("/api/v1/namespaces/default/configmaps", json!({"metadata": {"name": "c"}, "data": {"k": "v"}})),
        ("/api/v1/namespaces/default/pods", json!({"metadata": {"name": "p", "labels": labels}, "spec": pods})),
        (
            "/apis/apps/v1/namespaces/default/deployments",
            json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": labels}, "template": template}}),
        ),
        ("/api/v1/nodes", json!({"metadata": {"name": "n"}})),
    ]
}
