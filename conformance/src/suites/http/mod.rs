//! Exchanges with a real API server, replayed against ours over the same path a network client takes.
//!
//! `metadata.managedFields` does not count (server-side apply is not served), nor does the text behind the first line
//! of a message. Scenarios are independent: each gets a server of its own.

mod placeholders;

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_apiserver::certificates::{Names, Pki};
use bayplan_apiserver::{AdmissionPlugins, ApiServer, Config, ResponseBody, ServiceRangeError, StaticTokens, User};
use bayplan_store::{LogStore, Store};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use placeholders::Bindings;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tower::ServiceExt;

use super::{Mismatch, Outcome};
use crate::difference::Difference;

#[derive(Debug, Deserialize)]
struct Scenario {
    name: String,
    steps: Vec<Step>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Step {
    n: usize,
    method: String,
    path: String,
    query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    body: Option<Value>,
    raw_body: Option<String>,
    body_from: Option<usize>,
    status: u16,
    response: Option<Value>,
    response_text: Option<String>,
    user: Option<String>,
    watch: bool,
    events: Vec<Value>,
    during: Vec<Step>,
    action: Option<Value>,
    loose: bool,
}

/// Replays one scenario.
pub(super) fn check(case: &Value) -> Outcome {
    let scenario: Scenario = serde_json::from_value(case.clone())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|e| Mismatch::Unreadable(e.to_string()))?;
    runtime.block_on(async {
        let mut replay = Replay::start(&scenario.name).await.map_err(Mismatch::Unreadable)?;
        replay.run(&scenario.steps).await;
        replay.server.shutdown().await;
        let total = replay.total;
        match replay.differences.into_iter().next() {
            None => Ok(()),
            Some(mut first) => {
                first.path = format!("{} ({} of {total} steps equal)", first.path, replay.equal);
                Err(first.into())
            }
        }
    })
}

struct Replay {
    server: ApiServer,
    store: Arc<dyn Store>,
    plugins: AdmissionPlugins,
    bindings: Bindings,
    /// Recorded and live answers by step number, for bodies made from them.
    answers: BTreeMap<usize, (Value, Value)>,
    differences: Vec<Difference>,
    equal: usize,
    total: usize,
}

async fn server(store: &Arc<dyn Store>, plugins: AdmissionPlugins) -> Result<ApiServer, String> {
    let names = Names::standard(None, [10, 0, 0, 1].into());
    let pki = Pki::in_memory(&names, jiff::Timestamp::now()).map_err(|e| e.to_string())?;
    let mut config = Config::new(pki.service_account_key.clone(), ([127, 0, 0, 1], 6443).into());
    config.plugins = plugins;
    config.service_range = "10.0.0.0/24".parse().map_err(|e: ServiceRangeError| e.to_string())?;
    let mut tokens = StaticTokens::default();
    for (name, group) in [("admin", "system:masters"), ("alice", "devs"), ("bob", "ops")] {
        let user = User { uid: format!("{name}-uid"), ..User::new(name, [group]) };
        tokens.insert(format!("{name}-token"), user);
    }
    config.static_tokens = tokens;
    ApiServer::new(config, store.clone()).await.map_err(|e| e.to_string())
}

impl Replay {
    async fn start(name: &str) -> Result<Replay, String> {
        let store: Arc<dyn Store> = Arc::new(LogStore::in_memory().map_err(|e| e.to_string())?);
        let plugins = AdmissionPlugins {
            service_account: name.starts_with("serviceaccount-admission"),
            taint_nodes_by_condition: true,
            node_restriction: false,
            storage_object_in_use_protection: true,
        };
        let server = server(&store, plugins).await?;
        let mut replay = Replay {
            server,
            store,
            plugins,
            bindings: Bindings::default(),
            answers: BTreeMap::new(),
            differences: Vec::new(),
            equal: 0,
            total: 0,
        };
        // The recorded server had been restarted after its first start.
        replay.restart().await?;
        Ok(replay)
    }

    async fn restart(&mut self) -> Result<(), String> {
        self.server.shutdown().await;
        let current = self.store.revision().await.map_err(|e| e.to_string())?;
        self.store.compact(current).await.map_err(|e| e.to_string())?;
        self.server = server(&self.store, self.plugins).await?;
        Ok(())
    }

