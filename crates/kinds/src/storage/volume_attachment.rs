//! VolumeAttachments.

use jiff::Timestamp;
use serde_json::Value;

use crate::defaulting::{child, round_resource_list};
use crate::kind::{Kind, STANDARD_VERBS, Subresource};
use crate::object::{Object, text};
use crate::pod_spec;
use crate::printing::{AGE, NAME, Printer, age_of, boolean, name_of, named, string};
use crate::strategy::{StatusRule, Strategy, status_keeps_metadata};

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
