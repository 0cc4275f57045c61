//! Secrets.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;

use super::config_map::{DATA_MAX_BYTES, immutable_data};
use crate::defaulting::{child_or_new, default};
use crate::field::{ErrorList, Path};
use crate::kind::{Kind, STANDARD_VERBS, Scope};
use crate::names;
use crate::object::{Object, given, text};
use crate::printing::{AGE, NAME, Printer, age_of, entries, name_of, string};
use crate::selectable_fields::SelectableFields;
use crate::strategy::{Strategy, restore};
use crate::validation::{MetadataRecheck, Validation};

pub(crate) static KIND: Kind = Kind {
    kind: "Secret",
    plural: "secrets",
    singular: "secret",
    scope: Scope::Namespaced,
    verbs: STANDARD_VERBS,
    storage_prefix: "secrets",
    defaults,
    strategy: Strategy { selectable: SelectableFields::texts(&["type"]), on_update, ..Strategy::PLAIN },
    validation: Validation {
        update_metadata: MetadataRecheck::AsNewAndChanged,
        rules,
        change_rules,
        ..Validation::PLAIN
    },
    printer: Printer {
        columns: &[NAME, string("Type"), string("Data"), AGE],
        cells: |object, now| {
            vec![name_of(object), text(object, "type").into(), entries(object, "data").into(), age_of(object, now)]
        },
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

fn defaults(object: &mut Object) {
    default(object, "type", "Opaque");
    // `stringData` is write-only: it becomes data, and wins over data of the same key.
    if let Some(Value::Object(texts)) = object.remove("stringData")
        && let Some(data) = child_or_new(object, "data")
    {
        for (key, value) in texts {
            let bytes = value.as_str().unwrap_or("").as_bytes();
            data.insert(key, STANDARD.encode(bytes).into());
        }
    }
}

fn on_update(object: &mut Object, old: &Value, _subresource: &str, _now: Timestamp) {
    if object.get("type").and_then(Value::as_str).unwrap_or("").is_empty() {
        restore(object, old, "type");
    }
}

fn rules(errors: &mut ErrorList, object: &Value, _old: Option<&Value>) {
    let path = Path::root("data");
    let mut bytes = 0;
    for (key, value) in object["data"].as_object().into_iter().flatten() {
        errors.all_invalid(path.key(key), key, names::config_key(key));
        bytes += value.as_str().unwrap_or("").len() / 4 * 3;
    }
    if bytes > DATA_MAX_BYTES {
        errors.too_long(path, DATA_MAX_BYTES);
    }
    let mut need = |key: &'static str| {
        if !given(&object["data"], key) {
            errors.required(path.key(key), "");
        }
    };
    match text(object, "type") {
        "kubernetes.io/dockercfg" => need(".dockercfg"),
        "kubernetes.io/dockerconfigjson" => need(".dockerconfigjson"),
        "kubernetes.io/ssh-auth" => need("ssh-privatekey"),
        "kubernetes.io/tls" => {
            need("tls.crt");
            need("tls.key");
        }
        "kubernetes.io/basic-auth" if !given(&object["data"], "username") && !given(&object["data"], "password") => {
            need("username");
            need("password");
        }
        "kubernetes.io/service-account-token"
            if text(&object["metadata"]["annotations"], "kubernetes.io/service-account.name").is_empty() =>
        {
            let metadata = Path::root("metadata");
            let annotations = metadata.child("annotations");
            errors.required(annotations.key("kubernetes.io/service-account.name"), "");
        }
        _ => {}
    }
}

fn change_rules(errors: &mut ErrorList, new: &Value, old: &Value) {
    errors.immutable(Path::root("type"), &new["type"], &old["type"]);
    immutable_data(errors, new, old, &["data"]);
}
