//! The external attacher of clusters whose volumes exist as objects only, and what their kubelets say of volumes: every
//! volume that is asked for is attached at once, and a simulated node uses those that its pods need.
//!
//! Nodes that are not ready say nothing: their volumes stay in use, as those of a machine that hangs.

use std::sync::Arc;

use bayplan_controllers::requests::{NODES, VOLUME_ATTACHMENTS};
use bayplan_controllers::{AnyDelta, Cache, Context, Controller, Error, Kind, PodVolumes, Requeue, Wakeup, split_key};
use bayplan_model::api::{PatchKind, Request, Resource, Verb, encode};
use bayplan_model::delta::Delta;
use bayplan_model::status::reason;
use bayplan_sim::SIMULATED;
use futures::future::BoxFuture;
use serde_json::{Value, json};

/// The simulated attacher.
pub(super) struct SimulatedAttacher {
    cache: Arc<Cache>,
    volumes: PodVolumes,
}

impl SimulatedAttacher {
    pub(super) fn new(cache: Arc<Cache>) -> Self {
        SimulatedAttacher { volumes: PodVolumes::new(Arc::clone(&cache)), cache }
    }

    async fn reconcile(&self, key: &str, context: Context<'_>) -> Result<Requeue, Error> {
        match split_key(key) {
            ("attachment", name) => {
                let attachment = self.cache.volume_attachments().get("", name);
                let is_due = attachment.is_some_and(|attachment| {
                    !attachment.status.attached && attachment.metadata.deletion_timestamp.is_none()
                });
                if is_due {
                    let patch = json!({"status": {"attached": true}});
                    write_status(&VOLUME_ATTACHMENTS, name, &patch, context).await?;
                }
            }
            ("node", name) => self.report(name, context).await?,
            _ => {}
        }
        Ok(Requeue::OnChange)
    }

    /// Says which of the attached volumes a node uses.
    async fn report(&self, name: &str, context: Context<'_>) -> Result<(), Error> {
        let Some(node) = self.cache.nodes().get("", name) else { return Ok(()) };
        let is_simulated = node.metadata.labels.get(SIMULATED).is_some_and(|value| value == "true");
        if !is_simulated || !node.is_ready() {
            return Ok(());
        }
        let needed = self.volumes.on(name);
        let attached = node.status.volumes_attached.iter().map(|volume| &volume.name);
        let used: Vec<&String> = attached.filter(|volume| needed.contains(*volume)).collect();
        if node.status.volumes_in_use.iter().eq(used.iter().copied()) {
            return Ok(());
        }
        let used = if used.is_empty() { Value::Null } else { json!(used) };
        write_status(&NODES, name, &json!({"status": {"volumesInUse": used}}), context).await
    }
}

/// Patches a status; an object that is gone needs none.
async fn write_status(resource: &Resource, name: &str, patch: &Value, context: Context<'_>) -> Result<(), Error> {
    let verb = Verb::Patch(PatchKind::Merge, encode(patch));
    match context.api.call(Request::object(resource, "", name, verb).subresource("status")).await {
        Err(status) if status.is(reason::NOT_FOUND) => Ok(()),
        answer => answer.map(drop).map_err(Error::from),
    }
}

