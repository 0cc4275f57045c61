//! Whether a write fits into a ResourceQuota, and what its usage is afterwards.
//!
//! What objects count for is [`bayplan_model::quota`], which the quota controller measures with as well.

use std::collections::{BTreeMap, BTreeSet};

use bayplan_model::quota::{Measured, Scope, Usage, add, is_counted_by, scopes};
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::pod_resources::amounts;
use crate::kind::Kind;
use crate::object::{given, list, text};

/// What every container must state once it is limited.
const COMPULSORY: [&str; 6] = ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];

/// The grace of a deletion is not over while a write is admitted: objects count as what they are.
const NOW: Timestamp = Timestamp::MIN;

fn is(kind: &Kind, plural: &str) -> bool {
    kind.group.is_empty() && kind.plural == plural
}

/// Whether a change of an object can change what it counts for.
pub fn measures_update(kind: &Kind, subresource: &str, new: &Value, old: &Value) -> bool {
    let has_deadline = |pod: &Value| pod["spec"]["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds >= 0);
    match subresource {
        "" if is(kind, "pods") => has_deadline(new) != has_deadline(old),
        "" if is(kind, "services") || is(kind, "persistentvolumeclaims") => true,
        "" => kind.group == "resource.k8s.io" && kind.plural == "resourceclaims",
        "resize" => is(kind, "pods"),
        _ => false,
    }
}

/// Whether objects of the kind are never counted: there are too many of them, and nobody keeps them.
pub fn is_ignored(kind: &Kind) -> bool {
    kind.plural == "events" && matches!(kind.group, "" | "events.k8s.io")
}

/// A write, measured.
#[derive(Clone, Debug)]
pub struct Change {
    new: Measured,
    old: Option<Measured>,
    usage: Usage,
    /// What the new object counts for beyond the old.
    growth: Usage,
}

impl Change {
    /// Measures a write; the error says why it cannot be measured.
    pub fn measure(kind: &Kind, new: &Value, old: Option<&Value>) -> Result<Self, String> {
        let read = |object: &Value| {
            let measured = Measured::read(kind.group, kind.plural, object);
            measured.map_err(|error| format!("what it uses cannot be read: {error}"))
        };
        let (new, old) = (read(new)?, old.map(read).transpose()?);
        let usage = new.usage(NOW);
        let negative: Vec<&str> = usage.iter().filter(|(_, a)| a.sign() < 0).map(|(name, _)| name.as_str()).collect();
        if !negative.is_empty() {
            return Err(format!("quota usage is negative for resource(s): {}", negative.join(",")));
        }
        let growth = match &old {
            Some(old) => growth(&usage, &old.usage(NOW)),
            None => usage.clone(),
        };
        Ok(Change { new, old, usage, growth })
    }

    /// Whether it adds nothing to any quota in whose scopes the old object is, too.
    fn added_to(&self, scopes: &[Scope]) -> Usage {
        let before = self.old.as_ref().is_some_and(|old| scopes.iter().all(|scope| old.is_in(scope)));
        let added = if before { &self.growth } else { &self.usage };
        added.iter().filter(|(_, amount)| !amount.is_zero()).map(|(n, a)| (n.clone(), a.clone())).collect()
    }

    /// The usage of a quota after the write; nothing when the quota does not change, or why the write does not fit.
    pub fn charge(&self, kind: &Kind, object: &Value, quota: &Value) -> Result<Option<Map<String, Value>>, String> {
        let scopes = scopes(&quota["spec"]);
        let hard = amounts(&quota["status"]["hard"]);
        let concerned: Vec<&str> =
            hard.keys().map(String::as_str).filter(|name| is_counted_by(kind.group, kind.plural, name)).collect();
        if concerned.is_empty() || !scopes.iter().all(|scope| self.new.is_in(scope)) {
            return Ok(None);
        }
        let name = text(&quota["metadata"], "name");
        check_stated(kind, object, &concerned).map_err(|why| format!("failed quota: {name}: {why}"))?;
        let used = amounts(&quota["status"]["used"]);
        if concerned.iter().any(|resource| !used.contains_key(*resource)) {
            return Err(format!("status unknown for quota: {name}, resources: {}", concerned.join(",")));
        }
        let added: Usage = self.added_to(&scopes).into_iter().filter(|(name, _)| hard.contains_key(name)).collect();
        if added.is_empty() {
            return Ok(None);
        }
        let mut after = used.clone();
        add(&mut after, &added);
        let exceeded: BTreeSet<&String> = added.keys().filter(|name| after.get(*name) > hard.get(*name)).collect();
        if !exceeded.is_empty() {
            let show = |amounts: &Usage| {
                let parts = exceeded.iter().filter_map(|key| Some(format!("{key}={}", amounts.get(*key)?)));
                parts.collect::<Vec<_>>().join(",")
            };
            let [requested, used, limited] = [show(&added), show(&used), show(&hard)];
            return Err(format!("exceeded quota: {name}, requested: {requested}, used: {used}, limited: {limited}"));
        }
        Ok(Some(after.into_iter().map(|(key, amount)| (key, amount.to_string().into())).collect()))
    }
}

/// What `new` is more than `old`. What became less is not given back here: the quota controller counts again.
fn growth(new: &Usage, old: &Usage) -> Usage {
    let more = |(name, amount): (&String, &bayplan_model::quantity::Quantity)| {
        let mut amount = amount.clone();
        if let Some(old) = old.get(name) {
            amount.sub(old);
        }
        (amount.sign() > 0).then(|| (name.clone(), amount))
    };
    new.iter().filter_map(more).collect()
}

/// Under a quota of cpu or memory, every container of a pod must say what it asks for, unless the pod does as a whole.
fn check_stated(kind: &Kind, object: &Value, concerned: &[&str]) -> Result<(), String> {
    let spec = &object["spec"];
    let stated_for_all = |part: &str| spec["resources"][part].as_object().is_some_and(|amounts| !amounts.is_empty());
    if !is(kind, "pods") || stated_for_all("requests") || stated_for_all("limits") {
        return Ok(());
    }
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for container in list(spec, "containers").iter().chain(list(spec, "initContainers")) {
        for name in COMPULSORY.into_iter().filter(|name| concerned.contains(name)) {
            let (part, resource) = name.split_once('.').unwrap_or(("requests", name));
            if !given(&container["resources"][part], resource) {
                missing.entry(name).or_default().insert(text(container, "name"));
            }
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let parts: Vec<String> = missing
        .iter()
        .map(|(name, containers)| format!("{name} for: {}", containers.iter().copied().collect::<Vec<_>>().join(",")))
        .collect();
    Err(format!("must specify {}", parts.join("; ")))
}
