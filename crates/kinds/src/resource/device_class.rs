//! DeviceClasses.

use crate::kind::{Kind, STANDARD_VERBS};
use crate::printing::Printer;
use crate::strategy::{Generation, Strategy};

pub(crate) static KIND: Kind = Kind {
    group: "resource.k8s.io",
    kind: "DeviceClass",
    plural: "deviceclasses",
    singular: "deviceclass",
    verbs: STANDARD_VERBS,
    storage_prefix: "deviceclasses",
    strategy: Strategy { returns_object_on_delete: true, generation: Generation::Spec, ..Strategy::PLAIN },
    printer: Printer::NAME_AND_AGE,
    ..Kind::PLAIN
};
