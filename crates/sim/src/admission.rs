//! Admission of a bound pod by its node. A kubelet decides last: two schedulers may not know of each other, or a pod
//! may be bound by hand.
//!
//! As upstream's kubelet: the operating system, the number of pods and the resources, the node's labels, the host ports
//! and the taints that evict, in this order; the first that does not fit is reported. Admitted pods stay, however full
//! the node is and whatever becomes of it.

use bayplan_model::affinity::RequiredNodeAffinity;
use bayplan_model::pod::ContainerPort;
use bayplan_model::resources::{self, Amounts, is_extended};
use bayplan_model::taint::{Taint, Toleration};

use crate::node_view::NodeView;
use crate::pod::{PodSpec, PodView};

/// What simulated nodes run.
const OS: &str = "linux";
const OS_LABEL: &str = "kubernetes.io/os";

/// The taints of nodes that are silent; the API server gives every pod tolerations of both.
const SILENCE: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// What a pod asks of its node besides room. Few pods ask anything, so that it is kept apart.
#[derive(Clone, Debug, Default)]
pub struct NodeDemands {
    pub(crate) affinity: Option<RequiredNodeAffinity>,
    /// Those that bear a taint that evicts, without the usual ones.
    pub(crate) tolerations: Vec<Toleration>,
    pub(crate) os: Option<String>,
}

impl NodeDemands {
    pub(crate) fn is_empty(&self) -> bool {
        self.affinity.is_none() && self.tolerations.is_empty() && self.os.is_none()
    }
}

/// Which of the taints of silent nodes a pod bears in the usual way, and its other tolerations of taints that evict.
pub(crate) fn sort_tolerations(mut tolerations: Vec<Toleration>) -> ([bool; 2], Vec<Toleration>) {
    let usual = |toleration: &Toleration| {
        let plain = toleration.operator == "Exists" && toleration.effect == "NoExecute";
        SILENCE.iter().position(|key| plain && toleration.key == *key)
    };
    let mut bears = [false; 2];
    tolerations.retain(|toleration| match usual(toleration) {
        Some(at) => {
            bears[at] = true;
            false
        }
        None => matches!(toleration.effect.as_str(), "" | "NoExecute"),
    });
    (bears, tolerations)
}

/// Why a pod is rejected, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl Rejection {
    fn new(reason: &str, message: impl Into<String>) -> Self {
        Rejection { reason: reason.into(), message: message.into() }
    }

    fn predicate(name: &str, why: &str) -> Self {
        Rejection::new(name, format!("Predicate {name} failed: {why}"))
    }
}

