//! Which pods are deleted first when a ReplicaSet has too many; upstream's `ActivePodsWithRanks`.

use std::cmp::{Ordering, Reverse};
use std::sync::Arc;

use bayplan_model::keyed::KeyedMap;
use jiff::Timestamp;

use crate::pod::{Phase, Pod};

/// The annotation with the cost of deleting a pod.
pub const POD_DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// A pod and the number of related pods on its node.
#[derive(Clone, Debug)]
pub struct Ranked {
    /// The pod to rank.
    pub pod: Arc<Pod>,
    /// How many active related pods share its node.
    pub rank: usize,
}

/// The pods in the order in which they would be deleted. `related` are all pods of the same owner's ReplicaSets.
pub fn deletion_order<'a>(
    pods: &[Arc<Pod>],
    related: impl IntoIterator<Item = &'a Arc<Pod>>,
    now: Timestamp,
) -> Vec<Ranked> {
    let mut ranked = rank(pods, related);
    ranked.sort_by(|a, b| compare(a, b, now));
    ranked
}

/// The first `count` of that order, in any order: a few of many are found without sorting the many.
pub fn first_to_delete<'a>(
    pods: &[Arc<Pod>],
    related: impl IntoIterator<Item = &'a Arc<Pod>>,
    count: usize,
    now: Timestamp,
) -> Vec<Arc<Pod>> {
    let mut ranked = rank(pods, related);
    if (1..ranked.len()).contains(&count) {
        ranked.select_nth_unstable_by(count - 1, |a, b| compare(a, b, now));
    }
    ranked.truncate(count);
    ranked.into_iter().map(|ranked| ranked.pod).collect()
}

fn rank<'a>(pods: &[Arc<Pod>], related: impl IntoIterator<Item = &'a Arc<Pod>>) -> Vec<Ranked> {
    let mut on_node: KeyedMap<&str, usize> = KeyedMap::default();
    for pod in related {
        if pod.is_active() {
            *on_node.entry(&pod.node_name).or_default() += 1;
        }
    }
    let rank = |pod: &Pod| on_node.get(pod.node_name.as_str()).copied().unwrap_or(0);
    pods.iter().map(|pod| Ranked { pod: pod.clone(), rank: rank(pod) }).collect()
}

/// `Less` when `a` is deleted before `b`: the first criterion that tells them apart decides.
fn compare(a: &Ranked, b: &Ranked, now: Timestamp) -> Ordering {
    let (p, q) = (&*a.pod, &*b.pod);
    let assigned = |pod: &Pod| !pod.node_name.is_empty();
    assigned(p)
        .cmp(&assigned(q))
        .then_with(|| phase_ordinal(p.phase).cmp(&phase_ordinal(q.phase)))
        .then_with(|| p.ready.cmp(&q.ready))
        .then_with(|| deletion_cost(p).cmp(&deletion_cost(q)))
        .then_with(|| Reverse(a.rank).cmp(&Reverse(b.rank)))
        .then_with(|| match p.ready && q.ready {
            true => younger_first(p, q, p.ready_since, q.ready_since, now),
            false => Ordering::Equal,
        })
        .then_with(|| Reverse(p.restarts).cmp(&Reverse(q.restarts)))
        .then_with(|| Reverse(p.sidecar_restarts).cmp(&Reverse(q.sidecar_restarts)))
        .then_with(|| younger_first(p, q, p.metadata.creation_timestamp, q.metadata.creation_timestamp, now))
}

pub(crate) fn phase_ordinal(phase: Phase) -> u8 {
    match phase {
        Phase::Unknown => 1,
        Phase::Running => 2,
        Phase::Pending | Phase::Succeeded | Phase::Failed | Phase::Other => 0,
    }
}

/// An int32 without leading zeros or plus sign; anything else costs nothing.
fn deletion_cost(pod: &Pod) -> i32 {
    let Some(text) = pod.metadata.annotations.get(POD_DELETION_COST) else { return 0 };
    let plain = text == "0" || matches!(text.as_bytes().first(), Some(b'-' | b'1'..=b'9'));
    if plain { text.parse().unwrap_or(0) } else { 0 }
}

