//! How many devices back an extended resource on a node, and how many of them are allocated: what scorers use for
//! resources that the node itself does not have.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bayplan_model::node::Node;
use bayplan_model::resource_claim::{DeviceRequest, DeviceSubRequest, ResourceClaim};
use bayplan_model::resources::Amounts;

use super::pools::pools;
use super::requests::{ClaimRequests, Compiler};
use super::work::AttemptWork;
use crate::cluster::Cluster;
use crate::cluster::devices::Devices;

/// The devices that back the extended resources a pod requests.
#[derive(Clone, Default)]
pub(in crate::plugins) struct DeviceUsage(Option<Arc<Counted>>);

struct Counted {
    /// A request for the class of each resource; only its selectors matter.
    classes: BTreeMap<String, ClaimRequests>,
    devices: Devices,
    /// What counting may take; the answers of selectors are kept, so that the next pod goes on.
    work: AttemptWork,
}

impl DeviceUsage {
    /// Prepares counting for those of the named resources that the pod requests and devices back.
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
            return DeviceUsage(None);
        }
        DeviceUsage(Some(Arc::new(Counted {
            classes,
            devices: cluster.objects.devices.clone(),
            work: AttemptWork::whole(),
        })))
    }

    /// Whether devices back none of the resources.
    pub(in crate::plugins) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// How many devices back a resource on a node, and how many of them are allocated; none when devices do not back
    /// it.
    pub(in crate::plugins) fn count(&self, node: &Node, resource: &str) -> Option<(i64, i64)> {
        let counted = self.0.as_ref()?;
        let requests = counted.classes.get(resource)?;
        let class = requests.requests.first()?.alternatives.first()?;
        let (mut total, mut taken) = (0, 0);
        let mut work = counted.work.node(Duration::ZERO);
        for pool in pools(&counted.devices, node).ok()? {
            for slice in &pool.slices {
                for (i, device) in slice.slice.spec.devices.iter().enumerate() {
                    let here = slice.device_is_accessible(i, node) == Ok(true);
                    if here && matches!(class.selects(&requests.claim, slice, i, &mut work), Ok(true)) {
                        total += 1;
                        taken += i64::from(pool.known.in_use(&device.name).is_some());
                    }
                }
            }
        }
        counted.work.spend(work.spent());
        Some((total, taken))
    }
}
