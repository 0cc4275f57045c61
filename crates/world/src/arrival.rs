//! Whether everything has arrived: what a cluster looks like that has come to rest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bayplan_client::Cache;
use bayplan_model::api::Resource;
use bayplan_model::meta::PartialObjectMetadata;
use bayplan_store::Entry;
use serde_json::Value;

use crate::ledger::Ledger;
use crate::user::HOSTILE;

/// A cluster as the store has it.
struct Cluster<'a> {
    state: &'a BTreeMap<Arc<str>, Entry>,
    problems: Vec<String>,
}

/// What has not arrived yet.
pub(crate) fn problems(ledger: &Ledger) -> Vec<String> {
    let mut cluster = Cluster { state: &ledger.state, problems: Vec::new() };
    cluster.check_workloads();
    cluster.check_pods();
    cluster.check_services();
    cluster.check_rest();
    cluster.problems
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

impl Cluster<'_> {
    fn objects(&self, prefix: &str) -> Vec<(String, Value)> {
        let start = format!("/registry/{prefix}/");
        let range = self.state.range::<str, _>((std::ops::Bound::Included(&*start), std::ops::Bound::Unbounded));
        range
            .take_while(|(key, _)| key.starts_with(&start))
            .filter_map(|(key, entry)| Some((key[10..].to_owned(), serde_json::from_slice(&entry.value).ok()?)))
            .collect()
    }

    /// The status of a workload tells of its last change, and its numbers are what was asked for.
    fn expect(&mut self, name: &str, object: &Value, wanted: i64, fields: &[&str]) {
        let status = &object["status"];
        if number(&status["observedGeneration"]) != number(&object["metadata"]["generation"]) {
            self.problems.push(format!("{name} was changed, and nobody has looked at it"));
        }
        for field in fields.iter().filter(|field| number(&status[**field]) != wanted) {
            let is = number(&status[*field]);
            self.problems.push(format!("{name} has {field} {is} of {wanted}"));
        }
    }

    fn check_workloads(&mut self) {
        for (name, object) in self.objects("deployments") {
            let wanted = number(&object["spec"]["replicas"]);
            self.expect(&name, &object, wanted, &["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"]);
        }
        for (name, object) in self.objects("replicasets") {
            let wanted = number(&object["spec"]["replicas"]);
            self.expect(&name, &object, wanted, &["replicas", "readyReplicas", "availableReplicas"]);
        }
        for (name, object) in self.objects("statefulsets") {
            let wanted = number(&object["spec"]["replicas"]);
            self.expect(&name, &object, wanted, &["replicas", "readyReplicas", "updatedReplicas"]);
        }
        let nodes = self.objects("minions").len() as i64;
        for (name, object) in self.objects("daemonsets") {
            self.expect(&name, &object, nodes, &["desiredNumberScheduled", "numberReady", "updatedNumberScheduled"]);
        }
        for (name, object) in self.objects("jobs") {
            let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
            if !conditions.any(|condition| condition["type"] == "Complete" && condition["status"] == "True") {
                self.problems.push(format!("{name} is not complete"));
            }
        }
    }

    /// No pod is forgotten: each runs, or has ended, and belongs to somebody who wants it.
    fn check_pods(&mut self) {
        let owners: BTreeMap<String, i64> = ["replicasets", "statefulsets", "daemonsets", "jobs"]
            .iter()
            .flat_map(|kind| self.objects(kind))
            .map(|(_, owner)| (text(&owner["metadata"]["uid"]).to_owned(), number(&owner["spec"]["replicas"])))
            .collect();
        let nodes: BTreeSet<String> =
            self.objects("minions").iter().map(|(_, node)| text(&node["metadata"]["name"]).to_owned()).collect();
        let mut owned: BTreeMap<String, i64> = BTreeMap::new();
        for (name, pod) in self.objects("pods") {
            let phase = text(&pod["status"]["phase"]);
            let over = matches!(phase, "Succeeded" | "Failed");
            if !pod["metadata"]["deletionTimestamp"].is_null() {
                self.problems.push(format!("{name} is still terminating"));
            } else if !pod["metadata"]["labels"][HOSTILE].is_null() {
                self.problems.push(format!("{name} is still there"));
            } else if !(over || phase == "Running" && is_ready(&pod)) {
                self.problems.push(format!("{name} is {phase} on {:?}", text(&pod["spec"]["nodeName"])));
            } else if !over && !nodes.contains(text(&pod["spec"]["nodeName"])) {
                self.problems.push(format!("{name} runs on a node that is gone"));
            }
            let owner = &pod["metadata"]["ownerReferences"][0]["uid"];
            match owners.get(text(owner)) {
                None if !owner.is_null() => self.problems.push(format!("{name} outlives its owner")),
                _ if !over => *owned.entry(text(owner).to_owned()).or_default() += 1,
                _ => {}
            }
        }
        for (name, set) in self.objects("replicasets").into_iter().chain(self.objects("statefulsets")) {
            let (uid, wanted) = (text(&set["metadata"]["uid"]), number(&set["spec"]["replicas"]));
            let has = owned.get(uid).copied().unwrap_or(0);
            if has != wanted {
                self.problems.push(format!("{name} has {has} pods of {wanted}"));
            }
        }
    }

    /// Slices name the pods that are ready.
    fn check_services(&mut self) {
        let (pods, slices) = (self.objects("pods"), self.objects("endpointslices"));
        for (name, service) in self.objects("services/specs") {
            let Some(app) = service["spec"]["selector"]["app"].as_str() else { continue };
            let (namespace, plain) = (&service["metadata"]["namespace"], text(&service["metadata"]["name"]));
            let serves = |pod: &Value| {
                pod["metadata"]["labels"]["app"] == app && pod["metadata"]["namespace"] == *namespace && is_ready(pod)
            };
            let wanted: BTreeSet<&str> =
                pods.iter().filter(|(_, pod)| serves(pod)).map(|(_, pod)| text(&pod["metadata"]["uid"])).collect();
            let of_it = |slice: &Value| slice["metadata"]["labels"]["kubernetes.io/service-name"] == plain;
            let ends =
                slices.iter().filter(|(_, slice)| of_it(slice)).flat_map(|(_, slice)| slice["endpoints"].as_array());
            let ready = ends.flatten().filter(|end| end["conditions"]["ready"] == true);
            let named: BTreeSet<&str> = ready.map(|end| text(&end["targetRef"]["uid"])).collect();
            if named != wanted {
                self.problems.push(format!("the slices of {name} name {} pods of {}", named.len(), wanted.len()));
            }
        }
    }

    fn check_rest(&mut self) {
        for (name, node) in self.objects("minions") {
            if !is_ready(&node) {
                self.problems.push(format!("{name} is not ready"));
            }
        }
        let namespaces = self.objects("namespaces");
        for (name, namespace) in &namespaces {
            if namespace["status"]["phase"] != "Active" {
                self.problems.push(format!("{name} is still {}", text(&namespace["status"]["phase"])));
            }
        }
        let maps = self.objects("configmaps");
        for (name, map) in maps {
            if !map["metadata"]["labels"][HOSTILE].is_null() {
                self.problems.push(format!("{name} is still there"));
            }
        }
        for (name, budget) in self.objects("poddisruptionbudgets") {
            let app = text(&budget["spec"]["selector"]["matchLabels"]["app"]).to_owned();
            let healthy = self
                .objects("pods")
                .iter()
                .filter(|(_, pod)| pod["metadata"]["labels"]["app"] == *app && is_ready(pod))
                .count();
            if number(&budget["status"]["currentHealthy"]) != healthy as i64 {
                self.problems
                    .push(format!("{name} counts {} of {healthy} healthy pods", budget["status"]["currentHealthy"]));
            }
        }
    }
}

/// The caches of an informer equal the store.
pub(crate) fn stale_caches(ledger: &Ledger, caches: &[(Resource, Cache<PartialObjectMetadata>)]) -> Vec<String> {
    let mut stale = Vec::new();
    for (resource, cache) in caches {
        let prefix = match &*resource.plural {
            "nodes" => "minions",
            "services" => "services/specs",
            plural => plural,
        };
        let start = format!("/registry/{prefix}/");
        let stored = ledger.state.iter().filter(|(key, _)| key.starts_with(&start));
        let stored: BTreeSet<(String, u64)> =
            stored.map(|(key, entry)| (key[start.len()..].to_owned(), entry.mod_revision)).collect();
        let known = cache.list();
        let known: BTreeSet<(String, u64)> = known
            .iter()
            .map(|object| {
                let meta = &object.metadata;
                let slash = if meta.namespace.is_empty() { "" } else { "/" };
                let key = format!("{}{slash}{}", meta.namespace, meta.name);
                (key, meta.resource_version.parse().unwrap_or(0))
            })
            .collect();
        if let Some(difference) = stored.symmetric_difference(&known).next() {
            stale.push(format!("an informer of {} differs from the store in {difference:?}", resource.plural));
        }
    }
    stale
}
