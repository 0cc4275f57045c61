//! What was decided about pods, as far as their objects tell, or a decision log: placed, refused, and gone again.

use std::collections::VecDeque;

use bayplan_model::pod::{Pod, PodCondition};
use bayplan_model::resources::PodUsage;
use jiff::Timestamp;
use serde::Serialize;

/// Decisions that are kept: what a person looks through with a slider, and some 2 MB.
const DECISIONS_MAX: usize = 10_000;
/// Characters of a message that are kept: enough for the first reasons; the explanation has the whole.
const MESSAGE_MAX: usize = 300;

/// What happened to a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    /// It got a node.
    Placed,
    /// No node took it.
    Refused,
    /// It left its node.
    Left,
}

/// One line of the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Decision {
    /// When, in milliseconds since 1970.
    pub(crate) at: i64,
    pub(crate) outcome: Outcome,
    /// The pod, as `namespace/name`.
    pub(crate) pod: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) node: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
    /// Thousandths of a cpu that it requests.
    pub(crate) cpu: i64,
    /// Bytes of memory that it requests.
    pub(crate) memory: i64,
}

/// The last decisions, oldest first.
#[derive(Default)]
pub(crate) struct Decisions {
    kept: VecDeque<Decision>,
    /// The number of the first that is kept.
    first: u64,
}

/// Decisions from a number on.
#[derive(Debug, Serialize)]
pub(crate) struct Since<'a> {
    /// The number of the first one; another than was asked for when the list begins elsewhere.
    from: u64,
    /// The number to ask for next.
    next: u64,
    decisions: Vec<&'a Decision>,
}

impl Decisions {
    /// Reads them from the conditions of pods.
    pub(crate) fn of<'p>(pods: impl Iterator<Item = &'p Pod>) -> Self {
        let mut found: Vec<Decision> = pods.filter_map(|pod| decided(None, pod, None)).collect();
        found.sort_by(|a, b| (a.at, &a.pod).cmp(&(b.at, &b.pod)));
        let superfluous = found.len().saturating_sub(DECISIONS_MAX);
        Decisions { kept: found.drain(superfluous..).collect(), first: 0 }
    }

    /// Puts them in the order of their times. Who has asked already asks for all of them again.
    pub(crate) fn sort(&mut self) {
        self.first += self.kept.len() as u64 + 1;
        self.kept.make_contiguous().sort_by(|a, b| (a.at, &a.pod).cmp(&(b.at, &b.pod)));
    }

    /// Takes note of a pod that changed.
    pub(crate) fn observe(&mut self, before: Option<&Pod>, after: &Pod, now: Timestamp) {
        if after.is_terminal() {
            return self.observe_gone(before, now);
        }
        if let Some(decision) = decided(before, after, Some(now)) {
            self.push(decision);
        }
    }

    /// Takes note of a pod that is gone.
    pub(crate) fn observe_gone(&mut self, before: Option<&Pod>, now: Timestamp) {
        if let Some(pod) = before.filter(|pod| pod.is_assigned()) {
            self.push(decision(pod, Outcome::Left, now));
        }
    }

    /// Adds one.
    pub(crate) fn push(&mut self, decision: Decision) {
        if self.kept.len() == DECISIONS_MAX {
            self.kept.pop_front();
            self.first += 1;
        }
        self.kept.push_back(decision);
    }

    /// The decisions from a number on. Who asks for a number that there never was has asked another process: all.
    pub(crate) fn since(&self, number: u64) -> Since<'_> {
        let next = self.first + self.kept.len() as u64;
        let from = if (self.first..=next).contains(&number) { number } else { self.first };
        let skipped = usize::try_from(from - self.first).unwrap_or(usize::MAX);
        Since { from, next, decisions: self.kept.iter().skip(skipped).collect() }
    }
}

/// The decision that a pod's new version tells of. Without `now` it is as old as its condition says.
fn decided(before: Option<&Pod>, after: &Pod, now: Option<Timestamp>) -> Option<Decision> {
    let condition = after.condition("PodScheduled");
    let said = condition.and_then(|condition| condition.last_transition_time);
    if after.is_assigned() {
        if before.is_some_and(Pod::is_assigned) {
            return None;
        }
        // The condition knows the second; who saw it happen knows better.
        let at = now.filter(|_| before.is_some()).or(said).or(after.metadata.creation_timestamp).or(now)?;
        return Some(decision(after, Outcome::Placed, at));
    }
    let refused = condition.filter(|condition| is_refusal(condition))?;
    let was = before.and_then(|pod| pod.condition("PodScheduled")).filter(|condition| is_refusal(condition));
    if was.is_some_and(|was| was.message == refused.message) {
        return None;
    }
    let at = now.filter(|_| before.is_some()).or(said).or(now)?;
    Some(Decision { message: shortened(&refused.message), ..decision(after, Outcome::Refused, at) })
}

