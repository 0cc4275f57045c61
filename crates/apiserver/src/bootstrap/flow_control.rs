//! FlowSchemas and PriorityLevelConfigurations, kept as upstream's ensurer keeps them: what is mandatory is restored,
//! what is suggested follows the annotation of the object.

use bayplan_kinds::flow_control::{BootstrapConfiguration, flow_schemas, priority_levels};
use bayplan_model::status::Status;
use serde_json::{Value, json};

use super::{BootstrapObject, Reconcile, bootstrap_object};

const GROUP: &str = "flowcontrol.apiserver.k8s.io";
/// Whether the server may change the spec of an object.
const AUTOUPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

/// The objects of the first moments.
pub(super) fn objects() -> Result<Vec<BootstrapObject>, Status> {
    let object = |plural: &str, wanted: BootstrapConfiguration| {
        let object = json!({
            "metadata": {"name": wanted.name, "annotations": {AUTOUPDATE: "true"}},
            "spec": wanted.spec,
        });
        bootstrap_object(GROUP, plural, "", Reconcile::Configuration { mandatory: wanted.mandatory }, object)
    };
    let levels = priority_levels().map(|level| object("prioritylevelconfigurations", level));
    levels.chain(flow_schemas().map(|schema| object("flowschemas", schema))).collect()
}

/// Whether an object says that the server keeps its spec, if it says so in a word that Go reads as a boolean.
pub(crate) fn is_automatic(object: &Value) -> Option<bool> {
    match object["metadata"]["annotations"][AUTOUPDATE].as_str()? {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Gives an object the spec it should have, if it is the server that decides.
pub(super) fn reconcile(found: &mut Value, wanted: &Value, mandatory: bool) {
    let generation = found["metadata"]["generation"].as_i64().unwrap_or(0);
    let said = is_automatic(found);
    // Without the annotation, what nobody has changed since it was made is still the server's.
    let automatic = mandatory || said.unwrap_or(generation == 1);
    if said != Some(automatic) {
        found["metadata"]["annotations"][AUTOUPDATE] = automatic.to_string().into();
    }
    if !automatic {
        return;
    }
    let mut spec = wanted["spec"].clone();
    // The shares of the exempt level are its users' to choose.
    if mandatory && spec["type"] == "Exempt" && found["spec"]["exempt"].is_object() {
        spec["exempt"] = found["spec"]["exempt"].clone();
    }
    if found["spec"] != spec {
        found["spec"] = spec;
        found["metadata"]["generation"] = generation.saturating_add(1).into();
    }
}
