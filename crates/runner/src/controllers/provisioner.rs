//! A provisioner for clusters without storage: its volumes exist as objects only, which is all that simulated nodes
//! need. It serves every StorageClass with an external provisioner.
//!
//! A volume of a class that waits for its first consumer is in the zone of the consumer's node, as cloud disks are.

use std::sync::Arc;

use bayplan_controllers::requests::{self, PERSISTENT_VOLUMES, STORAGE_CLASSES};
use bayplan_controllers::workload::event_reference;
use bayplan_controllers::{AnyDelta, Cache, Context, Controller, Error, Kind, Requeue, Wakeup, split_key};
use bayplan_model::api::{Api, DeleteOptions};
use bayplan_model::delta::Delta;
use bayplan_model::node::LABEL_ZONE;
use bayplan_model::status::reason;
use bayplan_model::storage::{
    PROVISIONED_BY_ANNOTATION, PersistentVolume, PersistentVolumeClaim, SELECTED_NODE_ANNOTATION,
    STORAGE_PROVISIONER_ANNOTATION, StorageClass, WAIT_FOR_FIRST_CONSUMER,
};
use futures::future::BoxFuture;
use serde_json::{Value, json};

/// The provisioner of the default class.
const PROVISIONER: &str = "bayplan.dev/simulated";
/// The name of the default class.
const DEFAULT_CLASS: &str = "standard";

/// Creates the default StorageClass; an existing one of the name is left alone.
pub async fn create_default_class(api: &dyn Api) -> Result<(), Error> {
    let default = json!({"storageclass.kubernetes.io/is-default-class": "true"});
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": PROVISIONER,
        "metadata": {"name": DEFAULT_CLASS, "annotations": default}, "volumeBindingMode": WAIT_FOR_FIRST_CONSUMER,
    });
    settled(requests::create(api, &STORAGE_CLASSES, "", &class).await.map(|_: Value| ()))
}

/// The simulated provisioner.
pub(super) struct SimulatedProvisioner {
    cache: Arc<Cache>,
}

impl SimulatedProvisioner {
    pub(super) fn new(cache: Arc<Cache>) -> Self {
        SimulatedProvisioner { cache }
    }

    async fn reconcile(&self, key: &str, context: Context<'_>) -> Result<Requeue, Error> {
        match split_key(key) {
            ("claim", rest) => {
                let (namespace, name) = split_key(rest);
                let claim = self.cache.volume_claims().get(namespace, name);
                if let Some(claim) = claim {
                    self.provision(&claim, context).await?;
                }
            }
            ("volume", name) => {
                let volume = self.cache.volumes().get("", name);
                if let Some(volume) = volume.filter(|volume| is_over(volume)) {
                    let options = DeleteOptions::default();
                    settled(requests::delete(context.api, &PERSISTENT_VOLUMES, &volume.metadata, options).await)?;
                }
            }
            _ => {}
        }
        Ok(Requeue::OnChange)
    }

    async fn provision(&self, claim: &PersistentVolumeClaim, context: Context<'_>) -> Result<(), Error> {
        let class = self.cache.storage_classes().get("", claim.class());
        let Some(class) = class.filter(|class| is_due(claim, class)) else { return Ok(()) };
        let regarding = || event_reference("v1", "PersistentVolumeClaim", &claim.metadata);
        let key = claim.metadata.key();
        let note = format!("External provisioner is provisioning volume for claim {key:?}");
        context.normal(regarding(), "Provisioning", note);
        let volume = self.volume(claim, &class);
        settled(requests::create(context.api, &PERSISTENT_VOLUMES, "", &volume).await.map(|_: Value| ()))?;
        let note = format!("Successfully provisioned volume {}", name_of(claim));
        context.normal(regarding(), "ProvisioningSucceeded", note);
        Ok(())
    }

    fn volume(&self, claim: &PersistentVolumeClaim, class: &StorageClass) -> Value {
        let (meta, spec) = (&claim.metadata, &claim.spec);
        let size = spec.resources.requests.get("storage").map(ToString::to_string);
        let mut volume = json!({
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name_of(claim), "annotations": {PROVISIONED_BY_ANNOTATION: class.provisioner}},
            "spec": {
                "accessModes": spec.access_modes,
                "capacity": {"storage": size.as_deref().unwrap_or("0")},
                "claimRef": {
                    "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": meta.namespace,
                    "name": meta.name, "uid": meta.uid, "resourceVersion": meta.resource_version,
                },
                "csi": {"driver": driver_of(&class.provisioner), "volumeHandle": name_of(claim)},
                "persistentVolumeReclaimPolicy": class.reclaim_policy.as_deref().unwrap_or("Delete"),
                "storageClassName": class.metadata.name,
                "volumeMode": spec.volume_mode.as_deref().unwrap_or("Filesystem"),
            },
        });
        let selected = meta.annotations.get(SELECTED_NODE_ANNOTATION);
        let node = selected.and_then(|node| self.cache.nodes().get("", node));
        if let Some(zone) = node.as_ref().and_then(|node| node.metadata.labels.get(LABEL_ZONE)) {
            let here = json!({"key": LABEL_ZONE, "operator": "In", "values": [zone]});
            volume["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}});
        }
        volume
    }
}

