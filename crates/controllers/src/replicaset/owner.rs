//! ReplicaSets and ReplicationControllers: the latter are decoded, reconciled and written as the ReplicaSets they
//! describe.

use std::sync::Arc;

use bayplan_model::api::{Api, Resource};
use bayplan_model::delta::Delta;
use bayplan_model::label_selector::LabelSelector;
use bayplan_model::meta::{HasMeta, Map, ObjectMeta};
use bayplan_model::status::Status;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cache::{Cache, ControllerKey, Kind};
use crate::claim::Claimant;
use crate::requests::{self, PODS, REPLICA_SETS, REPLICATION_CONTROLLERS};
use crate::workload::{APPS_V1, ReplicaSet, ReplicaSetSpec, ReplicaSetStatus};

/// The kind that a controller reconciles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    ReplicaSet,
    ReplicationController,
}

impl Owner {
    pub(super) fn kind(self) -> &'static str {
        match self {
            Owner::ReplicaSet => "ReplicaSet",
            Owner::ReplicationController => "ReplicationController",
        }
    }

    pub(super) fn api_version(self) -> &'static str {
        match self {
            Owner::ReplicaSet => APPS_V1,
            Owner::ReplicationController => "v1",
        }
    }

    pub(super) fn resource(self) -> Resource {
        match self {
            Owner::ReplicaSet => REPLICA_SETS,
            Owner::ReplicationController => REPLICATION_CONTROLLERS,
        }
    }

    pub(super) fn group_resource(self) -> &'static str {
        match self {
            Owner::ReplicaSet => "replicasets.apps",
            Owner::ReplicationController => "replicationcontrollers",
        }
    }

    pub(super) fn watches(self) -> &'static [Kind] {
        match self {
            Owner::ReplicaSet => &[Kind::ReplicaSet, Kind::Pod],
            Owner::ReplicationController => &[Kind::ReplicationController, Kind::Pod],
        }
    }

    pub(super) fn get(self, cache: &Cache, namespace: &str, name: &str) -> Option<Arc<ReplicaSet>> {
        match self {
            Owner::ReplicaSet => cache.replica_sets().get(namespace, name),
            Owner::ReplicationController => cache.replication_controllers().get(namespace, name).map(|rc| rc.set()),
        }
    }

    pub(super) fn namespace(self, cache: &Cache, namespace: &str) -> Vec<Arc<ReplicaSet>> {
        match self {
            Owner::ReplicaSet => cache.replica_sets().namespace(namespace).cloned().collect(),
            Owner::ReplicationController => {
                cache.replication_controllers().namespace(namespace).map(|rc| rc.set()).collect()
            }
        }
    }

    /// How pods name it as their controller.
    pub(super) fn key(self, rs: &ReplicaSet) -> ControllerKey {
        ControllerKey::of(self.kind(), &rs.metadata)
    }

    /// Those that another controller, a Deployment for example, owns.
    pub(super) fn controlled_by(self, cache: &Cache, controller: &ControllerKey) -> Vec<Arc<ReplicaSet>> {
        match self {
            Owner::ReplicaSet => cache.replica_sets().controlled_by(controller).cloned().collect(),
            Owner::ReplicationController => {
                cache.replication_controllers().controlled_by(controller).map(|rc| rc.set()).collect()
            }
        }
    }

    pub(super) fn version(self, cache: &Cache) -> String {
        match self {
            Owner::ReplicaSet => cache.replica_sets().version().to_owned(),
            Owner::ReplicationController => cache.replication_controllers().version().to_owned(),
        }
    }

    /// How it claims pods.
    pub(super) fn claimant(self, rs: &ReplicaSet) -> Claimant<'_> {
        Claimant {
            kind: self.kind(),
            api_version: self.api_version(),
            resource: self.resource(),
            meta: &rs.metadata,
            selector: &rs.spec.selector,
            object_kind: "Pod",
            object_resource: PODS,
        }
    }

    /// Reads the live object.
    pub(super) async fn read(self, api: &dyn Api, meta: &ObjectMeta) -> Result<ReplicaSet, Status> {
        match self {
            Owner::ReplicaSet => requests::get(api, &self.resource(), &meta.namespace, &meta.name).await,
            Owner::ReplicationController => {
                let rc: ReplicationController =
                    requests::get(api, &self.resource(), &meta.namespace, &meta.name).await?;
                Ok((*rc.set).clone())
            }
        }
    }

    /// Writes the status and returns what is stored.
    pub(super) async fn write_status(self, api: &dyn Api, rs: ReplicaSet) -> Result<ReplicaSet, Status> {
        let meta = rs.metadata.clone();
        match self {
            Owner::ReplicaSet => requests::update_status(api, &self.resource(), &meta, &rs).await,
            Owner::ReplicationController => {
                let rc = ReplicationController { set: Arc::new(rs) };
                let stored = requests::update_status(api, &self.resource(), &meta, &rc).await?;
                Ok((*stored.set).clone())
            }
        }
    }
}

