//! The cost of a pod grows in a line with each of its lists, and so does that of a node: with four times the elements
//! it may grow five-fold at most. Otherwise one user's pod could hold up everybody's.
//!
//! Allocations are counted in the ordinary run, instructions by a guard that needs valgrind:
//!
//! ```sh
//! cargo test -p bayplan-scheduler --test linear -- --ignored
//! ```

#![allow(clippy::unwrap_used)] // Helpers of tests, not the product.

use std::process::Command;

use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::{Input, Object, Registry, Scheduler, TieBreak};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// The most by which the cost may grow when the elements grow four-fold. A sort makes a little more than a line.
const GROWTH_MAX: f64 = 5.0;
/// Elements of the smaller object; enough that what a pod costs anyway does not hide the growth.
const FEW: usize = 128;

/// What is there before, and the objects that come one after the other, with a scheduling attempt after each.
struct Scene {
    before: Vec<Value>,
    then: Vec<Value>,
}

fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "d", "uid": name, "labels": {"app": "a"}},
        "spec": {
            "schedulerName": "default-scheduler",
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
        },
    });
    pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    pod
}

fn placed(name: &str, node: &str, spec: Value) -> Value {
    let mut pod = pod(name, spec);
    pod["spec"]["nodeName"] = node.into();
    pod
}

fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "zone": "z"}},
        "spec": {},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "1000"}},
    })
}

fn list(n: usize, element: impl Fn(usize) -> Value) -> Value {
    (0..n).map(element).collect()
}

/// A map with so many keys, as labels and resources are.
fn map(n: usize, entry: impl Fn(usize) -> (String, Value)) -> Value {
    Value::Object((0..n).map(entry).collect())
}

fn nodes() -> Vec<Value> {
    ["n0", "n1", "n2"].map(node).into()
}

/// The pod comes to three nodes with room, then to full ones; then a node changes, which makes it come again.
fn of_pod(spec: Value) -> Scene {
    of_pod_among(Vec::new(), spec)
}

fn of_pod_among(objects: Vec<Value>, spec: Value) -> Scene {
    let mut before = nodes();
    before.extend(["n0", "n1"].map(|node| placed(&format!("on-{node}"), node, json!({}))));
    before.extend(objects);
    let full = ["n0", "n1", "n2"].map(|node| {
        let all = json!([{"name": "c", "resources": {"requests": {"cpu": "4"}}}]);
        placed(&format!("fills-{node}"), node, json!({"containers": all}))
    });
    let mut changed = node("n1");
    changed["metadata"]["labels"]["zone"] = "y".into();
    let mut then = vec![pod("first", spec.clone())];
    then.extend(full);
    then.extend([pod("second", spec), changed]);
    Scene { before, then }
}

/// The node comes, a pod is tried on it, it changes, and another pod is tried.
fn of_node(change: impl Fn(&mut Value)) -> Scene {
    let (mut large, mut other) = (node("n0"), node("n0"));
    change(&mut large);
    change(&mut other);
    other["metadata"]["annotations"] = json!({"changed": "yes"});
    other["status"]["allocatable"]["cpu"] = "8".into();
    let tolerates = json!({"tolerations": [{"key": "other", "operator": "Exists"}]});
    Scene { before: nodes(), then: vec![large, pod("first", tolerates.clone()), other, pod("second", tolerates)] }
}

fn expression(i: usize) -> Value {
    json!({"key": format!("k{i}"), "operator": "NotIn", "values": ["v"]})
}

fn affinity_term(i: usize) -> Value {
    let selector = json!({"matchLabels": {"app": format!("a{i}")}});
    json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": selector})
}

fn weighted(kind: &str, n: usize) -> Value {
    let terms = list(n, |i| json!({"weight": 1, "podAffinityTerm": affinity_term(i)}));
    json!({"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": terms}}})
}

fn required(kind: &str, n: usize) -> Value {
    json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": list(n, affinity_term)}}})
}

fn node_affinity(terms: Value) -> Value {
    let required = json!({"nodeSelectorTerms": terms});
    json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}})
}

fn spread(n: usize, unsatisfiable: &str) -> Value {
    json!({"topologySpreadConstraints": list(n, |i| json!({
        "maxSkew": 1, "topologyKey": format!("key-{i}"), "whenUnsatisfiable": unsatisfiable,
        "labelSelector": {"matchLabels": {"app": "a"}},
    }))})
}

