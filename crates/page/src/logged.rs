//! What a decision log tells of pods: every attempt, and who came to nodes and left them.

use bayplan_model::pod::Pod;
use bayplan_model::resources::PodUsage;
use bayplan_sources::SourceObject;
use bayplan_sources::decision_log::{LogChange, LogChanged, LogEntry};
use jiff::Timestamp;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::decisions::{Decision, Outcome};

/// Turns the entries of a log into decisions. It knows the pods that the log has shown, because a decision names its
/// pod and no more.
#[derive(Default)]
pub(crate) struct LoggedDecisions {
    /// The pods that are there, by UID.
    pods: FxHashMap<String, KnownPod>,
    /// UIDs of pods that were there when the log began again, and were not seen since.
    unseen: FxHashSet<String>,
}

struct KnownPod {
    /// As `namespace/name`.
    key: String,
    /// Empty while it waits.
    node: String,
    cpu: i64,
    memory: i64,
}

impl KnownPod {
    fn decision(&self, outcome: Outcome, at: Timestamp) -> Decision {
        Decision {
            at: at.as_millisecond(),
            outcome,
            pod: self.key.clone(),
            node: self.node.clone(),
            message: String::new(),
            cpu: self.cpu,
            memory: self.memory,
        }
    }
}

impl LoggedDecisions {
    /// What an entry tells, in order.
    pub(crate) fn entry(&mut self, entry: &LogEntry) -> Vec<Decision> {
        let mut decisions = Vec::new();
        if entry.begins.is_some() {
            // The whole state follows: at once, or as a scheduler that has just started comes to know it.
            self.unseen = self.pods.keys().cloned().collect();
        }
        for change in &entry.changes {
            self.change(change, entry.time, &mut decisions);
        }
        if let (Some(decision), Some(time)) = (&entry.decision, entry.time) {
            // Who decides knows the whole state; who is not in it left while nothing was logged.
            for uid in std::mem::take(&mut self.unseen) {
                self.leave(&uid, Some(time), true, &mut decisions);
            }
            let pod = self.pods.entry(decision.uid.clone()).or_insert_with(|| KnownPod {
                key: format!("{}/{}", decision.namespace, decision.name),
                node: String::new(),
                cpu: 0,
                memory: 0,
            });
            match (&decision.node, &decision.message) {
                (Some(node), None) => {
                    pod.node.clone_from(node);
                    decisions.push(pod.decision(Outcome::Placed, time));
                }
                (_, message) => {
                    let message = crate::decisions::shortened(message.as_deref().unwrap_or_default());
                    decisions.push(Decision { message, ..pod.decision(Outcome::Refused, time) });
                }
            }
        }
        decisions
    }

    fn change(&mut self, change: &LogChange, entry_time: Option<Timestamp>, decisions: &mut Vec<Decision>) {
        let time = change.time.or(entry_time);
        match &change.what {
            LogChanged::Put(object) if object.resource.kind == "Pod" => self.put(object, time, decisions),
            LogChanged::Gone(gone) if gone.kind == "Pod" => self.leave(&gone.uid, time, true, decisions),
            // Its binding failed: it is not on the node after all.
            LogChanged::Undone(undone) => self.leave(&undone.uid, time, false, decisions),
            LogChanged::Assumed(place) => {
                if let Some(pod) = self.pods.get_mut(&place.uid) {
                    pod.node.clone_from(&place.node);
                }
            }
            _ => {}
        }
    }

    fn put(&mut self, object: &SourceObject, time: Option<Timestamp>, decisions: &mut Vec<Decision>) {
        let Ok(pod) = serde_json::from_str::<Pod>(object.json.get()) else { return };
        let uid = pod.metadata.uid.clone();
        self.unseen.remove(&uid);
        if pod.is_terminal() {
            return self.leave(&uid, time, true, decisions);
        }
        let former = self.pods.get(&uid).map(|known| known.node.clone()).unwrap_or_default();
        let requested = PodUsage::of(&pod).requested;
        // A pod that was decided here is on its node before its object says so.
        let node = if pod.is_assigned() { pod.spec.node_name.clone() } else { former.clone() };
        let (key, cpu, memory) = (pod.metadata.key(), requested.milli_cpu, requested.memory);
        let known = KnownPod { key, node, cpu, memory };
        // What has no time is the state with which a log begins. Who came to a node otherwise was not decided here.
        if let (Some(time), true, true) = (time, pod.is_assigned(), former.is_empty()) {
            decisions.push(known.decision(Outcome::Placed, time));
        }
        self.pods.insert(uid, known);
    }

