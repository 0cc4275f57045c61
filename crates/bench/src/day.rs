//! A day of a cluster: its nodes, and pods that come and go, as `simulate` reads them.

use std::fmt::Write;
use std::sync::Arc;

use bayplan_explain::simulate::{Arrivals, ArrivalsError, History};
use bayplan_explain::{Completion, State};
use bayplan_model::node::Node;
use bayplan_scheduler::Object;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

/// An arbitrary midnight.
const START: Timestamp = Timestamp::constant(1_767_225_600, 0);

const DAY_SECONDS: f64 = 86_400.0;

/// How many templates the pods have.
const TEMPLATES: usize = 50;

/// What a node has, in thousandths of a processor.
const NODE_MILLI_CPU: u64 = 32_000;

/// What a pod of a template asks for, in thousandths of a processor: from half a processor to eight.
fn milli_cpu(template: usize) -> u64 {
    500 * (1 + (template as u64 * 7) % 16)
}

/// Numbers that look random (splitmix64), the same ones in every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 up to 1.
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The arrivals of a day as text: so many pods come at even distances, and all of them go again. What they ask for is
/// the given share of the processors of the nodes, once the day has settled.
pub(crate) fn arrivals(nodes: usize, pods: usize, load: f64) -> String {
    let mean_milli = (0..TEMPLATES).map(milli_cpu).sum::<u64>() as f64 / TEMPLATES as f64;
    let at_once = nodes as f64 * NODE_MILLI_CPU as f64 * load / mean_milli;
    let mean_life = at_once / pods as f64 * DAY_SECONDS;
    let templates: Vec<String> = (0..TEMPLATES).map(|at| template(at).to_string()).collect();
    let mut numbers = Numbers(1);
    let mut text = String::new();
    for number in 0..pods {
        let template = (numbers.next() % TEMPLATES as u64) as usize;
        let created = number as f64 / pods as f64 * DAY_SECONDS;
        // Half as long as the mean to half as long again; what is there at midnight goes at midnight.
        let deleted = (created + mean_life * (0.5 + numbers.share())).min(DAY_SECONDS);
        let spec = &templates[template];
        let _ = write!(
            text,
            "{{\"time\":{created:.3},\"action\":\"create\",\"pod\":{{\"metadata\":{{\"name\":\"pod-{number}\",\
             \"namespace\":\"day\",\"labels\":{{\"app\":\"app-{template}\"}}}},\"spec\":{spec}}}}}\n\
             {{\"time\":{deleted:.3},\"action\":\"delete\",\"pod\":\"day/pod-{number}\"}}\n"
        );
    }
    text
}

/// The specification of the pods of a template; of ten, some are spread, some keep apart, and some keep to a zone.
fn template(at: usize) -> Value {
    let requests = json!({"cpu": format!("{}m", milli_cpu(at)), "memory": format!("{}Mi", 256 * (1 + at % 16))});
    let mut spec = json!({
        "containers": [{"name": "main", "image": "registry.example/app:1", "resources": {"requests": requests}}],
    });
    let own = json!({"matchLabels": {"app": format!("app-{at}")}});
    let spread = |when: &str| {
        json!([{"maxSkew": 5, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": when,
            "labelSelector": own}])
    };
    match at % 10 {
        2 => spec["topologySpreadConstraints"] = spread("ScheduleAnyway"),
        4 => spec["topologySpreadConstraints"] = spread("DoNotSchedule"),
        6 => spec["nodeSelector"] = json!({"topology.kubernetes.io/zone": "zone-1"}),
        8 => {
            spec["affinity"] = json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 10, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": own}}]}});
        }
        _ => {}
    }
    spec
}

/// The history of a day: its nodes, and arrivals read from their text.
pub(crate) fn history(nodes: usize, arrivals: &str) -> Result<History, ArrivalsError> {
    let mut reader = Arrivals::new(Completion::of(&State::default()), START, false);
    arrivals.lines().for_each(|line| reader.line(line));
    let mut history = reader.finish()?;
    history.objects = (0..nodes).map(node).collect();
    Ok(history)
}

fn node(number: usize) -> Object {
    let name = format!("node-{number:06}");
    let node = json!({
        "metadata": {"name": name, "uid": format!("node-uid-{number}"), "labels": {
            "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": format!("zone-{}", number % 3),
        }},
        "status": {"allocatable": {"cpu": format!("{NODE_MILLI_CPU}m"), "memory": "128Gi", "pods": "110"}},
    });
    Object::Node(Arc::new(Node::deserialize(&node).expect("the node is ours, and the tests decode it")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_has_two_events_for_each_pod_and_ends_within_it() {
        let history = history(10, &arrivals(10, 500, 0.7)).unwrap();
        assert_eq!((history.events.len(), history.objects.len(), history.notes.len()), (1000, 10, 0));
        let (from, to) = history.span().unwrap();
        assert!(from == START && to.duration_since(from).as_secs_f64() <= DAY_SECONDS);
    }
}
