//! Endpoints, the older form of EndpointSlices.

use serde_json::Value;

use crate::defaulting::{children, default};
use crate::kind::{Kind, STANDARD_VERBS, Scope};
use crate::object::{Object, list, number, text};
use crate::printing::{AGE, NAME, Printer, age_of, name_of, some_and_more, string};
use crate::strategy::Strategy;

pub(crate) static KIND: Kind = Kind {
    kind: "Endpoints",
    plural: "endpoints",
    singular: "endpoints",
    scope: Scope::Namespaced,
    short_names: &["ep"],
    verbs: STANDARD_VERBS,
    storage_prefix: "services/endpoints",
    defaults,
    strategy: Strategy { allow_create_on_update: true, ..Strategy::PLAIN },
    printer: Printer {
        columns: &[NAME, string("Endpoints"), AGE],
        cells: |object, now| vec![name_of(object), shown_endpoints(object).into(), age_of(object, now)],
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

fn defaults(object: &mut Object) {
    for subset in children(object, "subsets") {
        children(subset, "ports").for_each(|port| default(port, "protocol", "TCP"));
    }
}

fn shown_endpoints(object: &Value) -> String {
    if list(object, "subsets").is_empty() {
        return "<none>".to_owned();
    }
    let mut all = Vec::new();
    for subset in list(object, "subsets") {
        let addresses = || list(subset, "addresses").iter().map(|address| text(address, "ip"));
        if list(subset, "ports").is_empty() {
            all.extend(addresses().map(str::to_owned));
        }
        for port in list(subset, "ports") {
            let port = number(port, "port");
            all.extend(
                addresses().map(|ip| if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }),
            );
        }
    }
    some_and_more(&all)
}