/// Ages are compared by order of magnitude, so that which of many equally old pods goes is spread by UID and not by
/// the order of creation.
fn younger_first(p: &Pod, q: &Pod, a: Option<Timestamp>, b: Option<Timestamp>, now: Timestamp) -> Ordering {
    if a == b {
        return Ordering::Equal;
    }
    match (a, b) {
        (Some(a), Some(b)) => {
            magnitude(a, now).cmp(&magnitude(b, now)).then_with(|| p.metadata.uid.cmp(&q.metadata.uid))
        }
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
}

fn magnitude(time: Timestamp, now: Timestamp) -> i64 {
    let nanoseconds = now.duration_since(time).as_nanos();
    if nanoseconds <= 0 { -1 } else { (nanoseconds as f64).log2() as i64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The two pods, written as JSON parts over a running, ready, assigned pod; the first goes first.
    fn check(why: &str, first: serde_json::Value, second: serde_json::Value) {
        let pod = |part: serde_json::Value, uid: &str| {
            let mut pod = serde_json::json!({
                "metadata": {"name": uid, "uid": uid, "creationTimestamp": "2026-06-01T10:00:00Z"},
                "spec": {"nodeName": "n"},
                "status": {
                    "phase": "Running",
                    "conditions": [
                        {"type": "Ready", "status": "True", "lastTransitionTime": "2026-06-01T10:00:00Z"},
                    ],
                },
            });
            for (pointer, value) in part.as_object().unwrap() {
                let (parent, field) = pointer.rsplit_once('/').unwrap();
                pod.pointer_mut(parent).unwrap()[field] = value.clone();
            }
            Arc::new(serde_json::from_value::<Pod>(pod).unwrap())
        };
        let now = "2026-06-01T12:00:00Z".parse().unwrap();
        // The UIDs speak for the second pod, so only the criterion under test can put the first one first.
        let pods = [pod(second, "a"), pod(first, "b")];
        let order = deletion_order(&pods, [], now);
        assert_eq!(order[0].pod.metadata.uid, "b", "{why}");
    }

    #[test]
    fn each_criterion_decides() {
        use serde_json::json;
        check("unassigned", json!({"/spec/nodeName": ""}), json!({}));
        check("phase", json!({"/status/phase": "Pending"}), json!({"/status/phase": "Unknown"}));
        check("phase", json!({"/status/phase": "Unknown"}), json!({}));
        check("not ready", json!({"/status/conditions": []}), json!({}));
        let cost = |cost: &str| json!({"/metadata/annotations": {POD_DELETION_COST: cost}});
        check("cost", cost("-1"), json!({}));
        check("cost", cost("1"), cost("2"));
        check("invalid cost is zero", cost("+7"), cost("1"));
        let since =
            |time: &str| json!({"/status/conditions/0/type": "Ready", "/status/conditions/0/lastTransitionTime": time});
        check("ready for a shorter time", since("2026-06-01T11:59:00Z"), json!({}));
        let restarts = |n: i32| json!({"/status/containerStatuses": [{"name": "c", "restartCount": n}]});
        check("restarts", restarts(3), restarts(2));
        let sidecar = |n: i32| {
            json!({
                "/spec/initContainers": [{"name": "i", "restartPolicy": "Always"}],
                "/status/initContainerStatuses": [{"name": "i", "restartCount": n}],
            })
        };
        check("sidecar restarts", sidecar(1), sidecar(0));
        check("newer", json!({"/metadata/creationTimestamp": "2026-06-01T11:59:59Z"}), json!({}));
    }

    #[test]
    fn the_first_to_go_are_the_first_of_the_order() {
        let pod = |at: i32| Arc::new(Pod { restarts: at * 7 % 20, ready: at % 2 == 0, ..Pod::default() });
        let pods: Vec<_> = (0..20).map(pod).collect();
        let now = "2026-06-01T12:00:00Z".parse().unwrap();
        let order = deletion_order(&pods, &pods, now);
        for count in 0..=pods.len() {
            let mut first: Vec<_> = first_to_delete(&pods, &pods, count, now).iter().map(|pod| pod.restarts).collect();
            let mut expected: Vec<_> = order[..count].iter().map(|ranked| ranked.pod.restarts).collect();
            first.sort_unstable();
            expected.sort_unstable();
            assert_eq!(first, expected);
        }
    }
}
