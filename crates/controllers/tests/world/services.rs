//! The life of Services and their pods, what their endpoints must be as a predicate, and what two worlds of them must
//! agree on in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde_json::{Value, json};

use super::World;
use super::server::Server;

/// Slices are small here, so that there are several.
pub(crate) const ENDPOINTS_MAX: usize = 3;

const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MIRRORED: &str = "endpointslicemirroring-controller.k8s.io";

/// How many pods there may be.
const PODS: usize = 10;

pub(crate) fn service(name: &str, selector: Value, ports: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "labels": {"team": "a"}},
        "spec": {"clusterIP": "10.0.0.9", "ipFamilies": ["IPv4"], "selector": selector, "ports": ports},
    })
}

fn ports() -> Value {
    json!([
        {"name": "web", "port": 80, "protocol": "TCP", "targetPort": "http"},
        {"name": "metrics", "port": 90, "protocol": "TCP", "targetPort": 9090},
    ])
}

/// A pod of one of two versions, which name different ports.
pub(crate) fn pod(number: usize, ready: bool) -> Value {
    let http = 8080 + number % 2;
    json!({
        "metadata": {"name": format!("p{number}"), "labels": {"app": "web"}},
        "spec": {
            "nodeName": format!("n{}", number % 2),
            "containers": [{"name": "c", "ports": [{"name": "http", "protocol": "TCP", "containerPort": http}]}],
        },
        "status": {
            "phase": "Running", "podIPs": [{"ip": format!("10.1.0.{number}")}],
            "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
        },
    })
}

/// Sets whether a pod is ready.
pub(crate) fn set_ready(server: &Server, number: usize, ready: bool) {
    let name = format!("p{number}");
    if server.objects("pods").iter().any(|pod| pod["metadata"]["name"] == name) {
        let status = if ready { "True" } else { "False" };
        server.edit("pods", &name, |pod| pod["status"]["conditions"][0]["status"] = json!(status));
    }
}

/// Deletes the Service, and its slices as the garbage collector does.
fn delete_service(server: &Server, name: &str) {
    let services = server.objects("services");
    let Some(service) = services.iter().find(|service| service["metadata"]["name"] == name) else { return };
    server.remove("services", name);
    for slice in server.objects("endpointslices") {
        if slice["metadata"]["ownerReferences"][0]["uid"] == service["metadata"]["uid"] {
            server.remove("endpointslices", slice["metadata"]["name"].as_str().unwrap());
        }
    }
}

/// What a user keeps by hand for a Service without a selector.
pub(crate) fn by_hand(addresses: &[&str]) -> Value {
    let addresses: Vec<Value> = addresses.iter().map(|ip| json!({"ip": ip})).collect();
    json!({
        "apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "outside"},
        "subsets": [{"addresses": addresses, "ports": [{"name": "db", "port": 5432, "protocol": "TCP"}]}],
    })
}

/// The user creates a Service, its pods become ready one after the other, some fail, some go, the Service changes its
/// ports and its labels, a second one without a selector has Endpoints by hand, and at last the first is deleted.
pub(crate) const STAGES: usize = 6;

pub(crate) fn begin(stage: usize, server: &Server) {
    match stage {
        0 => {
            for name in ["n0", "n1"] {
                server.put("nodes", json!({"metadata": {"name": name}}));
            }
            server.put("services", service("web", json!({"app": "web"}), ports()));
            (0..5).for_each(|number| server.put("pods", pod(number, number < 3)));
        }
        1 => {
            (5..PODS).for_each(|number| server.put("pods", pod(number, true)));
            (0..3).for_each(|number| set_ready(server, number, number == 0));
        }
        2 => {
            for name in ["p0", "p3", "p6", "p7"] {
                server.remove("pods", name);
            }
            server.put("services", service("outside", Value::Null, json!([{"name": "db", "port": 1}])));
            server.put("endpoints", by_hand(&["192.0.2.1", "192.0.2.2"]));
        }
        3 => {
            server.edit("services", "web", |service| service["spec"]["ports"][1]["targetPort"] = json!(9191));
            server.edit("endpoints", "outside", |endpoints| {
                endpoints["subsets"] = by_hand(&["192.0.2.9"])["subsets"].clone()
            });
        }
        4 => {
            server.edit("services", "web", |service| service["metadata"]["labels"]["team"] = json!("b"));
            (1..5).for_each(|number| set_ready(server, number, true));
        }
        _ => delete_service(server, "web"),
    }
}

