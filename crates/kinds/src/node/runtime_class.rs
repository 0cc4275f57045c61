//! RuntimeClasses.

use serde_json::Value;

use crate::field::{ErrorList, GoValue, Path};
use crate::kind::{Kind, STANDARD_VERBS};
use crate::object::{list, text};
use crate::printing::{AGE, NAME, Printer, age_of, name_of, string};
use crate::strategy::Strategy;
use crate::validation::{MetadataRecheck, Validation};
use crate::{metadata, names, pod_spec};

pub(crate) static KIND: Kind = Kind {
    group: "node.k8s.io",
    kind: "RuntimeClass",
    plural: "runtimeclasses",
    singular: "runtimeclass",
    verbs: STANDARD_VERBS,
    storage_prefix: "runtimeclasses",
    strategy: Strategy { allow_create_on_update: true, allow_unconditional_update: false, ..Strategy::PLAIN },
    validation: Validation {
        any_finalizer: true,
        update_metadata: MetadataRecheck::AsNewAndChanged,
        rules,
        change_rules: |errors, new, old| errors.immutable(Path::root("handler"), &new["handler"], &old["handler"]),
        ..Validation::PLAIN
    },
    printer: Printer {
        columns: &[NAME, string("Handler"), AGE],
        cells: |object, now| vec![name_of(object), text(object, "handler").into(), age_of(object, now)],
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

fn rules(errors: &mut ErrorList, object: &Value, _old: Option<&Value>) {
    match text(object, "handler") {
        "" => errors.required(Path::root("handler"), ""),
        handler => errors.all_invalid(Path::root("handler"), handler, names::dns_label(handler)),
    }
    pod_spec::overhead_rules(errors, Path::root("overhead"), &object["overhead"]["podFixed"]);
    let (path, scheduling) = (Path::root("scheduling"), &object["scheduling"]);
    metadata::labels(errors, path.child("nodeSelector"), &scheduling["nodeSelector"]);
    let (path, tolerations) = (path.child("tolerations"), list(scheduling, "tolerations"));
    pod_spec::toleration_rules(errors, path, tolerations);
    // The first of equal ones is the one that counts.
    let mut seen: std::collections::BTreeSet<String> = std::collections::BTreeSet::new();
    for (index, toleration) in tolerations.iter().enumerate() {
        if !seen.insert(toleration.to_string()) {
            errors.duplicate(path.index(index), GoValue("io.k8s.api.core.v1.Toleration", toleration));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn classes_are_checked_and_their_handler_stays() {
        let class = |handler: &str, more: Value| {
            let mut class = json!({"metadata": {"name": "a", "resourceVersion": "1"}, "handler": handler});
            for (field, value) in more.as_object().into_iter().flatten() {
                class[field] = value.clone();
            }
            class
        };
        let twice = json!({"key": "a", "operator": "Exists"});
        for (handler, more, expected) in [
            ("runc", json!({}), ""),
            ("", json!({}), "handler: Required value"),
            ("Run_C", json!({}), "handler: Invalid value: \"Run_C\""),
            ("a", json!({"overhead": {"podFixed": {"cpu": "-1"}}}), "overhead.limits[cpu]: Invalid value: \"-1\""),
            (
                "a",
                json!({"scheduling": {"nodeSelector": {"a b": ""}}}),
                "scheduling.nodeSelector: Invalid value: \"a b\"",
            ),
            ("a", json!({"scheduling": {"tolerations": [twice, twice]}}), "scheduling.tolerations[1]: Duplicate value"),
        ] {
            let found: Vec<String> =
                KIND.validate_create(&class(handler, more)).iter().map(ToString::to_string).collect();
            assert_eq!(found.len(), usize::from(!expected.is_empty()), "{found:?}");
            assert!(found.iter().all(|error| error.starts_with(expected)), "{found:?}");
        }
        let found = KIND.validate_update("", &class("b", json!({})), &class("a", json!({})));
        assert_eq!(
            found.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["handler: Invalid value: \"b\": field is immutable"]
        );
    }
}
