//! What the per-pod path costs, printed: `cargo test --release -p bayplan-scheduler --test costs -- --ignored
//! --nocapture`.
//!
//! These are measurements: nothing fails when a machine is slow.

#![allow(clippy::unwrap_used)] // Helpers of tests, not the product.
#![allow(clippy::disallowed_methods)] // Measuring takes a clock.
#![allow(clippy::print_stdout)] // And says what it measured.

use std::sync::Arc;
use std::time::Instant;

use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::inspect::QueueStage;
use bayplan_scheduler::{Input, Object, Registry, Scheduler, TieBreak};
use jiff::Timestamp;
use serde_json::{Value, json};

fn scheduler() -> Scheduler {
    let text = "{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration}";
    let configuration = Configuration::from_yaml(text).unwrap();
    Scheduler::new(&configuration, &Registry::default(), TieBreak::SmallestName).unwrap()
}

fn now() -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap()
}

fn upsert(scheduler: &mut Scheduler, json: Value) {
    let object = Object::decode(&json).unwrap().unwrap();
    scheduler.handle(Input::upsert(object), now());
}

fn node(name: &str, cpu: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": cpu, "memory": "256Gi", "pods": "1000"}},
    })
}

/// A pod that may go to one node only, so that what is measured is the plugins and not the walk over nodes.
fn pod(name: &str, node: Option<&str>, cpu: &str) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "d", "uid": name, "labels": {"app": "a"}},
        "spec": {
            "schedulerName": "default-scheduler",
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": "1Mi"}}}],
        },
    });
    if let Some(node) = node {
        let only = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]);
        pod["spec"]["affinity"] =
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": only}}});
    }
    pod
}

fn report(what: &str, count: usize, started: Instant) {
    let each = started.elapsed().as_secs_f64() * 1e6 / count as f64;
    println!("{what:<72} {each:>10.2} µs each ({count})");
}

fn drain(scheduler: &mut Scheduler) -> usize {
    let mut tried = 0;
    while scheduler.schedule_one(now()) {
        tried += 1;
        scheduler.take_effects();
    }
    tried
}

#[test]
#[ignore = "a measurement"]
fn plain_pods_through_the_queue() {
    let mut scheduler = scheduler();
    upsert(&mut scheduler, node("n0", "1000000"));
    let pods: Vec<Object> =
        (0..100_000).map(|i| Object::decode(&pod(&format!("p{i}"), None, "1m")).unwrap().unwrap()).collect();
    let started = Instant::now();
    let count = pods.len();
    for pod in pods {
        scheduler.handle(Input::upsert(pod), now());
    }
    report("a pod comes (PodInfo, queue)", count, started);
}

#[test]
#[ignore = "a measurement"]
fn events_while_10000_pods_wait() {
    let mut scheduler = scheduler();
    for i in 0..10 {
        upsert(&mut scheduler, node(&format!("n{i}"), "10"));
    }
    for i in 0..10_000 {
        let mut pod = pod(&format!("p{i}"), None, "100");
        pod["metadata"]["labels"]["template"] = format!("s{}", i % 10).into();
        upsert(&mut scheduler, pod);
    }
    let started = Instant::now();
    let tried = drain(&mut scheduler);
    report("a pod that fits nowhere", tried, started);
    assert_eq!(scheduler.queue().stage("p7"), Some(QueueStage::Unschedulable));
    let placed: Vec<Object> = (0..1_000)
        .map(|i| {
            let mut pod = pod(&format!("placed{i}"), None, "1m");
            pod["spec"]["nodeName"] = "n0".into();
            Object::decode(&pod).unwrap().unwrap()
        })
        .collect();
    let started = Instant::now();
    for pod in &placed {
        scheduler.handle(Input::upsert(pod.clone()), now());
    }
    report("a pod is seen on a node while 10,000 wait", placed.len(), started);
    let nodes: Vec<Object> = (0..1_000)
        .map(|i| {
            let mut node = node("n0", "10");
            node["metadata"]["annotations"] = json!({"beat": i.to_string()});
            Object::decode(&node).unwrap().unwrap()
        })
        .collect();
    let started = Instant::now();
    for node in &nodes {
        scheduler.handle(Input::upsert(node.clone()), now());
    }
    report("a node's annotation changes while 10,000 wait", nodes.len(), started);
    let small: Vec<Object> =
        (0..1_000).map(|i| Object::decode(&node(&format!("small{i}"), "1")).unwrap().unwrap()).collect();
    let started = Instant::now();
    for node in &small {
        scheduler.handle(Input::upsert(node.clone()), now());
    }
    report("a node comes that is too small for the 10,000 that wait", small.len(), started);
}