/// Lets the stages pass, each to its end.
pub(crate) fn live_through(stages: Range<usize>, mut world: World) -> World {
    for stage in stages {
        begin(stage, &world.server);
        world.settle();
    }
    world
}

/// An endpoint or an address: what it stands for, and whether it is ready.
type Reached = BTreeMap<String, bool>;

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Ports by name and number.
fn numbers(ports: &Value) -> BTreeSet<(String, i64)> {
    list(ports).map(|port| (text(&port["name"]), port["port"].as_i64().unwrap())).collect()
}

/// The pods of a Service by the ports they offer, each with whether it is ready.
fn desired(service: &Value, pods: &[Value]) -> BTreeMap<BTreeSet<(String, i64)>, Reached> {
    let mut groups: BTreeMap<_, Reached> = BTreeMap::new();
    let selector = service["spec"]["selector"].as_object().unwrap();
    let selected = |pod: &&Value| selector.iter().all(|(name, value)| pod["metadata"]["labels"][name] == *value);
    for pod in pods.iter().filter(selected) {
        let number = |port: &Value| match &port["targetPort"] {
            Value::String(_) => pod["spec"]["containers"][0]["ports"][0]["containerPort"].as_i64().unwrap(),
            number => number.as_i64().unwrap(),
        };
        let ports = list(&service["spec"]["ports"]).map(|port| (text(&port["name"]), number(port))).collect();
        let ready = pod["status"]["conditions"][0]["status"] == "True";
        groups.entry(ports).or_default().insert(text(&pod["metadata"]["name"]), ready);
    }
    groups
}

impl World {
    /// The slices of a Service that is there, with this manager.
    fn slices(&self, service: &Value, mirrored: bool) -> Vec<Value> {
        let mut slices = self.server.objects("endpointslices");
        slices.retain(|slice| {
            let labels = &slice["metadata"]["labels"];
            labels[SERVICE_NAME] == service["metadata"]["name"] && (labels[MANAGED_BY] == MIRRORED) == mirrored
        });
        slices
    }

    /// Every pod is in exactly one slice of its ports with its readiness, no slice is too large, and the Endpoints say
    /// the same.
    pub(crate) fn assert_endpoints(&self, when: &str) {
        let (services, pods) = (self.server.objects("services"), self.server.objects("pods"));
        let endpoints = self.server.objects("endpoints");
        for service in &services {
            let name = text(&service["metadata"]["name"]);
            let its = endpoints.iter().find(|one| one["metadata"]["name"] == service["metadata"]["name"]);
            if service["spec"]["selector"].is_null() {
                self.assert_mirrored(service, its, when);
                continue;
            }
            let desired = desired(service, &pods);
            let mut found: BTreeMap<_, Reached> = BTreeMap::new();
            for slice in self.slices(service, false) {
                let size = list(&slice["endpoints"]).count();
                assert!(size <= ENDPOINTS_MAX, "{when}: {size} endpoints in a slice of {name}");
                assert_eq!(
                    slice["metadata"]["labels"]["team"], service["metadata"]["labels"]["team"],
                    "{when}: {name}"
                );
                for endpoint in list(&slice["endpoints"]) {
                    let ready = endpoint["conditions"]["ready"] == true;
                    let pod = text(&endpoint["targetRef"]["name"]);
                    let twice = found.entry(numbers(&slice["ports"])).or_default().insert(pod.clone(), ready);
                    assert!(twice.is_none(), "{when}: {pod} is in two slices of {name}");
                }
            }
            assert_eq!(found, desired, "{when}: slices of {name}");
            let its = its.unwrap_or_else(|| panic!("{when}: no Endpoints of {name}"));
            assert_eq!(addresses(its), by_port(&desired), "{when}: Endpoints of {name}");
        }
        let named: BTreeSet<String> = services.iter().map(|service| text(&service["metadata"]["name"])).collect();
        for one in &endpoints {
            assert!(named.contains(&text(&one["metadata"]["name"])), "{when}: Endpoints without a Service");
        }
    }

