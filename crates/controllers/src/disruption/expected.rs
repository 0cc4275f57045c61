//! How many pods a budget expects: the replicas that the controllers of its pods are asked to run.

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_model::api::{Request, Verb, decode};
use bayplan_model::int_or_string::IntOrString;
use bayplan_model::meta::OwnerReference;
use serde::Deserialize;

use super::{Budget, DisruptionController};
use crate::controller::Context;
use crate::error::{Error, not_found};
use crate::pod::Pod;

/// The numbers that a budget is measured by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Expected {
    /// `expectedPods`.
    pub(super) pods: i32,
    /// `desiredHealthy`.
    pub(super) healthy: i32,
    /// Some pods have no controller, so their expected number is unknown.
    pub(super) unmanaged: bool,
}

/// A `scale` subresource.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Scale {
    metadata: bayplan_model::meta::ObjectMeta,
    spec: ScaleSpec,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ScaleSpec {
    replicas: i32,
}

impl DisruptionController {
    pub(super) async fn expected(
        &self,
        budget: &Budget,
        pods: &[Arc<Pod>],
        context: Context<'_>,
    ) -> Result<Expected, Error> {
        let of = |value: &IntOrString, total: i32| -> Result<i32, Error> {
            let scaled = value.scaled(i64::from(total), true)?;
            Ok(i32::try_from(scaled).unwrap_or(i32::MAX))
        };
        match (&budget.spec.max_unavailable, &budget.spec.min_available) {
            (Some(missing), _) => {
                let (pods, unmanaged) = self.scale(pods, context).await?;
                let healthy = pods.saturating_sub(of(missing, pods)?).max(0);
                Ok(Expected { pods, healthy, unmanaged })
            }
            (None, Some(IntOrString::Int(healthy))) => {
                let pods = i32::try_from(pods.len()).unwrap_or(i32::MAX);
                Ok(Expected { pods, healthy: *healthy, unmanaged: false })
            }
            (None, Some(share)) => {
                let (pods, unmanaged) = self.scale(pods, context).await?;
                Ok(Expected { pods, healthy: of(share, pods)?, unmanaged })
            }
            (None, None) => Ok(Expected::default()),
        }
    }

    /// The sum of the scales of the pods' controllers, and whether some pod has none.
    async fn scale(&self, pods: &[Arc<Pod>], context: Context<'_>) -> Result<(i32, bool), Error> {
        let mut scales: BTreeMap<String, i32> = BTreeMap::new();
        let mut unmanaged = false;
        for pod in pods {
            let Some(owner) = pod.metadata.controller() else {
                unmanaged = true;
                continue;
            };
            if scales.contains_key(&owner.uid) {
                continue;
            }
            let found = self.scale_of(&pod.metadata.namespace, owner, context).await?;
            let (uid, scale) = found
                .ok_or_else(|| Error::Invalid(format!("found no controllers for pod \"{}\"", pod.metadata.name)))?;
            // Old and new pods of a Deployment have two ReplicaSets and one scale.
            scales.insert(uid, scale);
        }
        Ok((scales.values().fold(0, |sum, scale| sum.saturating_add(*scale)), unmanaged))
    }

    async fn scale_of(
        &self,
        namespace: &str,
        owner: &OwnerReference,
        context: Context<'_>,
    ) -> Result<Option<(String, i32)>, Error> {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        if (group, owner.kind.as_str()) == ("apps", "ReplicaSet") {
            return Ok(self.scale_of_replica_set(namespace, owner));
        }
        let Some(resource) = self.resources.of_kind(&owner.api_version, &owner.kind) else { return Ok(None) };
        let request = Request::object(&resource.resource, namespace, &owner.name, Verb::Get).subresource("scale");
        match context.api.call(request).await {
            // A kind without a scale subresource gives no number, whether the object exists or not.
            Err(status) if not_found(&status) => Ok(None),
            answer => {
                let scale: Scale = decode(&answer?)?;
                Ok((scale.metadata.uid == owner.uid).then_some((scale.metadata.uid, scale.spec.replicas)))
            }
        }
    }

    fn scale_of_replica_set(&self, namespace: &str, owner: &OwnerReference) -> Option<(String, i32)> {
        let rs = self.cache.replica_sets().get(namespace, &owner.name)?;
        if rs.metadata.uid != owner.uid {
            return None;
        }
        let own = (rs.metadata.uid.clone(), rs.spec.replicas);
        let Some(above) = rs.metadata.controller().filter(|above| above.kind == "Deployment") else { return Some(own) };
        let d = self.cache.deployments().get(namespace, &above.name)?;
        (d.metadata.uid == above.uid).then(|| (d.metadata.uid.clone(), d.spec.replicas))
    }
}
