//! NetworkPolicies; they are read, but not served.

use serde_json::{Value, json};

use crate::defaulting::{child, children, default};
use crate::kind::{Kind, Scope};
use crate::object::Object;
use crate::printing::{AGE, NAME, Printer, age_of, name_of, shown_selector, string};
use crate::strategy::{Generation, Strategy};

pub(crate) static KIND: Kind = Kind {
    group: "networking.k8s.io",
    kind: "NetworkPolicy",
    scope: Scope::Namespaced,
    defaults,
    strategy: Strategy { generation: Generation::Spec, ..Strategy::PLAIN },
    printer: Printer {
        columns: &[NAME, string("Pod-Selector"), AGE],
        cells: |object, now| vec![name_of(object), shown_selector(&object["spec"]["podSelector"]), age_of(object, now)],
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

fn defaults(object: &mut Object) {
    let Some(spec) = child(object, "spec") else { return };
    for (rules, ports) in [("ingress", "ports"), ("egress", "ports")] {
        for rule in children(spec, rules) {
            children(rule, ports).for_each(|port| default(port, "protocol", "TCP"));
        }
    }
    let filled = |spec: &Object, name: &str| spec.get(name).and_then(Value::as_array).is_some_and(|l| !l.is_empty());
    if !filled(spec, "policyTypes") {
        let types = if filled(spec, "egress") { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
        spec.insert("policyTypes".into(), types);
    }
}
