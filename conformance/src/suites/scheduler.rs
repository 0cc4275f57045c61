//! What the scheduler's suites share: a cluster from recorded objects, and answers in the recorded form.

use std::sync::{Arc, LazyLock};

use bayplan_model::pod::Pod;
use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::inspect::{Nominator, Profile};
use bayplan_scheduler::{Cluster, Nomination, Object, PodInfo, Registry, Status};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Mismatch;

/// A time after everything in the recordings.
pub(super) const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

static DEFAULT: LazyLock<Result<Arc<Profile>, String>> = LazyLock::new(|| build(&Configuration::default()));

fn build(configuration: &Configuration) -> Result<Arc<Profile>, String> {
    Profile::build(&configuration.profiles[0], &Registry::default()).map(Arc::new).map_err(|error| error.to_string())
}

/// The first profile of a recorded configuration; null is the default one.
pub(super) fn profile(config: &Value) -> Result<Arc<Profile>, Mismatch> {
    let built = match config {
        Value::Null => DEFAULT.clone(),
        config => Configuration::from_value(config.clone()).map_err(|e| e.to_string()).and_then(|c| build(&c)),
    };
    built.map_err(Mismatch::Unreadable)
}

/// The recorded objects as a cluster, and the pods among them that are nominated.
pub(super) fn cluster(objects: &Value) -> Result<(Cluster, Nominator), Mismatch> {
    let mut cluster = Cluster::new();
    let mut nominator = Nominator::default();
    for json in objects.as_array().into_iter().flatten() {
        let Some(object) = Object::decode(json) else { continue };
        let object = object?;
        if let Object::Pod(pod) = &object
            && pod.is_nominated()
            && !pod.is_terminal()
        {
            nominator.add(&Arc::new(PodInfo::new(pod.clone())), &Nomination::Keep);
        }
        cluster.store(object);
    }
    Ok((cluster, nominator))
}

/// A recorded pod.
pub(super) fn pod(json: &Value) -> Result<PodInfo, Mismatch> {
    Ok(PodInfo::new(Arc::new(Pod::deserialize(json)?)))
}

/// A status in the recorded form.
pub(super) fn status(status: &Status) -> Value {
    let mut reasons: Vec<&str> = status.reasons.iter().map(AsRef::as_ref).collect();
    reasons.sort_unstable();
    let mut answer = json!({"code": status.code.name()});
    if !reasons.is_empty() {
        answer["reasons"] = reasons.into();
    }
    if !status.plugin.is_empty() {
        answer["plugin"] = status.plugin.into();
    }
    answer
}

/// A sorted list of names.
pub(super) fn sorted<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> Value {
    let mut names: Vec<String> = names.into_iter().map(|name| name.as_ref().to_owned()).collect();
    names.sort();
    names.into()
}

/// What PostFilter answered in the recorded form: one message; a success names no plugin.
pub(super) fn post_filter(result: Status) -> Value {
    let message = result.message();
    let reasons = if message.is_empty() { Vec::new() } else { vec![message.into()] };
    let plugin = if result.is_success() { "" } else { result.plugin };
    status(&Status { reasons, plugin, ..result })
}
