//! The five conditions in which a terminating namespace reports on its content.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::content::Outcome;

/// Type; reason and message on success; reason on failure; the failure.
type Row = (&'static str, (&'static str, &'static str), &'static str, Option<String>);

/// Sets the five conditions that follow from an attempt to empty the namespace.
pub(super) fn set_all(status: &mut Value, outcome: &Outcome, second: Timestamp) {
    let failure = match outcome.errors.len() {
        0 => None,
        count => {
            let texts: Vec<String> = outcome.errors.iter().map(ToString::to_string).collect();
            Some(format!("Failed to delete all resource types, {count} remaining: {}", texts.join(", ")))
        }
    };
    let list = |counts: &BTreeMap<String, usize>, word: &str| {
        let each: Vec<_> = counts.iter().map(|(what, n)| format!("{what} {word} {n} resource instances")).collect();
        (!each.is_empty()).then(|| each.join(", "))
    };
    let remaining = list(&outcome.remaining, "has").map(|what| format!("Some resources are remaining: {what}"));
    let finalizers = list(&outcome.finalizers, "in")
        .map(|what| format!("Some content in the namespace has finalizers remaining: {what}"));
    let rows: [Row; 5] = [
        (
            "NamespaceDeletionDiscoveryFailure",
            ("ResourcesDiscovered", "All resources successfully discovered"),
            "DiscoveryFailed",
            outcome.discovery_failure.clone(),
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
            "GroupVersionParsingFailed",
            None,
        ),
        (
            "NamespaceDeletionContentFailure",
            ("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
            "ContentDeletionFailed",
            failure,
        ),
        (
            "NamespaceContentRemaining",
            ("ContentRemoved", "All content successfully removed"),
            "SomeResourcesRemain",
            remaining,
        ),
        (
            "NamespaceFinalizersRemaining",
            ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
            "SomeFinalizersRemain",
            finalizers,
        ),
    ];
    for (kind, good, bad, trouble) in rows {
        let (truth, reason, message) = match trouble {
            Some(message) => ("True", bad, message),
            None => ("False", good.0, good.1.to_owned()),
        };
        set(status, kind, truth, reason, message, second);
    }
}

/// Replaces a condition in its place; the time moves only when the status does.
fn set(status: &mut Value, kind: &str, truth: &str, reason: &str, message: String, second: Timestamp) {
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(conditions) = status["conditions"].as_array_mut() else { return };
    let since = conditions.iter().find(|c| c["type"] == kind && c["status"] == truth);
    let since = since.map_or_else(|| json!(second), |c| c["lastTransitionTime"].clone());
    let condition =
        json!({"type": kind, "status": truth, "lastTransitionTime": since, "reason": reason, "message": message});
    match conditions.iter_mut().find(|c| c["type"] == kind) {
        Some(old) => *old = condition,
        None => conditions.push(condition),
    }
}
