//! DefaultTolerationSeconds: a pod stays for five minutes on a node that is not ready or unreachable.

use serde_json::{Value, json};

use crate::defaulting::list_or_new;
use crate::object::{list, text};

const SECONDS: u32 = 300;
const KEYS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// Tolerates both conditions of the node, unless the pod says for how long itself.
pub fn add_default_tolerations(pod: &mut Value) {
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return };
    for key in KEYS {
        let tolerated = list(spec, "tolerations").iter().any(|toleration| {
            matches!(text(toleration, "effect"), "" | "NoExecute")
                && (text(toleration, "key") == key || text(toleration, "key").is_empty())
        });
        if !tolerated && let Some(tolerations) = list_or_new(spec, "tolerations") {
            tolerations
                .push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS}));
        }
    }
}
