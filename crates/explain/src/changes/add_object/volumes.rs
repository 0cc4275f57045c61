//! PersistentVolumeClaims, PersistentVolumes and StorageClasses that are missing.

use std::sync::Arc;

use bayplan_model::pod::Volume;
use bayplan_model::storage::{BIND_COMPLETED_ANNOTATION, PersistentVolumeClaim, StorageClass, WAIT_FOR_FIRST_CONSUMER};
use serde_json::{Value, json};

use super::{Supply, owner};
use crate::changes::json_ops;
use crate::changes::obstacles::Obstacles;
use crate::changes::trial::{Trial, resource_of_kind};

/// The provisioner of classes whose volumes are made by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
/// The annotation of the class that claims without one get.
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// How large a claim is of which nothing is known but its name.
const UNKNOWN_SIZE: &str = "1Gi";

/// What the pod's volumes lack, each with the ways to supply it.
pub(super) fn needs(trial: &Trial<'_>, obstacles: &Obstacles) -> Vec<Vec<Supply>> {
    let namespace = &trial.pod.metadata.namespace;
    let objects = &trial.state.cluster().objects;
    let mut needs = Vec::new();
    for (volume, name, is_ephemeral) in trial.pod.claim_names() {
        match objects.persistent_volume_claims.get(namespace, &name) {
            None if is_ephemeral => needs.push(ephemeral_claim(trial, volume, &name).into_iter().collect()),
            None => needs.push(claims_of_name(trial, &name)),
            Some(claim) if claim.is_fully_bound() || !claim.spec.volume_name.is_empty() => {
                if objects.persistent_volumes.get("", &claim.spec.volume_name).is_none() {
                    needs.push(vec![volume_of_bound_claim(claim)]);
                }
            }
            Some(claim) => needs.extend(for_unbound(trial, obstacles, claim)),
        }
    }
    needs
}

fn for_unbound(trial: &Trial<'_>, obstacles: &Obstacles, claim: &PersistentVolumeClaim) -> Option<Vec<Supply>> {
    let class = trial.state.cluster().objects.storage_classes.get("", claim.class());
    match class {
        None => {
            let class = (!claim.class().is_empty()).then(|| class_like_another(trial, claim.class())).flatten();
            Some(class.into_iter().chain([bound_volume(trial, claim)]).collect())
        }
        Some(class) if class.volume_binding_mode.as_deref() != Some(WAIT_FOR_FIRST_CONSUMER) => {
            Some(vec![bound_volume(trial, claim)])
        }
        // Where only VolumeBinding refuses nodes, a free volume may be what is missing.
        Some(_) => {
            let is_missing = obstacles.refused_only_by(&["VolumeBinding"]).next().is_some();
            is_missing.then(|| vec![free_volume(trial, claim)])
        }
    }
}

/// Classes of which a provisioner makes volumes once a pod needs them; the default one first.
fn provisioned_classes(trial: &Trial<'_>) -> Vec<Arc<StorageClass>> {
    let classes = trial.state.cluster().objects.storage_classes.iter();
    let waiting = classes.filter(|class| class.volume_binding_mode.as_deref() == Some(WAIT_FOR_FIRST_CONSUMER));
    let mut made: Vec<Arc<StorageClass>> =
        waiting.filter(|class| !class.provisioner.is_empty() && class.provisioner != NO_PROVISIONER).cloned().collect();
    made.sort_by_key(|class| class.metadata.annotations.get(DEFAULT_CLASS).is_none_or(|value| value != "true"));
    made
}

/// A claim of which only the name is known: of a class whose volumes are provisioned, or bound to a volume of its own.
fn claims_of_name(trial: &Trial<'_>, name: &str) -> Vec<Supply> {
    let namespace = &trial.pod.metadata.namespace;
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": UNKNOWN_SIZE}}});
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"namespace": namespace, "name": name}, "spec": spec});
    let provisioned = provisioned_classes(trial).into_iter().take(2).map(|class| {
        let class = &class.metadata.name;
        let mut claim = claim.clone();
        claim["spec"]["storageClassName"] = class.as_str().into();
        let words = format!("the PersistentVolumeClaim {namespace}/{name} (here {UNKNOWN_SIZE} of class {class})");
        Supply { words, adds: vec![claim], ..Supply::default() }
    });
    let mut bound = claim.clone();
    let volume = fresh_volume_name(trial, namespace, name);
    bound["metadata"]["annotations"] = json!({BIND_COMPLETED_ANNOTATION: "yes"});
    bound["spec"]["storageClassName"] = "".into();
    bound["spec"]["volumeName"] = volume.as_str().into();
    bound["status"] = json!({"phase": "Bound"});
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume},
        "spec": {
            "capacity": {"storage": UNKNOWN_SIZE}, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": format!("/mnt/{volume}")},
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name},
        },
        "status": {"phase": "Bound"},
    });
    let words =
        format!("the PersistentVolumeClaim {namespace}/{name} and a PersistentVolume for it (here {UNKNOWN_SIZE})");
    provisioned.chain([Supply { words, adds: vec![volume, bound], ..Supply::default() }]).collect()
}

