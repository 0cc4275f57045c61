//! How a pod's request is made of its containers, and how little each may ask for so that the whole is no more than a
//! target.
//!
//! ```text
//!   request = max(containers + sidecars, each init step + the sidecars before it) + overhead
//!             └───────── or the pod-level request, where there is one ─────────┘
//! ```

use bayplan_model::pod::{Container, Pod};
use bayplan_model::quantity::{Format, Quantity};
use bayplan_model::resources::{Amounts, CPU, RequestRules, ResourceList};
use serde_json::Value;

use super::json_ops;

/// Who requests a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Requester {
    /// A container, by index.
    Container(usize),
    /// An init container, by index.
    Init(usize),
    /// The pod as a whole.
    Pod,
}

/// What one requester may ask for.
#[derive(Clone, Debug)]
pub(super) struct NewRequest {
    pub(super) who: Requester,
    pub(super) from: Quantity,
    pub(super) to: Quantity,
}

/// The requests of a pod for one resource.
pub(super) struct PodRequests<'p> {
    pod: &'p Pod,
    pub(super) resource: &'p str,
}

impl<'p> PodRequests<'p> {
    pub(super) fn new(pod: &'p Pod, resource: &'p str) -> Self {
        PodRequests { pod, resource }
    }

    /// The whole request in the scheduler's units: thousandths of a cpu, units of all else.
    pub(super) fn total(&self) -> i64 {
        Amounts::of(&RequestRules::default().requests(self.pod)).get(self.resource)
    }

    /// What cannot be reduced.
    pub(super) fn least(&self) -> i64 {
        let least = self.pod.spec.overhead.get(self.resource).map_or(0, |overhead| self.units(overhead));
        least.max(0)
    }

    /// The requests that make the whole exactly `target`; none when the overhead alone is more.
    pub(super) fn lowered_to(&self, target: i64) -> Option<Vec<NewRequest>> {
        let mut room = self.quantity(target);
        if let Some(overhead) = self.pod.spec.overhead.get(self.resource) {
            room.sub(overhead);
        }
        if room.sign() < 0 {
            return None;
        }
        let mut changed = Vec::new();
        if let Some(whole) = self.pod_level() {
            let to = self.floor(&room);
            if *whole > to {
                changed.push(NewRequest { who: Requester::Pod, from: whole.clone(), to: to.clone() });
            }
            // What containers ask for must not exceed what the pod asks for.
            room = to;
        }
        let mut lowered = self.lower_running(&room);
        let steps = self.lower_init_steps(&room, &lowered);
        lowered.extend(steps);
        changed.extend(lowered);
        Some(changed)
    }

    /// Lowers what runs together, the largest first.
    fn lower_running(&self, room: &Quantity) -> Vec<NewRequest> {
        let containers = self.pod.spec.containers.iter().enumerate().map(|(at, c)| (Requester::Container(at), c));
        let init = self.pod.spec.init_containers.iter().enumerate().filter(|(_, container)| container.is_sidecar());
        let mut running: Vec<(Requester, &Quantity)> = containers
            .chain(init.map(|(at, container)| (Requester::Init(at), container)))
            .filter_map(|(who, container)| Some((who, self.of(container)?)))
            .collect();
        running.sort_by(|a, b| b.1.cmp(a.1));
        let mut excess = Quantity::ZERO;
        running.iter().for_each(|(_, request)| excess.add(request));
        excess.sub(room);
        let mut changed = Vec::new();
        for (who, from) in running {
            if excess.sign() <= 0 {
                break;
            }
            let mut left = from.clone();
            left.sub(&excess);
            let to = if left.sign() < 0 { self.quantity(0) } else { self.floor(&left) };
            let mut given_up = from.clone();
            given_up.sub(&to);
            excess.sub(&given_up);
            changed.push(NewRequest { who, from: from.clone(), to });
        }
        changed
    }

    /// Lowers each init step that does not fit beside the sidecars before it.
    fn lower_init_steps(&self, room: &Quantity, lowered: &[NewRequest]) -> Vec<NewRequest> {
        let mut changed = Vec::new();
        let mut room = room.clone();
        for (at, container) in self.pod.spec.init_containers.iter().enumerate() {
            let Some(from) = self.of(container) else { continue };
            if container.is_sidecar() {
                let new = lowered.iter().find(|new| new.who == Requester::Init(at));
                room.sub(new.map_or(from, |new| &new.to));
            } else if *from > room {
                let to = if room.sign() < 0 { self.quantity(0) } else { self.floor(&room) };
                changed.push(NewRequest { who: Requester::Init(at), from: from.clone(), to });
            }
        }
        changed
    }

