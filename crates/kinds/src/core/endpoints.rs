//! Endpoints, the older form of EndpointSlices.

use serde_json::Value;

use crate::defaulting::{children, default};
use crate::field::{ErrorList, Path};
use crate::kind::{Kind, STANDARD_VERBS, Scope};
use crate::object::{Object, list, number, text};
use crate::printing::{AGE, NAME, Printer, age_of, name_of, some_and_more, string};
use crate::strategy::Strategy;
use crate::validation::{MetadataRecheck, Validation};
use crate::{ip_rules, names};

pub(crate) static KIND: Kind = Kind {
    kind: "Endpoints",
    plural: "endpoints",
    singular: "endpoints",
    scope: Scope::Namespaced,
    short_names: &["ep"],
    verbs: STANDARD_VERBS,
    storage_prefix: "services/endpoints",
    defaults,
    strategy: Strategy { allow_create_on_update: true, warnings, ..Strategy::PLAIN },
    validation: Validation { update_metadata: MetadataRecheck::AsNewAndChanged, rules, ..Validation::PLAIN },
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

const ADDRESS_LISTS: [&str; 2] = ["addresses", "notReadyAddresses"];

/// Subsets that were stored before are left alone, whatever they are.
fn rules(errors: &mut ErrorList, object: &Value, old: Option<&Value>) {
    if old.is_some_and(|old| old["subsets"] == object["subsets"]) {
        return;
    }
    let root = Path::root("subsets");
    for (index, subset) in list(object, "subsets").iter().enumerate() {
        let path = root.index(index);
        if ADDRESS_LISTS.iter().all(|field| list(subset, field).is_empty()) {
            errors.required(path, "must specify `addresses` or `notReadyAddresses`");
        }
        for field in ADDRESS_LISTS {
            let path = path.child(field);
            for (index, address) in list(subset, field).iter().enumerate() {
                address_rules(errors, path.index(index), address);
            }
        }
        let (path, ports) = (path.child("ports"), list(subset, "ports"));
        for (index, port) in ports.iter().enumerate() {
            port_rules(errors, path.index(index), port, ports.len() > 1);
        }
    }
}

fn address_rules(errors: &mut ErrorList, path: Path<'_>, address: &Value) {
    let (ip, host) = (text(address, "ip"), text(address, "hostname"));
    ip_rules::legacy_address(errors, path.child("ip"), ip, &[]);
    if !host.is_empty() {
        errors.all_invalid(path.child("hostname"), host, names::dns_label(host));
    }
    if let Some(node) = address["nodeName"].as_str() {
        errors.all_invalid(path.child("nodeName"), node, names::dns_subdomain(node));
    }
    ip_rules::endpoint_address(errors, path.child("ip"), ip);
}

fn port_rules(errors: &mut ErrorList, path: Path<'_>, port: &Value, named: bool) {
    let name = text(port, "name");
    if !name.is_empty() {
        errors.all_invalid(path.child("name"), name, names::dns_label(name));
    } else if named {
        errors.required(path.child("name"), "");
    }
    if let Some(problem) = names::port_number(number(port, "port")) {
        errors.invalid(path.child("port"), number(port, "port"), problem);
    }
    errors.one_of(path.child("protocol"), text(port, "protocol"), &["SCTP", "TCP", "UDP"]);
    if let Some(protocol) = port["appProtocol"].as_str() {
        errors.all_invalid(path.child("appProtocol"), protocol, names::qualified_name(protocol));
    }
}

/// Warns of odd spellings of addresses; the controller writes none.
fn warnings(object: &Value, _old: Option<&Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    if object["metadata"]["labels"]["endpoints.kubernetes.io/managed-by"] == "endpoint-controller" {
        return warnings;
    }
    let root = Path::root("subsets");
    for (index, subset) in list(object, "subsets").iter().enumerate() {
        let path = root.index(index);
        for field in ADDRESS_LISTS {
            let path = path.child(field);
            for (index, address) in list(subset, field).iter().enumerate() {
                let path = path.index(index);
                ip_rules::address_warnings(&mut warnings, path.child("ip"), text(address, "ip"));
            }
        }
    }
    warnings
}
