//! Ingresses.

mod rules;

use jiff::Timestamp;
use serde_json::Value;

use crate::kind::{Kind, STANDARD_VERBS, Scope, Subresource};
use crate::object::{given, list, text};
use crate::printing::{AGE, NAME, Printer, age_of, name_of, string};
use crate::strategy::{Generation, StatusRule, Strategy};
use crate::validation::{MetadataRecheck, Validation};

pub(crate) static KIND: Kind = Kind {
    group: "networking.k8s.io",
    kind: "Ingress",
    plural: "ingresses",
    singular: "ingress",
    scope: Scope::Namespaced,
    short_names: &["ing"],
    verbs: STANDARD_VERBS,
    subresources: &[Subresource::status("Ingress")],
    storage_prefix: "ingress",
    strategy: Strategy { status: StatusRule::Owned, generation: Generation::Spec, warnings, ..Strategy::PLAIN },
    validation: Validation {
        update_metadata: MetadataRecheck::AsNewAndChanged,
        rules: rules::spec,
        create_rules: rules::class_or_annotation,
        status_rules: rules::status,
        ..Validation::PLAIN
    },
    printer: Printer {
        columns: &[NAME, string("Class"), string("Hosts"), string("Address"), string("Ports"), AGE],
        cells,
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

/// The annotation that named the class before there was a field.
pub(crate) const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
/// Hosts shown before the rest is only counted.
const HOSTS_MAX: usize = 3;

fn warnings(object: &Value, old: Option<&Value>) -> Vec<String> {
    let annotated = given(&object["metadata"]["annotations"], CLASS_ANNOTATION);
    if old.is_some() || !annotated || given(&object["spec"], "ingressClassName") {
        return Vec::new();
    }
    vec![format!("annotation {CLASS_ANNOTATION:?} is deprecated, please use 'spec.ingressClassName' instead")]
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &object["spec"];
    let class = if given(spec, "ingressClassName") { text(spec, "ingressClassName") } else { "<none>" };
    let ports = if list(spec, "tls").is_empty() { "80" } else { "80, 443" };
    vec![
        name_of(object),
        class.into(),
        hosts(list(spec, "rules")).into(),
        addresses(&object["status"]["loadBalancer"]).into(),
        ports.into(),
        age_of(object, now),
    ]
}

/// The hosts of the rules; any host when they name none.
fn hosts(rules: &[Value]) -> String {
    let named = |rule: &&Value| !text(*rule, "host").is_empty();
    let shown: Vec<&str> = rules.iter().filter(named).take(HOSTS_MAX).map(|rule| text(rule, "host")).collect();
    if shown.is_empty() {
        return "*".to_owned();
    }
    let last = rules.iter().enumerate().filter(|(_, rule)| named(rule)).nth(HOSTS_MAX - 1).map(|(index, _)| index);
    // Rules without a host count among those that are not shown, as upstream's.
    if last.is_some_and(|last| rules.len() > last + 1) {
        format!("{} + {} more...", shown.join(","), rules.len() - HOSTS_MAX)
    } else {
        shown.join(",")
    }
}

fn addresses(balancer: &Value) -> String {
    let points = list(balancer, "ingress").iter();
    let address = |point| if text(point, "ip").is_empty() { text(point, "hostname") } else { text(point, "ip") };
    let mut all: Vec<&str> = points.map(address).filter(|address| !address.is_empty()).collect();
    all.sort_unstable();
    all.dedup();
    all.join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ingress(spec: Value) -> Value {
        json!({
            "kind": "Ingress", "apiVersion": "networking.k8s.io/v1",
            "metadata": {"name": "a", "namespace": "b", "resourceVersion": "1"}, "spec": spec,
        })
    }

    fn service(name: &str, port: Value) -> Value {
        json!({"service": {"name": name, "port": port}})
    }

    fn path(path_type: &str, path: &str) -> Value {
        let backend = service("s", json!({"number": 80}));
        json!({"rules": [{"http": {"paths": [{"path": path, "pathType": path_type, "backend": backend}]}}]})
    }

    #[test]
    fn rules_backends_and_secrets_are_checked() {
        let backend = |backend: Value| json!({"defaultBackend": backend});
        let host = |host: &str| json!({"rules": [{"host": host}]});
        for (spec, expected) in [
            (json!({}), Some("spec: Invalid value: null: either `defaultBackend` or `rules` must be specified")),
            (backend(service("s", json!({"number": 80}))), None),
            (backend(service("1s", json!({"name": "web"}))), None),
            (backend(service("", json!({"number": 80}))), Some("spec.defaultBackend.service.name: Required value")),
            (backend(service("s", json!({}))), Some("spec.defaultBackend: Required value: port name or number")),
            (backend(service("s", json!({"name": "a", "number": 1}))), Some("cannot set both port name & port number")),
            (backend(json!({})), Some("spec.defaultBackend: Invalid value: \"\": resource or service backend is")),
            (path("Exact", "/a"), None),
            (path("ImplementationSpecific", ""), None),
            (path("Exact", "a"), Some("path: Invalid value: \"a\": must be an absolute path")),
            (path("Prefix", "/a/../b"), Some("must not contain '/../'")),
            (path("Prefix", "/a/.."), Some("cannot end with '/..'")),
            (path("ImplementationSpecific", "/a//b"), None),
            (path("Regex", "/"), Some("supported values: \"Exact\", \"ImplementationSpecific\", \"Prefix\"")),
            (host("*.example.com"), None),
            (host("*.*.com"), Some("a wildcard DNS-1123 subdomain must start with '*.'")),
            (host("10.1.2.3"), Some("must be a DNS name, not an IP address")),
            (json!({"rules": [{}], "tls": [{"secretName": "A"}]}), Some("spec.tls[0].secretName: Invalid value")),
            (json!({"rules": [{}], "ingressClassName": ""}), Some("spec.ingressClassName: Invalid value: \"\"")),
        ] {
            let found = KIND.validate_create(&ingress(spec.clone()));
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            assert_eq!(found.len(), usize::from(expected.is_some()), "{spec}: {found:?}");
            assert!(expected.is_none_or(|expected| found[0].contains(expected)), "{spec}: {found:?}");
        }
    }

    #[test]
    fn what_was_stored_before_it_was_refused_may_stay() {
        let tls =
            |secret: &str, host: &str| ingress(json!({"rules": [{"host": host}], "tls": [{"secretName": secret}]}));
        assert_eq!(KIND.validate_update("", &tls("B", "x"), &tls("A", "y")), []);
        assert_eq!(KIND.validate_update("", &tls("B", "x"), &tls("a", "y")).len(), 1);
        let wildcard = |paths: Value| ingress(json!({"rules": [{"host": "*.x", "http": {"paths": paths}}]}));
        assert_eq!(KIND.validate_update("", &wildcard(json!([])), &wildcard(json!([]))), []);
        assert_eq!(KIND.validate_create(&wildcard(json!([]))).len(), 1);
    }

    #[test]
    fn hosts_and_addresses_are_columns() {
        let row = |spec: Value, status: Value| {
            let mut object = ingress(spec);
            object["status"] = status;
            let cells = KIND.row(&object, Timestamp::UNIX_EPOCH).cells;
            cells[1..5].iter().map(|cell| cell.as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(row(json!({}), Value::Null), ["<none>", "*", "", "80"]);
        let rules = |hosts: &[&str]| hosts.iter().map(|host| json!({"host": host})).collect::<Vec<_>>();
        let balancer = json!({"loadBalancer": {"ingress": [{"ip": "9.9.9.9"}, {"hostname": "h"}, {"ip": "1.1.1.1"}]}});
        assert_eq!(
            row(json!({"ingressClassName": "c", "tls": [{}], "rules": rules(&["a", "b", "c", "", "e"])}), balancer),
            ["c", "a,b,c + 2 more...", "1.1.1.1,9.9.9.9,h", "80, 443"]
        );
        assert_eq!(row(json!({"rules": rules(&["a", "", "c"])}), Value::Null)[1], "a,c");
    }
}