    /// A pod leaves its node, for good or to wait again.
    fn leave(&mut self, uid: &str, time: Option<Timestamp>, is_gone: bool, decisions: &mut Vec<Decision>) {
        self.unseen.remove(uid);
        let Some(pod) = self.pods.get_mut(uid) else { return };
        if let (Some(time), false) = (time, pod.node.is_empty()) {
            decisions.push(pod.decision(Outcome::Left, time));
        }
        pod.node.clear();
        if is_gone {
            self.pods.remove(uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use bayplan_sources::decision_log::DecisionLogReader;
    use bayplan_testkit::{node, pod};
    use serde_json::{Value, json};

    use super::*;

    fn decisions_of(lines: &[Value]) -> Vec<String> {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let mut logged = LoggedDecisions::default();
        let entries = DecisionLogReader::new(text.as_bytes());
        let decisions = entries.flat_map(|entry| logged.entry(&entry));
        decisions
            .map(|decision| {
                let Decision { at, outcome, pod, node, message, cpu, .. } = decision;
                format!("{} {outcome:?} {pod} {node} {cpu} {message}", at / 1000 % 100).trim_end().to_owned()
            })
            .collect()
    }

    fn at(second: u32) -> String {
        format!("2026-01-01T00:00:{second:02}Z")
    }

    fn with_uid(name: &str) -> Value {
        let mut pod = pod(name).request("cpu", "2").json();
        (pod["apiVersion"], pod["kind"]) = ("v1".into(), "Pod".into());
        pod["metadata"]["uid"] = name.into();
        pod
    }

    fn on(name: &str, node: &str) -> Value {
        let mut pod = with_uid(name);
        pod["spec"]["nodeName"] = node.into();
        pod
    }

    #[test]
    fn attempts_and_departures_are_shown_and_the_state_of_the_beginning_is_not() {
        let decision = |name: &str, node: Option<&str>, message: Option<&str>| {
            let mut decision = json!({"namespace": "default", "name": name, "uid": name, "attempt": 1});
            if let Some(node) = node {
                decision["node"] = node.into();
            }
            if let Some(message) = message {
                decision["message"] = message.into();
            }
            decision
        };
        let begin = json!({"apiVersion": "bayplan.dev/v1", "kind": "DecisionLog", "time": at(0), "configuration": {}});
        let mut first = node("n").json();
        (first["apiVersion"], first["kind"]) = ("v1".into(), "Node".into());
        let gone =
            |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": name, "uid": name});
        let lines = [
            begin.clone(),
            json!({"changes": [{"put": first}, {"put": on("old", "n")}]}),
            json!({"time": at(1), "changes": [{"time": at(1), "put": with_uid("a")}],
                "decision": decision("a", None, Some("0/1 nodes are available"))}),
            json!({"time": at(2), "changes": [{"time": at(2), "gone": gone("old")}],
                "decision": decision("a", Some("n"), None)}),
            // The binding is seen: it was shown when it was decided. Another scheduler's is shown now.
            json!({"time": at(3), "changes": [{"time": at(3), "put": on("a", "n")},
                {"time": at(3), "put": on("b", "n")}]}),
            begin,
            // A scheduler that starts again comes to know what is there, which is no news; b is not there any more.
            json!({"time": at(4), "changes": [{"time": at(4), "put": on("a", "n")},
                {"time": at(4), "put": with_uid("c")}], "decision": decision("c", Some("n"), None)}),
            json!({"time": at(5), "changes": [{"time": at(5), "gone": gone("a")}]}),
        ];
        assert_eq!(
            decisions_of(&lines),
            [
                "1 Refused default/a  2000 0/1 nodes are available",
                "2 Left default/old n 2000",
                "2 Placed default/a n 2000",
                "3 Placed default/b n 2000",
                "4 Left default/b n 2000",
                "4 Placed default/c n 2000",
                "5 Left default/a n 2000",
            ]
        );
    }
}
