//! NetworkPolicies.

use serde_json::{Value, json};

use crate::addresses::{Range, range_problems, range_warnings};
use crate::defaulting::{child, children, default_absent};
use crate::field::{ErrorList, Path};
use crate::kind::{Kind, STANDARD_VERBS, Scope};
use crate::object::{Object, given, list, number, text};
use crate::printing::{AGE, NAME, Printer, age_of, name_of, shown_selector, string};
use crate::strategy::{Generation, Strategy};
use crate::validation::Validation;
use crate::{label_selector, names};

pub(crate) static KIND: Kind = Kind {
    group: "networking.k8s.io",
    kind: "NetworkPolicy",
    plural: "networkpolicies",
    singular: "networkpolicy",
    scope: Scope::Namespaced,
    short_names: &["netpol"],
    verbs: STANDARD_VERBS,
    storage_prefix: "networkpolicies",
    defaults,
    strategy: Strategy { generation: Generation::Spec, warnings, ..Strategy::PLAIN },
    validation: Validation { rules, ..Validation::PLAIN },
    printer: Printer {
        columns: &[NAME, string("Pod-Selector"), AGE],
        cells: |object, now| vec![name_of(object), shown_selector(&object["spec"]["podSelector"]), age_of(object, now)],
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

/// The lists of rules, and the field that holds the peers of each rule.
const DIRECTIONS: [(&str, &str); 2] = [("ingress", "from"), ("egress", "to")];
const PROTOCOLS: &[&str] = &["TCP", "UDP", "SCTP"];
const TYPES: &[&str] = &["Ingress", "Egress"];

fn defaults(object: &mut Object) {
    let Some(spec) = child(object, "spec") else { return };
    for (rules, _) in DIRECTIONS {
        for rule in children(spec, rules) {
            children(rule, "ports").for_each(|port| default_absent(port, "protocol", "TCP"));
        }
    }
    let filled = |spec: &Object, name: &str| spec.get(name).and_then(Value::as_array).is_some_and(|l| !l.is_empty());
    if !filled(spec, "policyTypes") {
        let types = if filled(spec, "egress") { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
        spec.insert("policyTypes".into(), types);
    }
}

fn rules(errors: &mut ErrorList, object: &Value, old: Option<&Value>) {
    let spec = &object["spec"];
    let root = Path::root("spec");
    label_selector::rules(errors, root.child("podSelector"), &spec["podSelector"]);
    let stored: Vec<&str> = old.map(|old| ranges_of(&old["spec"])).unwrap_or_default();
    for (direction, peers) in DIRECTIONS {
        let path = root.child(direction);
        for (index, rule) in list(spec, direction).iter().enumerate() {
            let path = path.index(index);
            let ports = path.child("ports");
            for (index, port) in list(rule, "ports").iter().enumerate() {
                port_rules(errors, ports.index(index), port);
            }
            let path = path.child(peers);
            for (index, peer) in list(rule, peers).iter().enumerate() {
                peer_rules(errors, path.index(index), peer, &stored);
            }
        }
    }
    let (path, types) = (root.child("policyTypes"), list(spec, "policyTypes"));
    if types.len() > TYPES.len() {
        return errors.invalid(path, &spec["policyTypes"], "may not specify more than two policyTypes");
    }
    for (index, kind) in types.iter().enumerate() {
        let kind = kind.as_str().unwrap_or_default();
        if !TYPES.contains(&kind) {
            errors.not_supported(path.index(index), kind, TYPES);
        }
    }
}

fn port_rules(errors: &mut ErrorList, path: Path<'_>, port: &Value) {
    let protocol = text(port, "protocol");
    if given(port, "protocol") && !PROTOCOLS.contains(&protocol) {
        errors.not_supported(path.child("protocol"), protocol, PROTOCOLS);
    }
    let end = given(port, "endPort").then(|| number(port, "endPort"));
    let end_path = path.child("endPort");
    match &port["port"] {
        Value::Null => {
            if let Some(end) = end {
                errors.invalid(end_path, end, "may not be specified when `port` is not specified");
            }
        }
        Value::String(name) => {
            if let Some(end) = end {
                errors.invalid(end_path, end, "may not be specified when `port` is non-numeric");
            }
            errors.all_invalid(path.child("port"), name, names::port_name(name));
        }
        first => {
            let first = first.as_i64().unwrap_or(0);
            if let Some(problem) = names::port_number(first) {
                errors.invalid(path.child("port"), first, problem);
            }
            let Some(end) = end else { return };
            if end < first {
                // Upstream shows the first port here.
                errors.invalid(end_path, first, "must be greater than or equal to `port`");
            }
            if let Some(problem) = names::port_number(end) {
                errors.invalid(end_path, end, problem);
            }
        }
    }
}

fn peer_rules(errors: &mut ErrorList, path: Path<'_>, peer: &Value, stored: &[&str]) {
    let selectors = ["podSelector", "namespaceSelector"];
    for selector in selectors {
        if given(peer, selector) {
            label_selector::rules(errors, path.child(selector), &peer[selector]);
        }
    }
    let selected = selectors.iter().any(|selector| given(peer, selector));
    if given(peer, "ipBlock") {
        block_rules(errors, path.child("ipBlock"), &peer["ipBlock"], stored);
        if selected {
            errors.forbidden(path, "may not specify both ipBlock and another peer");
        }
    } else if !selected {
        errors.required(path, "must specify a peer");
    }
}

/// Checks a range and what is taken out of it. Upstream: `ValidateIPBlock`.
fn block_rules(errors: &mut ErrorList, path: Path<'_>, block: &Value, stored: &[&str]) {
    let range = text(block, "cidr");
    if range.is_empty() {
        return errors.required(path.child("cidr"), "");
    }
    range_rules(errors, path.child("cidr"), range, stored);
    let Some(outer) = Range::parse(range) else { return };
    let path = path.child("except");
    for (index, except) in list(block, "except").iter().enumerate() {
        let (path, except) = (path.index(index), except.as_str().unwrap_or_default());
        range_rules(errors, path, except, stored);
        let is_part = |inner: Range| outer.contains(inner.network()) && inner.prefix() > outer.prefix();
        if Range::parse(except).is_some_and(|inner| !is_part(inner)) {
            errors.invalid(path, except, "must be a strict subset of `cidr`");
        }
    }
}

fn range_rules(errors: &mut ErrorList, path: Path<'_>, range: &str, stored: &[&str]) {
    if !stored.contains(&range) {
        range_problems(range).into_iter().for_each(|problem| errors.invalid(path, range, problem));
    }
}

/// Every range that a policy names: what is stored is no reason to refuse an update.
fn ranges_of(spec: &Value) -> Vec<&str> {
    let blocks = blocks_of(spec).map(|(.., block)| block);
    blocks
        .flat_map(|block| {
            let except = list(block, "except").iter().filter_map(Value::as_str);
            std::iter::once(text(block, "cidr")).chain(except)
        })
        .collect()
}

/// The direction, the index of the rule, the field and the index of the peer, and its block.
fn blocks_of(spec: &Value) -> impl Iterator<Item = (&'static str, usize, &'static str, usize, &Value)> {
    DIRECTIONS.into_iter().flat_map(move |(direction, peers)| {
        list(spec, direction).iter().enumerate().flat_map(move |(rule_index, rule)| {
            let peers_of_rule = list(rule, peers).iter().enumerate();
            peers_of_rule
                .filter(|(_, peer)| given(peer, "ipBlock"))
                .map(move |(index, peer)| (direction, rule_index, peers, index, &peer["ipBlock"]))
        })
    })
}

fn warnings(object: &Value, _old: Option<&Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    for (direction, rule, peers, peer, block) in blocks_of(&object["spec"]) {
        let path = format!("spec.{direction}[{rule}].{peers}[{peer}].ipBlock");
        warnings.extend(range_warnings(&format!("{path}.cidr"), text(block, "cidr")));
        for (index, except) in list(block, "except").iter().filter_map(Value::as_str).enumerate() {
            warnings.extend(range_warnings(&format!("{path}.except[{index}]"), except));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(spec: Value) -> Value {
        json!({
            "kind": "NetworkPolicy", "apiVersion": "networking.k8s.io/v1",
            "metadata": {"name": "a", "namespace": "b", "resourceVersion": "1"}, "spec": spec,
        })
    }

    fn errors(spec: Value) -> Vec<String> {
        KIND.validate_create(&policy(spec)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn ports_peers_and_types_are_checked() {
        let port = |port: Value| json!({"egress": [{"ports": [port]}]});
        let block =
            |cidr: &str, except: Value| json!({"ingress": [{"from": [{"ipBlock": {"cidr": cidr, "except": except}}]}]});
        for (spec, expected) in [
            (port(json!({"port": 80, "endPort": 90})), None),
            (port(json!({"port": 0})), Some("spec.egress[0].ports[0].port: Invalid value: 0: must be between")),
            (port(json!({"port": 9, "endPort": 8})), Some("endPort: Invalid value: 9: must be greater than or equal")),
            (port(json!({"port": "web", "endPort": 8})), Some("endPort: Invalid value: 8: may not be specified when")),
            (port(json!({"endPort": 8})), Some("endPort: Invalid value: 8: may not be specified when `port` is not")),
            (port(json!({"protocol": "ICMP"})), Some("protocol: Unsupported value: \"ICMP\"")),
            (block("10.0.0.0/8", json!(["10.1.0.0/16"])), None),
            (
                block("10.0.0.0/8", json!(["10.0.0.0/8"])),
                Some("except[0]: Invalid value: \"10.0.0.0/8\": must be a strict"),
            ),
            (block("10.0.0.0/8", json!(["fd00::/16"])), Some("must be a strict subset")),
            (block("", json!([])), Some("spec.ingress[0].from[0].ipBlock.cidr: Required value")),
            (
                json!({"ingress": [{"from": [{}]}]}),
                Some("spec.ingress[0].from[0]: Required value: must specify a peer"),
            ),
            (json!({"policyTypes": ["Up"]}), Some("spec.policyTypes[0]: Unsupported value: \"Up\"")),
            (json!({"policyTypes": ["Up", "Up", "Up"]}), Some("may not specify more than two policyTypes")),
        ] {
            let found = errors(spec.clone());
            assert_eq!(found.len(), usize::from(expected.is_some()), "{spec}: {found:?}");
            assert!(expected.is_none_or(|expected| found[0].contains(expected)), "{spec}: {found:?}");
        }
    }

    #[test]
    fn a_stored_range_is_no_reason_to_refuse_an_update() {
        let old = policy(json!({"ingress": [{"from": [{"ipBlock": {"cidr": "nope"}}]}]}));
        let new = policy(json!({"egress": [{"to": [{"ipBlock": {"cidr": "nope"}}]}]}));
        assert_eq!(KIND.validate_update("", &new, &old), []);
        assert_eq!(KIND.validate_create(&new).len(), 1);
    }
}
