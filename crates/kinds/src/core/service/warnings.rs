//! What clients are warned of in services. Upstream: `GetWarningsForService`.

use serde_json::Value;

use super::cluster_ips::texts;
use crate::field::Path;
use crate::ip_rules::{address_warnings, range_warnings};
use crate::object::{list, text};

const TOPOLOGY_HINTS: &str = "service.kubernetes.io/topology-aware-hints";

/// Of the addresses of a load balancer.
pub(super) fn status_warnings(object: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let root = Path::root("status");
    let balancer = root.child("loadBalancer");
    let path = balancer.child("ingress");
    for (index, entry) in list(&object["status"]["loadBalancer"], "ingress").iter().enumerate() {
        address_warnings(&mut warnings, path.index(index), text(entry, "ip"));
    }
    warnings
}

pub(super) fn warnings(object: &Value, _old: Option<&Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    let spec = &object["spec"];
    let root = Path::root("spec");
    if object["metadata"]["annotations"][TOPOLOGY_HINTS].is_string() {
        warnings.push(format!(
            "annotation {TOPOLOGY_HINTS} is deprecated, please use service.kubernetes.io/topology-mode instead"
        ));
    }
    let (kind, headless_ip) = (text(spec, "type"), text(spec, "clusterIP") == "None");
    let headless = kind == "ClusterIP" && headless_ip;
    if !headless_ip && !text(spec, "clusterIP").is_empty() {
        all_addresses(&mut warnings, root.child("clusterIPs"), &texts(spec, "clusterIPs"));
    }
    let external = texts(spec, "externalIPs");
    if headless {
        for (ignored, field) in [
            (!text(spec, "loadBalancerIP").is_empty(), "loadBalancerIP"),
            (!external.is_empty(), "externalIPs"),
            (text(spec, "sessionAffinity") != "None", "SessionAffinity"),
        ] {
            if ignored {
                warnings.push(format!("spec.{field} is ignored for headless services"));
            }
        }
    }
    all_addresses(&mut warnings, root.child("externalIPs"), &external);
    if !external.is_empty() && !headless && kind != "ExternalName" {
        warnings.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned());
    }
    address_warnings(&mut warnings, root.child("loadBalancerIP"), text(spec, "loadBalancerIP"));
    let path = root.child("loadBalancerSourceRanges");
    for (index, range) in texts(spec, "loadBalancerSourceRanges").into_iter().enumerate() {
        range_warnings(&mut warnings, path.index(index), range);
    }
    if kind == "ExternalName" && !external.is_empty() {
        warnings.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if kind != "ExternalName" && !text(spec, "externalName").is_empty() {
        warnings.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if text(spec, "trafficDistribution") == "PreferClose" {
        warnings.push("spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".to_owned());
    }
    warnings
}

fn all_addresses(warnings: &mut Vec<String>, path: Path<'_>, addresses: &[&str]) {
    for (index, address) in addresses.iter().enumerate() {
        address_warnings(warnings, path.index(index), address);
    }
}
