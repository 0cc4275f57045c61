//! Objects that the pod waits for: claims, volumes and classes, made from what the pod or its claims say of them.

mod devices;
mod volumes;

use serde_json::{Value, json};

use super::obstacles::Obstacles;
use super::trial::{Draft, Trial};
use super::{Change, ChangeKind, cost};

/// Most ways that are tried to supply what is missing.
const WAYS_MAX: usize = 3;

/// One way to supply something that is missing.
#[derive(Clone, Debug, Default)]
pub(super) struct Supply {
    words: String,
    adds: Vec<Value>,
    /// Operations on a PersistentVolumeClaim of the pod, by its name.
    claim: Option<(String, Vec<Value>)>,
    /// Operations on the pod.
    pod: Vec<Value>,
}

/// Changes that supply everything that is missing, in one way each.
pub(super) fn changes(trial: &mut Trial<'_>, obstacles: &Obstacles) -> Vec<Change> {
    let mut needs: Vec<Vec<Supply>> = volumes::needs(trial, obstacles);
    needs.extend(devices::needs(trial));
    if needs.is_empty() || needs.iter().any(Vec::is_empty) {
        return Vec::new();
    }
    let ways = needs.iter().map(Vec::len).max().unwrap_or(0).min(WAYS_MAX);
    let way = |at: usize| needs.iter().filter_map(|need| need.get(at).or(need.last()).cloned()).collect();
    (0..ways)
        .map(way)
        .collect::<Vec<Vec<Supply>>>()
        .into_iter()
        .filter_map(|way| trial.prove(draft(trial, way)))
        .collect()
}

fn draft(trial: &Trial<'_>, supplies: Vec<Supply>) -> Draft {
    let mut words: Vec<String> = supplies.iter().map(|supply| supply.words.clone()).collect();
    words.dedup();
    let objects = supplies.iter().map(|supply| supply.adds.len() + usize::from(supply.claim.is_some())).sum::<usize>();
    let cost = cost::OBJECT.saturating_mul(objects as u64);
    let mut draft = Draft::new(ChangeKind::AddObject, cost, format!("add {}", words.join(", and ")));
    for supply in supplies {
        // Two volumes may name one claim.
        draft.adds.extend(supply.adds.into_iter().filter(|object| !draft.adds.contains(object)).collect::<Vec<_>>());
        draft.pod.extend(supply.pod);
        if let Some((claim, operations)) = supply.claim {
            draft = draft.patching("PersistentVolumeClaim", &trial.pod.metadata.namespace, &claim, operations);
        }
    }
    draft
}

/// The reference by which an object is known to be made for the pod.
fn owner(trial: &Trial<'_>) -> Value {
    json!([{"apiVersion": "v1", "kind": "Pod", "name": trial.pod.metadata.name, "uid": trial.pod.uid(),
        "controller": true, "blockOwnerDeletion": true}])
}