    fn of(&self, container: &'p Container) -> Option<&'p Quantity> {
        container.resources.requests.get(self.resource).filter(|request| request.sign() > 0)
    }

    fn pod_level(&self) -> Option<&'p Quantity> {
        let may_be = matches!(self.resource, "cpu" | "memory") || self.resource.starts_with("hugepages-");
        self.pod.spec.resources.as_ref().filter(|_| may_be)?.requests.get(self.resource)
    }

    /// An amount in the scheduler's units as a quantity, written as the pod writes this resource.
    pub(super) fn quantity(&self, units: i64) -> Quantity {
        let containers = self.pod.spec.containers.iter().chain(&self.pod.spec.init_containers);
        let written = containers.filter_map(|container| container.resources.requests.get(self.resource)).next();
        match written.map_or(Format::DecimalSI, Quantity::format) {
            _ if self.resource == CPU => Quantity::milli(units, Format::DecimalSI),
            format => Quantity::new(units, format),
        }
    }

    fn units(&self, quantity: &Quantity) -> i64 {
        if self.resource == CPU { quantity.milli_value() } else { quantity.value() }
    }

    /// The largest amount of whole units that is not more.
    fn floor(&self, quantity: &Quantity) -> Quantity {
        let rounded_up = self.units(quantity);
        let whole = self.quantity(rounded_up);
        if whole > *quantity { self.quantity(rounded_up.saturating_sub(1)) } else { whole }
    }

    /// The operations that write new requests into the pod. A resource that cannot be overcommitted has limits that
    /// are equal to its requests.
    pub(super) fn operations(&self, json: &Value, new: &[NewRequest]) -> Vec<Value> {
        let mut operations = Vec::new();
        for NewRequest { who, to, .. } in new {
            let (prefix, limits) = self.place(*who);
            let prefix: Vec<&str> = prefix.iter().map(String::as_str).collect();
            let path = |list: &'static str| [&prefix[..], &["resources", list, self.resource]].concat();
            let value = Value::String(to.to_string());
            operations.push(json_ops::set(json, &path("requests"), value.clone()));
            let has_limit = limits.is_some_and(|limits| limits.contains_key(self.resource));
            if has_limit && !self.may_be_overcommitted() {
                operations.push(json_ops::set(json, &path("limits"), value));
            }
        }
        merged(json, operations)
    }

    /// Where a requester is in the JSON, and its limits.
    fn place(&self, who: Requester) -> (Vec<String>, Option<&'p ResourceList>) {
        let spec = &self.pod.spec;
        let limits = |containers: &'p [Container], at: usize| containers.get(at).map(|c| &c.resources.limits);
        match who {
            Requester::Pod => (vec!["spec".into()], spec.resources.as_ref().map(|resources| &resources.limits)),
            Requester::Container(at) => {
                (vec!["spec".into(), "containers".into(), at.to_string()], limits(&spec.containers, at))
            }
            Requester::Init(at) => {
                (vec!["spec".into(), "initContainers".into(), at.to_string()], limits(&spec.init_containers, at))
            }
        }
    }

    fn may_be_overcommitted(&self) -> bool {
        matches!(self.resource, "cpu" | "memory" | "ephemeral-storage")
    }

    /// Who a requester is, in words.
    pub(super) fn name_of(&self, who: Requester) -> String {
        let name = |containers: &[Container], at: usize| containers.get(at).map(|c| c.name.clone()).unwrap_or_default();
        match who {
            Requester::Pod => "the pod".to_owned(),
            Requester::Container(at) => format!("container {}", name(&self.pod.spec.containers, at)),
            Requester::Init(at) => format!("init container {}", name(&self.pod.spec.init_containers, at)),
        }
    }
}

