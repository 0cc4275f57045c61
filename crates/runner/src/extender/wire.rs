//! The requests and answers of extenders: JSON with the names of upstream's Go fields, matched without case.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_model::node::Node;
use bayplan_model::pod::Pod;
use bayplan_scheduler::extender::{ExtenderFilterResult, HostPriority, MetaVictims, PassedNodes};
use bayplan_scheduler::{Candidate, NodeInfo, PodInfo};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::manifest::WithManifest;

/// Why a request cannot be built, or an answer not be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The scheduler has an object without its manifest.
    #[error("{0}: the manifest is not known")]
    NoManifest(String),
    /// The answer cannot be decoded.
    #[error("decoding the extender's answer: {0}")]
    Decode(#[from] serde_json::Error),
    /// The extender reports an error.
    #[error("{0}")]
    Answered(String),
}

fn text(text: &str) -> String {
    Value::from(text).to_string()
}

fn joined<'a>(items: impl Iterator<Item = Result<Cow<'a, str>, Error>>) -> Result<String, Error> {
    let mut list = String::new();
    for item in items {
        if !list.is_empty() {
            list.push(',');
        }
        list.push_str(&item?);
    }
    Ok(list)
}

/// The whole pod. An assumed pod is sent with its node, which its manifest does not have yet.
fn whole_pod(pod: &Pod) -> Result<Cow<'_, str>, Error> {
    let manifest = pod.manifest.as_deref().ok_or_else(|| Error::NoManifest(format!("pod {}", pod.metadata.key())))?;
    let node = &pod.spec.node_name;
    if node.is_empty() || manifest.contains(&format!("\"nodeName\":{}", text(node))) {
        return Ok(Cow::Borrowed(manifest));
    }
    let mut object: Value = serde_json::from_str(manifest)?;
    object["spec"]["nodeName"] = node.as_str().into();
    Ok(Cow::Owned(object.to_string()))
}

fn whole_node<'a>(node: &&'a NodeInfo) -> Result<Cow<'a, str>, Error> {
    let manifest = node.node().manifest.as_deref();
    manifest.map(Cow::Borrowed).ok_or_else(|| Error::NoManifest(format!("node {}", node.name)))
}

/// `ExtenderArgs`: the pod and the nodes to filter and score.
pub(super) fn arguments(pod: &PodInfo, nodes: &[&NodeInfo], names_only: bool) -> Result<String, Error> {
    let pod = whole_pod(pod)?;
    if names_only {
        let names = joined(nodes.iter().map(|node| Ok(text(&node.name).into())))?;
        return Ok(format!("{{\"Pod\":{pod},\"Nodes\":null,\"NodeNames\":[{names}]}}"));
    }
    let nodes = joined(nodes.iter().map(whole_node))?;
    Ok(format!("{{\"Pod\":{pod},\"Nodes\":{{\"metadata\":{{}},\"items\":[{nodes}]}},\"NodeNames\":null}}"))
}

/// `ExtenderPreemptionArgs`: the candidate nodes and their victims.
pub(super) fn preemption(pod: &PodInfo, candidates: &[Candidate], uids_only: bool) -> Result<String, Error> {
    let victims = |candidate: &Candidate| {
        let pods = joined(candidate.victims.iter().map(|victim| match uids_only {
            true => Ok(json!({ "UID": victim.uid() }).to_string().into()),
            false => whole_pod(victim),
        }))?;
        let (node, violations) = (text(&candidate.node), candidate.pdb_violations);
        Ok(format!("{node}:{{\"Pods\":[{pods}],\"NumPDBViolations\":{violations}}}").into())
    };
    let by_node = format!("{{{}}}", joined(candidates.iter().map(victims))?);
    let (whole, meta) = if uids_only { ("null", by_node.as_str()) } else { (by_node.as_str(), "null") };
    let pod = whole_pod(pod)?;
    Ok(format!("{{\"Pod\":{pod},\"NodeNameToVictims\":{whole},\"NodeNameToMetaVictims\":{meta}}}"))
}

/// `ExtenderBindingArgs`.
pub(super) fn binding(pod: &PodInfo, node: &str) -> String {
    let meta = &pod.metadata;
    json!({"PodName": meta.name, "PodNamespace": meta.namespace, "PodUID": meta.uid, "Node": node}).to_string()
}

