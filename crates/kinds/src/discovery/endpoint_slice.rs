//! EndpointSlices.

use serde_json::Value;

use crate::defaulting::{children, default};
use crate::kind::{Kind, STANDARD_VERBS, Scope};
use crate::object::{Object, given, list, text};
use crate::printing::{AGE, NAME, Printer, age_of, name_of, some_and_more, string};
use crate::strategy::{Generation, Strategy};

pub(crate) static KIND: Kind = Kind {
    group: "discovery.k8s.io",
    kind: "EndpointSlice",
    plural: "endpointslices",
    singular: "endpointslice",
    scope: Scope::Namespaced,
    verbs: STANDARD_VERBS,
    storage_prefix: "endpointslices",
    defaults,
    strategy: Strategy { generation: Generation::ContentAndLabels, ..Strategy::PLAIN },
    printer: Printer {
        columns: &[NAME, string("AddressType"), string("Ports"), string("Endpoints"), AGE],
        cells: |object, now| {
            vec![
                name_of(object),
                text(object, "addressType").into(),
                shown_ports(object).into(),
                shown_endpoints(object).into(),
                age_of(object, now),
            ]
        },
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

fn defaults(object: &mut Object) {
    for port in children(object, "ports") {
        if port.get("name").is_none_or(Value::is_null) {
            port.insert("name".into(), "".into());
        }
        default(port, "protocol", "TCP");
    }
}

fn shown_ports(object: &Value) -> String {
    let port = |port: &Value| match port["port"].as_i64() {
        Some(number) => number.to_string(),
        None if given(port, "name") => text(port, "name").to_owned(),
        None => "*".to_owned(),
    };
    let all: Vec<String> = list(object, "ports").iter().map(port).collect();
    if all.is_empty() { "<unset>".to_owned() } else { some_and_more(&all) }
}

fn shown_endpoints(object: &Value) -> String {
    let endpoints = list(object, "endpoints").iter();
    let all: Vec<String> =
        endpoints.flat_map(|e| list(e, "addresses")).filter_map(Value::as_str).map(str::to_owned).collect();
    if all.is_empty() { "<unset>".to_owned() } else { some_and_more(&all) }
}
