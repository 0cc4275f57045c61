//! The objects every cluster starts with: made when missing, brought up to date on every start, otherwise left alone.

use std::net::{IpAddr, Ipv4Addr};

use bayplan_model::status::{Status, reason};
use futures::future::try_join_all;
use serde_json::{Value, json};

use crate::authz::escalation::uncovered;
use crate::authz::policy::Rule;
use crate::registry::Objects;
use crate::resources::{self, Resource};
use crate::status_errors;

mod roles;

/// What the objects depend on.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the API server can be reached.
    pub advertise_address: IpAddr,
    /// On which port.
    pub advertise_port: u16,
    /// The authority of client certificates (PEM), published for API extensions.
    pub client_authority: String,
    /// Fill in the rules of `admin`, `edit` and `view`, as upstream's clusterrole-aggregation controller does.
    pub aggregate_roles: bool,
}

const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];
const PRIORITY_CLASSES: [(&str, i64, &str); 2] = [
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
];
const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// How an object that is there already is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Upkeep {
    /// It may be what its owner made of it.
    Leave,
    /// These fields are ours.
    Fields(&'static [&'static str]),
    /// Missing rules are added, additional ones stay.
    Rules,
    /// Missing subjects are added, additional ones stay.
    Subjects,
}

/// One object the cluster starts with.
struct Seed {
    resource: &'static Resource,
    namespace: &'static str,
    object: Value,
    upkeep: Upkeep,
}

/// Makes and mends the objects, with the address the `kubernetes` service is to have; answers how many were written.
pub async fn ensure(objects: &dyn Objects, service_address: Ipv4Addr, options: &Options) -> Result<usize, Status> {
    // Namespaces first: the others live in them. Then all at once, so that they share the store's fsyncs.
    let mut written = 0;
    for seeds in [namespaces()?, rest(service_address, options)?] {
        written +=
            try_join_all(seeds.iter().map(|seed| plant(objects, seed))).await?.into_iter().filter(|w| *w).count();
    }
    Ok(written)
}

async fn plant(objects: &dyn Objects, seed: &Seed) -> Result<bool, Status> {
    let name = seed.object["metadata"]["name"].as_str().unwrap_or_default();
    let Some(found) = objects.get(seed.resource, seed.namespace, name).await? else {
        return match objects.create(seed.resource, seed.namespace, seed.object.clone()).await {
            Ok(_) => Ok(true),
            // Another server was faster.
            Err(status) if status.is(reason::ALREADY_EXISTS) => Ok(false),
            Err(status) => Err(status),
        };
    };
    let mut mended = Value::clone(&found);
    mend(&mut mended, seed);
    if mended == *found {
        return Ok(false);
    }
    let mut change = |object: &mut Value| {
        mend(object, seed);
        Ok(())
    };
    objects.update(seed.resource, seed.namespace, name, &mut change).await?;
    Ok(true)
}

fn mend(found: &mut Value, seed: &Seed) {
    match seed.upkeep {
        Upkeep::Leave => {}
        Upkeep::Fields(fields) => {
            for field in fields {
                found[*field] = seed.object[*field].clone();
            }
        }
        Upkeep::Rules | Upkeep::Subjects if found["metadata"]["annotations"][AUTOUPDATE] == "false" => {}
        Upkeep::Rules => {
            let rules = |role: &Value| serde_json::from_value::<Vec<Rule>>(role["rules"].clone()).unwrap_or_default();
            let (held, wanted) = (rules(found), rules(&seed.object));
            let held: Vec<&Rule> = held.iter().collect();
            let missing: Vec<Rule> =
                wanted.into_iter().filter(|rule| !uncovered(&held, std::slice::from_ref(rule)).is_empty()).collect();
            append(found, "rules", missing.into_iter().map(|rule| json!(rule)));
        }
        Upkeep::Subjects => {
            let known = found["subjects"].as_array().cloned().unwrap_or_default();
            let wanted = seed.object["subjects"].as_array().into_iter().flatten().cloned();
            append(found, "subjects", wanted.filter(|subject| !known.contains(subject)));
        }
    }
}

fn append(object: &mut Value, field: &str, values: impl Iterator<Item = Value>) {
    let mut list = object[field].as_array().cloned().unwrap_or_default();
    let before = list.len();
    list.extend(values);
    if list.len() > before {
        object[field] = list.into();
    }
}

fn seed(group: &str, plural: &str, namespace: &'static str, upkeep: Upkeep, mut object: Value) -> Result<Seed, Status> {
    let resource = resources::find(group, "v1", plural)
        .ok_or_else(|| status_errors::internal(format!("{plural} are not served, but a cluster needs them")))?;
    object["kind"] = resource.kind.into();
    object["apiVersion"] = resource.api_version().into();
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = namespace.into();
    }
    Ok(Seed { resource, namespace, object, upkeep })
}

fn namespaces() -> Result<Vec<Seed>, Status> {
    let make = |name: &str| {
        let object = json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        });
        seed("", "namespaces", "", Upkeep::Leave, object)
    };
    NAMESPACES.into_iter().map(make).collect()
}

fn rest(service_address: Ipv4Addr, options: &Options) -> Result<Vec<Seed>, Status> {
    let mut seeds = roles::seeds(options.aggregate_roles)?;
    for (name, value, description) in PRIORITY_CLASSES {
        let object = json!({
            "metadata": {"name": name, "generation": 1},
            "value": value,
            "description": description,
            "preemptionPolicy": "PreemptLowerPriority",
        });
        seeds.push(seed("scheduling.k8s.io", "priorityclasses", "", Upkeep::Leave, object)?);
    }
    let authentication = json!({
        "metadata": {"name": "extension-apiserver-authentication"},
        "data": {"client-ca-file": options.client_authority},
    });
    seeds.push(seed("", "configmaps", "kube-system", Upkeep::Fields(&["data"]), authentication)?);
    seeds.extend(kubernetes_service(service_address, options)?);
    Ok(seeds)
}

/// The API server as a service of the cluster it serves.
fn kubernetes_service(cluster: Ipv4Addr, options: &Options) -> Result<Vec<Seed>, Status> {
    let (server, port) = (options.advertise_address, options.advertise_port);
    let service = json!({
        "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "clusterIP": cluster,
            "clusterIPs": [cluster],
            "internalTrafficPolicy": "Cluster",
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
            "sessionAffinity": "None",
            "type": "ClusterIP",
        },
        "status": {"loadBalancer": {}},
    });
    let endpoints = json!({
        "metadata": {"name": "kubernetes", "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": [{"addresses": [{"ip": server}], "ports": [{"name": "https", "port": port, "protocol": "TCP"}]}],
    });
    let slice = json!({
        "metadata": {"name": "kubernetes", "generation": 1, "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": if server.is_ipv4() { "IPv4" } else { "IPv6" },
        "endpoints": [{"addresses": [server], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
    });
    Ok(vec![
        seed("", "services", "default", Upkeep::Fields(&["spec"]), service)?,
        seed("", "endpoints", "default", Upkeep::Fields(&["subsets"]), endpoints)?,
        seed("discovery.k8s.io", "endpointslices", "default", Upkeep::Fields(&["endpoints", "ports"]), slice)?,
    ])
}

#[cfg(test)]
mod tests;
