//! RuntimeClasses.

use crate::kind::{Kind, STANDARD_VERBS};
use crate::object::text;
use crate::printing::{AGE, NAME, Printer, age_of, name_of, string};
use crate::strategy::Strategy;

pub(crate) static KIND: Kind = Kind {
    group: "node.k8s.io",
    kind: "RuntimeClass",
    plural: "runtimeclasses",
    singular: "runtimeclass",
    verbs: STANDARD_VERBS,
    storage_prefix: "runtimeclasses",
    strategy: Strategy { allow_create_on_update: true, allow_unconditional_update: false, ..Strategy::PLAIN },
    printer: Printer {
        columns: &[NAME, string("Handler"), AGE],
        cells: |object, now| vec![name_of(object), text(object, "handler").into(), age_of(object, now)],
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};