/// Operations were each made for the object as it is written: two that add the same absent parent become one.
fn merged(json: &Value, operations: Vec<Value>) -> Vec<Value> {
    let mut kept: Vec<Value> = Vec::new();
    for operation in operations {
        let same = kept.iter_mut().find(|other| other["op"] == "add" && other["path"] == operation["path"]);
        let is_new = operation["path"].as_str().is_some_and(|path| json.pointer(path).is_none());
        match same {
            Some(other) if is_new => merge(&mut other["value"], &operation["value"]),
            _ => kept.push(operation),
        }
    }
    kept
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

#[cfg(test)]
mod tests {
    use bayplan_model::pod::Pod;
    use bayplan_patch::json_patch;
    use bayplan_testkit::{Rng, pod};
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    fn container(name: &str, cpu: &str) -> Value {
        json!({"name": name, "resources": {"requests": {"cpu": cpu}}})
    }

    fn sidecar(name: &str, cpu: &str) -> Value {
        let mut sidecar = container(name, cpu);
        sidecar["restartPolicy"] = "Always".into();
        sidecar
    }

    fn applied(json: &Value, resource: &str, target: i64) -> Option<Pod> {
        let view = Pod::deserialize(json).unwrap();
        let requests = PodRequests::new(&view, resource);
        let operations = requests.operations(json, &requests.lowered_to(target)?);
        let patched = json_patch::apply(json.clone(), json!(operations).to_string().as_bytes()).unwrap();
        Some(Pod::deserialize(patched).unwrap())
    }

    #[test]
    fn the_whole_becomes_exactly_the_target() {
        let plain = json!([container("a", "2"), container("b", "1500m")]);
        let cases = [
            ("the largest container gives", json!({"containers": plain}), 3000, &["1500m", "1500m"][..]),
            ("then the next", json!({"containers": plain}), 1000, &["0", "1"]),
            (
                "an init step that is larger than all of them gives too",
                json!({"containers": plain, "initContainers": [container("i", "4")]}),
                3000,
                &["1500m", "1500m", "3"],
            ),
            (
                "beside a sidecar before it, a step has what is left",
                json!({"containers": plain, "initContainers": [sidecar("s", "500m"), container("i", "4")]}),
                3000,
                &["1", "1500m", "500m", "2500m"],
            ),
            ("overhead stays", json!({"containers": plain, "overhead": {"cpu": "250m"}}), 3000, &["1250m", "1500m"]),
            (
                "fractions of a unit round up to the target",
                json!({"containers": [container("a", "2"), container("b", "100500u")]}),
                1000,
                &["899m", "100500u"],
            ),
        ];
        for (sentence, spec, target, expected) in cases {
            let json = pod("p").spec(spec).json();
            let view = applied(&json, "cpu", target).unwrap();
            assert_eq!(PodRequests::new(&view, "cpu").total(), target, "{sentence}");
            let all = view.spec.containers.iter().chain(&view.spec.init_containers);
            let requests: Vec<String> = all.map(|c| c.resources.requests.get("cpu").unwrap().to_string()).collect();
            assert_eq!(requests, expected, "{sentence}");
        }
        let json = pod("p").spec(json!({"containers": plain, "overhead": {"cpu": "250m"}})).json();
        assert!(applied(&json, "cpu", 100).is_none(), "the overhead alone is more");
    }

    #[test]
    fn a_pod_level_request_goes_down_and_takes_its_containers_along() {
        let json =
            pod("p").spec(json!({"resources": {"requests": {"cpu": "4"}}, "containers": [container("a", "3")]})).json();
        let view = applied(&json, "cpu", 2000).unwrap();
        assert_eq!(view.spec.resources.unwrap().requests.get("cpu").unwrap().to_string(), "2");
        assert_eq!(view.spec.containers[0].resources.requests.get("cpu").unwrap().to_string(), "2");
    }

    #[test]
    fn limits_follow_where_they_have_to_be_equal() {
        let list = json!({"example.com/gpu": "4", "cpu": "4"});
        let spec = json!({"containers": [{"name": "a", "resources": {"requests": list, "limits": list}}]});
        let json = pod("p").spec(spec).json();
        let limit = |resource: &str| {
            let view = applied(&json, resource, 1).unwrap();
            view.spec.containers[0].resources.limits.get(resource).unwrap().to_string()
        };
        assert_eq!((limit("example.com/gpu").as_str(), limit("cpu").as_str()), ("1", "4"));
    }

    #[test]
    fn any_pod_can_be_lowered_to_any_amount_above_its_overhead() {
        let mut rng = Rng::new(1);
        for _ in 0..2000 {
            let cpu = |rng: &mut Rng| match rng.below(3) {
                0 => format!("{}m", rng.below(3000)),
                1 => format!("{}u", rng.below(3_000_000)),
                _ => rng.below(3).to_string(),
            };
            let containers: Vec<Value> = (0..=rng.below(3)).map(|_| container("c", &cpu(&mut rng))).collect();
            let init = (0..rng.below(4)).map(|_| match rng.one_in(2) {
                true => sidecar("s", &cpu(&mut rng)),
                false => container("i", &cpu(&mut rng)),
            });
            let init: Vec<Value> = init.collect();
            let mut spec = json!({"containers": containers, "initContainers": init});
            if rng.one_in(3) {
                spec["overhead"] = json!({"cpu": cpu(&mut rng)});
            }
            let json = pod("p").spec(spec).json();
            let view = Pod::deserialize(&json).unwrap();
            let requests = PodRequests::new(&view, "cpu");
            let (total, least) = (requests.total(), requests.least());
            let target = least + rng.below((total - least).max(0) as usize + 1) as i64;
            if target < total {
                let lowered = applied(&json, "cpu", target).unwrap();
                assert_eq!(PodRequests::new(&lowered, "cpu").total(), target, "{json}");
            }
        }
    }
}
