//! What simulated pods and nodes use.

use std::collections::BTreeMap;

use bayplan_model::quantity::Quantity;
use jiff::Timestamp;
use serde_json::{Value, json};

/// What each container of a pod uses, in place of its share of the requests.
const CPU: &str = "bayplan.dev/cpu-usage";
const MEMORY: &str = "bayplan.dev/memory-usage";

/// Containers use one part in this many of what they request.
const SHARE: i64 = 2;

/// What a container uses that requests nothing: thousandths of a processor, and bytes.
const IDLE: Amounts = Amounts { cpu_milli: 1, memory: 1 << 20 };

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amounts {
    cpu_milli: i64,
    memory: i64,
}

impl Amounts {
    fn plus(self, other: Amounts) -> Amounts {
        Amounts {
            cpu_milli: self.cpu_milli.saturating_add(other.cpu_milli),
            memory: self.memory.saturating_add(other.memory),
        }
    }

    /// As metrics-server writes it: memory in kibibytes.
    fn json(self) -> Value {
        let cpu = format!("{}m", self.cpu_milli);
        json!({"cpu": cpu, "memory": format!("{}Ki", self.memory / 1024 + i64::from(self.memory % 1024 > 0))})
    }
}

fn quantity(value: &Value) -> Option<Quantity> {
    value.as_str()?.parse::<Quantity>().ok().filter(|quantity| quantity.sign() >= 0)
}

/// What each running container of a pod uses; nothing of a pod that does not run.
fn of_containers(pod: &Value) -> Vec<(&str, Amounts)> {
    let is_running = pod["status"]["phase"] == "Running" && !pod["spec"]["nodeName"].is_null();
    let annotation = |name: &str| quantity(&pod["metadata"]["annotations"][name]);
    let (cpu, memory) = (annotation(CPU), annotation(MEMORY));
    let list = |field: &str| pod["spec"][field].as_array().map(Vec::as_slice).unwrap_or_default();
    let sidecars = list("initContainers").iter().filter(|container| container["restartPolicy"] == "Always");
    let running = list("containers").iter().chain(sidecars).filter(|_| is_running);
    running
        .map(|container| {
            let request = |resource: &str| quantity(&container["resources"]["requests"][resource]);
            let share =
                |resource: &str, of: fn(&Quantity) -> i64, idle| request(resource).map_or(idle, |it| of(&it) / SHARE);
            let amounts = Amounts {
                cpu_milli: cpu
                    .as_ref()
                    .map_or_else(|| share("cpu", Quantity::milli_value, IDLE.cpu_milli), Quantity::milli_value),
                memory: memory.as_ref().map_or_else(|| share("memory", Quantity::value, IDLE.memory), Quantity::value),
            };
            (container["name"].as_str().unwrap_or_default(), amounts)
        })
        .collect()
}

fn metadata(object: &Value, now: Timestamp) -> Value {
    let mut metadata = json!({"name": object["metadata"]["name"], "creationTimestamp": now});
    for field in ["namespace", "labels"] {
        if let Some(value) = object["metadata"].get(field) {
            metadata[field] = value.clone();
        }
    }
    metadata
}

/// The metrics of a pod, if it runs.
pub(super) fn of_pod(pod: &Value, now: Timestamp, window: &str) -> Option<Value> {
    let containers: Vec<Value> =
        of_containers(pod).into_iter().map(|(name, used)| json!({"name": name, "usage": used.json()})).collect();
    (!containers.is_empty()).then(|| {
        json!({
            "metadata": metadata(pod, now), "timestamp": now, "window": window, "containers": containers,
        })
    })
}

/// The use of all pods, by node.
pub(super) fn by_node<'a>(pods: impl Iterator<Item = &'a Value>) -> BTreeMap<String, Amounts> {
    let mut nodes: BTreeMap<String, Amounts> = BTreeMap::new();
    for pod in pods {
        let used = of_containers(pod).into_iter().fold(Amounts::default(), |sum, (_, used)| sum.plus(used));
        if let (Some(node), true) = (pod["spec"]["nodeName"].as_str(), used != Amounts::default()) {
            let sum = nodes.entry(node.to_owned()).or_default();
            *sum = sum.plus(used);
        }
    }
    nodes
}

/// The metrics of a node.
pub(super) fn of_node(node: &Value, used: Option<&Amounts>, now: Timestamp, window: &str) -> Value {
    let used = used.copied().unwrap_or_default();
    json!({"metadata": metadata(node, now), "timestamp": now, "window": window, "usage": used.json()})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(annotations: Value, phase: &str) -> Value {
        json!({
            "metadata": {"name": "p", "namespace": "ns", "labels": {"a": "b"}, "annotations": annotations},
            "spec": {
                "nodeName": "n",
                "containers": [
                    {"name": "asks", "resources": {"requests": {"cpu": "250m", "memory": "64Mi"}}}, {"name": "idle"},
                ],
                "initContainers": [{"name": "done"}, {"name": "beside", "restartPolicy": "Always"}],
            },
            "status": {"phase": phase},
        })
    }

    #[test]
    fn running_containers_use_half_of_what_they_ask_for_or_what_an_annotation_says() {
        let usage = |annotations: Value| {
            let metrics = of_pod(&pod(annotations, "Running"), Timestamp::UNIX_EPOCH, "15s").unwrap();
            let containers = metrics["containers"].as_array().unwrap().clone();
            containers
                .iter()
                .map(|it| format!("{} {} {}", it["name"], it["usage"]["cpu"], it["usage"]["memory"]).replace('"', ""))
                .collect::<Vec<_>>()
        };
        assert_eq!(usage(json!({})), ["asks 125m 32768Ki", "idle 1m 1024Ki", "beside 1m 1024Ki"]);
        let said = json!({CPU: "2", MEMORY: "1Gi"});
        assert_eq!(usage(said), ["asks 2000m 1048576Ki", "idle 2000m 1048576Ki", "beside 2000m 1048576Ki"]);
        // What cannot be read is as if it were not there.
        assert_eq!(usage(json!({CPU: "much", MEMORY: "-1"}))[0], "asks 125m 32768Ki");
        assert_eq!(of_pod(&pod(json!({}), "Pending"), Timestamp::UNIX_EPOCH, "15s"), None);
    }

    #[test]
    fn a_node_uses_what_its_pods_use() {
        let pods = [pod(json!({CPU: "100m"}), "Running"), pod(json!({}), "Succeeded")];
        let used = by_node(pods.iter());
        let node = json!({"metadata": {"name": "n"}});
        let metrics = of_node(&node, used.get("n"), Timestamp::UNIX_EPOCH, "15s");
        assert_eq!(metrics["usage"], json!({"cpu": "300m", "memory": "34816Ki"}));
        assert_eq!(of_node(&node, None, Timestamp::UNIX_EPOCH, "15s")["usage"], json!({"cpu": "0m", "memory": "0Ki"}));
    }
}