/// The fields of a JSON object; as in Go, names are compared without case and null counts as absent.
struct Fields<'a>(BTreeMap<Cow<'a, str>, &'a RawValue>);

impl<'a> Fields<'a> {
    /// The first value of the text; the rest is ignored, as in Go.
    fn first(text: &'a [u8]) -> Result<Self, Error> {
        Self::of(<&RawValue>::deserialize(&mut serde_json::Deserializer::from_slice(text))?)
    }

    fn of(value: &'a RawValue) -> Result<Self, Error> {
        Ok(Fields(serde_json::from_str::<Option<_>>(value.get())?.unwrap_or_default()))
    }

    fn raw(&self, name: &str) -> Option<&'a RawValue> {
        let any_case = || self.0.iter().find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value);
        self.0.get(name).or_else(any_case).copied().filter(|value| value.get() != "null")
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Error> {
        Ok(self.raw(name).map(|value| serde_json::from_str(value.get())).transpose()?)
    }

    /// The elements of a list, or the entries of a map, not decoded yet.
    fn parts<C: Deserialize<'a> + Default>(&self, name: &str) -> Result<C, Error> {
        Ok(self.raw(name).map(|value| serde_json::from_str(value.get())).transpose()?.unwrap_or_default())
    }

    /// The error that the extender reports, if it does.
    fn succeeded(self) -> Result<Self, Error> {
        match self.read::<String>("Error")? {
            Some(error) if !error.is_empty() => Err(Error::Answered(error)),
            _ => Ok(self),
        }
    }
}

/// `ExtenderFilterResult`.
pub(super) fn filtered(answer: &[u8], names_only: bool) -> Result<ExtenderFilterResult, Error> {
    let answer = Fields::first(answer)?.succeeded()?;
    let names = if names_only { answer.read("NodeNames")? } else { None };
    let passed = match (names, answer.raw("Nodes")) {
        (Some(names), _) => PassedNodes::Names(names),
        (None, Some(list)) => PassedNodes::Nodes(nodes(&Fields::of(list)?)?),
        (None, None) => PassedNodes::default(),
    };
    Ok(ExtenderFilterResult {
        passed,
        failed: answer.read("FailedNodes")?.unwrap_or_default(),
        failed_and_unresolvable: answer.read("FailedAndUnresolvableNodes")?.unwrap_or_default(),
    })
}

fn nodes(list: &Fields<'_>) -> Result<Vec<Arc<Node>>, Error> {
    let items: Vec<WithManifest<Node>> = list.read("items")?.unwrap_or_default();
    Ok(items.into_iter().map(|node| node.0).collect())
}

/// `HostPriorityList`.
pub(super) fn priorities(answer: &[u8]) -> Result<Vec<HostPriority>, Error> {
    let list = Option::<Vec<&RawValue>>::deserialize(&mut serde_json::Deserializer::from_slice(answer))?;
    let priority = |value: &RawValue| {
        let fields = Fields::of(value)?;
        let (host, score) = (fields.read("Host")?.unwrap_or_default(), fields.read("Score")?.unwrap_or_default());
        Ok(HostPriority { host, score })
    };
    list.unwrap_or_default().into_iter().map(priority).collect()
}

/// `ExtenderPreemptionResult`, which always names pods by UID.
pub(super) fn victims(answer: &[u8]) -> Result<BTreeMap<String, MetaVictims>, Error> {
    let answer = Fields::first(answer)?;
    let by_node: BTreeMap<String, &RawValue> = answer.parts("NodeNameToMetaVictims")?;
    let meta = |(node, value): (String, &RawValue)| {
        let fields = Fields::of(value)?;
        let pods: Vec<&RawValue> = fields.parts("Pods")?;
        let uid = |pod: &RawValue| Ok(Fields::of(pod)?.read("UID")?.unwrap_or_default());
        let uids = pods.into_iter().map(uid).collect::<Result<_, Error>>()?;
        let pdb_violations = fields.read("NumPDBViolations")?.unwrap_or_default();
        Ok((node, MetaVictims { uids, pdb_violations }))
    };
    by_node.into_iter().map(meta).collect()
}

/// `ExtenderBindingResult`.
pub(super) fn bound(answer: &[u8]) -> Result<(), Error> {
    Fields::first(answer)?.succeeded().map(drop)
}
