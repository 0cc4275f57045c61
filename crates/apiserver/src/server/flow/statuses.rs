//! The statuses of FlowSchemas: whether the level that each names exists.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bayplan_store::Revision;
use rand::RngExt;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::chance;
use crate::server::loopback::{Failure, Loopback};

const MANAGER: &str = "api-priority-and-fairness-config-consumer-v1";
/// The one condition.
const DANGLING: &str = "Dangling";
/// How often the status of one schema is written in a minute, as upstream: servers that disagree must not fight.
const WRITES_MAX: usize = 6;
const MINUTE: Duration = Duration::from_secs(60);
/// How long it is not written after that, in seconds, as upstream.
const PAUSE: std::ops::Range<u64> = 30..75;
/// How long after a failure it is tried again; twice as long after each further one.
const RETRY_MIN: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// What the condition says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dangling {
    status: String,
    reason: String,
    message: String,
}

/// A FlowSchema whose status does not say what it should.
#[derive(Clone, Debug)]
pub(in crate::server) struct Outdated {
    pub(super) schema: String,
    /// The revision that was seen.
    pub(super) revision: Revision,
    pub(super) wanted: Dangling,
}

impl Dangling {
    /// What the condition says about a level that is missing, or not.
    pub(super) fn new(level: &str, is_missing: bool) -> Dangling {
        let object = format!("This FlowSchema references the PriorityLevelConfiguration object named \"{level}\"");
        let (status, reason, message) = match is_missing {
            true => ("True", "NotFound", format!("{object} but there is no such object")),
            false => ("False", "Found", format!("{object} and it exists")),
        };
        Dangling { status: status.into(), reason: reason.into(), message }
    }

    /// What it says in an object.
    pub(super) fn of(object: &Value) -> Option<Dangling> {
        let conditions = object["status"]["conditions"].as_array()?;
        let condition = conditions.iter().find(|condition| condition["type"] == DANGLING)?;
        let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        Some(Dangling { status: text("status"), reason: text("reason"), message: text("message") })
    }
}

/// Writes the statuses, as a client of the server.
pub(in crate::server) struct StatusWriter {
    outdated: watch::Receiver<Arc<[Outdated]>>,
    loopback: Loopback,
    /// The revisions of its own writes, by schema.
    written: BTreeMap<String, Revision>,
    /// When the status of each schema was written in the last minute.
    recent: BTreeMap<String, VecDeque<Instant>>,
    failures: u32,
}

impl StatusWriter {
    pub(in crate::server) fn new(outdated: watch::Receiver<Arc<[Outdated]>>, loopback: Loopback) -> StatusWriter {
        StatusWriter { outdated, loopback, written: BTreeMap::new(), recent: BTreeMap::new(), failures: 0 }
    }

    /// Writes until the task is dropped, or nobody says any more what is outdated.
    pub(in crate::server) async fn write(mut self) {
        loop {
            let outdated = self.outdated.borrow_and_update().clone();
            let again = self.write_all(&outdated).await;
            let pause = async {
                match again {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                changed = self.outdated.changed() => if changed.is_err() { return },
                () = pause => {}
            }
        }
    }

    /// Writes what is outdated; answers when to try again, if something is left.
    async fn write_all(&mut self, outdated: &[Outdated]) -> Option<Duration> {
        let now = Instant::now();
        self.recent.retain(|_, times| {
            times.retain(|at| now.duration_since(*at) < MINUTE);
            !times.is_empty()
        });
        self.written.retain(|schema, _| outdated.iter().any(|one| one.schema == *schema));
        let (mut failed, mut delayed) = (false, false);
        for one in outdated {
            // What has been seen is older than what was written last.
            if self.written.get(&one.schema).is_some_and(|written| *written >= one.revision) {
                continue;
            }
            let times = self.recent.entry(one.schema.clone()).or_default();
            if times.len() >= WRITES_MAX {
                delayed = true;
                continue;
            }
            times.push_back(now);
            match self.write_one(one).await {
                Ok(revision) => _ = self.written.insert(one.schema.clone(), revision),
                // It has been deleted meanwhile.
                Err(failure) if failure.code == 404 => {}
                Err(failure) => {
                    tracing::warn!(schema = one.schema, %failure, "the status of a FlowSchema cannot be written");
                    failed = true;
                }
            }
            // What is outdated by now is better than what was.
            if self.outdated.has_changed().unwrap_or(false) {
                return None;
            }
        }
        self.failures = if failed { self.failures.saturating_add(1) } else { 0 };
        let retry = || RETRY_MIN.saturating_mul(1 << self.failures.min(16)).min(RETRY_MAX);
        match (failed, delayed) {
            (true, _) => Some(retry()),
            (false, true) => Some(Duration::from_secs(chance::rng().random_range(PAUSE))),
            (false, false) => None,
        }
    }

    /// Applies one status; answers its revision.
    async fn write_one(&self, outdated: &Outdated) -> Result<Revision, Failure> {
        let Outdated { schema, wanted: Dangling { status, reason, message }, .. } = outdated;
        let condition = json!({
            "type": DANGLING, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": bayplan_model::timestamp::seconds(self.loopback.now()),
        });
        let object = json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": {"name": schema},
            "status": {"conditions": [condition]},
        });
        let path = format!(
            "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/{schema}/status?fieldManager={MANAGER}&force=true"
        );
        let applied = self.loopback.send("PATCH", &path, "application/apply-patch+yaml", &object).await?;
        let revision = applied["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok());
        Ok(revision.unwrap_or(outdated.revision))
    }
}
