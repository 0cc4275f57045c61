//! IPAddresses: one for each cluster IP, created before the service it belongs to. Its name is the lock.

use serde_json::Value;

use crate::field::{ErrorList, GoValue, Path};
use crate::kind::{Kind, STANDARD_VERBS};
use crate::object::{given, text};
use crate::printing::{NAME, Printer, age_of, name_of, string};
use crate::validation::{MetadataCheck, MetadataRecheck, Validation};
use crate::{ip_rules, names};

pub(crate) static KIND: Kind = Kind {
    group: "networking.k8s.io",
    kind: "IPAddress",
    plural: "ipaddresses",
    singular: "ipaddress",
    short_names: &["ip"],
    verbs: STANDARD_VERBS,
    storage_prefix: "ipaddresses",
    validation: Validation {
        update_metadata: MetadataRecheck::AsNewAndChanged,
        metadata: MetadataCheck::First(ip_rules::address_problems),
        rules,
        change_rules,
        ..Validation::PLAIN
    },
    printer: Printer {
        columns: &[NAME, string("ParentRef")],
        // The age has no column upstream, either.
        cells: |object, now| vec![name_of(object), shown_parent(&object["spec"]).into(), age_of(object, now)],
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

fn rules(errors: &mut ErrorList, object: &Value, _old: Option<&Value>) {
    let spec = Path::root("spec");
    let path = spec.child("parentRef");
    if !given(&object["spec"], "parentRef") {
        errors.required(path, "");
        return;
    }
    let parent = &object["spec"]["parentRef"];
    // The group of services is empty.
    let group = text(parent, "group");
    if !group.is_empty() {
        errors.all_invalid(path.child("group"), group, names::dns_subdomain(group));
    }
    for (field, required) in [("resource", true), ("name", true), ("namespace", false)] {
        let value = text(parent, field);
        if !value.is_empty() {
            errors.all_invalid(path.child(field), value, names::path_segment(value));
        } else if required {
            errors.required(path.child(field), "");
        }
    }
}

fn change_rules(errors: &mut ErrorList, new: &Value, old: &Value) {
    let (new, old) = (&new["spec"]["parentRef"], &old["spec"]["parentRef"]);
    if new != old {
        let spec = Path::root("spec");
        errors.invalid(
            spec.child("parentRef"),
            GoValue("io.k8s.api.networking.v1.ParentReference", new),
            "field is immutable",
        );
    }
}

/// `services/default/kubernetes`, with the group behind a dot.
fn shown_parent(spec: &Value) -> String {
    if !given(spec, "parentRef") {
        return "<none>".to_owned();
    }
    let parent = &spec["parentRef"];
    let mut shown = text(parent, "resource").to_lowercase();
    for (separator, field) in [(".", "group"), ("/", "namespace"), ("/", "name")] {
        let part = text(parent, field);
        if !part.is_empty() {
            shown.push_str(separator);
            shown.push_str(part);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    fn address(name: &str, parent: Value) -> Value {
        json!({
            "kind": "IPAddress", "apiVersion": "networking.k8s.io/v1",
            "metadata": {"name": name, "resourceVersion": "1"},
            "spec": {"parentRef": parent},
        })
    }

    fn errors(object: &Value) -> Vec<String> {
        KIND.validate_create(object).iter().map(|error| format!("{}: {}", error.field, error.message)).collect()
    }

    #[test]
    fn a_name_is_an_address_in_its_one_spelling() {
        let parent = json!({"resource": "services", "namespace": "a", "name": "b"});
        for good in ["10.0.0.1", "fd00::1"] {
            assert_eq!(errors(&address(good, parent.clone())), [""; 0], "{good}");
        }
        for (bad, why) in [
            ("fd00:0::1", "must be in canonical form (\"fd00::1\")"),
            ("10.0.0.01", "must not have leading 0s"),
            ("here", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
        ] {
            let found = errors(&address(bad, parent.clone()));
            assert!(found.len() == 1 && found[0].contains(why), "{bad}: {found:?}");
        }
    }

    #[test]
    fn a_parent_is_required_and_never_changes() {
        assert_eq!(errors(&address("10.0.0.1", Value::Null)).len(), 1);
        let found = errors(&address("10.0.0.1", json!({"group": "A", "namespace": "a/b"})));
        let fields: Vec<&str> = found.iter().filter_map(|error| error.split(": ").next()).collect();
        assert_eq!(
            fields,
            ["spec.parentRef.group", "spec.parentRef.resource", "spec.parentRef.name", "spec.parentRef.namespace"]
        );
        let old = address("10.0.0.1", json!({"resource": "services", "namespace": "a", "name": "b"}));
        let new = address("10.0.0.1", json!({"resource": "services", "namespace": "a", "name": "c"}));
        assert_eq!(KIND.validate_update("", &old, &old).len(), 0);
        assert_eq!(KIND.validate_update("", &new, &old)[0].field, "spec.parentRef");
    }

    #[test]
    fn the_parent_is_a_column() {
        let row = |parent: Value| KIND.row(&address("10.0.0.1", parent), Timestamp::UNIX_EPOCH).cells[1].clone();
        assert_eq!(row(json!({"resource": "services", "namespace": "a", "name": "b"})), "services/a/b");
        assert_eq!(row(json!({"group": "x.io", "resource": "Gates", "name": "b"})), "gates.x.io/b");
        assert_eq!(row(Value::Null), "<none>");
    }
}
