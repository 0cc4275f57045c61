//! VolumeAttachments.

use jiff::Timestamp;
use serde_json::Value;

use crate::core::persistent_volume::{driver_name, inline_rules};
use crate::defaulting::{child, round_resource_list};
use crate::field::{ErrorList, GoValue, Path};
use crate::kind::{Kind, STANDARD_VERBS, Subresource};
use crate::object::{Object, given, text};
use crate::printing::{AGE, NAME, Printer, age_of, boolean, name_of, named, string};
use crate::strategy::{StatusRule, Strategy, status_keeps_metadata};
use crate::validation::{MetadataRecheck, Validation};
use crate::{names, pod_spec};

pub(crate) static KIND: Kind = Kind {
    group: "storage.k8s.io",
    kind: "VolumeAttachment",
    plural: "volumeattachments",
    singular: "volumeattachment",
    verbs: STANDARD_VERBS,
    subresources: &[Subresource::status("VolumeAttachment")],
    storage_prefix: "volumeattachments",
    defaults,
    strategy: Strategy {
        allow_unconditional_update: false,
        returns_object_on_delete: true,
        status: StatusRule::Owned,
        on_update: status_keeps_metadata,
        ..Strategy::PLAIN
    },
    validation: Validation {
        update_metadata: MetadataRecheck::AsNew,
        rules,
        change_rules,
        status_rules: |errors, new, old| {
            rules(errors, new, Some(old));
            change_rules(errors, new, old);
        },
        status_metadata: MetadataRecheck::AsNew,
        ..Validation::PLAIN
    },
    printer: Printer {
        columns: &[NAME, named(string("Attacher")), string("PV"), string("Node"), boolean("Attached"), AGE],
        cells,
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

fn defaults(object: &mut Object) {
    let source = child(object, "spec").and_then(|spec| child(spec, "source"));
    if let Some(volume) = source.and_then(|source| child(source, "inlineVolumeSpec")) {
        round_resource_list(volume, "capacity");
        pod_spec::source_defaults(volume);
    }
}

fn rules(errors: &mut ErrorList, object: &Value, _old: Option<&Value>) {
    let (path, spec) = (Path::root("spec"), &object["spec"]);
    driver_name(errors, path.child("attacher"), text(spec, "attacher"));
    let source = &spec["source"];
    let source_path = path.child("source");
    let name_path = source_path.child("persistentVolumeName");
    const ONE: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (source["persistentVolumeName"].as_str(), given(source, "inlineVolumeSpec")) {
        (None, false) => errors.required(source_path, ONE),
        (Some(_), true) => errors.forbidden(source_path, ONE),
        (Some(""), false) => errors.required(name_path, "must specify non empty persistentVolumeName"),
        (Some(_), false) => {}
        (None, true) => inline_rules(errors, source_path.child("inlineVolumeSpec"), &source["inlineVolumeSpec"]),
    }
    let node = text(spec, "nodeName");
    errors.all_invalid(path.child("nodeName"), node, names::dns_subdomain(node));
    status_limits(errors, &object["status"]);
    if let Some(name) = source["persistentVolumeName"].as_str() {
        errors.all_invalid(name_path, name, names::dns_subdomain(name));
    }
}

fn status_limits(errors: &mut ErrorList, status: &Value) {
    const METADATA_MAX: usize = 256 * 1024;
    const MESSAGE_MAX: usize = 1024;
    let path = Path::root("status");
    let metadata = status["attachmentMetadata"].as_object().into_iter().flatten();
    let bytes: usize = metadata.map(|(key, value)| key.len() + value.as_str().unwrap_or("").len()).sum();
    if bytes > METADATA_MAX {
        errors.too_long(path.child("attachmentMetadata"), METADATA_MAX);
    }
    for field in ["attachError", "detachError"] {
        let path = path.child(field);
        if text(&status[field], "message").len() > MESSAGE_MAX {
            // Upstream names the other limit.
            errors.too_long(path.child("message"), METADATA_MAX);
        }
        if let Some(code) = status[field]["errorCode"].as_i64().filter(|code| *code < 0) {
            errors.invalid(path.child("errorCode"), code, "must be between 0 and 2147483647, inclusive");
        }
    }
}

fn change_rules(errors: &mut ErrorList, new: &Value, old: &Value) {
    if new["spec"] != old["spec"] {
        let shown = GoValue("io.k8s.api.storage.v1.VolumeAttachmentSpec", &new["spec"]);
        errors.invalid(Path::root("spec"), shown, "field is immutable");
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &object["spec"];
    vec![
        name_of(object),
        text(spec, "attacher").into(),
        text(&spec["source"], "persistentVolumeName").into(),
        text(spec, "nodeName").into(),
        (object["status"]["attached"] == true).into(),
        age_of(object, now),
    ]
}