/// A `v1` ReplicationController, as the ReplicaSet it describes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Wire", into = "Wire")]
pub struct ReplicationController {
    set: Arc<ReplicaSet>,
}

impl ReplicationController {
    /// The ReplicaSet it describes.
    pub fn set(&self) -> Arc<ReplicaSet> {
        self.set.clone()
    }
}

impl HasMeta for ReplicationController {
    fn meta(&self) -> &ObjectMeta {
        &self.set.metadata
    }
}

/// The same change of the ReplicaSet.
pub(super) fn as_replica_set(delta: &Delta<Arc<ReplicationController>>) -> Delta<Arc<ReplicaSet>> {
    match delta {
        Delta::Added(rc) => Delta::Added(rc.set()),
        Delta::Updated { old, new } => Delta::Updated { old: old.set(), new: new.set() },
        Delta::Deleted(rc) => Delta::Deleted(rc.set()),
    }
}

/// The JSON of a ReplicationController: its selector is a plain map.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Wire {
    api_version: String,
    kind: String,
    metadata: ObjectMeta,
    spec: WireSpec,
    status: ReplicaSetStatus,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireSpec {
    replicas: i32,
    min_ready_seconds: i32,
    selector: Map,
    template: Arc<Value>,
}

impl Default for Wire {
    fn default() -> Self {
        Wire {
            api_version: Owner::ReplicationController.api_version().into(),
            kind: Owner::ReplicationController.kind().into(),
            metadata: ObjectMeta::default(),
            spec: WireSpec::default(),
            status: ReplicaSetStatus::default(),
        }
    }
}

impl Default for WireSpec {
    fn default() -> Self {
        WireSpec { replicas: 1, min_ready_seconds: 0, selector: Map::new(), template: Arc::new(Value::Null) }
    }
}

impl From<Wire> for ReplicationController {
    fn from(rc: Wire) -> Self {
        let selector = LabelSelector { match_labels: rc.spec.selector, ..LabelSelector::default() };
        let spec = ReplicaSetSpec {
            replicas: rc.spec.replicas,
            min_ready_seconds: rc.spec.min_ready_seconds,
            selector: selector.into(),
            template: rc.spec.template,
        };
        let (api_version, kind) = (rc.api_version, rc.kind);
        let set = ReplicaSet { api_version, kind, metadata: rc.metadata, spec, status: rc.status };
        ReplicationController { set: Arc::new(set) }
    }
}

impl From<ReplicationController> for Wire {
    fn from(rc: ReplicationController) -> Self {
        let ReplicaSet { api_version, kind, metadata, spec, status } = (*rc.set).clone();
        let spec = WireSpec {
            replicas: spec.replicas,
            min_ready_seconds: spec.min_ready_seconds,
            selector: spec.selector.source().match_labels.clone(),
            template: spec.template,
        };
        Wire { api_version, kind, metadata, spec, status }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::ReplicaSetController;
    use super::*;
    use crate::controller::{Controller, Requeue};
    use crate::script::Script;

    #[test]
    fn a_replication_controller_is_reconciled_and_written_in_its_own_form() {
        let metadata = json!({"name": "rc", "namespace": "ns", "uid": "u", "resourceVersion": "5", "generation": 1});
        let template = json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": []}});
        let spec = json!({"replicas": 1, "minReadySeconds": 0, "selector": {"app": "a"}, "template": template});
        let rc = json!({"metadata": metadata, "spec": spec});
        let cache = Arc::new(Cache::default());
        let change = cache.set(Kind::ReplicationController, rc.to_string().as_bytes()).unwrap();
        let controller = ReplicaSetController::of_replication_controllers(cache);
        assert_eq!(controller.observe(&change).len(), 1);

        let owner = json!({"apiVersion": "v1", "kind": "ReplicationController", "name": "rc", "uid": "u",
            "controller": true, "blockOwnerDeletion": true});
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "spec": {"containers": []},
            "metadata": {"generateName": "rc-", "labels": {"app": "a"}, "ownerReferences": [owner]},
        });
        let written = json!({
            "apiVersion": "v1", "kind": "ReplicationController", "metadata": metadata, "spec": spec,
            "status": {"replicas": 0, "observedGeneration": 1},
        });
        let script = Script::new(
            "create",
            [
                ("POST ns/pods", pod, Ok(json!({"metadata": {"name": "rc-x", "resourceVersion": "6"}}))),
                ("PUT ns/replicationcontrollers/rc/status", written.clone(), Ok(written)),
            ],
        );
        assert_eq!(script.play(&controller, "ns/rc").unwrap(), Requeue::OnChange);
        assert_eq!(script.events(), ["SuccessfulCreate"]);
    }
}
