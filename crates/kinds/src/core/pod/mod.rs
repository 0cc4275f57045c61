//! Pods.

mod cells;
mod defaults;
mod gated_update;
mod quality_of_service;
mod rules;
mod status_rules;
mod strategy;
mod subresource_rules;
#[cfg(test)]
mod tests;

use serde_json::Value;

use crate::kind::{CONNECT_VERBS, CREATE_ONLY, Kind, PROXY_VERBS, STANDARD_VERBS, STATUS_VERBS, Scope, Subresource};
use crate::pod_spec;
use crate::printing::{AGE, NAME, Printer, string, wide};
use crate::selectable_fields::{SelectableFields, text_at};
use crate::strategy::{Generation, StatusRule, Strategy};
use crate::validation::{MetadataRecheck, Validation};
use crate::verb::Verb;

pub(crate) static KIND: Kind = Kind {
    kind: "Pod",
    plural: "pods",
    singular: "pod",
    scope: Scope::Namespaced,
    short_names: &["po"],
    categories: &["all"],
    verbs: STANDARD_VERBS,
    subresources: &[
        Subresource::passed_on("attach", "PodAttachOptions", CONNECT_VERBS),
        Subresource { name: "binding", group: "", version: "", kind: "Binding", verbs: CREATE_ONLY },
        Subresource { name: "ephemeralcontainers", group: "", version: "", kind: "Pod", verbs: STATUS_VERBS },
        Subresource { name: "eviction", group: "policy", version: "v1", kind: "Eviction", verbs: CREATE_ONLY },
        Subresource::passed_on("exec", "PodExecOptions", CONNECT_VERBS),
        Subresource::passed_on("log", "Pod", &[Verb::Get]),
        Subresource::passed_on("portforward", "PodPortForwardOptions", CONNECT_VERBS),
        Subresource::passed_on("proxy", "PodProxyOptions", PROXY_VERBS),
        Subresource { name: "resize", group: "", version: "", kind: "Pod", verbs: STATUS_VERBS },
        Subresource::status("Pod"),
    ],
    storage_prefix: "pods",
    defaults: defaults::pod,
    strategy: Strategy {
        graceful_deletion: true,
        returns_object_on_delete: true,
        status: StatusRule::Owned,
        generation: Generation::Spec,
        selectable: SelectableFields { names: SELECTABLE, canonical, value, ..SelectableFields::NONE },
        early_warnings: pod_spec::annotation_warnings,
        on_create: strategy::on_create,
        on_update: strategy::on_update,
        warnings: |pod, old| if old.is_none() { strategy::create_warnings(pod) } else { Vec::new() },
        ..Strategy::PLAIN
    },
    validation: Validation {
        update_metadata: MetadataRecheck::AsNewAndChanged,
        rules: |errors, pod, _| pod_spec::pod_rules(errors, pod),
        create_rules: rules::create,
        change_rules: rules::change,
        status_rules: status_rules::rules,
        subresource_rules: &[
            ("ephemeralcontainers", subresource_rules::ephemeral_containers),
            ("resize", subresource_rules::resize),
        ],
        ..Validation::PLAIN
    },
    printer: Printer {
        columns: &[
            NAME,
            string("Ready"),
            string("Status"),
            string("Restarts"),
            AGE,
            wide("IP"),
            wide("Node"),
            wide("Nominated Node"),
            wide("Readiness Gates"),
        ],
        cells: cells::cells,
        conditions: cells::conditions,
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

const SELECTABLE: &[&str] = &[
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.podIPs",
    "status.nominatedNodeName",
];

/// `spec.host` is what the first clients called the node.
fn canonical(label: &str) -> &str {
    if label == "spec.host" { "spec.nodeName" } else { label }
}

fn value(pod: &Value, field: &str) -> String {
    match field {
        "spec.hostNetwork" => pod["spec"]["hostNetwork"].as_bool().unwrap_or(false).to_string(),
        "status.podIPs" => {
            let ips = pod["status"]["podIPs"].as_array().into_iter().flatten();
            ips.filter_map(|entry| entry["ip"].as_str()).collect::<Vec<_>>().join(",")
        }
        "status.podIP" => {
            let first = pod["status"]["podIPs"][0]["ip"].as_str();
            first.or_else(|| pod["status"]["podIP"].as_str()).unwrap_or("").to_owned()
        }
        _ => text_at(pod, field),
    }
}