fn name_of(claim: &PersistentVolumeClaim) -> String {
    format!("pvc-{}", claim.metadata.uid)
}

/// The longest name of a CSI driver that a volume may have.
const DRIVER_NAME_MAX: usize = 63;

/// The provisioner as the name of a CSI driver, which is a DNS subdomain: `bayplan.dev/simulated` has a slash.
fn driver_of(provisioner: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c.to_ascii_lowercase() } else { '-' };
    let name: String = provisioner.chars().take(DRIVER_NAME_MAX).map(allowed).collect();
    name.trim_matches(['-', '.']).to_owned()
}

/// Whether a claim needs a volume now.
fn is_due(claim: &PersistentVolumeClaim, class: &StorageClass) -> bool {
    let annotations = &claim.metadata.annotations;
    let waits = class.volume_binding_mode.as_deref() == Some(WAIT_FOR_FIRST_CONSUMER);
    claim.spec.volume_name.is_empty()
        && annotations.get(STORAGE_PROVISIONER_ANNOTATION) == Some(&class.provisioner)
        && (!waits || annotations.contains_key(SELECTED_NODE_ANNOTATION))
}

/// Whether a volume of this provisioner has to be deleted.
fn is_over(volume: &PersistentVolume) -> bool {
    let provisioner = volume.metadata.annotations.get(PROVISIONED_BY_ANNOTATION);
    let ours = volume.spec.csi.as_ref().is_some_and(|csi| csi.volume_handle == volume.metadata.name);
    ours && provisioner.is_some()
        && volume.status.phase == "Released"
        && volume.spec.persistent_volume_reclaim_policy == "Delete"
        && volume.metadata.deletion_timestamp.is_none()
}

/// Success when the object exists already, or no longer exists.
fn settled(outcome: Result<(), bayplan_model::status::Status>) -> Result<(), Error> {
    match outcome {
        Err(status) if status.is(reason::ALREADY_EXISTS) || status.is(reason::NOT_FOUND) => Ok(()),
        outcome => outcome.map_err(Error::from),
    }
}

impl Controller for SimulatedProvisioner {
    fn name(&self) -> &'static str {
        "simulated-provisioner"
    }

    fn watches(&self) -> &'static [Kind] {
        &[Kind::VolumeClaim, Kind::Volume, Kind::StorageClass, Kind::Node]
    }

    fn observe(&self, delta: &AnyDelta) -> Vec<Wakeup> {
        match delta {
            AnyDelta::VolumeClaim(Delta::Added(claim) | Delta::Updated { new: claim, .. })
                if claim.metadata.annotations.contains_key(STORAGE_PROVISIONER_ANNOTATION) =>
            {
                vec![Wakeup::now(format!("claim/{}", claim.metadata.key()))]
            }
            AnyDelta::Volume(Delta::Added(volume) | Delta::Updated { new: volume, .. }) if is_over(volume) => {
                vec![Wakeup::now(format!("volume/{}", volume.metadata.name))]
            }
            _ => Vec::new(),
        }
    }

    fn sync<'a>(&'a self, key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Requeue, Error>> {
        Box::pin(self.reconcile(key, context))
    }
}

#[cfg(test)]
mod tests {
    use bayplan_model::status::Status;
    use bayplan_testkit::{FakeApi, request_line};
    use futures::FutureExt;
    use jiff::Timestamp;

    use super::*;

