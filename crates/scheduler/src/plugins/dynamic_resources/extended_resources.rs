//! Extended resources backed by devices: which of a pod's requests become requests for devices (KEP-5004).

use std::collections::BTreeMap;

use bayplan_model::pod::{Container, Pod};
use bayplan_model::resource_claim::{DeviceRequest, DeviceSubRequest};
use bayplan_model::resources::{RequestRules, is_extended};
use serde::Serialize;

use crate::cluster::{Cluster, DEVICE_CLASS_PREFIX, NodeInfo};

/// The request for devices that provides an extended resource to a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Mapping {
    container_name: String,
    resource_name: String,
    request_name: String,
}

/// The extended resources that a pod requests, each with the DeviceClass that backs it, if any.
pub(super) fn asked_for(cluster: &Cluster, pod: &Pod) -> BTreeMap<String, Option<String>> {
    let requests = RequestRules::default().requests(pod);
    let extended = requests
        .into_iter()
        .filter(|(name, amount)| !amount.is_zero() && (is_extended(name) || name.starts_with(DEVICE_CLASS_PREFIX)));
    let class = |name: &str| cluster.class_of_extended_resource(name).map(|class| class.metadata.name.clone());
    extended.map(|(name, _)| (name.clone(), class(&name))).collect()
}

/// The resources that devices must provide on a node, with their classes; none when the node lacks one that no class
/// backs.
pub(super) fn provided_by_devices(
    asked: &BTreeMap<String, Option<String>>,
    node: &NodeInfo,
) -> Option<BTreeMap<String, String>> {
    let mut provided = BTreeMap::new();
    for (name, class) in asked {
        let on_node = node.allocatable.scalars.get(name.as_str());
        match class {
            Some(class) if on_node.is_none_or(|amount| *amount == 0) => {
                drop(provided.insert(name.clone(), class.clone()))
            }
            _ if on_node.is_none() => return None,
            _ => {}
        }
    }
    Some(provided)
}

fn amount(container: &Container, resource: &str) -> i64 {
    container.resources.requests.get(resource).map_or(0, |amount| amount.value())
}

/// The requests for devices that provide these resources. Init containers reuse the devices of containers that start
/// after them, as far as those suffice.
pub(super) fn requests(pod: &Pod, provided: &BTreeMap<String, String>) -> (Vec<DeviceRequest>, Vec<Mapping>) {
    let init = pod.spec.init_containers.iter().map(|container| (container, container.is_sidecar()));
    let containers: Vec<(&Container, bool)> = init.chain(pod.spec.containers.iter().map(|c| (c, true))).collect();
    let (mut requests, mut mappings) = (Vec::new(), Vec::new());
    for (resource, class) in provided {
        let name = |index: usize| {
            let position = containers[index].0.resources.requests.keys().position(|name| name == resource);
            format!("container-{index}-request-{}", position.unwrap_or(0))
        };
        let mapping = |index: usize, request_name: String| Mapping {
            container_name: containers[index].0.name.clone(),
            resource_name: resource.clone(),
            request_name,
        };
        let asking = |long: bool| {
            let containers = containers.iter().enumerate();
            containers.filter(move |(_, (c, is_long))| *is_long == long && amount(c, resource) != 0).map(|(i, _)| i)
        };
        for index in asking(true) {
            requests.push(request(name(index), class, amount(containers[index].0, resource)));
            mappings.push(mapping(index, name(index)));
        }
        let (mut largest, mut own): (Option<(String, i64)>, Vec<usize>) = (None, Vec::new());
        for index in asking(false) {
            let mut missing = amount(containers[index].0, resource);
            for later in asking(true).filter(|later| *later >= index) {
                if missing <= 0 {
                    break;
                }
                mappings.push(mapping(index, name(later)));
                missing -= amount(containers[later].0, resource);
            }
            if missing > 0 {
                own.push(index);
                if largest.as_ref().is_none_or(|(_, most)| missing > *most) {
                    largest = Some((name(index), missing));
                }
            }
        }
        if let Some((name, count)) = largest {
            mappings.extend(own.into_iter().map(|index| mapping(index, name.clone())));
            requests.push(request(name, class, count));
        }
    }
    requests.sort_by(|a, b| a.name.cmp(&b.name));
    (requests, mappings)
}

fn request(name: String, class: &str, count: i64) -> DeviceRequest {
    let exactly = DeviceSubRequest {
        device_class_name: class.to_owned(),
        allocation_mode: "ExactCount".into(),
        count,
        ..DeviceSubRequest::default()
    };
    DeviceRequest { name, exactly: Some(exactly), first_available: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_that_end_early_share_devices_with_later_ones() {
        let container = |name: &str, count: &str| {
            let requests = serde_json::json!({"cpu": "1", "x.io/gpu": count});
            serde_json::json!({"name": name, "resources": {"requests": requests}})
        };
        let pod: Pod = serde_json::from_value(serde_json::json!({"spec": {
            "initContainers": [container("first", "2"), container("second", "5"), container("third", "4")],
            "containers": [container("main", "1"), container("side", "2")],
        }}))
        .unwrap();
        let (requests, mappings) = requests(&pod, &[("x.io/gpu".to_owned(), "gpu".to_owned())].into());
        let requests: Vec<_> = requests.iter().map(|r| (r.name.as_str(), r.exactly.as_ref().unwrap().count)).collect();
        assert_eq!(
            requests,
            [("container-1-request-1", 2), ("container-3-request-1", 1), ("container-4-request-1", 2)]
        );
        let mapped: Vec<_> = mappings.iter().map(|m| (m.container_name.as_str(), &m.request_name[..11])).collect();
        assert_eq!(
            mapped,
            [
                ("main", "container-3"),
                ("side", "container-4"),
                ("first", "container-3"),
                ("first", "container-4"),
                ("second", "container-3"),
                ("second", "container-4"),
                ("third", "container-3"),
                ("third", "container-4"),
                ("second", "container-1"),
                ("third", "container-1"),
            ]
        );
    }
}