/// As much of a message as is kept.
pub(crate) fn shortened(message: &str) -> String {
    let mut kept: String = message.chars().take(MESSAGE_MAX).collect();
    if kept.len() < message.len() {
        kept.push('…');
    }
    kept
}

fn is_refusal(condition: &PodCondition) -> bool {
    condition.status == "False" && condition.reason == "Unschedulable"
}

fn decision(pod: &Pod, outcome: Outcome, at: Timestamp) -> Decision {
    let requested = PodUsage::of(pod).requested;
    Decision {
        at: at.as_millisecond(),
        outcome,
        pod: pod.metadata.key(),
        node: pod.spec.node_name.clone(),
        message: String::new(),
        cpu: requested.milli_cpu,
        memory: requested.memory,
    }
}

#[cfg(test)]
mod tests {
    use bayplan_testkit::pod;
    use serde_json::json;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn decoded(json: serde_json::Value) -> Pod {
        serde_json::from_value(json).unwrap()
    }

    fn refused(message: &str) -> Pod {
        let mut json = pod("p").request("cpu", "2").json();
        json["status"] = json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": message, "lastTransitionTime": "1970-01-01T00:00:05Z"}]});
        decoded(json)
    }

    #[test]
    fn a_pods_life_is_told_once_for_each_change() {
        let mut decisions = Decisions::default();
        let (new, placed) = (decoded(pod("p").json()), decoded(pod("p").request("cpu", "2").on_node("n").json()));
        decisions.observe(None, &new, at(1));
        decisions.observe(Some(&new), &refused("0/1 nodes"), at(2));
        decisions.observe(Some(&refused("0/1 nodes")), &refused("0/1 nodes"), at(3));
        decisions.observe(Some(&refused("0/1 nodes")), &placed, at(4));
        decisions.observe(Some(&placed), &placed, at(5));
        decisions.observe_gone(Some(&placed), at(6));
        let told = serde_json::to_value(decisions.since(0)).unwrap();
        assert_eq!(
            told,
            json!({"from": 0, "next": 3, "decisions": [
                {"at": 2000, "outcome": "refused", "pod": "default/p", "message": "0/1 nodes", "cpu": 2000,
                    "memory": 0},
                {"at": 4000, "outcome": "placed", "pod": "default/p", "node": "n", "cpu": 2000, "memory": 0},
                {"at": 6000, "outcome": "left", "pod": "default/p", "node": "n", "cpu": 2000, "memory": 0},
            ]})
        );
    }

    #[test]
    fn what_a_dump_holds_is_told_in_the_order_of_its_conditions() {
        let mut early = pod("a").on_node("n").json();
        early["status"] = json!({"conditions": [{"type": "PodScheduled", "status": "True",
            "lastTransitionTime": "1970-01-01T00:00:01Z"}]});
        let pods = [refused("0/1 nodes"), decoded(early)];
        let decisions = Decisions::of(pods.iter());
        let times: Vec<i64> = decisions.since(0).decisions.iter().map(|decision| decision.at).collect();
        assert_eq!(times, [1000, 5000]);
    }

    #[test]
    fn only_the_last_decisions_are_kept_and_numbers_go_on() {
        let mut decisions = Decisions::default();
        let placed = decoded(pod("p").on_node("n").json());
        for _ in 0..DECISIONS_MAX + 5 {
            decisions.observe_gone(Some(&placed), at(1));
        }
        let all = decisions.since(0);
        assert_eq!((all.from, all.next, all.decisions.len()), (5, DECISIONS_MAX as u64 + 5, DECISIONS_MAX));
        let last = decisions.since(DECISIONS_MAX as u64 + 3);
        assert_eq!((last.from, last.decisions.len()), (DECISIONS_MAX as u64 + 3, 2));
        let other_process = decisions.since(1_000_000);
        assert_eq!((other_process.from, other_process.decisions.len()), (5, DECISIONS_MAX));
    }
}
