//! Which claims are looked at, and what is said of their volumes.

use serde_json::{Value, json};

use super::*;
use crate::script::{ANY, Script, Step, refused};

fn claim(requested: &str, capacity: &str, phase: &str) -> Value {
    json!({
        "metadata": {"name": "c", "namespace": "ns", "uid": "c", "resourceVersion": "4"},
        "spec": {"volumeName": "v", "resources": {"requests": {"storage": requested}}},
        "status": {"phase": phase, "capacity": {"storage": capacity}},
    })
}

fn volume(source: Value) -> Value {
    let mut spec = json!({"claimRef": {"namespace": "ns", "name": "c", "uid": "c"}});
    spec.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
    json!({"metadata": {"name": "v"}, "spec": spec})
}

fn play(claim: Value, case: &'static str, steps: Vec<Step>) -> (String, Vec<String>) {
    let controller = VolumeExpansionController::new(Arc::default());
    controller.cache.set(Kind::VolumeClaim, claim.to_string().as_bytes()).unwrap();
    let script = Script::new(case, steps);
    let outcome = script.play(&controller, "ns/c");
    (outcome.map_or_else(|error| error.to_string(), |next| format!("{next:?}")), script.events())
}

#[test]
fn an_enlarged_claim_is_left_to_an_external_controller() {
    let get = |volume: Value| -> Step { ("GET persistentvolumes/v", ANY, Ok(volume)) };
    let csi = || volume(json!({"csi": {"driver": "d", "volumeHandle": "h"}}));
    let larger = || claim("2Gi", "1Gi", "Bound");
    let told = || vec![EXPANDING.to_owned()];
    let done = || "OnChange".to_owned();
    assert_eq!(play(larger(), "larger", vec![get(csi())]), (done(), told()));
    assert_eq!(play(claim("1Gi", "1024Mi", "Bound"), "the same", vec![get(csi())]), (done(), vec![]));
    assert_eq!(play(larger(), "of a host", vec![get(volume(json!({"hostPath": {"path": "/"}})))]), (done(), told()));
    let disk = volume(json!({"gcePersistentDisk": {"pdName": "d"}}));
    let annotations = json!({RESIZER: "pd.csi.storage.gke.io"});
    let patch = json!({"metadata": {"uid": "c", "resourceVersion": "4", "annotations": annotations}});
    let annotate: Step = ("STRATEGIC-PATCH ns/persistentvolumeclaims/c/status", patch, Ok(json!({})));
    assert_eq!(play(larger(), "migrated", vec![get(disk), annotate]), (done(), told()));
    let mut other = csi();
    other["spec"]["claimRef"]["uid"] = json!("other");
    let not_bound = "persistent Volume is not bound to PVC being updated : ns/c".to_owned();
    assert_eq!(play(larger(), "another's", vec![get(other)]), (not_bound, vec![]));
    let gone = "failed to get PV \"v\": refused with 404".to_owned();
    assert_eq!(play(larger(), "gone", vec![("GET persistentvolumes/v", ANY, refused(404))]), (gone, vec![]));
}

#[test]
fn claims_are_looked_at_when_they_or_their_volumes_grow() {
    for (case, old, new, wakes) in [
        ("new", None, claim("1Gi", "1Gi", "Bound"), 1),
        ("not bound", None, claim("1Gi", "1Gi", "Pending"), 0),
        ("larger", Some(claim("1Gi", "1Gi", "Bound")), claim("2Gi", "1Gi", "Bound"), 1),
        ("enlarged", Some(claim("2Gi", "1Gi", "Bound")), claim("2Gi", "2Gi", "Bound"), 1),
        ("bound", Some(claim("2Gi", "2Gi", "Pending")), claim("2Gi", "2Gi", "Bound"), 0),
        ("in other words", Some(claim("1Gi", "1Gi", "Bound")), claim("1024Mi", "1Gi", "Bound"), 0),
    ] {
        let controller = VolumeExpansionController::new(Arc::default());
        let set = |claim: &Value| controller.cache.set(Kind::VolumeClaim, claim.to_string().as_bytes()).unwrap();
        old.iter().for_each(|old| drop(set(old)));
        assert_eq!(controller.observe(&set(&new)).len(), wakes, "{case}");
    }
}
