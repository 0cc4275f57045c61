//! What the binder asks of the API server for a claim or a volume.

use bayplan_model::storage::{
    BIND_COMPLETED_ANNOTATION, BOUND_BY_CONTROLLER_ANNOTATION, PROVISIONED_BY_ANNOTATION, SELECTED_NODE_ANNOTATION,
};
use serde_json::{Value, json};

use super::*;
use crate::script::{Script, Step, refused};

fn claim(class: &str, volume: &str, annotations: Value) -> (Kind, Value) {
    let claim = json!({
        "metadata": {"name": "c", "namespace": "ns", "uid": "cu", "resourceVersion": "1", "annotations": annotations},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}},
            "storageClassName": class, "volumeName": volume},
        "status": {"phase": "Pending"},
    });
    (Kind::VolumeClaim, claim)
}

fn volume(name: &str, class: &str, size: &str, phase: &str, reference: Value) -> (Kind, Value) {
    let volume = json!({
        "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}, "storageClassName": class,
            "claimRef": reference, "persistentVolumeReclaimPolicy": "Delete"},
        "status": {"phase": phase},
    });
    (Kind::Volume, volume)
}

fn class(name: &str, mode: &str, provisioner: &str) -> (Kind, Value) {
    (Kind::StorageClass, json!({"metadata": {"name": name}, "volumeBindingMode": mode, "provisioner": provisioner}))
}

fn reference(uid: &str) -> Value {
    json!({"namespace": "ns", "name": "c", "uid": uid})
}

fn with(mut object: (Kind, Value), pointer: &str, value: Value) -> (Kind, Value) {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    object.1.pointer_mut(parent).unwrap()[field] = value;
    object
}

fn stored(object: &(Kind, Value), version: &str) -> Value {
    with(object.clone(), "/metadata/resourceVersion", version.into()).1
}

struct Case(&'static str, &'static str, Vec<(Kind, Value)>, Vec<Step>, &'static [&'static str], &'static str);

fn check(cases: Vec<Case>) {
    for Case(case, key, objects, steps, events, outcome) in cases {
        let cache = Arc::new(Cache::default());
        for (kind, object) in &objects {
            cache.set(*kind, object.to_string().as_bytes()).unwrap();
        }
        let script = Script::new(case, steps);
        let next = script.play(&PersistentVolumeController::new(cache), key);
        assert_eq!(next.map_or_else(|error| error.to_string(), |next| format!("{next:?}")), outcome, "{case}");
        assert_eq!(script.events(), events, "{case}");
    }
}

fn bound_volume(name: &str) -> Value {
    volume(name, "fast", "8Gi", "Bound", reference("cu")).1
}

