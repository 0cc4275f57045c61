//! VolumeAttributesClasses.

use crate::kind::{Kind, STANDARD_VERBS};
use crate::object::text;
use crate::printing::{AGE, NAME, Printer, age_of, name_of, string};
use crate::strategy::Strategy;

pub(crate) static KIND: Kind = Kind {
    group: "storage.k8s.io",
    kind: "VolumeAttributesClass",
    plural: "volumeattributesclasses",
    singular: "volumeattributesclass",
    short_names: &["vac"],
    verbs: STANDARD_VERBS,
    storage_prefix: "volumeattributesclasses",
    strategy: Strategy { returns_object_on_delete: true, ..Strategy::PLAIN },
    printer: Printer {
        columns: &[NAME, string("DriverName"), AGE],
        cells: |object, now| vec![name_of(object), text(object, "driverName").into(), age_of(object, now)],
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};