impl Controller for SimulatedAttacher {
    fn name(&self) -> &'static str {
        "simulated-attacher"
    }

    fn watches(&self) -> &'static [Kind] {
        &[Kind::VolumeAttachment, Kind::Node, Kind::Pod, Kind::VolumeClaim, Kind::Volume, Kind::CsiDriver]
    }

    fn observe(&self, delta: &AnyDelta) -> Vec<Wakeup> {
        self.volumes.observe(delta);
        let node = |name: &str| vec![Wakeup::now(format!("node/{name}"))];
        match delta {
            AnyDelta::VolumeAttachment(Delta::Added(one) | Delta::Updated { new: one, .. }) if !one.status.attached => {
                vec![Wakeup::now(format!("attachment/{}", one.metadata.name))]
            }
            AnyDelta::Node(Delta::Added(new)) => node(&new.metadata.name),
            AnyDelta::Node(Delta::Updated { old, new })
                if old.status.volumes_attached != new.status.volumes_attached || old.is_ready() != new.is_ready() =>
            {
                node(&new.metadata.name)
            }
            AnyDelta::Pod(Delta::Added(pod) | Delta::Updated { new: pod, .. } | Delta::Deleted(pod))
                if !pod.node_name.is_empty() && pod.claim_names().next().is_some() =>
            {
                node(&pod.node_name)
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
    use bayplan_testkit::FakeApi;
    use futures::FutureExt;
    use jiff::Timestamp;

    use super::*;

    /// Reconciles all that the last of these objects wakes.
    fn play(objects: &[(Kind, Value)]) -> Vec<String> {
        let (cache, server) = (Arc::new(Cache::default()), FakeApi::default());
        let attacher = SimulatedAttacher::new(Arc::clone(&cache));
        let mut keys = Vec::new();
        for (kind, object) in objects {
            keys = attacher.observe(&cache.set(*kind, object.to_string().as_bytes()).unwrap());
        }
        let context = Context { now: Timestamp::UNIX_EPOCH, api: &server, recorder: &server };
        for wakeup in keys {
            attacher.sync(&wakeup.key, context).now_or_never().unwrap().unwrap();
        }
        server.calls().iter().map(|call| format!("{:?}", bayplan_testkit::request_line(call))).collect()
    }

    #[test]
    fn what_is_asked_for_is_attached() {
        let asked = json!({"metadata": {"name": "csi-1"}, "spec": {"nodeName": "n"}});
        let mut attached = asked.clone();
        attached["status"]["attached"] = json!(true);
        let mut leaving = asked.clone();
        leaving["metadata"]["deletionTimestamp"] = json!("2026-05-28T00:00:00Z");
        let written = play(&[(Kind::VolumeAttachment, asked)]);
        assert_eq!(written.len(), 1);
        assert!(
            written[0].contains("volumeattachments/csi-1/status") && written[0].contains("attached"),
            "{written:?}"
        );
        for other in [attached, leaving] {
            assert_eq!(play(&[(Kind::VolumeAttachment, other)]), [""; 0]);
        }
    }

    #[test]
    fn a_simulated_node_that_is_ready_uses_what_its_pods_need() {
        let node = |label: &str, ready: &str, in_use: Value| {
            json!({
                "metadata": {"name": "n", "labels": {label: "true"}},
                "status": {
                    "conditions": [{"type": "Ready", "status": ready}], "volumesInUse": in_use,
                    "volumesAttached": [
                        {"name": "kubernetes.io/csi/d^h", "devicePath": ""},
                        {"name": "kubernetes.io/csi/d^other", "devicePath": ""},
                    ],
                },
            })
        };
        let objects = |node: Value| {
            let claim = json!({
                "metadata": {"name": "c", "namespace": "ns", "uid": "cu"},
                "spec": {"volumeName": "v"}, "status": {"phase": "Bound"},
            });
            let volume = json!({
                "metadata": {"name": "v"},
                "spec": {"csi": {"driver": "d", "volumeHandle": "h"},
                    "claimRef": {"namespace": "ns", "name": "c", "uid": "cu"}},
            });
            let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
            let pod = json!({
                "metadata": {"name": "p", "namespace": "ns", "uid": "pu"},
                "spec": {"nodeName": "n", "volumes": volumes},
            });
            [(Kind::VolumeClaim, claim), (Kind::Volume, volume), (Kind::Pod, pod), (Kind::Node, node)]
        };
        let written = play(&objects(node(SIMULATED, "True", json!(null))));
        assert_eq!(written.len(), 1);
        assert!(written[0].contains("nodes/n/status") && written[0].contains("d^h"), "{written:?}");
        assert!(!written[0].contains("other"), "{written:?}");
        for quiet in [
            node(SIMULATED, "True", json!(["kubernetes.io/csi/d^h"])),
            node(SIMULATED, "Unknown", json!(null)),
            node("another", "True", json!(null)),
        ] {
            assert_eq!(play(&objects(quiet)), [""; 0]);
        }
    }
}