/// The four writes by which the volume `v` of 8Gi and the claim are bound.
fn binding(reserved: bool, chosen: bool) -> Vec<Step> {
    let mut reserve = json!({"metadata": {"resourceVersion": "1"}, "spec": {"claimRef": {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "ns", "name": "c", "uid": "cu",
        "resourceVersion": "1",
    }}});
    if !reserved {
        reserve["metadata"]["annotations"] = json!({BOUND_BY_CONTROLLER_ANNOTATION: "yes"});
    }
    let mut annotations = json!({BIND_COMPLETED_ANNOTATION: "yes"});
    if !chosen {
        annotations[BOUND_BY_CONTROLLER_ANNOTATION] = "yes".into();
    }
    let free = volume("v", "fast", "8Gi", "Available", reference("cu"));
    let name = json!({"metadata": {"resourceVersion": "1", "annotations": annotations}, "spec": {"volumeName": "v"}});
    let status = json!({"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "8Gi"}});
    vec![
        ("MERGE-PATCH persistentvolumes/v", reserve, Ok(stored(&free, "2"))),
        (
            "MERGE-PATCH persistentvolumes/v/status",
            json!({"metadata": {"resourceVersion": "2"}, "status": {"phase": "Bound", "message": null}}),
            Ok(bound_volume("v")),
        ),
        (
            "MERGE-PATCH ns/persistentvolumeclaims/c",
            name,
            Ok(stored(&claim("fast", "v", json!({BIND_COMPLETED_ANNOTATION: "yes"})), "2")),
        ),
        (
            "MERGE-PATCH ns/persistentvolumeclaims/c/status",
            json!({"metadata": {"resourceVersion": "2"}, "status": status}),
            Ok(claim("fast", "v", json!({})).1),
        ),
    ]
}

fn unbound() -> (Kind, Value) {
    claim("fast", "", json!({}))
}

fn immediate() -> (Kind, Value) {
    class("fast", "Immediate", "example.com/disk")
}

fn waiting() -> (Kind, Value) {
    class("fast", "WaitForFirstConsumer", "example.com/disk")
}

/// The write that asks the class's provisioner for a volume.
fn asked(annotations: &Value) -> Vec<Step> {
    let mut all = annotations.clone();
    all[bayplan_model::storage::BETA_STORAGE_PROVISIONER_ANNOTATION] = "example.com/disk".into();
    all[bayplan_model::storage::STORAGE_PROVISIONER_ANNOTATION] = "example.com/disk".into();
    let patch = json!({"metadata": {"resourceVersion": "1", "annotations": {
        bayplan_model::storage::BETA_STORAGE_PROVISIONER_ANNOTATION: "example.com/disk",
        bayplan_model::storage::STORAGE_PROVISIONER_ANNOTATION: "example.com/disk",
    }}});
    vec![("MERGE-PATCH ns/persistentvolumeclaims/c", patch, Ok(claim("fast", "", all).1))]
}

#[test]
fn an_unbound_claim_takes_the_smallest_matching_volume_or_waits() {
    let free = |name, size| volume(name, "fast", size, "Available", Value::Null);
    let pending = |modes: Value| json!({"phase": "Pending", "accessModes": modes, "capacity": null});
    check(vec![
        Case(
            "the smallest that is large enough",
            "claim/ns/c",
            vec![unbound(), immediate(), free("big", "9Gi"), free("v", "8Gi"), free("small", "4Gi")],
            binding(false, false),
            &[],
            "OnChange",
        ),
        Case(
            "it waits for a pod",
            "claim/ns/c",
            vec![unbound(), waiting(), free("v", "8Gi")],
            vec![],
            &["WaitForFirstConsumer"],
            "OnChange",
        ),
        Case(
            "the scheduler reserved a volume",
            "claim/ns/c",
            vec![unbound(), waiting(), volume("v", "fast", "8Gi", "Available", reference("cu"))],
            binding(true, false)
                .split_off(1)
                .into_iter()
                .enumerate()
                .map(|(i, mut step)| {
                    // The reservation is complete already, so the first write is left out.
                    if i == 0 {
                        step.1["metadata"]["resourceVersion"] = "1".into();
                    }
                    step
                })
                .collect(),
            &[],
            "OnChange",
        ),
        Case(
            "a new claim is pending",
            "claim/ns/c",
            vec![with(claim("", "", json!({})), "/status/phase", "".into())],
            vec![(
                "MERGE-PATCH ns/persistentvolumeclaims/c/status",
                json!({"metadata": {"resourceVersion": "1"}, "status": pending(Value::Null)}),
                Ok(claim("", "", json!({})).1),
            )],
            &["FailedBinding"],
            "OnChange",
        ),
    ]);
}

#[test]
fn a_claim_without_a_matching_volume_asks_its_provisioner() {
    let selected = || json!({SELECTED_NODE_ANNOTATION: "n"});
    let missing = "storageclass.storage.k8s.io \"fast\" not found";
    check(vec![
        Case(
            "the scheduler chose a node",
            "claim/ns/c",
            vec![claim("fast", "", selected()), waiting()],
            asked(&selected()),
            &["ExternalProvisioning"],
            "OnChange",
        ),
        Case(
            "a provisioner is asked",
            "claim/ns/c",
            vec![unbound(), immediate()],
            asked(&json!({})),
            &["ExternalProvisioning"],
            "OnChange",
        ),
        Case("no such class", "claim/ns/c", vec![unbound()], vec![], &["ProvisioningFailed"], missing),
        Case(
            "nobody makes volumes",
            "claim/ns/c",
            vec![unbound(), class("fast", "Immediate", "kubernetes.io/no-provisioner")],
            vec![],
            &["ProvisioningFailed"],
            "no volume plugin matched name: kubernetes.io/no-provisioner",
        ),
        Case("no class at all", "claim/ns/c", vec![claim("", "", json!({}))], vec![], &["FailedBinding"], "OnChange"),
    ]);
}

#[test]
fn a_claim_that_names_its_volume_gets_that_one_or_waits() {
    let choosing = || claim("fast", "v", json!({}));
    check(vec![
        Case("it is not there yet", "claim/ns/c", vec![choosing()], vec![], &[], "OnChange"),
        Case(
            "it is free",
            "claim/ns/c",
            vec![choosing(), volume("v", "fast", "8Gi", "Available", Value::Null)],
            binding(false, true),
            &[],
            "OnChange",
        ),
        Case(
            "it is too small",
            "claim/ns/c",
            vec![choosing(), volume("v", "fast", "1Gi", "Available", Value::Null)],
            vec![],
            &["VolumeMismatch"],
            "OnChange",
        ),
        Case(
            "another claim has it",
            "claim/ns/c",
            vec![
                choosing(),
                volume("v", "fast", "8Gi", "Bound", json!({"namespace": "ns", "name": "other", "uid": "x"})),
            ],
            vec![],
            &["FailedBinding"],
            "OnChange",
        ),
    ]);
}

#[test]
fn a_bound_claim_without_its_volume_is_lost() {
    let bound = |volume: &str| {
        with(claim("fast", volume, json!({BIND_COMPLETED_ANNOTATION: "yes"})), "/status/phase", "Bound".into())
    };
    let lost = || -> Vec<Step> {
        let status = json!({"phase": "Lost", "accessModes": null, "capacity": null});
        let patch = json!({"metadata": {"resourceVersion": "1"}, "status": status});
        vec![("MERGE-PATCH ns/persistentvolumeclaims/c/status", patch, Ok(bound("v").1))]
    };
    let others = volume("v", "fast", "8Gi", "Bound", json!({"namespace": "ns", "name": "other", "uid": "x"}));
    let whole = with(
        with(bound("v"), "/status/accessModes", json!(["ReadWriteOnce"])),
        "/status/capacity",
        json!({"storage": "8Gi"}),
    );
    check(vec![
        Case("all is well", "claim/ns/c", vec![whole, (Kind::Volume, bound_volume("v"))], vec![], &[], "OnChange"),
        Case("the volume is gone", "claim/ns/c", vec![bound("v")], lost(), &["ClaimLost"], "OnChange"),
        Case("the name is gone", "claim/ns/c", vec![bound("")], lost(), &["ClaimLost"], "OnChange"),
        Case("the volume is another's", "claim/ns/c", vec![bound("v"), others], lost(), &["ClaimMisbound"], "OnChange"),
    ]);
}

/// The write of the phase of volume `v`.
fn phase(phase: &str, message: Value, answer: (Kind, Value)) -> Step {
    let patch = json!({"metadata": {"resourceVersion": "1"}, "status": {"phase": phase, "message": message}});
    ("MERGE-PATCH persistentvolumes/v/status", patch, Ok(answer.1))
}

/// Volume `v` in this phase, bound or reserved so.
fn of(state: &str, to: Value) -> (Kind, Value) {
    volume("v", "fast", "8Gi", state, to)
}

#[test]
fn a_volume_is_available_or_bound() {
    check(vec![
        Case(
            "new",
            "volume/v",
            vec![of("", Value::Null)],
            vec![phase("Available", Value::Null, of("Available", Value::Null))],
            &[],
            "OnChange",
        ),
        Case("reserved by name", "volume/v", vec![of("Available", reference(""))], vec![], &[], "OnChange"),
        Case(
            "bound",
            "volume/v",
            vec![of("Available", reference("cu")), claim("fast", "v", json!({}))],
            vec![phase("Bound", Value::Null, of("Bound", reference("cu")))],
            &[],
            "OnChange",
        ),
    ]);
}

#[test]
fn a_volume_whose_claim_is_gone_is_reclaimed() {
    let gone = || -> Step { ("GET ns/persistentvolumeclaims/c", Value::Null, refused(404)) };
    let retained =
        |state: &str| with(of(state, reference("cu")), "/spec/persistentVolumeReclaimPolicy", "Retain".into());
    let made = |state: &str| {
        with(
            of(state, reference("cu")),
            "/metadata/annotations",
            json!({PROVISIONED_BY_ANNOTATION: "example.com/disk"}),
        )
    };
    let why = "error getting deleter volume plugin for volume \"v\": no deletable volume plugin matched";
    let by_us = json!({BOUND_BY_CONTROLLER_ANNOTATION: "yes"});
    let unbound: Step = (
        "MERGE-PATCH persistentvolumes/v",
        json!({
            "metadata": {"resourceVersion": "1", "annotations": {BOUND_BY_CONTROLLER_ANNOTATION: null}},
            "spec": {"claimRef": null},
        }),
        Ok(of("Bound", Value::Null).1),
    );
    check(vec![
        Case(
            "retained",
            "volume/v",
            vec![retained("Bound")],
            vec![gone(), phase("Released", Value::Null, retained("Released"))],
            &[],
            "OnChange",
        ),
        Case("left to its provisioner", "volume/v", vec![made("Released")], vec![gone()], &[], "OnChange"),
        Case(
            "nobody can delete it",
            "volume/v",
            vec![of("Bound", reference("cu"))],
            vec![
                gone(),
                phase("Released", Value::Null, of("Released", reference("cu"))),
                phase("Failed", why.into(), of("Failed", reference("cu"))),
            ],
            &["VolumeFailedDelete"],
            "OnChange",
        ),
        Case(
            "its claim took another one",
            "volume/v",
            vec![with(of("Bound", reference("cu")), "/metadata/annotations", by_us), claim("fast", "other", json!({}))],
            vec![unbound, phase("Available", Value::Null, of("Available", Value::Null))],
            &[],
            "OnChange",
        ),
    ]);
}