#[test]
#[ignore = "a measurement"]
fn devices_from_templates() {
    let mut scheduler = scheduler();
    upsert(
        &mut scheduler,
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"},
            "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.io'"}}]},
        }),
    );
    for i in 0..500 {
        let name = format!("n{i}");
        upsert(&mut scheduler, node(&name, "64"));
        let devices: Vec<Value> =
            (0..8).map(|d| json!({"name": format!("gpu-{d}"), "attributes": {"model": {"string": "a"}}})).collect();
        upsert(
            &mut scheduler,
            json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": format!("s-{name}")},
                "spec": {
                    "driver": "gpu.io", "nodeName": name,
                    "pool": {"name": name, "generation": 1, "resourceSliceCount": 1}, "devices": devices,
                },
            }),
        );
    }
    let count = 3_000;
    for i in 0..count {
        let (name, claim) = (format!("p{i}"), format!("c{i}"));
        upsert(
            &mut scheduler,
            json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                "metadata": {
                    "name": claim, "namespace": "d", "uid": claim,
                    "ownerReferences": [{"uid": name, "controller": true}],
                },
                "spec": {"devices": {"requests": [{"name": "r", "exactly": {
                    "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1,
                    "selectors": [{"cel": {"expression": "device.attributes['gpu.io'].model == 'a'"}}],
                }}]}},
            }),
        );
        let mut pod = pod(&name, Some(&format!("n{}", i % 500)), "1m");
        pod["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimTemplateName": "t"}]);
        pod["status"] = json!({"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": claim}]});
        upsert(&mut scheduler, pod);
    }
    let started = Instant::now();
    let tried = drain(&mut scheduler);
    assert_eq!(scheduler.cluster().placed_count(), count);
    report("a pod with a claim, 500 nodes with 8 devices, one node asked", tried, started);
}

#[test]
#[ignore = "a measurement"]
fn volumes() {
    let mut scheduler = scheduler();
    upsert(
        &mut scheduler,
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "local"},
            "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer",
        }),
    );
    for i in 0..1_000 {
        let name = format!("n{i}");
        upsert(&mut scheduler, node(&name, "64"));
        upsert(
            &mut scheduler,
            json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name},
                "spec": {"drivers": [{"name": "csi.io", "allocatable": {"count": 39}}]},
            }),
        );
    }
    for kind in ["bound", "free"] {
        for i in 0..10_000 {
            let (volume, claim, at) = (format!("{kind}-v{i}"), format!("{kind}-c{i}"), format!("n{}", i % 1_000));
            let host = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [at]});
            let mut object = json!({
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume, "resourceVersion": "1"},
                "spec": {
                    "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "local",
                    "csi": {"driver": "csi.io", "volumeHandle": volume},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [host]}]}},
                },
                "status": {"phase": "Available"},
            });
            if kind == "bound" {
                object["spec"]["claimRef"] = json!({"namespace": "d", "name": claim, "uid": claim});
                object["status"]["phase"] = "Bound".into();
            }
            upsert(&mut scheduler, object);
            let mut object = json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"name": claim, "namespace": "d", "uid": claim, "resourceVersion": "1"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"], "storageClassName": "local",
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            });
            if kind == "bound" {
                object["spec"]["volumeName"] = volume.into();
                object["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
            }
            upsert(&mut scheduler, object);
        }
    }
    for kind in ["bound", "free"] {
        for i in 0..2_000 {
            let mut pod = pod(&format!("{kind}-p{i}"), Some(&format!("n{}", i % 1_000)), "1m");
            let claim = json!({"claimName": format!("{kind}-c{i}")});
            pod["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": claim}]);
            upsert(&mut scheduler, pod);
        }
        let started = Instant::now();
        let tried = drain(&mut scheduler);
        report(&format!("a pod with a {kind} volume, 20,000 volumes, one node asked"), tried, started);
    }
    assert_eq!(scheduler.cluster().placed_count(), 4_000);
}

#[test]
#[ignore = "a measurement"]
fn heartbeats() {
    let mut scheduler = scheduler();
    let mut beating = node("n0", "64");
    beating["status"]["images"] =
        (0..50).map(|i| json!({"names": [format!("i{i}"), format!("i{i}@sha")], "sizeBytes": i})).collect();
    let Object::Node(first) = Object::decode(&beating).unwrap().unwrap() else { unreachable!() };
    let beats: Vec<Object> = (0..10_000)
        .map(|i| {
            let mut node = (*first).clone();
            node.metadata.resource_version = i.to_string();
            Object::Node(Arc::new(node))
        })
        .collect();
    let started = Instant::now();
    let count = beats.len();
    for beat in beats {
        scheduler.handle(Input::upsert(beat), now());
    }
    report("a node's heartbeat, 50 images", count, started);
}
