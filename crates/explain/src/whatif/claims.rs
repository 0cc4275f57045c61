//! The claims that controllers make for single pods, and what becomes of them when a pod is made again.

use std::sync::Arc;

use bayplan_model::pod::{Pod, PodResourceClaimStatus, PodStatus};
use serde_json::{Value, json};

use super::Error;
use super::session::Session;
use crate::completion::text;

/// The annotation that names the entry of a pod's `resourceClaims` a claim was made for.
const POD_CLAIM_NAME: &str = "resource.kubernetes.io/pod-claim-name";

impl Session<'_> {
    /// Makes the claims of a new pod's ephemeral volumes and of its claim templates, as their controllers would.
    pub(super) fn make_claims(&mut self, pod: &mut Pod, written: &Value) -> Result<(), Error> {
        if self.options.as_written {
            return Ok(());
        }
        if pod.metadata.uid.is_empty() {
            pod.metadata.uid = pod.metadata.key();
        }
        for volume in written["spec"]["volumes"].as_array().into_iter().flatten() {
            let template = &volume["ephemeral"]["volumeClaimTemplate"];
            if template.is_object() {
                self.make_volume_claim(pod, text(volume, "/name"), template)?;
            }
        }
        for wanted in pod.spec.resource_claims.clone() {
            if let Some(template) = &wanted.resource_claim_template_name {
                self.make_resource_claim(pod, &wanted.name, template)?;
            }
        }
        Ok(())
    }

    fn make_volume_claim(&mut self, pod: &Pod, volume: &str, template: &Value) -> Result<(), Error> {
        let claims = Self::resource("v1", "PersistentVolumeClaim")?;
        let name = format!("{}-{volume}", pod.metadata.name);
        if self.state.written(claims, &pod.metadata.namespace, &name).is_some() {
            return Ok(());
        }
        let claim = json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": name, "namespace": pod.metadata.namespace, "ownerReferences": [owned_by(pod)],
                "labels": template["metadata"]["labels"], "annotations": template["metadata"]["annotations"],
            },
            "spec": template["spec"],
        });
        let claim = self.completion.complete(claim, self.options.now)?;
        self.put_written(claims, &claim)
    }

    fn make_resource_claim(&mut self, pod: &mut Pod, entry: &str, template: &str) -> Result<(), Error> {
        let templates = Self::resource("resource.k8s.io/v1", "ResourceClaimTemplate")?;
        let claims = Self::resource("resource.k8s.io/v1", "ResourceClaim")?;
        let namespace = pod.metadata.namespace.clone();
        // Without the template the pod waits for its claim, as it would in the cluster.
        let Some(template) = self.written(templates, &namespace, template) else { return Ok(()) };
        let name = format!("{}-{entry}-0", pod.metadata.name);
        let mut annotations = template["spec"]["metadata"]["annotations"].clone();
        if !annotations.is_object() {
            annotations = json!({});
        }
        annotations[POD_CLAIM_NAME] = entry.into();
        let claim = json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {
                "name": name, "namespace": namespace, "uid": format!("{namespace}/{name}"),
                "annotations": annotations, "labels": template["spec"]["metadata"]["labels"],
                "ownerReferences": [owned_by(pod)],
            },
            "spec": template["spec"]["spec"],
        });
        let mut claim = self.completion.complete(claim, self.options.now)?;
        claim["metadata"]["uid"] = format!("{namespace}/{name}").into();
        self.put_written(claims, &claim)?;
        pod.status.resource_claim_statuses.retain(|status| status.name != entry);
        let status = PodResourceClaimStatus { name: entry.to_owned(), resource_claim_name: Some(name) };
        pod.status.resource_claim_statuses.push(status);
        Ok(())
    }

    /// The pod that takes the place of one that left: the same, but new, pending and without what only the old one had.
    pub(super) fn successor(&mut self, pod: &Arc<Pod>) -> Pod {
        let mut next = (**pod).clone();
        next.metadata.uid = format!("{}+", pod.metadata.uid);
        next.metadata.resource_version = String::new();
        next.metadata.deletion_timestamp = None;
        next.metadata.creation_timestamp = Some(self.options.now);
        next.spec.node_name = String::new();
        let resource_claim_statuses = std::mem::take(&mut next.status.resource_claim_statuses);
        next.status = PodStatus { phase: "Pending".into(), resource_claim_statuses, ..PodStatus::default() };
        self.renew_volume_claims(&next);
        self.renew_resource_claims(pod, &next);
        next
    }

    /// The claims of ephemeral volumes go with their pod; the next pod gets new ones.
    fn renew_volume_claims(&mut self, pod: &Pod) {
        let Ok(claims) = Self::resource("v1", "PersistentVolumeClaim") else { return };
        let namespace = &pod.metadata.namespace;
        for volume in pod.spec.volumes.iter().filter(|volume| volume.ephemeral.is_some()) {
            let name = format!("{}-{}", pod.metadata.name, volume.name);
            let Some(mut claim) = self.written(claims, namespace, &name) else { continue };
            if let Some(spec) = claim["spec"].as_object_mut() {
                spec.remove("volumeName");
            }
            claim["status"] = json!({"phase": "Pending"});
            claim["metadata"]["annotations"] = json!({});
            claim["metadata"]["ownerReferences"] = json!([owned_by(pod)]);
            self.renew(claims, &claim);
        }
    }

    /// Claims made from templates are new as well; shared ones are released, and free once nobody uses them.
    fn renew_resource_claims(&mut self, former: &Pod, pod: &Pod) {
        let Ok(claims) = Self::resource("resource.k8s.io/v1", "ResourceClaim") else { return };
        let namespace = &pod.metadata.namespace;
        let generated = former.status.resource_claim_statuses.iter().filter_map(|s| s.resource_claim_name.clone());
        let named = former.spec.resource_claims.iter().filter_map(|claim| claim.resource_claim_name.clone());
        let all: Vec<(String, bool)> =
            generated.map(|name| (name, true)).chain(named.map(|name| (name, false))).collect();
        for (name, own) in all {
            let Some(mut claim) = self.written(claims, namespace, &name) else { continue };
            if let Some(reserved) = claim["status"]["reservedFor"].as_array_mut() {
                reserved.retain(|consumer| consumer["uid"] != *former.metadata.uid);
            }
            let unused = claim["status"]["reservedFor"].as_array().is_none_or(Vec::is_empty);
            if own || unused {
                claim["status"] = json!({});
            }
            if own {
                claim["metadata"]["ownerReferences"] = json!([owned_by(pod)]);
            }
            self.renew(claims, &claim);
        }
    }

    fn renew(&mut self, resource: &'static bayplan_sources::Resource, object: &Value) {
        if let Err(error) = self.put_written(resource, object) {
            self.notes.push(error.to_string());
        }
    }
}

fn owned_by(pod: &Pod) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid,
        "controller": true, "blockOwnerDeletion": true,
    })
}
