//! Numbers, times and events in words.

use std::collections::BTreeMap;

use crate::why::WakesOn;

/// A number with its digits in groups of three.
pub(super) fn number(n: usize) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of things.
pub(super) fn count(n: usize, one: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{} {one}s", number(n)) }
}

/// Some names, and how many more there are.
pub(super) fn some(names: &[String], shown: usize) -> String {
    let first = names.iter().take(shown).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(shown) {
        0 => first,
        more => format!("{first} and {} more", number(more)),
    }
}

/// Events by resource: `a Node is added; a Pod is deleted`.
pub(super) fn events(wakes_on: &[WakesOn]) -> Vec<String> {
    let mut by_resource: BTreeMap<&str, Vec<&'static str>> = BTreeMap::new();
    for event in wakes_on {
        let resource = event.resource.rsplit('/').next().unwrap_or(event.resource);
        let actions = by_resource.entry(resource).or_default();
        let action = words_of(event.action);
        if !actions.contains(&action) {
            actions.push(action);
        }
    }
    by_resource.into_iter().map(|(resource, actions)| format!("{resource}: {}", actions.join(", "))).collect()
}

fn words_of(action: &'static str) -> &'static str {
    match action {
        "Add" => "added",
        "Delete" => "deleted",
        "Update" => "updated",
        "All" => "any change",
        "UpdateNodeAllocatable" => "allocatable changes",
        "UpdateNodeLabel" => "labels change",
        "UpdateNodeTaint" => "taints change or it is uncordoned",
        "UpdateNodeCondition" => "conditions change",
        "UpdateNodeAnnotation" => "annotations change",
        "UpdateNodeDeclaredFeature" => "declared features change",
        "UpdatePodLabel" => "labels change",
        "UpdatePodScaleDown" => "requests shrink",
        "UpdatePodToleration" => "tolerations change",
        "UpdatePodSchedulingGatesEliminated" => "last scheduling gate removed",
        "UpdatePodGeneratedResourceClaim" => "its ResourceClaim is generated",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_digits_in_groups() {
        for (n, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(number(n), text);
        }
    }

    #[test]
    fn events_are_listed_by_resource() {
        let on = |resource, action| WakesOn { resource, action, plugin: "P" };
        let events = events(&[on("Node", "Add"), on("Pod", "Delete"), on("storage.k8s.io/CSINode", "Update")]);
        assert_eq!(events, ["CSINode: updated", "Node: added", "Pod: deleted"]);
    }
}
