//! What a reconcile costs grows in a line with what it looks at, whoever wrote it: owned objects, objects that only
//! look owned, orphans, conditions, references. Measured for sixteen times as much of each, where a square would be 256
//! times the work: allocations are counted, and the thread's processor time is a coarse second measure for what
//! allocates nothing.
//!
//! ```text
//!   main        workloads, garbage, budgets, device claims
//!   namespaces  namespaces and service accounts
//!   nodes       node lifecycle, evictions, pods of nodes that are gone
//!   services    endpoints, slices and what is mirrored into them
//!   volumes     volumes, claims and their protection
//! ```
#![allow(clippy::unwrap_used, reason = "a test may")]

mod namespaces;
mod nodes;
mod services;
mod volumes;

use std::sync::Arc;

use bayplan_controllers::{
    Cache, Context, Controller, DeploymentController, DisruptionController, GarbageCollector, Kind,
    ReplicaSetController, ResourceClaimController, StatefulSetController, discovery,
};
use bayplan_model::api::Request;
use bayplan_model::delta::Delta;
use bayplan_model::meta::{ObjectMeta, PartialObjectMetadata};
use bayplan_model::status::Status;
use bayplan_testkit::FakeApi;
use futures::FutureExt;
use jiff::Timestamp;
use serde_json::{Value, json};

const FEW: usize = 250;
const GROWTH: usize = 16;
/// Between the line (16) and the square (256): room for caches that no longer hold it all, and for a machine that is
/// busy with other things.
const GROWTH_MAX: u64 = 80;
/// Allocations are the same each time; maps and sorted lists grow a little faster than a line.
const ALLOCATIONS_GROW_MAX: u64 = 24;

/// The processor time this thread has used, in nanoseconds.
fn processor_time() -> u64 {
    // The kernel charges a thread when it lets go of the processor.
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

/// What some syncs cost.
#[derive(Clone, Copy, Debug)]
struct Cost {
    allocations: u64,
    allocated_bytes: u64,
    nanoseconds: u64,
}

/// The least of some measurements: the others were disturbed.
fn cost(make: &dyn Fn(usize) -> Case, count: usize) -> Cost {
    let measure = |_| {
        let case = make(count);
        let api = FakeApi::new(case.answer);
        let context = Context { now: Timestamp::from_second(1_780_000_000).unwrap(), api: &api, recorder: &api };
        let before = processor_time();
        let counted = allocation_counter::measure(|| (0..REPEATS).for_each(|_| (case.run)(context)));
        let nanoseconds = processor_time() - before;
        Cost { allocations: counted.count_total, allocated_bytes: counted.bytes_total, nanoseconds }
    };
    (0..3).map(measure).min_by_key(|cost| cost.nanoseconds).unwrap()
}

/// Enough for the small case to be measurable.
const REPEATS: usize = 3;

type Answer = Box<dyn Fn(&Request) -> Result<Value, Status> + Send + Sync>;

struct Case {
    run: Box<dyn Fn(Context<'_>)>,
    answer: Answer,
}

impl Case {
    /// A reconcile of a key, with a server that agrees to everything.
    fn of(controller: impl Controller + 'static, key: &'static str) -> Case {
        Case::of_all(controller, vec![key])
    }

    /// Reconciles of keys, one after the other.
    fn of_all(controller: impl Controller + 'static, keys: Vec<&'static str>) -> Case {
        let run = move |context: Context<'_>| keys.iter().for_each(|key| sync(&controller, key, context));
        Case { run: Box::new(run), answer: Box::new(|_| Ok(json!({}))) }
    }

    /// The same with a server that answers in its own way.
    fn answered(self, answer: impl Fn(&Request) -> Result<Value, Status> + Send + Sync + 'static) -> Case {
        Case { answer: Box::new(answer), ..self }
    }
}

/// What the reconcile makes of it is shown elsewhere; here it may fail.
fn sync(controller: &dyn Controller, key: &str, context: Context<'_>) {
    let outcome = controller.sync(key, context).now_or_never().expect("the fake server answers at once");
    drop(outcome);
}

fn cache(objects: impl IntoIterator<Item = (Kind, Value)>) -> Arc<Cache> {
    let cache = Arc::new(Cache::default());
    for (kind, object) in objects {
        cache.set(kind, object.to_string().as_bytes()).unwrap();
    }
    cache
}

/// Fills the cache of a controller that was made over it, and shows it each object.
fn observed(controller: &impl Controller, cache: &Cache, objects: impl IntoIterator<Item = (Kind, Value)>) {
    for (kind, object) in objects {
        controller.observe(&cache.set(kind, object.to_string().as_bytes()).unwrap());
    }
}

fn owner(kind: &str, name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name, "controller": true})
}

