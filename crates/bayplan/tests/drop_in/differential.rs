//! The same random pods, one after the other, to `bayplan scheduler` and to kube-scheduler in the same cluster.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::assets::Process;
use crate::control_plane::{ControlPlane, eventually};

const NODES: usize = 24;
/// More with `DROP_IN_PODS`.
const PODS: usize = 120;
/// Bound pods are removed again with this probability, so that the cluster neither fills up nor stays empty.
const LEAVES: f64 = 0.25;
/// Another with `DROP_IN_SEED`.
const SEED: u64 = 36;
const NAMESPACE: &str = "default";
const ZONE: &str = "topology.kubernetes.io/zone";
const HOSTNAME: &str = "kubernetes.io/hostname";
pub(crate) const APPS: [&str; 4] = ["api", "cache", "store", "web"];

/// What the profiles' names end in.
const PROFILES: [&str; 4] = ["", "", "-packed", "-shaped"];

/// The default profile, and two that rate free room otherwise.
fn profiles(name: &str) -> Value {
    let resources = json!([{"name": "cpu", "weight": 3}, {"name": "memory", "weight": 1}]);
    let shape =
        json!([{"utilization": 0, "score": 2}, {"utilization": 40, "score": 10}, {"utilization": 100, "score": 0}]);
    let fit = |strategy: Value| json!([{"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}]);
    let packed = fit(json!({"type": "MostAllocated", "resources": resources}));
    let ratio = json!({
        "type": "RequestedToCapacityRatio",
        "resources": resources,
        "requestedToCapacityRatio": {"shape": shape},
    });
    json!({"profiles": [
        {"schedulerName": name},
        {"schedulerName": format!("{name}-packed"), "pluginConfig": packed},
        {"schedulerName": format!("{name}-shaped"), "pluginConfig": fit(ratio)},
    ]})
}

/// A number from the environment.
pub(crate) fn set<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

/// What became of a pod.
#[derive(Debug, PartialEq)]
enum Outcome {
    Bound(String),
    Unschedulable(String),
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_pods_go_where_kube_scheduler_would_send_them() {
    let Some(plane) = ControlPlane::start().await else { return };
    let (seed, pods) = (set("DROP_IN_SEED").unwrap_or(SEED), set("DROP_IN_PODS").unwrap_or(PODS));
    let config = plane.scheduler_config("theirs", profiles("theirs"));
    // It tells the score of every node at this level.
    let theirs = ["--secure-port=0", "--vmodule=schedule_one=10", "--config", &config];
    let Some(theirs) = plane.upstream("kube-scheduler", &theirs) else { return };
    let config = plane.scheduler_config("ours", profiles("ours"));
    let _ours = plane.bayplan("ours", &["scheduler", "--secure-port=0", "--config", &config]);

    let mut random = StdRng::seed_from_u64(seed);
    for index in 0..NODES {
        plane.create(random_node(index, &mut random)).await;
    }
    let (mut bound, mut unschedulable, mut only_one_best) = (Vec::new(), 0, 0);
    for index in 0..pods {
        let spec = random_spec(&mut random);
        let app = one_of(&mut random, APPS);
        let profile = one_of(&mut random, PROFILES);
        // The pod of the same index has the same name's length and the same labels: only the scheduler differs.
        let name = |scheduler: &str| format!("{scheduler}-{index:03}");
        let their_outcome = offer(&plane, &format!("theirs{profile}"), &name("theirs"), app, &spec).await;
        plane.remove_pod(NAMESPACE, &name("theirs")).await;
        let our_outcome = offer(&plane, &format!("ours{profile}"), &name("ours"), app, &spec).await;
        match (&their_outcome, &our_outcome) {
            (Outcome::Bound(their_node), Outcome::Bound(our_node)) => {
                let best = best(&theirs, &name("theirs"), their_node).await;
                assert!(best.contains(our_node), "seed {seed}, pod {index} on {our_node}, best {best:?}: {spec}");
                only_one_best += usize::from(best.len() == 1);
                bound.push(name("ours"));
            }
            _ => {
                assert_eq!(our_outcome, their_outcome, "seed {seed}, pod {index}: {spec}");
                plane.remove_pod(NAMESPACE, &name("ours")).await;
                unschedulable += 1;
            }
        }
        if random.random_bool(LEAVES) && !bound.is_empty() {
            let leaver = bound.swap_remove(random.random_range(0..bound.len()));
            plane.remove_pod(NAMESPACE, &leaver).await;
        }
    }
    // A run in which nothing could have differed proves nothing.
    assert!(unschedulable > pods / 20 && only_one_best > pods / 4, "{unschedulable} failed, {only_one_best} clear");
}

/// Creates a pod for a scheduler and waits for its answer.
async fn offer(plane: &ControlPlane, scheduler: &str, name: &str, app: &str, spec: &Value) -> Outcome {
    let mut spec = spec.clone();
    spec["schedulerName"] = scheduler.into();
    let metadata = json!({"name": name, "namespace": NAMESPACE, "labels": {"app": app}});
    plane.create(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})).await;
    eventually(&format!("{name} is decided"), async || {
        let pod = plane.find("Pod", NAMESPACE, name).await.unwrap();
        if let Some(node) = pod["spec"]["nodeName"].as_str() {
            return Some(Outcome::Bound(node.to_owned()));
        }
        let message = pod["status"]["conditions"][0]["message"].as_str()?;
        Some(Outcome::Unschedulable(message.to_owned()))
    })
    .await
}

/// The nodes with kube-scheduler's highest score for a pod; its choice alone when it had no other.
async fn best(scheduler: &Process, pod: &str, choice: &str) -> Vec<String> {
    let pod = format!("pod=\"{NAMESPACE}/{pod}\"");
    let scored = async || {
        let log = scheduler.log();
        let lines = log.lines().filter(|line| line.contains(&pod));
        if !lines.clone().any(|line| line.contains("Successfully bound pod")) {
            return None;
        }
        let scores = lines.filter(|line| line.contains("final score")).filter_map(|line| {
            let field = |name: &str| line.split_once(name)?.1.split_whitespace().next();
            Some((field("node=")?.trim_matches('"').to_owned(), field("score=")?.parse::<i64>().ok()?))
        });
        Some(scores.collect::<BTreeMap<_, _>>())
    };
    let scores = eventually("kube-scheduler has told its scores", scored).await;
    let Some(highest) = scores.values().max() else { return vec![choice.to_owned()] };
    assert_eq!(scores.get(choice), Some(highest), "kube-scheduler takes a best node");
    scores.iter().filter(|(_, score)| *score == highest).map(|(node, _)| node.clone()).collect()
}

pub(crate) fn one_of<const N: usize>(random: &mut StdRng, choices: [&'static str; N]) -> &'static str {
    choices[random.random_range(0..N)]
}

pub(crate) fn random_node(index: usize, random: &mut StdRng) -> Value {
    let name = format!("node-{index:02}");
    let cpu = one_of(random, ["2", "3", "4", "6", "8"]);
    let memory = one_of(random, ["4Gi", "6Gi", "10Gi", "16Gi"]);
    let pods = one_of(random, ["4", "10", "20"]);
    let room = json!({"cpu": cpu, "memory": memory, "pods": pods, "ephemeral-storage": "20Gi", "example.com/gpu": "2"});
    let generation = one_of(random, ["1", "3", "5"]);
    let mut labels = json!({HOSTNAME: name, "disk": one_of(random, ["ssd", "hdd"]), "generation": generation});
    if random.random_bool(0.9) {
        labels[ZONE] = format!("zone-{}", index % 4).into();
    }
    let mut taints = Vec::new();
    for (key, effect, share) in
        [("dedicated", "NoSchedule", 0.15), ("maintenance", "PreferNoSchedule", 0.2), ("broken", "NoExecute", 0.1)]
    {
        if random.random_bool(share) {
            taints.push(json!({"key": key, "value": "yes", "effect": effect}));
        }
    }
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints, "unschedulable": random.random_bool(0.05)},
        "status": {"capacity": room, "allocatable": room, "images": images(random)},
    })
}

fn images(random: &mut StdRng) -> Value {
    let image = |app: &&str| json!({"names": [format!("{app}:1")], "sizeBytes": 400_000_000});
    APPS.iter().filter(|_| random.random_bool(0.4)).map(image).collect()
}

pub(crate) fn random_spec(random: &mut StdRng) -> Value {
    let cpu = one_of(random, ["50m", "250m", "500m", "1", "1700m", "7"]);
    let memory = one_of(random, ["64Mi", "512Mi", "1Gi", "3Gi"]);
    let mut requests = json!({"cpu": cpu, "memory": memory});
    if random.random_bool(0.15) {
        requests["example.com/gpu"] = "1".into();
    }
    let image = format!("{}:1", one_of(random, APPS));
    let limits = requests.get("example.com/gpu").map_or(json!({}), |gpu| json!({"example.com/gpu": gpu}));
    let mut container = json!({"name": "c", "image": image, "resources": {"requests": requests, "limits": limits}});
    if random.random_bool(0.2) {
        container["ports"] = json!([{"containerPort": 80, "hostPort": random.random_range(8080..8082)}]);
    }
    let mut spec = json!({"containers": [container]});
    if random.random_bool(0.1) {
        let requests = json!({"cpu": one_of(random, ["100m", "2"]), "memory": "256Mi"});
        spec["initContainers"] = json!([{"name": "i", "image": "init", "resources": {"requests": requests}}]);
    }
    let mut maybe = |share: f64, field: &str, make: &dyn Fn(&mut StdRng) -> Value| {
        if random.random_bool(share) {
            spec[field] = make(random);
        }
    };
    maybe(0.3, "tolerations", &|random| {
        let key = one_of(random, ["dedicated", "maintenance", "broken"]);
        json!([{"key": key, "operator": "Exists"}])
    });
    maybe(0.15, "nodeSelector", &|random| json!({"disk": one_of(random, ["ssd", "hdd", "tape"])}));
    maybe(0.35, "topologySpreadConstraints", &|random| {
        // No two may speak of the same key and the same way.
        let first = random_spread(random, ZONE);
        if random.random_bool(0.3) { json!([first, random_spread(random, HOSTNAME)]) } else { json!([first]) }
    });
    maybe(0.4, "affinity", &random_affinity);
    spec
}

fn random_spread(random: &mut StdRng, key: &str) -> Value {
    let how = one_of(random, ["DoNotSchedule", "ScheduleAnyway"]);
    let mut spread = json!({
        "maxSkew": random.random_range(1..4), "topologyKey": key, "whenUnsatisfiable": how,
        "labelSelector": selector(random), "nodeTaintsPolicy": one_of(random, ["Ignore", "Honor"]),
        "nodeAffinityPolicy": one_of(random, ["Ignore", "Honor"]),
    });
    if how == "DoNotSchedule" && random.random_bool(0.3) {
        spread["minDomains"] = random.random_range(2..6).into();
    }
    spread
}

fn selector(random: &mut StdRng) -> Value {
    json!({"matchLabels": {"app": one_of(random, APPS)}})
}

fn random_affinity(random: &mut StdRng) -> Value {
    let term = |random: &mut StdRng| {
        let (selector, key) = (selector(random), one_of(random, [ZONE, HOSTNAME]));
        json!({"labelSelector": selector, "topologyKey": key})
    };
    let required = |term: Value| json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
    let preferred = |term: Value| json!({"preferredDuringSchedulingIgnoredDuringExecution": [term]});
    match random.random_range(0..6) {
        0 => json!({"podAffinity": required(term(random))}),
        1 => json!({"podAntiAffinity": required(term(random))}),
        2 => json!({"podAffinity": preferred(json!({"weight": 50, "podAffinityTerm": term(random)}))}),
        3 => json!({"podAntiAffinity": preferred(json!({"weight": 80, "podAffinityTerm": term(random)}))}),
        4 => json!({"nodeAffinity": preferred(json!({"weight": 30, "preference": random_node_term(random)}))}),
        _ => {
            let terms = json!({"nodeSelectorTerms": [random_node_term(random), random_node_term(random)]});
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})
        }
    }
}

fn random_node_term(random: &mut StdRng) -> Value {
    let zones: Vec<String> = (0..4).filter(|_| random.random_bool(0.5)).map(|z| format!("zone-{z}")).collect();
    let operator = if zones.is_empty() { "DoesNotExist" } else { one_of(random, ["In", "NotIn"]) };
    let mut expressions = vec![json!({"key": ZONE, "operator": operator, "values": zones})];
    if random.random_bool(0.3) {
        expressions.push(json!({"key": "generation", "operator": one_of(random, ["Gt", "Lt"]), "values": ["3"]}));
    }
    json!({"matchExpressions": expressions})
}