    fn assert_mirrored(&self, service: &Value, endpoints: Option<&Value>, when: &str) {
        let mut addresses = BTreeSet::new();
        for slice in self.slices(service, true) {
            for endpoint in list(&slice["endpoints"]) {
                assert!(addresses.insert(text(&endpoint["addresses"][0])), "{when}: mirrored twice");
            }
        }
        let subsets = endpoints.map_or(Value::Null, |endpoints| endpoints["subsets"].clone());
        let expected: BTreeSet<String> =
            list(&subsets).flat_map(|subset| list(&subset["addresses"])).map(|address| text(&address["ip"])).collect();
        assert_eq!(addresses, expected, "{when}: mirrored addresses");
    }

    /// Everything but the accidents of how it came about: which endpoint is in which slice.
    pub(crate) fn reached(&self) -> Value {
        let mut endpoints: BTreeSet<String> = BTreeSet::new();
        for service in self.server.objects("services") {
            for slice in self.slices(&service, false).into_iter().chain(self.slices(&service, true)) {
                let ports = numbers(&slice["ports"]);
                for endpoint in list(&slice["endpoints"]) {
                    let (addresses, conditions) = (&endpoint["addresses"], &endpoint["conditions"]);
                    let (labels, node) = (&slice["metadata"]["labels"], &endpoint["nodeName"]);
                    endpoints.insert(json!([labels, ports, addresses, conditions, node]).to_string());
                }
            }
        }
        let plain = |one: &Value| json!([one["metadata"]["name"], one["metadata"]["labels"], one["subsets"]]);
        let objects: Vec<Value> = self.server.objects("endpoints").iter().map(without_uids).collect();
        json!({"endpoints": endpoints, "objects": objects.iter().map(plain).collect::<Vec<_>>()})
    }
}

/// UIDs count writes.
fn without_uids(endpoints: &Value) -> Value {
    let mut endpoints = endpoints.clone();
    for subset in endpoints["subsets"].as_array_mut().into_iter().flatten() {
        for key in ["addresses", "notReadyAddresses"] {
            for address in subset[key].as_array_mut().into_iter().flatten() {
                address["targetRef"]["uid"] = Value::Null;
            }
        }
    }
    endpoints
}

/// What Endpoints say of each port.
fn addresses(endpoints: &Value) -> BTreeMap<(String, i64), Reached> {
    let mut by_port: BTreeMap<_, Reached> = BTreeMap::new();
    for subset in list(&endpoints["subsets"]) {
        for port in numbers(&subset["ports"]) {
            for (key, ready) in [("addresses", true), ("notReadyAddresses", false)] {
                let pods = list(&subset[key]).map(|address| (text(&address["targetRef"]["name"]), ready));
                by_port.entry(port.clone()).or_default().extend(pods);
            }
        }
    }
    by_port
}

fn by_port(groups: &BTreeMap<BTreeSet<(String, i64)>, Reached>) -> BTreeMap<(String, i64), Reached> {
    let mut by_port: BTreeMap<_, Reached> = BTreeMap::new();
    for (ports, pods) in groups {
        for port in ports {
            by_port.entry(port.clone()).or_default().extend(pods.clone());
        }
    }
    by_port
}
