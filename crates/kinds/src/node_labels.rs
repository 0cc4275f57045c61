//! Labels of nodes that have newer names, of which clients are warned. Upstream: `GetNodeLabelDeprecatedMessage`.

use serde_json::Value;

use crate::field::Path;
use crate::object::{list, text};

const DEPRECATED: [(&str, &str); 8] = [
    ("beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
    ("beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    ("failure-domain.beta.kubernetes.io/zone", "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"),
    ("beta.kubernetes.io/instance-type", "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    ("scheduler.alpha.kubernetes.io/preferAvoidPods", "deprecated since v1.22; use Taints and Tolerations instead"),
    ("node-role.kubernetes.io/master", "use \"node-role.kubernetes.io/control-plane\" instead"),
];

/// Why a label of nodes should not be used any more.
pub(crate) fn deprecation(key: &str) -> Option<&'static str> {
    DEPRECATED.iter().find(|(deprecated, _)| *deprecated == key).map(|(_, message)| *message)
}

/// Warns of such labels in expressions: those of a term of a node selector, or of a label selector.
pub(crate) fn expression_warnings(warnings: &mut Vec<String>, path: Path<'_>, selector: &Value) {
    let path = path.child("matchExpressions");
    for (index, expression) in list(selector, "matchExpressions").iter().enumerate() {
        let key = text(expression, "key");
        if let Some(message) = deprecation(key) {
            let path = path.index(index);
            warnings.push(format!("{}: {key} is {message}", path.child("key")));
        }
    }
}
