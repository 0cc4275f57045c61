//! The owners of a workload's replicas, seen through its `scale`.

use serde_json::{Value, json};

use super::fields::{self, Fields};
use super::managed::{self, Managers, Operation, Owned};

const SCALE_VERSION: &str = "autoscaling/v1";

fn replicas() -> (Fields, [String; 2]) {
    let set = json!({"f:spec": {"f:replicas": {}}});
    (set.as_object().cloned().unwrap_or_default(), ["f:spec".to_owned(), "f:replicas".to_owned()])
}

/// The entries of a scale: those of its workload that own the replicas.
pub fn to_scale(entries: &Value, version: &str) -> Value {
    let (set, path) = replicas();
    let managers = managed::read(entries.clone(), false).unwrap_or_default();
    let of_scale =
        managers.into_iter().filter(|(_, owned)| owned.api_version == version && fields::has(&owned.fields, &path));
    let of_scale = of_scale.map(|(identity, owned)| {
        (identity, Owned { api_version: SCALE_VERSION.to_owned(), fields: set.clone(), time: owned.time })
    });
    managed::write(of_scale.collect())
}

/// The entries of a workload after its scale was written.
pub fn from_scale(entries: &Value, of_scale: &Value, version: &str) -> Value {
    let (set, path) = replicas();
    let parents = managed::read(entries.clone(), false).unwrap_or_default();
    let mut of_scale = managed::read(of_scale.clone(), false).unwrap_or_default();
    let mut managers = Vec::new();
    let times: Managers = parents.clone();
    for (identity, mut owned) in parents {
        if owned.api_version != version {
            continue;
        }
        if fields::has(&owned.fields, &path) && of_scale.remove(&identity).is_none() {
            // Somebody has taken them through the scale.
            fields::subtract(&mut owned.fields, &set);
        }
        if !owned.fields.is_empty() {
            managers.push((identity, owned));
        }
    }
    for (identity, owned) in of_scale {
        if fields::has(&owned.fields, &path) {
            let time = times.get(&identity).and_then(|owned| owned.time.clone());
            managers.push((identity, Owned { api_version: version.to_owned(), time, fields: set.clone() }));
        }
    }
    merged(managers)
}

/// Upstream may write two entries of one manager here, of which it forgets one when it reads them again. They are
/// written as one.
fn merged(entries: Vec<(managed::Identity, Owned)>) -> Value {
    let mut managers = Managers::new();
    for (mut identity, owned) in entries {
        if identity.operation == Operation::Update {
            identity.api_version.clone_from(&owned.api_version);
        }
        match managers.get_mut(&identity) {
            Some(known) => fields::add(&mut known.fields, owned.fields),
            None => {
                managers.insert(identity, owned);
            }
        }
    }
    managed::write(managers)
}
