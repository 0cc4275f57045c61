//! The objects that every cluster starts with: created if missing. What exists stays as it is, but for rights that are
//! missing from roles, the authority of client certificates, and the server's own address.

use std::net::{IpAddr, Ipv4Addr};

use bayplan_kinds::Kind;
use bayplan_model::status::{Status, reason};
use futures::future::try_join_all;
use serde_json::{Value, json};

use crate::authn::RequestHeaders;
use crate::authz::escalation::uncovered;
use crate::authz::policy::Rule;
use crate::registry::{SystemObjects, SystemWrite};
use crate::status_errors;

mod api_services;
mod certificate_roles;
mod controller_roles;
mod flow_control;
mod guest_roles;
mod namespace_roles;
mod roles;
mod server_address;
mod user_roles;

pub(crate) use flow_control::is_automatic;
pub(crate) use server_address::ServerAddress;

pub(crate) use roles::node_rules;

/// The values that these objects depend on.
#[derive(Clone, Debug)]
pub struct BootstrapOptions {
    /// The address of the API server.
    pub advertise_address: IpAddr,
    /// The port of the API server.
    pub advertise_port: u16,
    /// The authority of client certificates (PEM), published for extension API servers.
    pub client_authority: String,
    /// Who may name users in headers, published for extension API servers, with the authority of their certificates
    /// (PEM).
    pub front_proxy: Option<(String, RequestHeaders)>,
    /// Where nobody has published an authority of front proxies, this one (PEM), of which nobody has the key:
    /// components that look for one complain until there is one.
    pub nobodys_authority: Option<String>,
    /// Fill in the rules of `admin`, `edit` and `view`, as upstream's clusterrole-aggregation controller does.
    pub aggregate_roles: bool,
    /// Other API servers may work on the same store: each keeps a lease for its address.
    pub shared_store: bool,
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
/// Where extension API servers find the authorities of client certificates.
const CLIENT_AUTHORITY: &str = "client-ca-file";
/// Where they find that of front proxies.
const PROXY_AUTHORITY: &str = "requestheader-client-ca-file";
const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// How an object that exists is reconciled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reconcile {
    /// Keep it as it is.
    Never,
    /// Add the authority of client certificates to those that other servers have published, and say whom front
    /// proxies are trusted to be.
    ClientAuthority {
        /// Also if another server has said it.
        proxies_are_known: bool,
    },
    /// Add missing rules, keep additional ones.
    Rules,
    /// Add missing subjects, keep additional ones.
    Subjects,
    /// Restore a spec of priority and fairness, if it is the server's.
    Configuration {
        /// It always is.
        mandatory: bool,
    },
}

/// One object that the cluster starts with.
struct BootstrapObject {
    resource: &'static Kind,
    namespace: &'static str,
    object: Value,
    reconcile: Reconcile,
}

/// Creates and reconciles the objects; answers how many were written. `service_address` is the cluster IP of the
/// `kubernetes` service.
pub(crate) async fn ensure(
    objects: &dyn SystemObjects,
    service_address: Ipv4Addr,
    options: &BootstrapOptions,
) -> Result<usize, Status> {
    // Namespaces first, because other objects live in them. The rest at once, so that they share the store's fsyncs.
    let mut written = 0;
    for wanted in [namespaces()?, rest(service_address, options)?] {
        let writes = try_join_all(wanted.iter().map(|wanted| ensure_object(objects, wanted))).await?;
        written += writes.into_iter().filter(|w| *w).count();
    }
    Ok(written)
}

/// Creates and reconciles the FlowSchemas and levels.
pub(crate) async fn ensure_flow_control(objects: &dyn SystemObjects) -> Result<(), Status> {
    for wanted in flow_control::objects()? {
        ensure_object(objects, &wanted).await?;
    }
    Ok(())
}

/// Creates or reconciles one object; true if it was written.
async fn ensure_object(objects: &dyn SystemObjects, wanted: &BootstrapObject) -> Result<bool, Status> {
    let BootstrapObject { resource, namespace, object, .. } = wanted;
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let why = SystemWrite::Bootstrap;
    let Some(found) = objects.get(resource, namespace, name).await? else {
        return match objects.create_unchecked(why, resource, namespace, object.clone()).await {
            Ok(_) => Ok(true),
            // Another server was faster.
            Err(status) if status.is(reason::ALREADY_EXISTS) => Ok(false),
            Err(status) => Err(status),
        };
    };
    let mut reconciled = Value::clone(&found);
    reconcile(&mut reconciled, wanted);
    if reconciled == *found {
        return Ok(false);
    }
    let mut change = |object: &mut Value| {
        reconcile(object, wanted);
        Ok(())
    };
    objects.update_unchecked(why, resource, namespace, name, &mut change).await?;
    Ok(true)
}

