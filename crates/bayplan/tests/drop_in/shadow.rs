//! `bayplan shadow` beside a real kube-scheduler, over pods of all kinds while nodes and pods come and go.

use std::ops::Range;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::assets::Process;
use crate::control_plane::{ControlPlane, eventually};
use crate::differential::{APPS, one_of, random_node, random_spec, set};

const NODES: usize = 40;
/// More with `DROP_IN_PODS`.
const PODS: usize = 2000;
/// Another with `DROP_IN_SEED`.
const SEED: u64 = 14;
/// So many that kube-scheduler looks for 47 % of them.
const MANY_NODES: usize = 400;
const SAMPLED_PODS: usize = 400;
/// Pods that are judged by another configuration than kube-scheduler's.
const CONTROL_PODS: usize = 80;
/// Pods that are created at once.
const BURST: usize = 8;
/// Pods that are there at once: about as many as fit.
const ALIVE: usize = 120;
const NAMESPACE: &str = "default";
const PRIORITIES: [&str; 4] = ["", "", "low", "high"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shadow_explains_every_binding_of_kube_scheduler() {
    let Some(plane) = ControlPlane::start().await else { return };
    let Some(_theirs) = upstream(&plane, 100) else { return };
    let (seed, pods) = (set("DROP_IN_SEED").unwrap_or(SEED), set("DROP_IN_PODS").unwrap_or(PODS));
    let mut random = StdRng::seed_from_u64(seed);
    prepare(&plane, NODES, &mut random).await;

    let report = shadowed(&plane, "shadow", &[], 0..pods, &mut random).await;
    let count = |name: &str| report[name].as_u64().unwrap();
    assert_eq!(count("unexplained"), 0, "seed {seed}: {report:#}");
    // A run in which hardly anything was judged, or in which anything would have been right, proves nothing.
    assert!(count("seen") as usize > pods / 2 && count("same") as usize > pods / 4, "seed {seed}: {report:#}");
    println!("{report:#}");

    // Against a configuration that is not kube-scheduler's, the same judge finds what is wrong, and does not say of
    // most of it that states raced.
    let fit = json!([{"name": "NodeResourcesFit", "args": {"scoringStrategy": {
        "type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]}}}]);
    let profiles = json!([{"schedulerName": "default-scheduler", "pluginConfig": fit}]);
    let other = plane.scheduler_config("other", json!({"profiles": profiles}));
    let report = shadowed(&plane, "other", &["--config", &other], pods..pods + CONTROL_PODS, &mut random).await;
    let count = |name: &str| report[name].as_u64().unwrap();
    assert!(2 * count("unexplained") > count("raced").max(1), "seed {seed}: {report:#}");
    println!("{report:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shadow_knows_that_kube_scheduler_scores_part_of_many_nodes() {
    let Some(plane) = ControlPlane::start().await else { return };
    let Some(_theirs) = upstream(&plane, 0) else { return };
    let seed = set("DROP_IN_SEED").unwrap_or(SEED);
    let mut random = StdRng::seed_from_u64(seed);
    prepare(&plane, MANY_NODES, &mut random).await;
    let report = shadowed(&plane, "shadow", &[], 0..SAMPLED_PODS, &mut random).await;
    let count = |name: &str| report[name].as_u64().unwrap();
    assert_eq!(count("unexplained"), 0, "seed {seed}: {report:#}");
    assert!(count("sampled") as usize > SAMPLED_PODS / 20, "seed {seed}: {report:#}");
    println!("{report:#}");
    // A judge who believes that all nodes are scored finds the same bindings wrong.
    let all = plane.scheduler_config("all", json!({"percentageOfNodesToScore": 100}));
    let pods = SAMPLED_PODS..SAMPLED_PODS + CONTROL_PODS;
    let report = shadowed(&plane, "all", &["--config", &all], pods, &mut random).await;
    let count = |name: &str| report[name].as_u64().unwrap();
    assert!(count("sampled") == 0 && count("unexplained") > 0, "seed {seed}: {report:#}");
}

/// kube-scheduler that scores a share of the nodes (0: its own choice), and the controller that binds volumes.
fn upstream(plane: &ControlPlane, percentage: u32) -> Option<[Process; 2]> {
    let kubeconfig = format!("--kubeconfig={}", plane.kubeconfig("admin").display());
    let rest = ["--leader-elect=false", "--secure-port=0", "--controllers=persistentvolume-binder-controller"];
    let manager = plane.upstream("kube-controller-manager", &[&rest[..], &[&kubeconfig]].concat())?;
    let config = plane.scheduler_config("theirs", json!({"percentageOfNodesToScore": percentage}));
    Some([manager, plane.upstream("kube-scheduler", &["--secure-port=0", "--config", &config])?])
}

/// Offers pods beside a shadow, and answers its report.
async fn shadowed(plane: &ControlPlane, name: &str, more: &[&str], pods: Range<usize>, random: &mut StdRng) -> Value {
    let kubeconfig = plane.kubeconfig("admin");
    let arguments = ["shadow", "--kubeconfig", kubeconfig.to_str().unwrap(), "-o", "json"];
    let shadow = plane.bayplan(name, &[&arguments[..], more].concat());
    eventually("the shadow watches", async || shadow.log().contains("watching").then_some(())).await;
    offer_pods(plane, pods, random).await;
    // What is bound by now is seen by now; judging waits two seconds for bindings on their way.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(shadow.stop().success());
    let log = std::fs::read_to_string(plane.folder().join(format!("{name}.log"))).unwrap();
    serde_json::from_str(&log[log.find("\n{").unwrap()..]).unwrap()
}

async fn prepare(plane: &ControlPlane, nodes: usize, random: &mut StdRng) {
    for index in 0..nodes {
        plane.create(random_node(index, random)).await;
    }
    for (name, value) in [("low", -10), ("high", 1000)] {
        let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": name}, "value": value});
        plane.create(class).await;
    }
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "found"},
        "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer",
    });
    plane.create(class).await;
}

/// Creates pods in bursts; in between pods leave, and nodes are cordoned, relabelled, removed and added.
async fn offer_pods(plane: &ControlPlane, pods: Range<usize>, random: &mut StdRng) {
    let mut alive: Vec<String> = Vec::new();
    for first in pods.clone().step_by(BURST) {
        let burst: Vec<Value> = (first..(first + BURST).min(pods.end)).map(|index| random_pod(index, random)).collect();
        for pod in &burst {
            if pod["spec"]["volumes"].is_array() {
                let name = pod["metadata"]["name"].as_str().unwrap();
                plane.create(volume(name, random)).await;
                plane.create(claim(name)).await;
            }
        }
        alive.extend(burst.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()));
        futures::future::join_all(burst.into_iter().map(|pod| plane.create(pod))).await;
        while alive.len() > ALIVE {
            // Not the youngest, which may not be decided yet.
            let leaver = alive.remove(random.random_range(0..alive.len() - 4 * BURST));
            plane.remove_pod(NAMESPACE, &leaver).await;
        }
        churn(plane, random).await;
    }
}

fn random_pod(index: usize, random: &mut StdRng) -> Value {
    let name = format!("pod-{index}");
    let mut spec = random_spec(random);
    let priority = one_of(random, PRIORITIES);
    if !priority.is_empty() {
        spec["priorityClassName"] = priority.into();
    }
    if random.random_bool(0.05) {
        spec["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": name}}]);
    }
    let metadata = json!({"name": name, "namespace": NAMESPACE, "labels": {"app": one_of(random, APPS)}});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

fn volume(name: &str, random: &mut StdRng) -> Value {
    let zone = format!("zone-{}", random.random_range(0..4));
    let expression = json!({"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]});
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {
            "storageClassName": "found", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "local": {"path": "/x"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
        },
    })
}

fn claim(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "storageClassName": "found", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    })
}

async fn churn(plane: &ControlPlane, random: &mut StdRng) {
    let index = random.random_range(0..NODES);
    let name = format!("node-{index:02}");
    match random.random_range(0..8) {
        0 => plane.patch(("Node", "", name.as_str()), json!({"spec": {"unschedulable": true}})).await,
        1 | 2 => plane.patch(("Node", "", name.as_str()), json!({"spec": {"unschedulable": null}})).await,
        3 => {
            let disk = one_of(random, ["ssd", "hdd"]);
            plane.patch(("Node", "", name.as_str()), json!({"metadata": {"labels": {"disk": disk}}})).await;
        }
        4 => {
            plane.remove("Node", "", &name).await;
            plane.create(random_node(index, random)).await;
        }
        _ => {}
    }
}