fn meta(namespace: &str, name: &str, owners: Value) -> Value {
    json!({
        "name": name, "namespace": namespace, "uid": format!("{namespace}-{name}"), "resourceVersion": "5",
        "labels": {"app": "web"}, "ownerReferences": owners,
    })
}

fn conditions(count: usize) -> Value {
    (0..count).map(|n| json!({"type": format!("C{n}"), "status": "True"})).collect()
}

fn replica_set(name: &str, replicas: usize, above: Value, condition_count: usize) -> Value {
    let mut set = json!({
        "metadata": meta("ns", name, above),
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}},
        },
        "status": {"replicas": 0, "conditions": conditions(condition_count)},
    });
    set["metadata"]["uid"] = json!(name);
    set
}

fn pods(count: usize, namespace: &str, owners: &Value) -> Vec<(Kind, Value)> {
    let pod = |n| {
        let node = format!("node-{}", n % 10);
        json!({
            "metadata": meta(namespace, &format!("p{n}"), owners.clone()),
            "spec": {"nodeName": node}, "status": {"phase": "Running"},
        })
    };
    (0..count).map(|n| (Kind::Pod, pod(n))).collect()
}

/// A ReplicaSet over these pods that has one pod too many, so that it ranks them.
fn replica_sets(replicas: usize, pods: Vec<(Kind, Value)>, conditions: usize) -> Case {
    let set = replica_set("web", replicas, json!([owner("Deployment", "d")]), conditions);
    let cache = cache(pods.into_iter().chain([(Kind::ReplicaSet, set)]));
    Case::of(ReplicaSetController::new(cache), "ns/web")
}

fn deployment(sets: Vec<(Kind, Value)>, condition_count: usize) -> Case {
    let labels = json!({"app": "web"});
    let d = json!({
        "metadata": {"name": "d", "namespace": "ns", "uid": "d", "resourceVersion": "7", "generation": 1},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": labels}, "strategy": {"type": "Recreate"},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "new"}]}},
            "revisionHistoryLimit": 2, "progressDeadlineSeconds": 600,
        },
        "status": {"conditions": conditions(condition_count)},
    });
    let cache = cache(sets.into_iter().chain([(Kind::Deployment, d)]));
    Case::of(DeploymentController::new(cache), "ns/d")
}

fn sets(count: usize, namespace: &str) -> Vec<(Kind, Value)> {
    let set = |n| {
        let mut set = replica_set(&format!("s{n}"), 0, json!([owner("Deployment", "d")]), 0);
        set["metadata"]["namespace"] = json!(namespace);
        (Kind::ReplicaSet, set)
    };
    (0..count).map(set).collect()
}

/// As many ReplicaSets of one Deployment as pods, one of each other's, and one pod too many.
fn siblings(count: usize) -> Case {
    let labels = |n: usize| json!({"app": "web", "pod-template-hash": format!("h{n}")});
    let set = |n: usize| {
        let mut set = replica_set(&format!("s{n}"), usize::from(n > 0), json!([owner("Deployment", "d")]), 0);
        set["spec"]["selector"] = json!({"matchLabels": labels(n)});
        (Kind::ReplicaSet, set)
    };
    let pod = |n: usize| {
        let mut pod = json!({
            "metadata": meta("ns", &format!("p{n}"), json!([owner("ReplicaSet", &format!("s{}", n / 2))])),
            "spec": {"nodeName": format!("node-{}", n % 10)}, "status": {"phase": "Running"},
        });
        pod["metadata"]["labels"] = labels(n / 2);
        (Kind::Pod, pod)
    };
    let cache = cache((0..count / 2).map(set).chain((0..count).map(pod)));
    Case::of(ReplicaSetController::new(cache), "ns/s1")
}

