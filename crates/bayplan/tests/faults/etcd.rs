//! What etcd itself says: its members, its leader, and every change in the order in which it made them.
//!
//! Asked over its own ports, which no proxy cuts, in JSON, which every etcd answers beside gRPC.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bayplan_client::{Config, HttpClient};
use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::history::{Change, ChangeKind, Truth};

/// How long a member may take to answer; one that is paused never does.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How long a quiet stream of changes is waited for.
const CHANGES_WITHIN: Duration = Duration::from_secs(30);

/// A client of one member.
pub(crate) struct Etcd {
    http: HttpClient,
}

/// What a member says of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) member: u64,
    /// 0 while there is none.
    pub(crate) leader: u64,
    pub(crate) term: u64,
}

impl Etcd {
    /// A client of the member on this port.
    pub(crate) fn on(port: u16) -> Etcd {
        let config = Config::new(format!("http://127.0.0.1:{port}").parse().unwrap());
        Etcd { http: HttpClient::new(&config).unwrap() }
    }

    async fn ask(&self, path: &str, body: &Value) -> Option<Value> {
        let request = http::Request::post(path).body(Bytes::from(body.to_string())).unwrap();
        let whole = async {
            let answer = self.http.send(request).await.ok()?;
            let succeeded = answer.status().is_success();
            let body = answer.into_body().collect().await.ok()?.to_bytes();
            succeeded.then(|| serde_json::from_slice(&body).unwrap())
        };
        tokio::time::timeout(ANSWER_WITHIN, whole).await.ok().flatten()
    }

    /// Its own view of who leads; none when it does not answer.
    pub(crate) async fn status(&self) -> Option<Status> {
        let status = self.ask("/v3/maintenance/status", &json!({})).await?;
        let (member, leader) = (number(&status["header"]["member_id"]), number(&status["leader"]));
        Some(Status { member, leader, term: number(&status["raftTerm"]) })
    }

    /// The newest revision, agreed on by a quorum.
    pub(crate) async fn revision(&self) -> Option<u64> {
        let everything = json!({"key": "AA==", "range_end": "AA==", "count_only": true});
        let answer = self.ask("/v3/kv/range", &everything).await?;
        Some(number(&answer["header"]["revision"]))
    }

    /// Takes a key away behind everybody's back.
    pub(crate) async fn delete(&self, key: &str) {
        let deleted = self.ask("/v3/kv/deleterange", &json!({"key": BASE64_STANDARD.encode(key)})).await.unwrap();
        assert_eq!(number(&deleted["deleted"]), 1, "{key}: {deleted}");
    }

    /// All keys and the revisions of their last changes, at a revision.
    pub(crate) async fn keys_at(&self, revision: u64) -> BTreeMap<String, u64> {
        let everything =
            json!({"key": "AA==", "range_end": "AA==", "keys_only": true, "revision": revision.to_string()});
        let answer = self.ask("/v3/kv/range", &everything).await.expect("etcd lists its keys");
        let pairs = answer["kvs"].as_array().into_iter().flatten();
        pairs.map(|pair| (text(&pair["key"]), number(&pair["mod_revision"]))).collect()
    }

    /// Adds every change after the last one of `truth`, up to the newest revision at this moment.
    pub(crate) async fn follow(&self, truth: &mut Truth) {
        let newest = self.revision().await.expect("etcd has a quorum");
        if newest <= truth.revision() {
            return;
        }
        let start = (truth.revision() + 1).to_string();
        let create = json!({"create_request": {"key": "AA==", "range_end": "AA==", "start_revision": start}});
        let request = http::Request::post("/v3/watch").body(Bytes::from(create.to_string())).unwrap();
        let mut body = self.http.send(request).await.expect("etcd streams changes").into_body();
        let mut buffer = Vec::new();
        while truth.revision() < newest {
            let frame = tokio::time::timeout(CHANGES_WITHIN, body.frame()).await.expect("changes come in time");
            let frame = frame.expect("the stream goes on").expect("the stream is whole");
            buffer.extend_from_slice(&frame.into_data().unwrap_or_default());
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                let line: Value = serde_json::from_slice(&line).unwrap();
                assert!(line["result"]["canceled"].is_null(), "{line}");
                let events = line["result"]["events"].as_array().into_iter().flatten();
                truth.extend(events.map(change).filter(|change| change.revision <= newest));
            }
        }
    }
}

fn change(event: &Value) -> Change {
    let pair = &event["kv"];
    let (created, revision) = (number(&pair["create_revision"]), number(&pair["mod_revision"]));
    let kind = match event["type"].as_str() {
        Some("DELETE") => ChangeKind::Deleted,
        _ if created == revision => ChangeKind::Added,
        _ => ChangeKind::Modified,
    };
    let value = BASE64_STANDARD.decode(pair["value"].as_str().unwrap_or_default()).unwrap();
    Change { revision, key: text(&pair["key"]), kind, value }
}

fn text(encoded: &Value) -> String {
    let bytes = BASE64_STANDARD.decode(encoded.as_str().unwrap_or_default()).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A 64-bit number, which JSON carries as a text.
fn number(value: &Value) -> u64 {
    value.as_str().map_or(0, |text| text.parse().unwrap())
}
