//! What may change in a pod that still has scheduling gates (KEP-3838).

use serde_json::Value;

use crate::field::{ErrorList, GoValue, Path};
use crate::object::{Object, given, list, put};
use crate::pod_spec::REQUIRED;

/// The type of what it may narrow.
const TERM: &str = "io.k8s.api.core.v1.NodeSelectorTerm";

/// A gated pod may restrict where it can run, never extend it. Puts back what may change, so that `rest` must equal the
/// old spec.
pub(super) fn rules(errors: &mut ErrorList, path: Path<'_>, rest: &mut Object, old: &Value) {
    let selector = rest.get("nodeSelector").cloned().unwrap_or(Value::Null);
    if selector != old["nodeSelector"] {
        let kept = old["nodeSelector"].as_object().into_iter().flatten().all(|(key, value)| selector[key] == *value);
        if !kept {
            errors.invalid(
                path.child("nodeSelector"),
                &selector,
                "only additions to spec.nodeSelector are allowed (no mutations or deletions)",
            );
        }
        put(rest, "nodeSelector", old.get("nodeSelector"));
    }
    let node = rest.get("affinity").map_or(Value::Null, |affinity| affinity["nodeAffinity"].clone());
    let before = &old["affinity"]["nodeAffinity"];
    if node == *before {
        return;
    }
    let affinity_path = path.child("affinity");
    let node_path = affinity_path.child("nodeAffinity");
    let required_path = node_path.child(REQUIRED);
    let terms_path = required_path.child("nodeSelectorTerms");
    let (terms, old_terms) = (list(&node[REQUIRED], "nodeSelectorTerms"), list(&before[REQUIRED], "nodeSelectorTerms"));
    if !old_terms.is_empty() {
        if terms.len() != old_terms.len() {
            errors.invalid(
                terms_path,
                GoValue(TERM, &node[REQUIRED]["nodeSelectorTerms"]),
                "no additions/deletions to non-empty NodeSelectorTerms list are allowed",
            );
        } else {
            for (index, (term, old_term)) in terms.iter().zip(old_terms).enumerate() {
                let narrowed = ["matchExpressions", "matchFields"].iter().all(|field| {
                    let (new, old) = (list(term, field), list(old_term, field));
                    new.len() >= old.len() && new[..old.len()] == *old
                });
                let was_empty =
                    list(old_term, "matchExpressions").is_empty() && list(old_term, "matchFields").is_empty();
                if !narrowed || (was_empty && term != old_term) {
                    errors.invalid(
                        terms_path.index(index),
                        GoValue(TERM, term),
                        "only additions are allowed (no mutations or deletions)",
                    );
                }
            }
        }
    }
    match (rest.get_mut("affinity"), old.get("affinity")) {
        (None, None) => {}
        (None, Some(_)) => {
            rest.insert("affinity".into(), serde_json::json!({ "nodeAffinity": before }));
        }
        (Some(affinity), None) => {
            if !given(affinity, "podAffinity") && !given(affinity, "podAntiAffinity") {
                rest.remove("affinity");
            } else if let Value::Object(affinity) = affinity {
                affinity.remove("nodeAffinity");
            }
        }
        (Some(Value::Object(affinity)), Some(old)) => put(affinity, "nodeAffinity", old.get("nodeAffinity")),
        _ => {}
    }
}