fn reconcile(found: &mut Value, wanted: &BootstrapObject) {
    match wanted.reconcile {
        Reconcile::Never => {}
        Reconcile::ClientAuthority { proxies_are_known } => {
            let own = wanted.object["data"][CLIENT_AUTHORITY].as_str().unwrap_or_default().trim();
            let published = found["data"][CLIENT_AUTHORITY].as_str().unwrap_or_default();
            if !published.contains(own) {
                let published =
                    if published.is_empty() { String::new() } else { format!("{}\n", published.trim_end()) };
                found["data"][CLIENT_AUTHORITY] = format!("{published}{own}\n").into();
            }
            let keeps_proxies = !proxies_are_known && found["data"].get(PROXY_AUTHORITY).is_some();
            for (name, value) in wanted.object["data"].as_object().into_iter().flatten() {
                if name != CLIENT_AUTHORITY && !keeps_proxies {
                    found["data"][name] = value.clone();
                }
            }
        }
        Reconcile::Rules | Reconcile::Subjects if found["metadata"]["annotations"][AUTOUPDATE] == "false" => {}
        Reconcile::Rules => {
            let rules = |role: &Value| serde_json::from_value::<Vec<Rule>>(role["rules"].clone()).unwrap_or_default();
            let (held, wanted) = (rules(found), rules(&wanted.object));
            let held: Vec<&Rule> = held.iter().collect();
            let missing: Vec<Rule> =
                wanted.into_iter().filter(|rule| !uncovered(&held, std::slice::from_ref(rule)).is_empty()).collect();
            append(found, "rules", missing.into_iter().map(|rule| json!(rule)));
        }
        Reconcile::Subjects => {
            let known = found["subjects"].as_array().cloned().unwrap_or_default();
            let wanted = wanted.object["subjects"].as_array().into_iter().flatten().cloned();
            append(found, "subjects", wanted.filter(|subject| !known.contains(subject)));
        }
        Reconcile::Configuration { mandatory } => flow_control::reconcile(found, &wanted.object, mandatory),
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

fn bootstrap_object(
    group: &str,
    plural: &str,
    namespace: &'static str,
    reconcile: Reconcile,
    mut object: Value,
) -> Result<BootstrapObject, Status> {
    let resource = bayplan_kinds::find(group, "v1", plural)
        .ok_or_else(|| status_errors::internal(format!("{plural} are not served, but a cluster needs them")))?;
    object["kind"] = resource.kind.into();
    object["apiVersion"] = resource.api_version().into();
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = namespace.into();
    }
    Ok(BootstrapObject { resource, namespace, object, reconcile })
}

fn namespaces() -> Result<Vec<BootstrapObject>, Status> {
    let make = |name: &str| {
        let object = json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
        });
        bootstrap_object("", "namespaces", "", Reconcile::Never, object)
    };
    NAMESPACES.into_iter().map(make).collect()
}

fn rest(service_address: Ipv4Addr, options: &BootstrapOptions) -> Result<Vec<BootstrapObject>, Status> {
    let mut objects = roles::objects(options.aggregate_roles, options.shared_store)?;
    for (name, value, description) in PRIORITY_CLASSES {
        let object = json!({
            "metadata": {"name": name, "generation": 1},
            "value": value,
            "description": description,
            "preemptionPolicy": "PreemptLowerPriority",
        });
        objects.push(bootstrap_object("scheduling.k8s.io", "priorityclasses", "", Reconcile::Never, object)?);
    }
    let authentication = json!({
        "metadata": {"name": "extension-apiserver-authentication"},
        "data": authentication(options),
    });
    let reconcile = Reconcile::ClientAuthority { proxies_are_known: options.front_proxy.is_some() };
    objects.push(bootstrap_object("", "configmaps", "kube-system", reconcile, authentication)?);
    objects.extend(flow_control::objects()?);
    objects.extend(api_services::objects()?);
    objects.extend(kubernetes_service(service_address, options)?);
    Ok(objects)
}

/// Whom extension API servers may believe; lists are JSON in a text, as upstream's.
fn authentication(options: &BootstrapOptions) -> Value {
    let mut data = json!({CLIENT_AUTHORITY: options.client_authority});
    let nobody = || options.nobodys_authority.clone().map(|authority| (authority, RequestHeaders::usual()));
    if let Some((authority, headers)) = options.front_proxy.clone().or_else(nobody) {
        data[PROXY_AUTHORITY] = authority.into();
        let lists = [
            ("allowed-names", &headers.allowed_names),
            ("extra-headers-prefix", &headers.extra_headers_prefix),
            ("group-headers", &headers.group_headers),
            ("uid-headers", &headers.uid_headers),
            ("username-headers", &headers.username_headers),
        ];
        for (name, list) in lists {
            data[format!("requestheader-{name}")] = json!(list).to_string().into();
        }
    }
    data
}

/// The `kubernetes` service, its endpoints and their slice: the API server as a service of its own cluster.
fn kubernetes_service(cluster: Ipv4Addr, options: &BootstrapOptions) -> Result<Vec<BootstrapObject>, Status> {
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
        bootstrap_object("", "services", "default", Reconcile::Never, service)?,
        bootstrap_object("", "endpoints", "default", Reconcile::Never, endpoints)?,
        bootstrap_object("discovery.k8s.io", "endpointslices", "default", Reconcile::Never, slice)?,
    ])
}

#[cfg(test)]
mod tests;