/// A StatefulSet of these pods, one of which is of an old revision, with claims that get an owner.
fn stateful_set(count: usize, policy: &str) -> Case {
    let mut set = replica_set("web", count, json!([]), 0);
    set["spec"]["podManagementPolicy"] = json!(policy);
    set["spec"]["updateStrategy"] = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}});
    set["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}}]);
    let ready = json!([{"type": "Ready", "status": "True"}]);
    let pod = |n: usize| {
        let mut metadata = meta("ns", &format!("web-{n}"), json!([owner("StatefulSet", "web")]));
        metadata["labels"]["statefulset.kubernetes.io/pod-name"] = json!(format!("web-{n}"));
        let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": format!("data-web-{n}")}});
        let status = json!({"phase": "Running", "conditions": ready});
        (Kind::Pod, json!({"metadata": metadata, "spec": {"volumes": [volume]}, "status": status}))
    };
    let claim = |n: usize| (Kind::VolumeClaim, json!({"metadata": meta("ns", &format!("data-web-{n}"), json!([]))}));
    let objects = (0..count).map(pod).chain((0..count).map(claim)).chain([(Kind::StatefulSet, set)]);
    Case::of(StatefulSetController::new(cache(objects)), "ns/web")
}

/// A StatefulSet that once had this many pods more.
fn shrunken_stateful_set(count: usize) -> Case {
    let mut set = replica_set("web", 0, json!([]), 0);
    set["spec"]["podManagementPolicy"] = json!("Parallel");
    let pods = (0..count).map(|n| {
        let metadata = meta("ns", &format!("web-{n}"), json!([owner("StatefulSet", "web")]));
        (Kind::Pod, json!({"metadata": metadata, "status": {"phase": "Running"}}))
    });
    Case::of(StatefulSetController::new(cache(pods.chain([(Kind::StatefulSet, set)]))), "ns/web")
}

/// Revisions of a StatefulSet.
fn revisions_of_stateful_set(count: usize) -> Case {
    let set = replica_set("web", 0, json!([]), 0);
    let revision = |n: usize| {
        let data = json!({"spec": {"template": {"spec": {"containers": [{"name": format!("c{n}")}]}}}});
        let metadata = meta("ns", &format!("web-r{n}"), json!([owner("StatefulSet", "web")]));
        (Kind::ControllerRevision, json!({"metadata": metadata, "revision": n, "data": data}))
    };
    let cache = cache((0..count).map(revision).chain([(Kind::StatefulSet, set)]));
    Case::of(StatefulSetController::new(cache), "ns/web")
}

fn things() -> discovery::Resources {
    let resources = discovery::Resources::default();
    let resource = bayplan_model::api::Resource::new("", "v1", "things");
    let verbs = ["delete", "list", "watch"].map(String::from).into();
    resources.replace(vec![discovery::ApiResource { resource, kind: "Thing".into(), namespaced: true, verbs }]);
    resources
}

/// A collector that sees these objects twice and then checks `owner`; the others are gone when it looks.
fn collector(objects: Vec<Value>) -> Case {
    let is_owner = |object: &&Value| object["name"] == "owner";
    let live = json!({"metadata": objects.iter().find(is_owner).unwrap()});
    let metas: Vec<ObjectMeta> = objects.into_iter().map(|object| serde_json::from_value(object).unwrap()).collect();
    let run = move |context: Context<'_>| {
        let collector = GarbageCollector::new(things());
        for metadata in metas.iter().chain(&metas).cloned() {
            collector.observe_object("v1", "Thing", &Delta::Added(Arc::new(PartialObjectMetadata { metadata })));
        }
        sync(&collector, "delete/owner", context);
    };
    let answer = move |request: &Request| match &*request.name {
        "owner" => Ok(live.clone()),
        _ => Err(Status::failure(404, "NotFound", "gone")),
    };
    Case { run: Box::new(run), answer: Box::new(answer) }
}

fn thing(name: &str, owners: Vec<String>) -> Value {
    let reference = |owner: &String| {
        let blocks = true;
        json!({"apiVersion": "v1", "kind": "Thing", "name": owner, "uid": owner, "blockOwnerDeletion": blocks})
    };
    let owners: Vec<Value> = owners.iter().map(reference).collect();
    json!({"name": name, "namespace": "ns", "uid": name, "resourceVersion": "7", "ownerReferences": owners})
}

