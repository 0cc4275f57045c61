use bayplan_model::api::Resource;
use bayplan_model::meta::ObjectMeta;
use serde_json::{Value, json};

use super::*;
use crate::script::Script;

fn served(group: &'static str, plural: &'static str, kind: &str) -> ApiResource {
    let verbs = ["create", "list", "watch", "delete"].map(ToOwned::to_owned).into();
    ApiResource { resource: Resource::new(group, "v1", plural), kind: kind.into(), namespaced: true, verbs }
}

fn world() -> (Arc<Cache>, ResourceQuotaController) {
    let (cache, resources) = (Arc::new(Cache::default()), Resources::default());
    resources.replace(vec![served("batch", "jobs", "Job"), served("", "secrets", "Secret")]);
    (cache.clone(), ResourceQuotaController::new(cache, resources, SYNC_PERIOD))
}

fn quota(hard: Value, status: Value) -> Value {
    let metadata = json!({"name": "q", "namespace": "ns", "labels": {"l": "1"}});
    json!({"metadata": metadata, "spec": {"hard": hard}, "status": status})
}

fn set(cache: &Cache, kind: Kind, object: &Value) -> AnyDelta {
    cache.set(kind, object.to_string().as_bytes()).unwrap()
}

fn pod(name: &str, status: Value) -> Value {
    let container = json!({"name": "c", "resources": {"requests": {"cpu": "100m"}}});
    json!({"metadata": {"name": name, "namespace": "ns"}, "spec": {"containers": [container]}, "status": status})
}

fn job(name: &str) -> Arc<PartialObjectMetadata> {
    let metadata = ObjectMeta { name: name.into(), namespace: "ns".into(), ..ObjectMeta::default() };
    Arc::new(PartialObjectMetadata { metadata })
}

/// The status that a reconcile writes; none when it leaves the quota alone.
fn written(cache: &Cache, controller: &ResourceQuotaController, quota: &Value, status: Option<Value>) {
    set(cache, Kind::ResourceQuota, quota);
    let mut sent = quota.clone();
    let put = status.map(|status| {
        sent["status"] = status;
        ("PUT ns/resourcequotas/q/status", sent.clone(), Ok(sent.clone()))
    });
    assert_eq!(Script::new("quota", put).play(controller, "ns/q").unwrap(), Requeue::OnChange);
}

#[test]
fn what_is_used_is_counted_and_written_once() {
    let (cache, controller) = world();
    set(&cache, Kind::CountedPod, &pod("a", json!({"phase": "Running"})));
    set(&cache, Kind::CountedPod, &pod("b", json!({"phase": "Succeeded"})));
    let jobs = served("batch", "jobs", "Job");
    for name in ["x", "y"] {
        assert_eq!(controller.observe_metadata(&jobs, &Delta::Added(job(name))), []);
    }
    let hard = json!({"count/jobs.batch": "5", "pods": "4", "requests.cpu": "1", "secrets": "3", "count/things": "1"});
    let used = json!({"count/jobs.batch": "2", "pods": "1", "requests.cpu": "100m", "secrets": "0"});
    let status = json!({"hard": hard, "used": used});
    written(&cache, &controller, &quota(hard.clone(), json!({})), Some(status.clone()));
    written(&cache, &controller, &quota(hard.clone(), status), None);
    let before = json!({"hard": {"pods": "9"}, "used": {"pods": "7", "count/pods": "7"}});
    written(
        &cache,
        &controller,
        &quota(json!({"pods": "4"}), before),
        Some(json!({"hard": {"pods": "4"}, "used": {"pods": "1"}})),
    );
}

#[test]
fn a_quota_is_counted_again_when_something_it_counts_goes() {
    let (cache, controller) = world();
    let hard = json!({"count/jobs.batch": "5", "pods": "4"});
    set(&cache, Kind::ResourceQuota, &quota(hard.clone(), json!({"hard": hard, "used": {}})));
    let (jobs, secrets) = (served("batch", "jobs", "Job"), served("", "secrets", "Secret"));
    let woken = [Wakeup::now("ns/q")];
    assert_eq!(controller.observe_metadata(&jobs, &Delta::Deleted(job("x"))), woken);
    assert_eq!(controller.observe_metadata(&secrets, &Delta::Deleted(job("x"))), []);
    let added = set(&cache, Kind::CountedPod, &pod("a", json!({"phase": "Pending"})));
    assert_eq!(controller.observe(&added), []);
    let started = set(&cache, Kind::CountedPod, &pod("a", json!({"phase": "Running"})));
    assert_eq!(controller.observe(&started), []);
    let ended = set(&cache, Kind::CountedPod, &pod("a", json!({"phase": "Failed"})));
    assert_eq!(controller.observe(&ended), woken);
    let gone = cache.remove(Kind::CountedPod, "ns", "a", "").unwrap();
    assert_eq!(controller.observe(&gone), woken);
    let Requeue::Keys { keys, again: false } = controller.count_all() else { panic!() };
    assert_eq!(keys, [Wakeup::now("ns/q"), Wakeup::after(ALL, SYNC_PERIOD)]);
}

#[test]
fn only_what_is_in_every_scope_is_counted() {
    let (cache, controller) = world();
    let with = |name: &str, spec: Value| {
        let mut pod = pod(name, json!({"phase": "Running"}));
        for (field, value) in spec.as_object().unwrap() {
            pod["spec"][field] = value.clone();
        }
        set(&cache, Kind::CountedPod, &pod);
    };
    with("plain", json!({}));
    with("idle", json!({"containers": [{"name": "c"}]}));
    with("brief", json!({"activeDeadlineSeconds": 60}));
    with("high", json!({"priorityClassName": "high"}));
    let term = json!({"namespaces": ["other"], "topologyKey": "zone"});
    let affinity = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    with("crossing", json!({"affinity": affinity}));
    let selector = |scope: &str, operator: &str, values: Value| {
        let term = json!({"scopeName": scope, "operator": operator, "values": values});
        json!({"scopeSelector": {"matchExpressions": [term]}})
    };
    for (scopes, pods) in [
        (json!({}), 5),
        (json!({"scopes": ["BestEffort"]}), 1),
        (json!({"scopes": ["NotBestEffort", "NotTerminating"]}), 3),
        (json!({"scopes": ["Terminating"]}), 1),
        (json!({"scopes": ["PriorityClass"]}), 1),
        (json!({"scopes": ["CrossNamespacePodAffinity"]}), 1),
        (json!({"scopes": ["VolumeAttributesClass"]}), 0),
        (selector("PriorityClass", "In", json!(["high", "low"])), 1),
        (selector("PriorityClass", "NotIn", json!(["high"])), 4),
        (selector("PriorityClass", "DoesNotExist", json!([])), 4),
        (selector("PriorityClass", "Odd", json!([])), 0),
    ] {
        let mut quota = quota(json!({"pods": "9"}), json!({}));
        for (field, value) in scopes.as_object().unwrap() {
            quota["spec"][field] = value.clone();
        }
        let status = json!({"hard": {"pods": "9"}, "used": {"pods": pods.to_string()}});
        written(&cache, &controller, &quota, Some(status));
    }
}
