//! What a reconcile costs grows in a line with what it looks at, whoever wrote it: owned objects, objects that only
//! look owned, orphans, conditions, references. Counted in the thread's processor time, for sixteen times as much of
//! each; a square would be 256 times the work.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::sync::Arc;

use bayplan_controllers::{
    Cache, Context, Controller, DeploymentController, DisruptionController, GarbageCollector, Kind,
    ReplicaSetController, ResourceClaimController, discovery,
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

/// The processor time this thread has used, in nanoseconds.
fn processor_time() -> u64 {
    // The kernel charges a thread when it lets go of the processor.
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

/// What one sync costs, the least of some: the others were disturbed.
fn cost(make: &dyn Fn(usize) -> Case, count: usize) -> u64 {
    let measure = |_| {
        let case = make(count);
        let api = FakeApi::new(case.answer);
        let context = Context { now: Timestamp::from_second(1_780_000_000).unwrap(), api: &api, recorder: &api };
        let before = processor_time();
        for _ in 0..REPEATS {
            (case.run)(context);
        }
        processor_time() - before
    };
    (0..3).map(measure).min().unwrap()
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
        Case { run: Box::new(move |context| sync(&controller, key, context)), answer: Box::new(|_| Ok(json!({}))) }
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

#[test]
fn a_reconcile_costs_in_a_line_what_it_looks_at() {
    let own = || json!([owner("ReplicaSet", "web")]);
    let cases: Vec<NamedCase> = vec![
        ("a ReplicaSet's pods", Box::new(move |n| replica_sets(n - 1, pods(n, "ns", &own()), 0))),
        ("pods that another namespace gives it", Box::new(move |n| replica_sets(0, pods(n, "other", &own()), 0))),
        ("orphans it does not adopt", Box::new(|n| replica_sets(0, pods(n, "ns", &json!([])), 0))),
        ("a ReplicaSet's conditions", Box::new(|n| replica_sets(0, vec![], n))),
        ("a Deployment's ReplicaSets", Box::new(|n| deployment(sets(n, "ns"), 0))),
        ("ReplicaSets that another namespace gives it", Box::new(|n| deployment(sets(n, "other"), 0))),
        ("a Deployment's conditions", Box::new(|n| deployment(sets(1, "ns"), n))),
        ("dependents of an object that is deleted", Box::new(dependents)),
        ("owners of an object", Box::new(owners)),
        ("claims of a pod", Box::new(claims)),
        ("pods of a budget", Box::new(move |n| budget(pods(n, "ns", &own()), 0))),
        ("conditions of a budget", Box::new(move |n| budget(pods(1, "ns", &own()), n))),
    ];
    let mut steep = Vec::new();
    for (what, make) in cases {
        let (few, many) = (cost(&make, FEW), cost(&make, FEW * GROWTH));
        println!("{what}: {} µs, {} µs for {GROWTH} times as many", few / 1000, many / 1000);
        // What takes less than a tenth of a millisecond is measured as that.
        if many / few.max(100_000) > GROWTH_MAX {
            steep.push(format!("{what}: {few} ns and {many} ns"));
        }
    }
    assert!(steep.is_empty(), "{steep:#?}");
}