fn dependents(count: usize) -> Case {
    let mut owner = thing("owner", vec![]);
    owner["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    owner["finalizers"] = json!(["foregroundDeletion"]);
    let children = (0..count).map(|n| thing(&format!("c{n}"), vec!["owner".into()]));
    collector(children.chain([owner]).collect())
}

fn owners(count: usize) -> Case {
    collector(vec![thing("owner", (0..count).map(|n| format!("o{n}")).collect())])
}

fn claims(count: usize) -> Case {
    let wanted: Vec<Value> =
        (0..count).map(|n| json!({"name": format!("c{n}"), "resourceClaimTemplateName": "t"})).collect();
    let known: Vec<Value> =
        (0..count).map(|n| json!({"name": format!("c{n}"), "resourceClaimName": format!("gone{n}")})).collect();
    let pod = json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "p", "resourceVersion": "5"},
        "spec": {"resourceClaims": wanted, "nodeName": "n"}, "status": {"resourceClaimStatuses": known},
    });
    let claim = |n: usize| {
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p", "controller": true});
        let mut metadata = meta("ns", &format!("x{n}"), json!([owner]));
        metadata["annotations"] = json!({"resource.kubernetes.io/pod-claim-name": format!("c{n}")});
        (Kind::ResourceClaim, json!({"metadata": metadata}))
    };
    let cache = cache((0..count).map(claim).chain([(Kind::Pod, pod)]));
    Case::of(ResourceClaimController::new(cache), "pod/ns/p")
}

fn budget(pods: Vec<(Kind, Value)>, condition_count: usize) -> Case {
    let budget = json!({
        "metadata": {"name": "b", "namespace": "ns", "uid": "b", "resourceVersion": "7", "generation": 1},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        "status": {"conditions": conditions(condition_count)},
    });
    let set = replica_set("web", 3, json!([]), 0);
    let cache = cache(pods.into_iter().chain([(Kind::Budget, budget), (Kind::ReplicaSet, set)]));
    Case::of(DisruptionController::new(cache, things()), "ns/b")
}

/// What grows, and the case of a size.
type NamedCase = (&'static str, Box<dyn Fn(usize) -> Case>);

fn cases() -> Vec<NamedCase> {
    let own = || json!([owner("ReplicaSet", "web")]);
    vec![
        ("a ReplicaSet's pods", Box::new(move |n| replica_sets(n - 1, pods(n, "ns", &own()), 0))),
        ("pods that another namespace gives it", Box::new(move |n| replica_sets(0, pods(n, "other", &own()), 0))),
        ("orphans it does not adopt", Box::new(|n| replica_sets(0, pods(n, "ns", &json!([])), 0))),
        ("a ReplicaSet's conditions", Box::new(|n| replica_sets(0, vec![], n))),
        ("the ReplicaSets beside it, and their pods", Box::new(siblings)),
        ("a Deployment's ReplicaSets", Box::new(|n| deployment(sets(n, "ns"), 0))),
        ("ReplicaSets that another namespace gives it", Box::new(|n| deployment(sets(n, "other"), 0))),
        ("a Deployment's conditions", Box::new(|n| deployment(sets(1, "ns"), n))),
        ("a StatefulSet's pods and claims, in order", Box::new(|n| stateful_set(n, "OrderedReady"))),
        ("a StatefulSet's pods and claims, in parallel", Box::new(|n| stateful_set(n, "Parallel"))),
        ("pods that a StatefulSet has too many", Box::new(shrunken_stateful_set)),
        ("a StatefulSet's revisions", Box::new(revisions_of_stateful_set)),
        ("dependents of an object that is deleted", Box::new(dependents)),
        ("owners of an object", Box::new(owners)),
        ("claims of a pod", Box::new(claims)),
        ("pods of a budget", Box::new(move |n| budget(pods(n, "ns", &own()), 0))),
        ("conditions of a budget", Box::new(move |n| budget(pods(1, "ns", &own()), n))),
    ]
}

#[test]
fn a_reconcile_costs_in_a_line_what_it_looks_at() {
    let cases = cases().into_iter().chain(namespaces::cases()).chain(nodes::cases()).chain(volumes::cases());
    let cases = cases.chain(services::cases());
    let mut steep = Vec::new();
    for (what, make) in cases {
        let (few, many) = (cost(&make, FEW), cost(&make, FEW * GROWTH));
        println!("{what}: {few:?}, {many:?} for {GROWTH} times as many");
        let allocations = many.allocations / few.allocations.max(1);
        let bytes = many.allocated_bytes / few.allocated_bytes.max(1);
        // What takes less than a tenth of a millisecond is measured as that.
        let time = many.nanoseconds / few.nanoseconds.max(100_000);
        if allocations.max(bytes) > ALLOCATIONS_GROW_MAX || time > GROWTH_MAX {
            steep.push(format!("{what}: {few:?} and {many:?}"));
        }
    }
    assert!(steep.is_empty(), "{steep:#?}");
}
