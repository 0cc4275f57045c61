//! VolumeAttributesClasses: each is protected, and one that was deleted is there while somebody names it.

use std::sync::Arc;

use bayplan_controllers::{AttributesClassProtectionController, Kind};
use bayplan_testkit::Rng;
use serde_json::{Value, json};

use super::{Edit, Life, anything, has_finalizer, is_deleted, name, nobody, silent};
use crate::server::Server;

const FINALIZER: &str = "kubernetes.io/vac-protection";
const CLASSES: &str = "volumeattributesclasses";
const VOLUMES: &str = "persistentvolumes";
const CLAIMS: &str = "persistentvolumeclaims";

pub(super) const LIFE: Life = Life {
    name: "volumeattributesclass-protection",
    kinds: &[Kind::VolumeAttributesClass, Kind::Volume, Kind::CountedVolumeClaim],
    controller: |cache| Arc::new(AttributesClassProtectionController::new(cache)),
    stages: &[first_classes, classes_are_deleted, claims_change_over, users_go],
    report: silent,
    others: nobody,
    edit,
    assert_always: anything,
    assert_kept,
};

fn class(name: &str) -> Value {
    json!({"metadata": {"name": name}, "driverName": "csi.example.com"})
}

fn volume(name: &str, class: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"volumeAttributesClassName": class}})
}

fn claim(name: &str, spec: Value, status: Value) -> Value {
    json!({"metadata": {"name": name, "namespace": "ns"}, "spec": spec, "status": status})
}

fn names(class: &str) -> Value {
    json!({"volumeAttributesClassName": class})
}

fn first_classes(server: &Server) {
    ["bronze", "silver", "gold", "platinum"].into_iter().for_each(|name| server.put(CLASSES, class(name)));
    server.put(VOLUMES, volume("v", "silver"));
    server.put(CLAIMS, claim("c", names("gold"), json!({"currentVolumeAttributesClassName": "gold"})));
    let target = json!({"modifyVolumeStatus": {"targetVolumeAttributesClassName": "platinum"}});
    server.put(CLAIMS, claim("d", names("gold"), target));
}

fn classes_are_deleted(server: &Server) {
    ["bronze", "silver", "gold", "platinum"].into_iter().for_each(|name| server.remove(CLASSES, name));
    server.put(CLASSES, class("iron"));
}

fn claims_change_over(server: &Server) {
    server.edit(CLAIMS, "d", |claim| claim["status"] = json!({}));
    server.edit(CLAIMS, "c", |claim| claim["spec"] = names("iron"));
    server.edit(VOLUMES, "v", |volume| volume["spec"] = names("gold"));
}

fn users_go(server: &Server) {
    server.remove(VOLUMES, "v");
    server.remove(CLAIMS, "c");
    server.remove(CLAIMS, "d");
}

fn edit(rng: &mut Rng) -> Edit {
    let named = *rng.pick(&["bronze", "silver", "gold", "platinum"]);
    let user = *rng.pick(&["c", "d"]);
    match rng.below(6) {
        0 => Box::new(move |server| server.remove(CLASSES, named)),
        1 => Box::new(move |server| server.edit(CLAIMS, user, |claim| claim["spec"] = names(named))),
        2 => Box::new(move |server| {
            let status = json!({"currentVolumeAttributesClassName": named});
            server.edit(CLAIMS, user, |claim| claim["status"] = status);
        }),
        3 => Box::new(move |server| server.edit(VOLUMES, "v", |volume| volume["spec"] = names(named))),
        4 => Box::new(move |server| server.remove(CLAIMS, user)),
        _ => Box::new(move |server| {
            if server.find(CLASSES, named).is_none() {
                server.put(CLASSES, class(named));
            }
        }),
    }
}

fn assert_kept(server: &Server, when: &str) {
    let (volumes, claims) = (server.objects(VOLUMES), server.objects(CLAIMS));
    let by_volume = |class: &str| volumes.iter().any(|v| v["spec"]["volumeAttributesClassName"] == class);
    let by_claim = |class: &str| {
        claims.iter().any(|claim| {
            let status = &claim["status"];
            claim["spec"]["volumeAttributesClassName"] == class
                || status["currentVolumeAttributesClassName"] == class
                || status["modifyVolumeStatus"]["targetVolumeAttributesClassName"] == class
        })
    };
    for class in server.objects(CLASSES) {
        let name = name(&class);
        assert!(has_finalizer(&class, FINALIZER), "{when}: {name} is protected");
        assert!(!is_deleted(&class) || by_volume(name) || by_claim(name), "{when}: {name} is kept for nobody");
    }
}