/// The claim that the controller would make for an ephemeral volume.
fn ephemeral_claim(trial: &Trial<'_>, volume: &Volume, name: &str) -> Option<Supply> {
    let volumes = trial.json().pointer("/spec/volumes").and_then(Value::as_array)?;
    let written = volumes.iter().find(|written| written["name"] == volume.name.as_str())?;
    let template = written.pointer("/ephemeral/volumeClaimTemplate")?;
    let namespace = &trial.pod.metadata.namespace;
    let metadata = json!({"namespace": namespace, "name": name, "ownerReferences": owner(trial),
        "labels": template.pointer("/metadata/labels").cloned().unwrap_or_else(|| json!({}))});
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata,
        "spec": template.get("spec").cloned().unwrap_or_else(|| json!({}))});
    let words = format!("the PersistentVolumeClaim {namespace}/{name} of the ephemeral volume {}", volume.name);
    Some(Supply { words, adds: vec![claim], ..Supply::default() })
}

/// The class that a claim names, as a copy of one that is there.
fn class_like_another(trial: &Trial<'_>, name: &str) -> Option<Supply> {
    let like = provisioned_classes(trial).into_iter().next()?;
    let written = trial.state.written(resource_of_kind("StorageClass")?, "", &like.metadata.name)?;
    let mut class: Value = serde_json::from_str(written.get()).ok()?;
    class["metadata"] = json!({"name": name});
    let words = format!("the StorageClass {name} (here like {})", like.metadata.name);
    Some(Supply { words, adds: vec![class], ..Supply::default() })
}

/// A volume as a claim wants it.
fn volume_for(claim: &PersistentVolumeClaim, name: &str) -> Value {
    let (spec, metadata) = (&claim.spec, &claim.metadata);
    let size = spec.resources.requests.get("storage").map_or_else(|| UNKNOWN_SIZE.to_owned(), ToString::to_string);
    let labels = spec.selector.as_ref().map(|selector| json!(selector.match_labels)).unwrap_or_else(|| json!({}));
    let mut volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name, "labels": labels},
        "spec": {
            "capacity": {"storage": size}, "accessModes": spec.access_modes, "storageClassName": claim.class(),
            "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": format!("/mnt/{name}")},
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": metadata.namespace,
                "name": metadata.name, "uid": metadata.uid},
        },
        "status": {"phase": "Bound"},
    });
    if let Some(mode) = &spec.volume_mode {
        volume["spec"]["volumeMode"] = mode.as_str().into();
    }
    if let Some(class) = &spec.volume_attributes_class_name {
        volume["spec"]["volumeAttributesClassName"] = class.as_str().into();
    }
    volume
}

fn volume_words(claim: &PersistentVolumeClaim, volume: &Value) -> String {
    let size = volume.pointer("/spec/capacity/storage").and_then(Value::as_str).unwrap_or_default();
    format!("a PersistentVolume of {size} for the claim {}", claim.metadata.key())
}

/// The volume that a claim is bound to and that is gone.
fn volume_of_bound_claim(claim: &PersistentVolumeClaim) -> Supply {
    let volume = volume_for(claim, &claim.spec.volume_name);
    let words =
        format!("the PersistentVolume {} that the claim {} is bound to", claim.spec.volume_name, claim.metadata.key());
    Supply { words, adds: vec![volume], ..Supply::default() }
}

/// A volume for a claim that waits for its first pod: free, and large enough.
fn free_volume(trial: &Trial<'_>, claim: &PersistentVolumeClaim) -> Supply {
    let mut volume = volume_for(claim, &fresh_volume_name(trial, &claim.metadata.namespace, &claim.metadata.name));
    if let Some(spec) = volume["spec"].as_object_mut() {
        spec.remove("claimRef");
    }
    volume["status"] = json!({"phase": "Available"});
    Supply { words: volume_words(claim, &volume), adds: vec![volume], ..Supply::default() }
}

/// A volume that is bound to a claim, as the controller binds them.
fn bound_volume(trial: &Trial<'_>, claim: &PersistentVolumeClaim) -> Supply {
    let metadata = &claim.metadata;
    let name = fresh_volume_name(trial, &metadata.namespace, &metadata.name);
    let volume = volume_for(claim, &name);
    let resource = resource_of_kind("PersistentVolumeClaim");
    let written = resource.and_then(|of| trial.state.written(of, &metadata.namespace, &metadata.name));
    let json: Value = written.and_then(|json| serde_json::from_str(json.get()).ok()).unwrap_or(Value::Null);
    let operations = vec![
        json_ops::set(&json, &["spec", "volumeName"], name.into()),
        json_ops::set(&json, &["metadata", "annotations", BIND_COMPLETED_ANNOTATION], "yes".into()),
    ];
    Supply {
        words: format!("{} and bind it", volume_words(claim, &volume)),
        adds: vec![volume],
        claim: Some((metadata.name.clone(), operations)),
        ..Supply::default()
    }
}

fn fresh_volume_name(trial: &Trial<'_>, namespace: &str, claim: &str) -> String {
    let volumes = &trial.state.cluster().objects.persistent_volumes;
    let name = format!("{namespace}-{claim}");
    let mut others = (1..).map(|n| format!("{name}-{n}"));
    if volumes.get("", &name).is_none() {
        return name;
    }
    others.find(|other| volumes.get("", other).is_none()).unwrap_or(name)
}
