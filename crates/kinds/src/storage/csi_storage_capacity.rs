//! CSIStorageCapacities.

use crate::kind::{Kind, STANDARD_VERBS, Scope};
use crate::object::text;
use crate::printing::{NAME, Printer, name_of, or, string};
use crate::strategy::Strategy;

pub(crate) static KIND: Kind = Kind {
    group: "storage.k8s.io",
    kind: "CSIStorageCapacity",
    plural: "csistoragecapacities",
    singular: "csistoragecapacity",
    scope: Scope::Namespaced,
    verbs: STANDARD_VERBS,
    storage_prefix: "csistoragecapacities",
    strategy: Strategy { allow_unconditional_update: false, ..Strategy::PLAIN },
    printer: Printer {
        columns: &[NAME, string("StorageClassName"), string("Capacity")],
        cells: |object, _now| {
            let capacity = or(text(object, "capacity"), "<unset>");
            vec![name_of(object), text(object, "storageClassName").into(), capacity.into()]
        },
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};