/// Bound claims and their volumes.
fn volumes(n: usize) -> Scene {
    let objects = (0..n).flat_map(|i| {
        let (volume, claim) = (format!("v{i}"), format!("c{i}"));
        [
            json!({
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume},
                "spec": {
                    "csi": {"driver": "csi.io", "volumeHandle": volume},
                    "claimRef": {"namespace": "d", "name": claim, "uid": claim},
                },
            }),
            json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {
                    "name": claim, "namespace": "d", "uid": claim,
                    "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
                },
                "spec": {"volumeName": volume, "accessModes": ["ReadWriteOnce"]},
            }),
        ]
    });
    let drivers = ["n0", "n1", "n2"].map(|node| {
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": node},
            "spec": {"drivers": [{"name": "csi.io", "allocatable": {"count": 100_000}}]},
        })
    });
    let mounted = |i| json!({"name": format!("m{i}"), "persistentVolumeClaim": {"claimName": format!("c{i}")}});
    of_pod_among(objects.chain(drivers).collect(), json!({"volumes": list(n, mounted)}))
}

/// Claims that are allocated already: how long a search for devices may take is bounded in another way.
fn claims(n: usize) -> Scene {
    let objects = (0..n).map(|i| {
        let name = format!("c{i}");
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "d", "uid": name},
            "status": {"allocation": {"devices": {"results": [
                {"request": "r", "driver": "d", "pool": "p", "device": name},
            ]}}},
        })
    });
    let used = |i| json!({"name": format!("r{i}"), "resourceClaimName": format!("c{i}")});
    of_pod_among(objects.collect(), json!({"resourceClaims": list(n, used)}))
}