/// Why a node does not take a pod beside the others; none when it does.
pub(crate) fn rejection<'a>(
    pod: &PodView,
    others: impl Iterator<Item = &'a PodSpec>,
    node: &NodeView,
) -> Option<Rejection> {
    let demands = pod.spec.demands.as_deref();
    if pod.metadata.labels.get(OS_LABEL).is_some_and(|os| os != OS) {
        let why = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
        return Some(Rejection::new("PodOSSelectorNodeLabelDoesNotMatch", why));
    }
    if demands.and_then(|demands| demands.os.as_ref()).is_some_and(|os| os != OS) {
        let why = "Failed to admit pod as the OS field doesn't match node OS";
        return Some(Rejection::new("PodOSNotSupported", why));
    }
    let (short, ports_are_free) = room(&pod.spec, others, &node.status.allocatable);
    let affinity = demands.and_then(|demands| demands.affinity.as_ref());
    let meta = &node.metadata;
    if short.is_some() {
        short
    } else if affinity.is_some_and(|affinity| !affinity.matches_labels(&meta.labels, &meta.name)) {
        Some(Rejection::predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector"))
    } else if !ports_are_free {
        Some(Rejection::predicate("NodePorts", "node(s) didn't have free ports for the requested pod ports"))
    } else if node.spec.taints.iter().any(|taint| taint.effect == "NoExecute" && !bears(&pod.spec, taint)) {
        Some(Rejection::predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate"))
    } else {
        None
    }
}

/// Whether a pod bears a taint that evicts.
fn bears(pod: &PodSpec, taint: &Taint) -> bool {
    let usual = SILENCE.iter().zip(pod.bears_silence).any(|(key, bears)| bears && taint.key == *key);
    usual || pod.demands.as_ref().is_some_and(|demands| demands.tolerations.iter().any(|own| own.tolerates(taint)))
}

/// What there is not enough of for a pod beside the others, and whether its host ports are free.
fn room<'a>(
    pod: &PodSpec,
    others: impl Iterator<Item = &'a PodSpec>,
    allocatable: &Amounts,
) -> (Option<Rejection>, bool) {
    let (mut used, mut pods) = (Amounts::default(), 0);
    let mut ports_are_free = true;
    for other in others {
        pods += 1;
        used.add(&other.request);
        ports_are_free &= !pod.host_ports.iter().any(|port| other.host_ports.iter().any(|taken| conflict(port, taken)));
    }
    let scalars = pod.request.scalars.keys().map(AsRef::as_ref);
    // An extended resource that the node does not have is managed by the cluster: nodes ignore it.
    let counted = |name: &&str| !is_extended(name) || allocatable.scalars.contains_key(*name);
    let names = [resources::CPU, resources::MEMORY, resources::EPHEMERAL_STORAGE].into_iter();
    let asked = names.chain(scalars.filter(counted)).map(|name| (name, pod.request.get(name), used.get(name)));
    let too_much = [(resources::PODS, 1, pods)]
        .into_iter()
        .chain(asked)
        .find(|(name, requested, used)| *requested > 0 && *requested > allocatable.get(name).saturating_sub(*used));
    let short = too_much.map(|(name, requested, used)| {
        let capacity = allocatable.get(name);
        let amounts = format!("requested: {requested}, used: {used}, capacity: {capacity}");
        Rejection::new(&format!("OutOf{name}"), format!("Node didn't have enough resource: {name}, {amounts}"))
    });
    (short, ports_are_free)
}

/// Whether two pods cannot both open these ports.
fn conflict(one: &ContainerPort, other: &ContainerPort) -> bool {
    fn or<'a>(text: &'a str, default: &'a str) -> &'a str {
        if text.is_empty() { default } else { text }
    }
    let [here, there] = [one, other].map(|port| or(&port.host_ip, "0.0.0.0"));
    one.host_port == other.host_port
        && or(&one.protocol, "TCP") == or(&other.protocol, "TCP")
        && (here == there || here == "0.0.0.0" || there == "0.0.0.0")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(requests: Value, ports: Value) -> PodSpec {
        let container = json!({"name": "c", "resources": {"requests": requests}, "ports": ports});
        serde_json::from_value(json!({"containers": [container]})).unwrap()
    }

    fn check(pod: &PodSpec, others: &[PodSpec], expected: Option<(&str, &str)>) {
        check_on(&PodView { spec: pod.clone(), ..PodView::default() }, others, json!([]), expected);
    }

    fn check_on(pod: &PodView, others: &[PodSpec], taints: Value, expected: Option<(&str, &str)>) {
        let node: NodeView = serde_json::from_value(json!({
            "metadata": {"name": "n", "labels": {"disk": "ssd"}}, "spec": {"taints": taints},
            "status": {"allocatable": {
                "cpu": "2", "memory": "1Gi", "pods": "2", "ephemeral-storage": "1Gi", "example.com/gpu": "1",
            }},
        }))
        .unwrap();
        let found = rejection(pod, others.iter(), &node);
        let found = found.as_ref().map(|found| (found.reason.as_str(), found.message.as_str()));
        assert_eq!(found, expected);
    }

    #[test]
    fn the_first_resource_that_is_short_is_told_in_upstreams_words() {
        let asks = |requests: Value| spec(requests, json!([]));
        let half = asks(json!({"cpu": "1500m", "memory": "512Mi", "example.com/gpu": 1}));
        let enough = "Node didn't have enough resource";
        check(&asks(json!({"cpu": "500m", "memory": "512Mi"})), std::slice::from_ref(&half), None);
        let cpu = format!("{enough}: cpu, requested: 501, used: 1500, capacity: 2000");
        let more = asks(json!({"cpu": "501m", "memory": "1Gi"}));
        check(&more, std::slice::from_ref(&half), Some(("OutOfcpu", &cpu)));
        let memory = format!("{enough}: memory, requested: 536870913, used: 536870912, capacity: 1073741824");
        let more = asks(json!({"memory": "536870913"}));
        check(&more, std::slice::from_ref(&half), Some(("OutOfmemory", &memory)));
        let storage = format!("{enough}: ephemeral-storage, requested: 2147483648, used: 0, capacity: 1073741824");
        check(&asks(json!({"ephemeral-storage": "2Gi"})), &[], Some(("OutOfephemeral-storage", &storage)));
        let gpu = format!("{enough}: example.com/gpu, requested: 1, used: 1, capacity: 1");
        let more = asks(json!({"example.com/gpu": 1}));
        check(&more, std::slice::from_ref(&half), Some(("OutOfexample.com/gpu", &gpu)));
        let pods = format!("{enough}: pods, requested: 1, used: 2, capacity: 2");
        check(&asks(json!({"cpu": "9"})), &[half.clone(), half.clone()], Some(("OutOfpods", &pods)));
    }

    #[test]
    fn what_is_not_asked_for_may_be_short_and_what_the_node_does_not_have_is_not_counted() {
        let greedy = spec(json!({"cpu": "8"}), json!([]));
        check(&spec(json!({"memory": "1Mi"}), json!([])), std::slice::from_ref(&greedy), None);
        check(&spec(json!({"example.com/licence": 3}), json!([])), &[], None);
        check(&spec(json!({}), json!([])), &[], None);
    }

    #[test]
    fn a_host_port_is_taken_once_per_address_and_protocol() {
        let opens = |port: Value| spec(json!({}), json!([port]));
        let taken = [opens(json!({"hostPort": 80, "hostIP": "10.0.0.1"}))];
        let why = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
        for (port, fits) in [
            (json!({"hostPort": 81}), true),
            (json!({"hostPort": 80}), false),
            (json!({"hostPort": 80, "hostIP": "0.0.0.0", "protocol": "TCP"}), false),
            (json!({"hostPort": 80, "hostIP": "10.0.0.1"}), false),
            (json!({"hostPort": 80, "hostIP": "10.0.0.2"}), true),
            (json!({"hostPort": 80, "protocol": "UDP"}), true),
            (json!({"containerPort": 80}), true),
        ] {
            check(&opens(port), &taken, (!fits).then_some(("NodePorts", why)));
        }
    }

    #[test]
    fn a_pod_is_rejected_by_a_node_that_it_did_not_ask_for() {
        let affinity = |operator: &str| {
            let term = json!({"matchExpressions": [{"key": "disk", "operator": operator, "values": ["ssd"]}]});
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}})
        };
        let name = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["other"]}]});
        let other =
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [name]}}});
        let labels =
            ("NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector");
        let os = ("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS");
        let os_label = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
        for (metadata, spec, expected) in [
            (json!({}), json!({"nodeSelector": {"disk": "ssd"}, "affinity": affinity("In")}), None),
            (json!({}), json!({"nodeSelector": {"disk": "hdd"}}), Some(labels)),
            (json!({}), json!({"affinity": affinity("NotIn")}), Some(labels)),
            (json!({}), json!({"affinity": other}), Some(labels)),
            (json!({}), json!({"os": {"name": "linux"}}), None),
            (json!({}), json!({"os": {"name": "windows"}, "nodeSelector": {"disk": "hdd"}}), Some(os)),
            (json!({"labels": {OS_LABEL: "linux"}}), json!({}), None),
            (
                json!({"labels": {OS_LABEL: "windows"}}),
                json!({}),
                Some(("PodOSSelectorNodeLabelDoesNotMatch", os_label)),
            ),
        ] {
            let pod = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
            check_on(&pod, &[], json!([]), expected);
        }
    }

    #[test]
    fn a_pod_is_rejected_by_a_node_whose_taint_would_evict_it() {
        let why = "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate";
        let refused = Some(("TaintToleration", why));
        let usual =
            |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
        let both = json!([usual(SILENCE[0]), usual(SILENCE[1])]);
        let own = json!([{"key": "gpu", "value": "yes", "effect": "NoExecute"}]);
        let taint = |key: &str, value: &str, effect: &str| json!({"key": key, "value": value, "effect": effect});
        for (tolerations, taint, expected) in [
            (json!([]), taint(SILENCE[0], "", "NoExecute"), refused),
            (both.clone(), taint(SILENCE[0], "", "NoExecute"), None),
            (both.clone(), taint(SILENCE[1], "", "NoExecute"), None),
            (both, taint("gpu", "yes", "NoExecute"), refused),
            (own.clone(), taint("gpu", "yes", "NoExecute"), None),
            (own.clone(), taint("gpu", "no", "NoExecute"), refused),
            (own, taint(SILENCE[0], "", "NoExecute"), refused),
            (json!([{"operator": "Exists"}]), taint("gpu", "no", "NoExecute"), None),
            (json!([{"operator": "Exists", "effect": "NoSchedule"}]), taint("gpu", "no", "NoExecute"), refused),
            (json!(null), taint("gpu", "no", "NoSchedule"), None),
        ] {
            let pod = serde_json::from_value(json!({"spec": {"tolerations": tolerations}})).unwrap();
            check_on(&pod, &[], json!([taint]), expected);
        }
    }
}
