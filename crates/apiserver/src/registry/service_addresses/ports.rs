//! Which node ports a service asks for, and where those go that the server chooses; upstream's `initNodePorts`,
//! `updateNodePorts` and `allocHealthCheckNodePort`.

use std::collections::{BTreeMap, BTreeSet};

use bayplan_model::status::Status;
use serde_json::{Value, json};

use super::families::{Spec, chooses_node_ports, needs_health_check, text};
use super::node_ports::{Refused, shown};
use super::{Failure, Registry};
use crate::status_errors::{self, FieldError};

/// Where a port is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    HealthCheck,
    Port(usize),
}

/// What a slot gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Given {
    Port(i64),
    /// The n-th of those that the server chooses.
    Chosen(usize),
}

/// The ports that a service needs beyond those it has.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Those it names, in order.
    named: Vec<(Slot, i64)>,
    /// How many the server chooses.
    chosen: usize,
    given: Vec<(Slot, Given)>,
}

fn ports(spec: &Spec) -> &[Value] {
    spec.get("ports").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn field(port: &Value, name: &str) -> i64 {
    port[name].as_i64().unwrap_or(0)
}

impl Wanted {
    pub(super) fn of(spec: &Spec, old: Option<&Spec>) -> Result<Wanted, Status> {
        let mut wanted = Wanted::default();
        if matches!(text(spec, "type"), "NodePort" | "LoadBalancer") {
            match old {
                None => wanted.for_new(spec),
                Some(old) => wanted.for_changed(spec, old)?,
            }
        }
        if needs_health_check(spec) && !old.is_some_and(needs_health_check) {
            match spec.get("healthCheckNodePort").and_then(Value::as_i64).unwrap_or(0) {
                0 => wanted.choose(Slot::HealthCheck),
                port => wanted.named.push((Slot::HealthCheck, port)),
            }
        }
        Ok(wanted)
    }

    fn choose(&mut self, slot: Slot) {
        self.given.push((slot, Given::Chosen(self.chosen)));
        self.chosen += 1;
    }

    /// The protocols of one port share a node port, unless they name others.
    fn for_new(&mut self, spec: &Spec) {
        let mut requested: BTreeMap<i64, i64> = BTreeMap::new();
        for port in ports(spec).iter().filter(|port| field(port, "nodePort") != 0) {
            requested.entry(field(port, "port")).or_insert_with(|| field(port, "nodePort"));
        }
        let mut known: BTreeMap<i64, Given> = BTreeMap::new();
        for (index, port) in ports(spec).iter().enumerate() {
            let (number, own, slot) = (field(port, "port"), field(port, "nodePort"), Slot::Port(index));
            if own == 0 && !chooses_node_ports(spec) {
                continue;
            }
            match (known.get(&number).copied(), requested.get(&number).copied()) {
                (None, Some(named)) => {
                    self.named.push((slot, named));
                    self.given.push((slot, Given::Port(named)));
                    known.insert(number, Given::Port(named));
                }
                (None, None) => {
                    known.insert(number, Given::Chosen(self.chosen));
                    self.choose(slot);
                }
                (Some(given), _) if own == 0 => self.given.push((slot, given)),
                (Some(given), _) if given != Given::Port(own) => self.named.push((slot, own)),
                (Some(_), _) => {}
            }
        }
    }

    fn for_changed(&mut self, spec: &Spec, old: &Spec) -> Result<(), Status> {
        let mut had: BTreeSet<i64> = ports(old).iter().map(|port| field(port, "nodePort")).collect();
        let mut seen = BTreeSet::new();
        for (index, port) in ports(spec).iter().enumerate() {
            let (own, slot) = (field(port, "nodePort"), Slot::Port(index));
            if own == 0 {
                if chooses_node_ports(spec) {
                    self.choose(slot);
                }
                continue;
            }
            if had.insert(own) {
                self.named.push((slot, own));
            }
            let protocol = port["protocol"].as_str().unwrap_or_default();
            if !seen.insert((protocol, own)) {
                return Err(status_errors::plain(format!("duplicate nodePort: {{{protocol} {own}}}")));
            }
        }
        Ok(())
    }

    /// Writes the ports into the service.
    fn fill(&self, spec: &mut Spec, chosen: &[i64]) {
        for (slot, given) in &self.given {
            let port = match given {
                Given::Port(port) => *port,
                Given::Chosen(at) => chosen.get(*at).copied().unwrap_or(0),
            };
            match slot {
                Slot::HealthCheck => _ = spec.insert("healthCheckNodePort".to_owned(), json!(port)),
                Slot::Port(index) => {
                    let entry = spec.get_mut("ports").and_then(|ports| ports.get_mut(*index));
                    if let Some(entry) = entry.filter(|entry| entry.is_object()) {
                        entry["nodePort"] = json!(port);
                    }
                }
            }
        }
    }
}

impl Registry {
    /// Claims what a service wants and writes it into it; answers with what was claimed.
    pub(super) async fn claim_wanted(
        &self,
        spec: &mut Spec,
        wanted: &Wanted,
        dry_run: bool,
    ) -> Result<Vec<i64>, Failure> {
        let mut claimed: Vec<i64> = wanted.named.iter().map(|(_, port)| *port).collect();
        let chosen = match self.claim_ports(&claimed, wanted.chosen, dry_run).await {
            Ok(chosen) => chosen,
            Err(refused) => return Err(self.refusal(wanted, refused)),
        };
        wanted.fill(spec, &chosen);
        claimed.extend(chosen);
        Ok(claimed)
    }

    fn refusal(&self, wanted: &Wanted, refused: Refused) -> Failure {
        let (at, why) = match refused {
            Refused::Failed(status) => return Failure::Failed(status),
            Refused::Full => {
                let all_health = wanted.given.iter().all(|(slot, _)| *slot == Slot::HealthCheck);
                let what = if all_health { "a HealthCheck NodePort 0" } else { "a nodePort" };
                return Failure::Failed(status_errors::internal(format!("failed to allocate {what}: range is full")));
            }
            Refused::Taken(at) => (at, "provided port is already allocated".to_owned()),
            Refused::OutOfRange(at) => {
                let range = shown(&self.port_range());
                (at, format!("provided port is not in the valid range. The range of valid ports is {range}"))
            }
        };
        let (slot, port) = wanted.named[at];
        match slot {
            Slot::HealthCheck => Failure::Failed(status_errors::internal(format!(
                "failed to allocate requested HealthCheck NodePort {port}: {why}"
            ))),
            Slot::Port(index) => {
                Failure::from(FieldError::invalid(format!("spec.ports[{index}].nodePort"), json!(port), why))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(value: Value) -> Spec {
        value.as_object().expect("an object").clone()
    }

    #[test]
    fn protocols_of_one_port_share_a_node_port() {
        let new = spec(json!({"type": "NodePort", "ports": [
            {"port": 53, "protocol": "UDP"},
            {"port": 53, "protocol": "TCP", "nodePort": 30053},
            {"port": 80, "protocol": "TCP"},
            {"port": 80, "protocol": "SCTP"},
        ]}));
        let wanted = Wanted::of(&new, None).expect("valid");
        assert_eq!((wanted.named.as_slice(), wanted.chosen), (&[(Slot::Port(0), 30053)][..], 1));
        let mut filled = new.clone();
        wanted.fill(&mut filled, &[30080]);
        let given: Vec<i64> = ports(&filled).iter().map(|port| field(port, "nodePort")).collect();
        assert_eq!(given, [30053, 30053, 30080, 30080]);
    }

    #[test]
    fn a_changed_service_claims_only_what_it_did_not_have() {
        let old = spec(json!({"type": "NodePort", "ports": [{"port": 1, "protocol": "TCP", "nodePort": 30001}]}));
        let new = spec(json!({"type": "NodePort", "ports": [
            {"port": 1, "protocol": "TCP", "nodePort": 30001},
            {"port": 2, "protocol": "TCP", "nodePort": 30002},
            {"port": 3, "protocol": "TCP"},
        ]}));
        let wanted = Wanted::of(&new, Some(&old)).expect("valid");
        assert_eq!((wanted.named.as_slice(), wanted.chosen), (&[(Slot::Port(1), 30002)][..], 1));
        let twice = spec(json!({"type": "NodePort", "ports": [
            {"port": 1, "protocol": "TCP", "nodePort": 30001},
            {"port": 2, "protocol": "TCP", "nodePort": 30001},
        ]}));
        let refused = Wanted::of(&twice, Some(&old)).expect_err("one port twice");
        assert_eq!(refused.message, "duplicate nodePort: {TCP 30001}");
    }

    #[test]
    fn a_health_check_has_its_port_when_traffic_stays_on_nodes() {
        let local = |port: i64| {
            spec(json!({
                "type": "LoadBalancer", "externalTrafficPolicy": "Local", "allocateLoadBalancerNodePorts": false,
                "healthCheckNodePort": port, "ports": [{"port": 80}],
            }))
        };
        assert_eq!(Wanted::of(&local(0), None).expect("valid").chosen, 1);
        assert_eq!(Wanted::of(&local(30100), None).expect("valid").named, [(Slot::HealthCheck, 30100)]);
        assert_eq!(Wanted::of(&local(30100), Some(&local(30100))).expect("valid"), Wanted::default());
    }
}
