//! How many devices of a class a node has and how many are taken: what scorers see of extended resources that the node
//! itself does not have.

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_model::node::Node;
use bayplan_model::resource_claim::{DeviceRequest, DeviceSubRequest, ResourceClaim};
use bayplan_model::resources::Amounts;

use super::allocator::Taken;
use super::pools::{Slices, device_reaches};
use super::requests::{ClaimRequests, Compiler};
use crate::cluster::Cluster;

/// The devices behind the extended resources a pod asks for.
#[derive(Clone, Default)]
pub(in crate::plugins) struct Census(Option<Arc<Devices>>);

struct Devices {
    /// A request for the class of each resource; only its selectors matter.
    classes: BTreeMap<String, ClaimRequests>,
    slices: Slices,
    taken: Taken,
}

impl Census {
    /// Prepares counting for those of the named resources that are asked for and that devices stand behind.
    pub(in crate::plugins) fn new<'n>(
        cluster: &Cluster,
        request: &Amounts,
        names: impl Iterator<Item = &'n str>,
    ) -> Self {
        let mut compiler = Compiler::default();
        let mut classes = BTreeMap::new();
        for name in names.filter(|name| request.scalars.get(*name).is_some_and(|amount| *amount != 0)) {
            let Some(class) = cluster.class_of_extended_resource(name) else { continue };
            let exactly =
                DeviceSubRequest { device_class_name: class.metadata.name.clone(), ..DeviceSubRequest::default() };
            let mut claim = ResourceClaim::default();
            claim.spec.devices.requests = vec![DeviceRequest { exactly: Some(exactly), ..DeviceRequest::default() }];
            let requests = compiler.claim(Arc::new(claim), |_| Some(class.clone()));
            classes.insert(name.to_owned(), requests);
        }
        if classes.is_empty() {
            return Census(None);
        }
        let slices = Slices::new(cluster.objects.resource_slices.iter());
        let taken = Taken::of(cluster.taken_devices());
        Census(Some(Arc::new(Devices { classes, slices, taken })))
    }

    /// How many devices stand behind a resource on a node, and how many of them are taken; none for other resources.
    pub(in crate::plugins) fn count(&self, node: &Node, resource: &str) -> Option<(i64, i64)> {
        let devices = self.0.as_ref()?;
        let class = devices.classes.get(resource)?.requests.first()?.alternatives.first()?;
        let (mut total, mut taken) = (0, 0);
        for pool in devices.slices.pools(node).ok()? {
            for slice in &pool.slices {
                for device in &slice.spec.devices {
                    let here = !slice.spec.per_device_node_selection || device_reaches(node, device) == Ok(true);
                    if here && class.selects("", &pool.driver, device) == Ok(true) {
                        total += 1;
                        let id = (pool.driver.clone(), pool.name.clone(), device.name.clone());
                        taken += i64::from(devices.taken.has(&id));
                    }
                }
            }
        }
        Some((total, taken))
    }
}
