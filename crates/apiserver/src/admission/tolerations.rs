//! DefaultTolerationSeconds: a pod stays for five minutes on a node that is not ready or unreachable.

use serde_json::{Value, json};

use super::{AdmissionContext, Operation, list, list_mut, text};

const SECONDS: u32 = 300;
const KEYS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

pub(super) fn admit(context: &AdmissionContext<'_>, pod: &mut Value) {
    if context.operation == Operation::Delete || !context.is("", "pods") || !pod["spec"].is_object() {
        return;
    }
    for key in KEYS {
        let tolerated = list(pod, "/spec/tolerations").any(|toleration| {
            matches!(text(toleration, "/effect"), "" | "NoExecute")
                && (text(toleration, "/key") == key || text(toleration, "/key").is_empty())
        });
        if !tolerated && let Some(tolerations) = list_mut(&mut pod["spec"], "tolerations") {
            tolerations
                .push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS}));
        }
    }
}