    fn claim(annotations: &Value, volume: &str) -> Value {
        json!({
            "metadata": {
                "name": "data", "namespace": "shop", "uid": "u", "resourceVersion": "7",
                "annotations": annotations,
            },
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "3Gi"}},
                "storageClassName": "fast", "volumeName": volume},
        })
    }

    fn class(mode: &str) -> Value {
        json!({"metadata": {"name": "fast"}, "provisioner": "csi.example.com", "volumeBindingMode": mode})
    }

    fn volume(policy: &str, phase: &str, handle: &str) -> Value {
        json!({
            "metadata": {"name": "pvc-u", "annotations": {PROVISIONED_BY_ANNOTATION: "csi.example.com"}},
            "spec": {"csi": {"driver": "csi.example.com", "volumeHandle": handle},
                "persistentVolumeReclaimPolicy": policy},
            "status": {"phase": phase},
        })
    }

    #[test]
    fn a_driver_has_a_name_that_volumes_may_have() {
        for (provisioner, driver) in [
            ("bayplan.dev/simulated", "bayplan.dev-simulated"),
            ("csi.example.com", "csi.example.com"),
            ("Example.com/Fast_1", "example.com-fast-1"),
        ] {
            assert_eq!(driver_of(provisioner), driver);
        }
    }

    /// Reconciles all that the last of these objects wakes.
    fn play(server: &FakeApi, objects: &[(Kind, Value)]) {
        let cache = Arc::new(Cache::default());
        let provisioner = SimulatedProvisioner::new(Arc::clone(&cache));
        let mut keys = Vec::new();
        for (kind, object) in objects {
            keys = provisioner.observe(&cache.set(*kind, object.to_string().as_bytes()).unwrap());
        }
        let context = Context { now: Timestamp::UNIX_EPOCH, api: server, recorder: server };
        for wakeup in keys {
            provisioner.sync(&wakeup.key, context).now_or_never().unwrap().unwrap();
        }
    }

    #[test]
    fn a_claim_gets_a_volume_when_its_class_says_so() {
        let asked = json!({STORAGE_PROVISIONER_ANNOTATION: "csi.example.com"});
        let mut placed = asked.clone();
        placed[SELECTED_NODE_ANNOTATION] = "n".into();
        let of_another = json!({STORAGE_PROVISIONER_ANNOTATION: "other.example.com"});
        for (what, annotations, volume, mode, made) in [
            ("at once", &asked, "", "Immediate", true),
            ("not before it has a node", &asked, "", WAIT_FOR_FIRST_CONSUMER, false),
            ("once it has one", &placed, "", WAIT_FOR_FIRST_CONSUMER, true),
            ("not twice", &asked, "there", "Immediate", false),
            ("not before it is asked for", &json!({}), "", "Immediate", false),
            ("not in another's place", &of_another, "", "Immediate", false),
        ] {
            let server = FakeApi::default();
            let objects = [(Kind::StorageClass, class(mode)), (Kind::VolumeClaim, claim(annotations, volume))];
            play(&server, &objects);
            assert_eq!(!server.calls().is_empty(), made, "{what}");
        }
    }

    #[test]
    fn a_volume_is_what_the_claim_asks_for_in_the_zone_of_its_node() {
        let node = json!({"metadata": {"name": "n", "labels": {LABEL_ZONE: "zone-2"}}});
        let annotations = json!({STORAGE_PROVISIONER_ANNOTATION: "csi.example.com", SELECTED_NODE_ANNOTATION: "n"});
        let server = FakeApi::default();
        let class = class(WAIT_FOR_FIRST_CONSUMER);
        let claim = claim(&annotations, "");
        play(&server, &[(Kind::Node, node), (Kind::StorageClass, class.clone()), (Kind::VolumeClaim, claim.clone())]);
        let here = json!({"key": LABEL_ZONE, "operator": "In", "values": ["zone-2"]});
        let expected = json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": "pvc-u", "annotations": {PROVISIONED_BY_ANNOTATION: "csi.example.com"}},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "3Gi"}, "storageClassName": "fast",
                "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "shop", "name": "data",
                    "uid": "u", "resourceVersion": "7"},
                "csi": {"driver": "csi.example.com", "volumeHandle": "pvc-u"},
                "persistentVolumeReclaimPolicy": "Delete", "volumeMode": "Filesystem",
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
            },
        });
        assert_eq!(request_line(&server.calls()[0]), ("POST persistentvolumes".into(), expected));
        let events = [
            "Provisioning: External provisioner is provisioning volume for claim \"shop/data\"",
            "ProvisioningSucceeded: Successfully provisioned volume pvc-u",
        ];
        let notes: Vec<String> =
            server.events().iter().map(|event| format!("{}: {}", event.reason, event.note)).collect();
        assert_eq!(notes, events);

        let again = FakeApi::new(|_| Err(Status::failure(409, reason::ALREADY_EXISTS, "there")));
        play(&again, &[(Kind::StorageClass, class), (Kind::VolumeClaim, claim)]);
        assert_eq!(again.calls().len(), 1, "one that is there already is as good");
    }

    #[test]
    fn only_released_volumes_of_our_own_go_and_only_when_their_class_says_so() {
        let mut leaving = volume("Delete", "Released", "pvc-u");
        leaving["metadata"]["deletionTimestamp"] = "2026-05-28T00:00:00Z".into();
        for (what, volume, goes) in [
            ("released", volume("Delete", "Released", "pvc-u"), true),
            ("kept", volume("Retain", "Released", "pvc-u"), false),
            ("bound", volume("Delete", "Bound", "pvc-u"), false),
            ("another's", volume("Delete", "Released", "vol-123"), false),
            ("going", leaving, false),
        ] {
            let server = FakeApi::default();
            play(&server, &[(Kind::Volume, volume)]);
            let expected: &[&str] = if goes { &["DELETE persistentvolumes/pvc-u"] } else { &[] };
            assert_eq!(server.lines(), expected, "{what}");
        }
    }
}