    async fn run(&mut self, steps: &[Step]) {
        for step in steps {
            if step.action.is_some() {
                if let Err(problem) = self.restart().await {
                    self.note(step, "action", "a restart", &problem);
                }
                continue;
            }
            self.total += 1;
            let before = self.differences.len();
            self.step(step).await;
            if self.differences.len() == before {
                self.equal += 1;
            }
        }
    }

    fn note(&mut self, step: &Step, path: &str, expected: &str, actual: &str) {
        self.differences.push(Difference {
            path: format!("step {} {} {} {path}", step.n, step.method, step.path),
            expected: expected.to_owned(),
            actual: actual.to_owned(),
        });
    }

    async fn step(&mut self, step: &Step) {
        let response = self.send(step).await;
        let status = response.status().as_u16();
        if status != step.status {
            let (_, body) = read(response).await;
            let recorded = step.response.clone().unwrap_or_default();
            let expected = format!("{} {}", step.status, recorded["message"]);
            self.note(step, "status", &expected, &format!("{status} {body}"));
            Box::pin(self.run(&step.during)).await;
            return;
        }
        if step.watch && status == 200 {
            Box::pin(self.run(&step.during)).await;
            let (_, text) = read(response).await;
            return self.compare_events(step, &text);
        }
        let (value, text) = read(response).await;
        if step.loose {
            return;
        }
        if let Some(expected) = &step.response {
            let (expected, actual) = (without_managed(expected), without_managed(&value));
            self.answers.insert(step.n, (expected.clone(), actual.clone()));
            if let Err((path, expected, actual)) = self.compare(&expected, &actual, "") {
                self.note(step, &path, &expected, &actual);
            }
        } else if let Some(expected) = &step.response_text
            && !expected.contains("managedFields")
            && !self.bindings.matches(expected, &text)
        {
            self.note(step, "text", expected, &text);
        }
    }

    fn compare_events(&mut self, step: &Step, text: &str) {
        let events: Vec<Value> = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .filter(|event: &Value| {
                event["type"] != "BOOKMARK"
                    || event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"
            })
            .map(|event| without_managed(&event))
            .collect();
        let expected = Value::Array(step.events.iter().map(without_managed).collect());
        if let Err((path, expected, actual)) = self.compare(&expected, &Value::Array(events), "events") {
            self.note(step, &path, &expected, &actual);
        }
    }

    async fn send(&mut self, step: &Step) -> Response<ResponseBody> {
        let query: Vec<String> =
            step.query.iter().map(|(k, v)| format!("{}={}", escape(k), escape(&self.bindings.fill(v)))).collect();
        let mut uri = self.bindings.fill(&step.path);
        if !query.is_empty() {
            uri = format!("{uri}?{}", query.join("&"));
        }
        let mut request = Request::builder().method(step.method.as_str()).uri(uri).header("User-Agent", "refgen/1.0");
        for (name, value) in &step.headers {
            request = request.header(name, value);
        }
        let user = step.user.as_deref().unwrap_or("admin");
        if user != "anonymous" {
            request = request.header("Authorization", format!("Bearer {user}-token"));
        }
        let body = match (&step.raw_body, &step.body, step.body_from) {
            (Some(raw), ..) => Bytes::from(self.bindings.fill(raw)),
            (None, Some(body), Some(from)) => {
                let body = without_managed(body);
                let made = match self.answers.get(&from) {
                    Some((recorded, live)) => self.remake(recorded, live, &body),
                    None => self.bindings.fill_value(&body),
                };
                Bytes::from(made.to_string())
            }
            (None, Some(body), None) => Bytes::from(self.bindings.fill_value(body).to_string()),
            (None, None, _) => Bytes::new(),
        };
        match request.body(Full::new(body)) {
            Ok(request) => match self.server.network_service().oneshot(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            },
            Err(_) => Response::default(),
        }
    }

    /// The live answer with the edits that led from the recorded answer to the recorded body.
    fn remake(&self, recorded: &Value, live: &Value, body: &Value) -> Value {
        if recorded == body {
            return live.clone();
        }
        match (recorded, live, body) {
            (Value::Object(recorded), Value::Object(live), Value::Object(body)) => {
                let mut made = Map::new();
                for (key, value) in body {
                    let value = match (recorded.get(key), live.get(key)) {
                        (Some(recorded), Some(live)) => self.remake(recorded, live, value),
                        _ => self.bindings.fill_value(value),
                    };
                    made.insert(key.clone(), value);
                }
                Value::Object(made)
            }
            (Value::Array(recorded), Value::Array(live), Value::Array(body))
                if recorded.len() == body.len() && live.len() == body.len() =>
            {
                body.iter().zip(recorded.iter().zip(live)).map(|(b, (r, l))| self.remake(r, l, b)).collect()
            }
            _ => self.bindings.fill_value(body),
        }
    }

