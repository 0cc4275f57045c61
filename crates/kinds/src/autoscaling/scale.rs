//! Scales, the bodies of the `scale` subresource.

use crate::kind::{Kind, Scope};
use crate::object::number;
use crate::printing::{AGE, Printer, age_of, integer, name_of, string};

pub(crate) static KIND: Kind = Kind {
    group: "autoscaling",
    kind: "Scale",
    scope: Scope::Namespaced,
    printer: Printer {
        columns: &[string("Name"), integer("Desired"), integer("Available"), AGE],
        cells: |object, now| {
            let (desired, available) = (number(&object["spec"], "replicas"), number(&object["status"], "replicas"));
            vec![name_of(object), desired.into(), available.into(), age_of(object, now)]
        },
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};
