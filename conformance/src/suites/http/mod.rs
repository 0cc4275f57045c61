//! Exchanges with a real API server, replayed against ours over the same path a network client takes.
//!
//! What counts is in `compare`. Scenarios are independent: each gets a server of its own, and many wait at once.
//!
//! `CONFORMANCE_ALL_STEPS=1` reports every step that differs instead of the first of a scenario, and
//! `CONFORMANCE_MANAGED_FIELDS=0` leaves `metadata.managedFields` out, to see what else differs.

mod compare;
mod placeholders;

use std::collections::BTreeMap;
use std::env;
use std::sync::Arc;

use bayplan_apiserver::certificates::{Names, Pki};
use bayplan_apiserver::{AdmissionPlugins, ApiServer, Config, ResponseBody, ServiceRangeError, StaticTokens, User};
use bayplan_store::{LogStore, Store};
use bytes::Bytes;
use compare::{Found, Rules, counted};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use placeholders::Bindings;
use serde::Deserialize;
use serde_json::{Map, Value};
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
    content_type: Option<String>,
    warnings: Vec<String>,
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

/// Replays one scenario of `http`, `http-more` or `server-side-apply`.
pub(super) fn check(case: &Value) -> Outcome {
    let managed_fields = env::var("CONFORMANCE_MANAGED_FIELDS").as_deref() != Ok("0");
    replay(case, Rules { managed_fields })
}

fn is_set(variable: &str) -> bool {
    env::var_os(variable).is_some_and(|value| !value.is_empty())
}

fn replay(case: &Value, rules: Rules) -> Outcome {
    let scenario: Scenario = serde_json::from_value(case.clone())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|e| Mismatch::Unreadable(e.to_string()))?;
    runtime.block_on(async {
        let mut replay = Replay::start(&scenario.name, rules).await.map_err(Mismatch::Unreadable)?;
        replay.run(&scenario.steps).await;
        replay.server.shutdown().await;
        let (total, equal) = (replay.total, replay.equal);
        let mut differences = replay.differences.into_iter();
        let Some(mut first) = differences.next() else { return Ok(()) };
        if is_set("CONFORMANCE_ALL_STEPS") {
            for more in differences {
                first.actual.push_str(&format!("\n  {more}"));
            }
        }
        first.path = format!("{} ({equal} of {total} steps equal)", first.path);
        Err(first.into())
    })
}

struct Replay {
    server: ApiServer,
    store: Arc<dyn Store>,
    plugins: AdmissionPlugins,
    rules: Rules,
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
    // It was switched off there, so that nobody wrote the statuses of FlowSchemas.
    config.priority_and_fairness = false;
    // No controller ran beside the recorded server.
    config.bootstrap.aggregate_roles = false;
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
    async fn start(name: &str, rules: Rules) -> Result<Replay, String> {
        let store: Arc<dyn Store> = Arc::new(LogStore::in_memory().map_err(|e| e.to_string())?);
        let plugins = AdmissionPlugins {
            service_account: name.starts_with("serviceaccount-admission"),
            taint_nodes_by_condition: true,
            node_restriction: false,
            ..AdmissionPlugins::default()
        };
        let server = server(&store, plugins).await?;
        let mut replay = Replay {
            server,
            store,
            plugins,
            rules,
            bindings: Bindings::default(),
            answers: BTreeMap::new(),
            differences: Vec::new(),
            equal: 0,
            total: 0,
        };
        // The recorded server had been restarted after its first start. Its watch cache had forgotten what was before,
        // but for events, which have none: they are watched in etcd, where nothing had been compacted.
        replay.restart(!name.contains("events")).await?;
        Ok(replay)
    }

    async fn restart(&mut self, forget: bool) -> Result<(), String> {
        self.server.shutdown().await;
        if forget {
            let current = self.store.revision().await.map_err(|e| e.to_string())?;
            self.store.compact(current).await.map_err(|e| e.to_string())?;
        }
        self.server = server(&self.store, self.plugins).await?;
        Ok(())
    }

    async fn run(&mut self, steps: &[Step]) {
        for step in steps {
            if compare::is_later(&step.path) {
                continue;
            }
            if step.action.is_some() {
                if let Err(problem) = self.restart(true).await {
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
            expected: expected.replace('\n', "\\n"),
            actual: actual.replace('\n', "\\n"),
        });
    }

    async fn step(&mut self, step: &Step) {
        let response = self.send(step).await;
        let status = response.status().as_u16();
        if status != step.status {
            let text = read(response).await;
            let recorded = step.response.clone().unwrap_or_default();
            let expected = format!("{} {}", step.status, recorded["message"]);
            self.note(step, "status", &expected, &format!("{status} {text}"));
            Box::pin(self.run(&step.during)).await;
            return;
        }
        if !step.loose
            && let Err((path, expected, actual)) = self.compare_headers(step, &response)
        {
            self.note(step, &path, &expected, &actual);
        }
        let text = if step.watch && status == 200 {
            Box::pin(self.run(&step.during)).await;
            let text = read(response).await;
            return self.compare_events(step, &text);
        } else {
            read(response).await
        };
        if !step.loose {
            self.compare_body(step, &text);
        }
    }

    fn compare_headers(&mut self, step: &Step, response: &Response<ResponseBody>) -> Result<(), Found> {
        let texts = |name: &str| -> Vec<String> {
            let values = response.headers().get_all(name).iter();
            values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
        };
        if let Some(expected) = &step.content_type {
            let actual = texts("content-type").join(", ");
            if *expected != actual {
                return Err(("content-type".to_owned(), expected.clone(), actual));
            }
        }
        self.bindings.compare_warnings(&step.warnings, &texts("warning"))
    }

    fn compare_body(&mut self, step: &Step, text: &str) {
        let is_yaml = step.content_type.as_deref() == Some("application/yaml");
        let recorded = match (&step.response, &step.response_text) {
            (Some(recorded), _) => recorded.clone(),
            (None, Some(recorded)) if is_yaml => serde_saphyr::from_str(recorded).unwrap_or_default(),
            (None, Some(recorded)) => {
                if !self.bindings.matches(recorded, text) {
                    self.note(step, "text", recorded, text);
                }
                return;
            }
            (None, None) => return,
        };
        let live: Value = if is_yaml { serde_saphyr::from_str(text).ok() } else { serde_json::from_str(text).ok() }
            .unwrap_or_default();
        let (expected, actual) = (counted(self.rules, &step.path, &recorded), counted(self.rules, &step.path, &live));
        if let Err((path, expected, actual)) = self.bindings.compare(&expected, &actual, "") {
            self.note(step, &path, &expected, &actual);
        }
        self.answers.insert(step.n, (expected, actual));
    }

    fn compare_events(&mut self, step: &Step, text: &str) {
        let events = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .filter(|event: &Value| {
                event["type"] != "BOOKMARK"
                    || event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"
            })
            .collect();
        let expected = counted(self.rules, &step.path, &Value::Array(step.events.clone()));
        let actual = counted(self.rules, &step.path, &Value::Array(events));
        if let Err((path, expected, actual)) = self.bindings.compare(&expected, &actual, "events") {
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
                let body = counted(self.rules, &step.path, body);
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
}

async fn read(response: Response<ResponseBody>) -> String {
    let Ok(collected) = response.into_body().collect().await;
    String::from_utf8_lossy(&collected.to_bytes()).into_owned()
}

fn escape(text: &str) -> String {
    text.bytes()
        .map(|b| match b {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => (b as char).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect()
}