    fn compare(&mut self, expected: &Value, actual: &Value, path: &str) -> Result<(), (String, String, String)> {
        let differ = || Err((path.to_owned(), short(expected), short(actual)));
        match (expected, actual) {
            (Value::Object(left), Value::Object(right)) => {
                for key in left.keys().chain(right.keys().filter(|k| !left.contains_key(*k))) {
                    let at = format!("{path}/{key}");
                    match (left.get(key), right.get(key)) {
                        (Some(left), Some(right)) if key == "causes" => self.compare_sets(left, right, &at)?,
                        (Some(Value::String(left)), Some(Value::String(right))) if key == "message" => {
                            if !self.compare_messages(left, right) {
                                return Err((at, left.clone(), right.clone()));
                            }
                        }
                        (Some(left), Some(right)) => self.compare(left, right, &at)?,
                        (left, right) => {
                            let shown = |v: Option<&Value>| v.map_or("absent".to_owned(), short);
                            return Err((at, shown(left), shown(right)));
                        }
                    }
                }
                Ok(())
            }
            (Value::Array(left), Value::Array(right)) => {
                if left.len() != right.len() {
                    return differ();
                }
                for (index, (left, right)) in left.iter().zip(right).enumerate() {
                    self.compare(left, right, &format!("{path}/{index}"))?;
                }
                Ok(())
            }
            (Value::String(left), Value::String(right)) if self.bindings.matches(left, right) => Ok(()),
            (Value::String(left), Value::Number(right)) if left.starts_with("$NODEPORT") => {
                if self.bindings.matches(left, &right.to_string()) { Ok(()) } else { differ() }
            }
            _ if expected == actual => Ok(()),
            _ => differ(),
        }
    }

    /// Lists of causes come out of maps upstream: their order says nothing.
    fn compare_sets(&mut self, expected: &Value, actual: &Value, path: &str) -> Result<(), (String, String, String)> {
        let (Some(left), Some(right)) = (expected.as_array(), actual.as_array()) else {
            return self.compare(expected, actual, path);
        };
        let mut rest: Vec<&Value> = right.iter().collect();
        for cause in left {
            match rest.iter().position(|candidate| self.compare(cause, candidate, path).is_ok()) {
                Some(at) => drop(rest.remove(at)),
                None => return Err((path.to_owned(), short(cause), short(actual))),
            }
        }
        if rest.is_empty() { Ok(()) } else { Err((path.to_owned(), short(expected), short(actual))) }
    }

    fn compare_messages(&mut self, expected: &str, actual: &str) -> bool {
        let first = |text: &str| text.lines().next().unwrap_or_default().to_owned();
        let (left, right) = (first(expected), first(actual));
        if self.bindings.matches(&left, &right) {
            return true;
        }
        let pieces = |text: &str| {
            let mut pieces: Vec<String> = text.replace(['[', ']'], "").split(", ").map(str::to_owned).collect();
            pieces.sort();
            pieces.join(", ")
        };
        // A message that quotes the whole object quotes what does not count, too.
        let quotes = |text: &str| text.contains("Invalid value: \"{\\\"apiVersion");
        if quotes(&left) && quotes(&right) {
            let end = |text: &str| text.rsplit("}\":").next().unwrap_or_default().to_owned();
            return end(&left) == end(&right);
        }
        self.bindings.matches(&pieces(&left), &pieces(&right))
    }
}

async fn read(response: Response<ResponseBody>) -> (Value, String) {
    let Ok(collected) = response.into_body().collect().await;
    let bytes = collected.to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    (serde_json::from_slice(&bytes).unwrap_or(json!(null)), text)
}

fn without_managed(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            map.iter().filter(|(k, _)| *k != "managedFields").map(|(k, v)| (k.clone(), without_managed(v))).collect()
        }
        Value::Array(list) => list.iter().map(without_managed).collect(),
        other => other.clone(),
    }
}

fn escape(text: &str) -> String {
    text.bytes()
        .map(|b| match b {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => (b as char).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect()
}

fn short(value: &Value) -> String {
    const SHOWN: usize = 300;
    let text = value.to_string();
    if text.len() <= SHOWN {
        return text;
    }
    text.chars().take(SHOWN).chain("…".chars()).collect()
}
