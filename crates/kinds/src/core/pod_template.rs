//! PodTemplates.

use crate::field::Path;
use crate::kind::{Kind, STANDARD_VERBS, Scope};
use crate::pod_spec;
use crate::printing::{NAME, Printer, containers, labels_of, name_of, string};
use crate::strategy::{Generation, Strategy};
use crate::validation::Validation;

pub(crate) static KIND: Kind = Kind {
    kind: "PodTemplate",
    plural: "podtemplates",
    singular: "podtemplate",
    scope: Scope::Namespaced,
    verbs: STANDARD_VERBS,
    storage_prefix: "podtemplates",
    defaults: |object| pod_spec::template_defaults(object.get_mut("template")),
    strategy: Strategy {
        returns_object_on_delete: true,
        generation: Generation::Template,
        warnings: |object, _| pod_spec::warnings("template.", &object["template"]),
        ..Strategy::PLAIN
    },
    validation: Validation {
        rules: |errors, object, _| pod_spec::template_rules(errors, Path::root("template"), &object["template"]),
        ..Validation::PLAIN
    },
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
