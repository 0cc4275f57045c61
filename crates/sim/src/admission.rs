//! Admission of a bound pod by its node. A kubelet decides last: two schedulers may not know of each other, or a pod
//! may be bound by hand.
//!
//! As upstream's kubelet: the resources, the number of pods and the host ports, in this order; the first that does not
//! fit is reported. Admitted pods stay, however full the node is.

use bayplan_model::pod::ContainerPort;
use bayplan_model::resources::{self, Amounts, is_extended};

use crate::pod::PodSpec;

/// Why a pod is rejected, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// Why a pod does not fit beside the others; none when it does.
pub(crate) fn rejection<'a>(
    pod: &PodSpec,
    others: impl Iterator<Item = &'a PodSpec>,
    allocatable: &Amounts,
) -> Option<Rejection> {
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
    if let Some((name, requested, used)) = too_much {
        let capacity = allocatable.get(name);
        let amounts = format!("requested: {requested}, used: {used}, capacity: {capacity}");
        let message = format!("Node didn't have enough resource: {name}, {amounts}");
        return Some(Rejection { reason: format!("OutOf{name}"), message });
    }
    let why = "node(s) didn't have free ports for the requested pod ports";
    let taken = || Rejection { reason: "NodePorts".into(), message: format!("Predicate NodePorts failed: {why}") };
    (!ports_are_free).then(taken)
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
        let node =
            json!({"cpu": "2", "memory": "1Gi", "pods": "2", "ephemeral-storage": "1Gi", "example.com/gpu": "1"});
        let allocatable = Amounts::of(&serde_json::from_value(node).unwrap());
        let found = rejection(pod, others.iter(), &allocatable);
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
}