type Case = (&'static str, fn(usize) -> Scene);

const CASES: &[Case] = &[
    ("node affinity terms", |n| of_pod(node_affinity(list(n, |i| json!({"matchExpressions": [expression(i)]}))))),
    ("expressions of a node affinity term", |n| {
        of_pod(node_affinity(json!([{"matchExpressions": list(n, expression)}])))
    }),
    ("values of an expression", |n| {
        let values = list(n, |i| format!("v{i}").into());
        let expression = json!({"key": "zone", "operator": "NotIn", "values": values});
        of_pod(node_affinity(json!([{"matchExpressions": [expression]}])))
    }),
    ("nodes that a term names", |n| {
        let terms = list(n, |i| {
            let name = format!("n{i}");
            json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]})
        });
        of_pod(node_affinity(terms))
    }),
    ("preferred node affinity terms", |n| {
        let terms = list(n, |i| json!({"weight": 1, "preference": {"matchExpressions": [expression(i)]}}));
        of_pod(json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}}))
    }),
    ("required affinity terms", |n| of_pod(required("podAffinity", n))),
    ("required anti-affinity terms", |n| of_pod(required("podAntiAffinity", n))),
    ("preferred affinity terms", |n| of_pod(weighted("podAffinity", n))),
    ("preferred anti-affinity terms", |n| of_pod(weighted("podAntiAffinity", n))),
    ("anti-affinity terms with topology keys of their own", |n| {
        let mut spec = required("podAntiAffinity", n);
        let terms = &mut spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        for (i, term) in terms.as_array_mut().unwrap().iter_mut().enumerate() {
            term["topologyKey"] = format!("key-{i}").into();
        }
        of_pod(spec)
    }),
    ("terms of a pod on a node", |n| {
        of_pod_among(vec![placed("selfish", "n2", required("podAntiAffinity", n))], json!({}))
    }),
    ("preferences of a pod on a node", |n| {
        of_pod_among(vec![placed("sociable", "n2", weighted("podAffinity", n))], json!({}))
    }),
    ("namespaces of an affinity term", |n| {
        let mut spec = required("podAntiAffinity", 1);
        spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]["namespaces"] =
            list(n, |i| format!("ns{i}").into());
        of_pod(spec)
    }),
    ("constraints that must hold", |n| of_pod(spread(n, "DoNotSchedule"))),
    ("constraints that should hold", |n| of_pod(spread(n, "ScheduleAnyway"))),
    ("constraints and affinity terms", |n| {
        let mut spec = spread(n, "DoNotSchedule");
        spec["affinity"] = node_affinity(list(n, |i| json!({"matchExpressions": [expression(i)]})))["affinity"].clone();
        let mut scene = of_pod(spec);
        for node in scene.before.iter_mut().chain(&mut scene.then).filter(|object| object["kind"] == "Node") {
            let labels = map(n, |i| (format!("key-{i}"), "v".into()));
            node["metadata"]["labels"].as_object_mut().unwrap().extend(labels.as_object().unwrap().clone());
        }
        scene
    }),
    ("tolerations", |n| {
        let toleration = |i| json!({"key": format!("k{i}"), "operator": "Exists", "effect": "PreferNoSchedule"});
        of_pod(json!({"tolerations": list(n, toleration)}))
    }),
    ("tolerations of as many taints", |n| {
        let effect = |i| if i % 2 == 0 { "PreferNoSchedule" } else { "NoSchedule" };
        let taint = |i| json!({"key": format!("k{i}"), "value": "v", "effect": effect(i)});
        // The other way round, so that none is found at once.
        let spec = json!({"tolerations": list(n, |i| taint(n - 1 - i))});
        let mut scene = of_pod(spec);
        for node in scene.before.iter_mut().chain(&mut scene.then).filter(|object| object["kind"] == "Node") {
            node["spec"]["taints"] = list(n, taint);
        }
        scene
    }),
    ("node selector", |n| of_pod(json!({"nodeSelector": map(n, |i| (format!("k{i}"), "v".into()))}))),
    ("containers", |n| {
        let requests = json!({"requests": {"cpu": "1m", "memory": "1Mi"}});
        of_pod(json!({"containers": list(n, |i| json!({
            "name": format!("c{i}"), "image": format!("i{i}"), "resources": requests,
        }))}))
    }),
    ("init containers", |n| {
        let requests = json!({"requests": {"cpu": "1m", "memory": "1Mi"}});
        of_pod(json!({"initContainers": list(n, |i| json!({
            "name": format!("c{i}"), "image": format!("i{i}"), "resources": requests, "restartPolicy": "Always",
        }))}))
    }),
    ("host ports", |n| {
        let ports = list(n, |i| json!({"hostPort": i + 1, "protocol": "TCP"}));
        let other = placed("other", "n2", json!({"containers": [{"name": "c", "ports": ports}]}));
        of_pod_among(vec![other], json!({"containers": [{"name": "c", "ports": ports}]}))
    }),
    ("resources", |n| {
        let requests = map(n, |i| (format!("example.com/r{i}"), "1".into()));
        of_pod(json!({"containers": [{"name": "c", "resources": {"requests": requests}}]}))
    }),
    ("volumes without a claim", |n| {
        of_pod(json!({"volumes": list(n, |i| json!({"name": format!("v{i}"), "emptyDir": {}}))}))
    }),
    ("disks", |n| {
        let disks = list(n, |i| json!({"name": format!("v{i}"), "gcePersistentDisk": {"pdName": format!("d{i}")}}));
        let other = list(n, |i| json!({"name": format!("v{i}"), "gcePersistentDisk": {"pdName": format!("o{i}")}}));
        of_pod_among(vec![placed("other", "n2", json!({"volumes": other}))], json!({"volumes": disks}))
    }),
    ("volumes", volumes),
    ("claims", claims),
    ("labels and annotations of a pod", |n| {
        let mut scene = of_pod(json!({}));
        for object in scene.then.iter_mut().filter(|object| object["kind"] == "Pod") {
            object["metadata"]["labels"] = map(n, |i| (format!("k{i}"), "v".into()));
            object["metadata"]["annotations"] = map(n, |i| (format!("k{i}"), "v".into()));
        }
        scene
    }),
    ("taints", |n| {
        of_node(|node| {
            node["spec"]["taints"] = list(n, |i| json!({"key": format!("k{i}"), "effect": "PreferNoSchedule"}));
        })
    }),
    ("labels of a node", |n| {
        of_node(|node| {
            let labels = map(n, |i| (format!("k{i}"), "v".into()));
            node["metadata"]["labels"].as_object_mut().unwrap().extend(labels.as_object().unwrap().clone());
        })
    }),
    ("images", |n| {
        of_node(|node| {
            let image = |i| json!({"names": [format!("i{i}"), format!("i{i}@sha")], "sizeBytes": 1000});
            node["status"]["images"] = list(n, image);
        })
    }),
    ("allocatable resources", |n| {
        of_node(|node| {
            let resources = map(n, |i| (format!("example.com/r{i}"), "1".into()));
            node["status"]["allocatable"].as_object_mut().unwrap().extend(resources.as_object().unwrap().clone());
        })
    }),
    ("declared features", |n| {
        of_node(|node| node["status"]["declaredFeatures"] = list(n, |i| format!("Feature{i}").into()))
    }),
];

