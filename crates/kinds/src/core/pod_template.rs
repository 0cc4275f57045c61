//! PodTemplates.

use crate::kind::{Kind, STANDARD_VERBS, Scope};
use crate::pod_spec;
use crate::printing::{NAME, Printer, containers, labels_of, name_of, string};
use crate::strategy::{Generation, Strategy};

pub(crate) static KIND: Kind = Kind {
    kind: "PodTemplate",
    plural: "podtemplates",
    singular: "podtemplate",
    scope: Scope::Namespaced,
    verbs: STANDARD_VERBS,
    storage_prefix: "podtemplates",
    defaults: |object| pod_spec::template_defaults(object.get_mut("template")),
    strategy: Strategy { returns_object_on_delete: true, generation: Generation::Fixed, ..Strategy::PLAIN },
    printer: Printer {
        columns: &[NAME, string("Containers"), string("Images"), string("Pod Labels")],
        cells: |object, _now| {
            let template = &object["template"];
            let (names, images) = containers(&template["spec"]);
            vec![name_of(object), names, images, labels_of(&template["metadata"]["labels"])]
        },
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};