/// A scheduler that knows what is there before, and the objects that come.
fn prepare(scene: &Scene) -> (Scheduler, Vec<Object>) {
    let ties = TieBreak::SmallestName;
    let mut scheduler = Scheduler::new(&Configuration::default(), &Registry::default(), ties).unwrap();
    let decode = |object: &Value| Object::decode(object).unwrap().unwrap();
    for object in &scene.before {
        scheduler.handle(Input::upsert(decode(object)), Timestamp::UNIX_EPOCH);
    }
    (scheduler, scene.then.iter().map(decode).collect())
}

/// What is counted. Never inlined, because valgrind counts between its entry and its return.
#[inline(never)]
fn measured(scheduler: &mut Scheduler, objects: Vec<Object>) -> usize {
    let (mut now, mut tried) = (Timestamp::UNIX_EPOCH, 0);
    for object in objects {
        now += SignedDuration::from_secs(20);
        scheduler.handle(Input::upsert(object), now);
        scheduler.tick(now);
        while scheduler.schedule_one(now) {
            tried += 1;
        }
    }
    tried
}

#[test]
fn allocations_grow_in_a_line_with_every_list_of_a_pod_and_of_a_node() {
    let mut steep = Vec::new();
    for (name, scene) in CASES {
        let [few, many] = [FEW, 4 * FEW].map(|n| {
            let (mut scheduler, objects) = prepare(&scene(n));
            let mut tried = 0;
            let info = allocation_counter::measure(|| tried = measured(&mut scheduler, objects));
            assert!(tried >= 2, "{name}: pods are tried");
            info
        });
        let growth = |few: u64, many: u64| many as f64 / few as f64;
        let (count, bytes) = (growth(few.count_total, many.count_total), growth(few.bytes_total, many.bytes_total));
        if count > GROWTH_MAX || bytes > GROWTH_MAX {
            steep.push(format!("{name}: {count:.1} times the allocations, {bytes:.1} times the bytes"));
        }
    }
    assert!(steep.is_empty(), "{steep:#?}");
}

#[test]
#[ignore = "needs valgrind"]
fn instructions_grow_in_a_line_with_every_list_of_a_pod_and_of_a_node() {
    let folder = std::env::temp_dir().join(format!("bayplan-linear-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let counted = Command::new("valgrind")
        .args(["--tool=callgrind", "--zero-before=linear::measured", "--dump-after=linear::measured"])
        .arg(format!("--callgrind-out-file={}/counted", folder.display()))
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "counted", "--test-threads=1"])
        .env("BAYPLAN_COUNTED", "yes")
        .output()
        .expect("valgrind is installed");
    assert!(counted.status.success(), "{}", String::from_utf8_lossy(&counted.stderr));
    let figure = |i: usize| -> u64 {
        let text = std::fs::read_to_string(folder.join(format!("counted.{i}"))).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("summary: ")).expect("a dump has a summary");
        line.trim().parse().unwrap()
    };
    let mut steep = Vec::new();
    for (i, (name, _)) in CASES.iter().enumerate() {
        let (few, many) = (figure(2 * i + 1), figure(2 * i + 2));
        let growth = many as f64 / few as f64;
        if growth > GROWTH_MAX {
            steep.push(format!("{name}: {few} and {many} instructions, {growth:.1} times as many"));
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(steep.is_empty(), "{steep:#?}");
}

/// What valgrind counts: each case with few elements and with four times as many.
#[test]
#[ignore = "run by the guard of instruction counts"]
fn counted() {
    if std::env::var("BAYPLAN_COUNTED").is_err() {
        return;
    }
    for (_, scene) in CASES {
        for n in [FEW, 4 * FEW] {
            let (mut scheduler, objects) = prepare(&scene(n));
            measured(&mut scheduler, objects);
        }
    }
}
