//! What would let a pod in, case by case.

#![allow(clippy::unwrap_used)]

mod stranger;

use bayplan_explain::{ChangeKind, ChangeOptions, Subject, changes, search};
use bayplan_testkit::{node, pod};
use serde_json::{Value, json};

/// The kinds and summaries of all changes, each checked as a stranger would.
fn summaries(objects: &[Value], pod: &Value) -> Vec<String> {
    let found = stranger::proven(&stranger::profile(&Value::Null), objects, pod);
    found.iter().map(|change| format!("{:?} {}: {}", change.kind, change.node, change.summary)).collect()
}

/// Expects these changes among all, in this order.
fn check(sentence: &str, objects: &[Value], pod: &Value, expected: &[&str]) {
    let all = summaries(objects, pod);
    let mut left = all.iter();
    for line in expected {
        assert!(left.any(|found| found == line), "{sentence}: no {line:?} in\n{}", all.join("\n"));
    }
}

/// Expects no change that begins with any of these words.
fn check_none(sentence: &str, objects: &[Value], pod: &Value, words: &[&str]) {
    let all = summaries(objects, pod);
    let found = all.iter().find(|line| words.iter().any(|word| line.starts_with(word)));
    assert_eq!(found, None, "{sentence}\n{}", all.join("\n"));
}

fn placed(name: &str, node: &str, cpu: &str) -> Value {
    pod(name).request("cpu", cpu).on_node(node).json()
}

fn budget(app: &str, allowed: i32) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"namespace": "default", "name": app},
        "spec": {"selector": {"matchLabels": {"app": app}}}, "status": {"disruptionsAllowed": allowed}})
}

#[test]
fn a_request_is_reduced_by_the_least_that_helps() {
    let nodes = [node("n1").json(), node("n2").json(), placed("a", "n1", "1500m"), placed("b", "n2", "1200m")];
    check(
        "the node with most left decides",
        &nodes,
        &pod("p").request("cpu", "3").json(),
        &["ReduceRequest n2: request 200m less cpu: 2800m instead of 3 (container main 3 → 2800m)"],
    );
    check(
        "memory counts in bytes",
        &[node("n1").allocatable("memory", "1000").json()],
        &pod("p").request("memory", "1Ki").json(),
        &["ReduceRequest n1: request 24 less memory: 1k instead of 1Ki (container main 1Ki → 1k)"],
    );
    check(
        "several together where no single one is enough",
        &[node("n1").allocatable("cpu", "1").allocatable("memory", "1Gi").json()],
        &pod("p").request("cpu", "2").request("memory", "2Gi").json(),
        &["ReduceRequest n1: request 1 less cpu: 1 instead of 2 (container main 2 → 1), and request 1Gi less memory: \
           1Gi instead of 2Gi (container main 2Gi → 1Gi); no single one is enough"],
    );
    check(
        "extended resources take their limit along",
        &[node("n1").allocatable("example.com/gpu", "2").json()],
        &pod("p")
            .spec(json!({"containers": [{"name": "c", "resources": {
                "requests": {"example.com/gpu": "8"}, "limits": {"example.com/gpu": "8"}}}]}))
            .json(),
        &["ReduceRequest n1: request 6 less example.com/gpu: 2 instead of 8 (container c 8 → 2)"],
    );
    check(
        "requests equal to limits make a pod Guaranteed",
        &[node("n1").json()],
        &pod("p")
            .spec(json!({"containers": [{"name": "c", "resources": {
                "requests": {"cpu": "5", "memory": "1Gi"}, "limits": {"cpu": "5", "memory": "1Gi"}}}]}))
            .json(),
        &["ReduceRequest n1: request 1 less cpu: 4 instead of 5 (container c 5 → 4); the pod is Guaranteed now and \
           becomes Burstable unless its limits go down too"],
    );
    let nominated = pod("first").request("cpu", "2").nominated_to("n1").priority(10).json();
    check(
        "a pod that is nominated to the node has its share already",
        &[node("n1").json(), nominated],
        &pod("p").request("cpu", "3").json(),
        &["ReduceRequest n1: request 1 less cpu: 2 instead of 3 (container main 3 → 2)"],
    );
}

#[test]
fn taints_are_tolerated_with_the_fewest_tolerations() {
    let objects = [
        node("n1").taint("a", "x", "NoSchedule").taint("b", "", "NoExecute").json(),
        node("n2").taint("c", "", "NoSchedule").json(),
    ];
    check(
        "one is less than two",
        &objects,
        &pod("p").json(),
        &[
            "Tolerate n2: tolerate the taint c:NoSchedule",
            "Tolerate n1: tolerate the taints a=x:NoSchedule, b:NoExecute",
        ],
    );
    check(
        "what is tolerated already is not repeated",
        &objects,
        &pod("p").tolerates("b", "NoExecute").json(),
        &["Tolerate n1: tolerate the taint a=x:NoSchedule"],
    );
    check(
        "a sick node comes last and says so",
        &[node("n1").taint("node.kubernetes.io/not-ready", "", "NoSchedule").json()],
        &pod("p").json(),
        &["Tolerate n1: tolerate the taint node.kubernetes.io/not-ready:NoSchedule; the node is cordoned or not \
           healthy, so the pod may not start there"],
    );
}

#[test]
fn two_changes_together_are_offered_where_none_alone_is_enough() {
    let gpu = || node("n1").taint("gpu", "yes", "NoSchedule").allocatable("cpu", "2");
    check(
        "a toleration and a smaller request",
        &[gpu().json()],
        &pod("p").request("cpu", "3").json(),
        &["Tolerate n1: tolerate the taint gpu=yes:NoSchedule, and request 1 less cpu: 2 instead of 3 \
           (container main 3 → 2)"],
    );
    check(
        "a constraint that is given up, and pods that go",
        &[node("n1").label("pool", "one").json(), placed("busy", "n1", "4")],
        &pod("p").request("cpu", "3").node_selector("pool", "two").json(),
        &["RelaxConstraint n1: drop the node selector pool=two, and delete pod default/busy on node n1"],
    );
    check(
        "a node that is uncordoned, and a smaller request",
        &[node("n1").unschedulable().json()],
        &pod("p").request("cpu", "5").json(),
        &["RelaxConstraint n1: uncordon node n1, and request 1 less cpu: 4 instead of 5 (container main 5 → 4)"],
    );
    check(
        "of a pod that is gated, too",
        &[gpu().json()],
        &pod("p").request("cpu", "3").gate("g").json(),
        &["Tolerate n1: remove the scheduling gates, and tolerate the taint gpu=yes:NoSchedule, and request 1 less \
           cpu: 2 instead of 3 (container main 3 → 2)"],
    );
    let nodes = [gpu().json(), node("n2").allocatable("cpu", "1").json()];
    let all = summaries(&nodes, &pod("p").request("cpu", "3").json());
    assert!(all.iter().any(|line| line.starts_with("ReduceRequest n2: request 2 less cpu")), "{all:?}");
    assert!(!all.iter().any(|line| line.contains("tolerate")), "one change is enough: {all:?}");
}

#[test]
fn a_search_ends_when_its_decisions_are_used_up() {
    let nodes = [node("n1").taint("gpu", "yes", "NoSchedule").json(), node("n2").json(), placed("a", "n2", "3")];
    let pod = pod("p").request("cpu", "2").json();
    let profile = stranger::profile(&Value::Null);
    let search = |decisions_max: usize| {
        let options = ChangeOptions { decisions_max, ..ChangeOptions::at(stranger::NOW) };
        search(&mut stranger::state(&nodes), &profile, Subject::as_written(&pod), &options)
    };
    let whole = search(1_000_000);
    assert!(whole.is_complete && whole.changes.len() > 3 && whole.decisions < 100, "{whole:?}");
    let cut = search(4);
    assert!(!cut.is_complete && cut.changes.len() < whole.changes.len(), "{cut:?}");
    assert!(cut.changes.iter().all(|change| whole.changes.contains(change)), "{cut:?}");
}

#[test]
fn nodes_are_relabelled_and_uncordoned() {
    let ssd = pod("p").node_selector("disk", "ssd").json();
    check(
        "a label, or the selector goes",
        &[node("n2").json(), node("n1").label("disk", "hdd").json()],
        &ssd,
        &["RelaxConstraint n1: drop the node selector disk=ssd", "Relabel n1: label node n1 disk=ssd"],
    );
    let zone = pod("p").node_selector("topology.kubernetes.io/zone", "b").json();
    check_none("a node is where it is", &[node("n1").zone("a").json()], &zone, &["Relabel"]);
    let mut cordoned = node("n1").unschedulable().taint("node.kubernetes.io/unschedulable", "", "NoSchedule").json();
    cordoned["metadata"]["labels"] = json!({});
    check("a cordon goes with its taint", &[cordoned], &pod("p").json(), &["RelaxConstraint n1: uncordon node n1"]);
    let requirements = json!([{"key": "disk", "operator": "In", "values": ["ssd"]},
        {"key": "old", "operator": "DoesNotExist"}, {"key": "cores", "operator": "Gt", "values": ["8"]}]);
    let demanding = |terms: Value| {
        pod("p")
            .spec(json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": terms}}}}))
            .json()
    };
    let objects = [node("n1").label("old", "yes").label("disk", "ssd").json()];
    check(
        "requirements of a term, or labels for them",
        &objects,
        &demanding(json!([{"matchExpressions": requirements}])),
        &[
            "RelaxConstraint n1: drop old DoesNotExist, cores Gt 8 from the required node affinity",
            "Relabel n1: label node n1 cores=9, without old",
        ],
    );
    let by_name = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gone"]}]}]);
    check(
        "a term without requirements would match nothing",
        &objects,
        &demanding(by_name),
        &["RelaxConstraint n1: drop the required node affinity"],
    );
    let contradiction = json!([{"matchFields": [
        {"key": "metadata.name", "operator": "In", "values": ["a"]},
        {"key": "metadata.name", "operator": "In", "values": ["b"]}]}]);
    check(
        "terms that contradict each other are found before any node is asked",
        &objects,
        &demanding(contradiction),
        &["RelaxConstraint n1: drop the required node affinity"],
    );
}

#[test]
fn constraints_between_pods_are_relaxed() {
    let web = |name: &str, node: &str| pod(name).label("app", "web").on_node(node).json();
    let zones = [node("n1").zone("a").json(), node("n2").zone("b").unschedulable().json()];
    let spread = json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}]});
    let mut objects = zones.to_vec();
    objects.extend([web("w1", "n1"), web("w2", "n1")]);
    check(
        "the least skew comes first",
        &objects,
        &pod("p").label("app", "web").spec(spread).json(),
        &[
            "RelaxConstraint n1: let the spread over topology.kubernetes.io/zone differ by 3 pods \
             (maxSkew 3 instead of 1)",
            "RelaxConstraint n1: spread over topology.kubernetes.io/zone only as a preference (ScheduleAnyway)",
        ],
    );
    let term = json!([{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}]);
    let apart = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}});
    check(
        "a term of anti-affinity",
        &[node("n1").json(), web("w1", "n1")],
        &pod("p").spec(apart).json(),
        &[
            "RelaxConstraint n1: drop the required podAntiAffinity by kubernetes.io/hostname \
             (to be away from other pods)",
            "DeletePods n1: delete pod default/w1 on node n1",
        ],
    );
    let together = json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}});
    check(
        "a term of affinity",
        &[node("n1").json()],
        &pod("p").spec(together).json(),
        &["RelaxConstraint n1: drop the required podAffinity by kubernetes.io/hostname (to be with other pods)"],
    );
    check(
        "a host port",
        &[node("n1").json(), pod("w").host_port(80, "TCP", "").on_node("n1").json()],
        &pod("p").host_port(81, "TCP", "").host_port(80, "TCP", "").json(),
        &["RelaxConstraint n1: do not open the host port 80"],
    );
}

#[test]
fn a_gated_pod_needs_its_gates_removed_and_perhaps_more() {
    let gated = pod("p").gate("g").request("cpu", "1");
    check(
        "that alone",
        &[node("n1").json()],
        &gated.clone().json(),
        &["RelaxConstraint n1: remove the scheduling gate g"],
    );
    check(
        "and a toleration",
        &[node("n1").taint("a", "", "NoSchedule").json()],
        &gated.json(),
        &["Tolerate n1: remove the scheduling gates, and tolerate the taint a:NoSchedule"],
    );
    check(
        "a name of a node that is not there",
        &[node("n1").json()],
        &pod("p").on_node("gone").json(),
        &["RelaxConstraint n1: drop spec.nodeName gone"],
    );
}

#[test]
fn pods_are_deleted_only_where_each_has_to_go() {
    let mut objects = vec![node("n1").json(), placed("a", "n1", "1"), placed("b", "n1", "2"), placed("c", "n1", "1")];
    check(
        "the fewest",
        &objects,
        &pod("p").request("cpu", "2").json(),
        &["DeletePods n1: delete pod default/b on node n1"],
    );
    check(
        "several",
        &objects,
        &pod("p").request("cpu", "3").json(),
        &["DeletePods n1: delete 2 pods on node n1: default/c, default/b"],
    );
    objects.extend([budget("db", 0), pod("d").label("app", "db").request("cpu", "3").on_node("n2").json()]);
    objects.push(node("n2").json());
    check(
        "budgets are counted, and cost more",
        &objects,
        &pod("p").request("cpu", "2").json(),
        &[
            "DeletePods n1: delete pod default/b on node n1",
            "DeletePods n2: delete pod default/d on node n2; a disruption budget protects one of them",
        ],
    );
    let daemon = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": true}]);
    let daemon = pod("a").request("cpu", "4").on_node("n1").metadata(json!({"ownerReferences": daemon})).json();
    check_none(
        "a pod of a DaemonSet comes back",
        &[node("n1").json(), daemon],
        &pod("p").request("cpu", "2").json(),
        &["DeletePods"],
    );
}

#[test]
fn the_least_priority_that_preempts_is_offered_with_its_class() {
    let at = |name: &str, node: &str, priority: i32, cpu: &str| {
        pod(name).priority(priority).request("cpu", cpu).on_node(node).json()
    };
    let mut objects = vec![node("n1").json(), at("low", "n1", 10, "2"), at("high", "n1", 100, "2")];
    check(
        "just above the lowest that has to go",
        &objects,
        &pod("p").request("cpu", "2").json(),
        &["RaisePriority n1: raise the priority from 0 to 11; it would preempt default/low on node n1"],
    );
    check(
        "above both",
        &objects,
        &pod("p").request("cpu", "3").json(),
        &["RaisePriority n1: raise the priority from 0 to 101; it would preempt default/high, default/low on node n1"],
    );
    check_none("it preempts already", &objects, &pod("p").priority(50).request("cpu", "2").json(), &["RaisePriority"]);
    let never = pod("p").priority(50).request("cpu", "2").spec(json!({"preemptionPolicy": "Never"})).json();
    check(
        "it may not preempt",
        &objects,
        &never,
        &["RaisePriority n1: let the pod preempt others (preemptionPolicy); it would preempt default/low on node n1"],
    );
    for (name, value) in [("too-low", 5), ("middle", 50), ("top", 5000)] {
        objects.push(json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
            "value": value}));
    }
    check(
        "the least class that is enough",
        &objects,
        &pod("p").request("cpu", "2").json(),
        &["RaisePriority n1: raise the priority from 0 to 50 (class middle; 11 is enough); it would preempt \
             default/low on node n1"],
    );
}

#[test]
fn a_node_like_those_of_a_pool_is_added() {
    let gpu = |name: &str| {
        node(name).label("pool", "gpu").allocatable("example.com/gpu", "1").taint("gpu", "", "NoSchedule").json()
    };
    let taken = |name: &str, node: &str| pod(name).request("example.com/gpu", "1").on_node(node).json();
    let objects = [gpu("g2"), gpu("g1"), node("n1").label("pool", "plain").json(), taken("a", "g1"), taken("b", "g2")];
    let asking = pod("p").request("example.com/gpu", "1").tolerates("gpu", "NoSchedule").json();
    check("of the pool that has it", &objects, &asking, &["AddNode g1-new-1: add a node like g1 (pool gpu)"]);
    let too_large = pod("p").request("example.com/gpu", "2").tolerates("gpu", "NoSchedule").json();
    check_none("no pool has nodes that large", &objects, &too_large, &["AddNode"]);
    let slice = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"},
        "spec": {"driver": "d", "nodeName": "n1", "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "d0"}]}});
    let class =
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "c"}, "spec": {}});
    let claim = |name: &str| {
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"namespace": "default", "name": name, "uid": name},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {
                "deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}}]}}})
    };
    let mut used = claim("used");
    used["status"] = json!({"allocation": {"devices": {"results": [
        {"request": "r", "driver": "d", "pool": "n1", "device": "d0"}]}}});
    let objects = [node("n1").json(), slice, class, used, claim("mine")];
    let asking = pod("p").spec(json!({"resourceClaims": [{"name": "r", "resourceClaimName": "mine"}]})).json();
    check("devices come with it", &objects, &asking, &["AddNode n1-new-1: add a node like n1"]);
}

#[test]
fn the_volumes_that_a_pod_waits_for_are_added() {
    let class = |name: &str, mode: &str, provisioner: &str| {
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": provisioner, "volumeBindingMode": mode})
    };
    let claim = |class: &str| {
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"namespace": "default", "name": "data", "uid": "u"},
            "spec": {"storageClassName": class, "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "5Gi"}}}})
    };
    let later = class("later", "WaitForFirstConsumer", "disks.example.com");
    let pod_with_claim = pod("p").claim("data").json();
    check(
        "a claim, of a class or with its volume",
        &[node("n1").json(), later.clone()],
        &pod_with_claim,
        &[
            "AddObject n1: add the PersistentVolumeClaim default/data (here 1Gi of class later)",
            "AddObject n1: add the PersistentVolumeClaim default/data and a PersistentVolume for it (here 1Gi)",
        ],
    );
    check(
        "the class that a claim names",
        &[node("n1").json(), later.clone(), claim("gone")],
        &pod_with_claim,
        &[
            "AddObject n1: add the StorageClass gone (here like later)",
            "AddObject n1: add a PersistentVolume of 5Gi for the claim default/data and bind it",
        ],
    );
    let at_once = class("at-once", "Immediate", "disks.example.com");
    check(
        "a volume for a claim that is not bound",
        &[node("n1").json(), at_once, claim("at-once")],
        &pod_with_claim,
        &["AddObject n1: add a PersistentVolume of 5Gi for the claim default/data and bind it"],
    );
    let local = class("local", "WaitForFirstConsumer", "kubernetes.io/no-provisioner");
    check(
        "a free volume",
        &[node("n1").json(), local, claim("local")],
        &pod_with_claim,
        &["AddObject n1: add a PersistentVolume of 5Gi for the claim default/data"],
    );
    let mut bound = claim("later");
    bound["spec"]["volumeName"] = "v".into();
    bound["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
    check(
        "the volume that a claim is bound to",
        &[node("n1").json(), later.clone(), bound],
        &pod_with_claim,
        &["AddObject n1: add the PersistentVolume v that the claim default/data is bound to"],
    );
    let template = json!({"spec": {"storageClassName": "later", "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    let ephemeral = json!({"volumes": [{"name": "tmp", "ephemeral": {"volumeClaimTemplate": template}}]});
    check(
        "the claim of an ephemeral volume",
        &[node("n1").json(), later],
        &pod("p").spec(ephemeral).json(),
        &["AddObject n1: add the PersistentVolumeClaim default/p-tmp of the ephemeral volume tmp"],
    );
}

#[test]
fn the_claims_that_a_pod_waits_for_are_added() {
    let slice = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"},
        "spec": {"driver": "d", "nodeName": "n1", "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "d0"}]}});
    let devices = json!({"requests": [{"name": "r", "exactly": {
        "deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}}]});
    let template = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": {"namespace": "default", "name": "t"}, "spec": {"spec": {"devices": devices}}});
    let class =
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "c"}, "spec": {}});
    let asking = pod("p").spec(json!({"resourceClaims": [{"name": "r", "resourceClaimTemplateName": "t"}]})).json();
    check(
        "a claim from its template",
        &[node("n1").json(), slice.clone(), class.clone(), template],
        &asking,
        &["AddObject n1: add the ResourceClaim default/p-r from its template t"],
    );
    let by_name = pod("p").spec(json!({"resourceClaims": [{"name": "r", "resourceClaimName": "mine"}]})).json();
    check(
        "a claim by its name",
        &[node("n1").json(), slice.clone(), class],
        &by_name,
        &["AddObject n1: add the ResourceClaim default/mine (here for one device of class c)"],
    );
    let mine = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"namespace": "default", "name": "mine"}, "spec": {"devices": devices}});
    check(
        "a class of devices",
        &[node("n1").json(), slice, mine],
        &by_name,
        &["AddObject n1: add the DeviceClass c (here for any device)"],
    );
}

#[test]
fn nothing_is_said_of_pods_that_fit_or_cannot_be_helped() {
    check_none("it fits", &[node("n1").json()], &pod("p").json(), &[""]);
    check_none("there is no node", &[], &pod("p").request("cpu", "1").json(), &[""]);
}

#[test]
fn patches_are_for_the_pod_as_written_and_proven_on_the_pod_as_completed() {
    let profile = stranger::profile(&Value::Null);
    let objects = [node("n1").taint("a", "", "NoSchedule").json()];
    let mut written = pod("p").json();
    written["spec"]["containers"][0]["resources"] = json!({"limits": {"example.com/gpu": "2"}});
    let complete = |_: &bayplan_explain::State, mut pod: Value| {
        let limits = pod["spec"]["containers"][0]["resources"]["limits"].clone();
        if pod["spec"]["containers"][0]["resources"]["requests"].is_null() {
            pod["spec"]["containers"][0]["resources"]["requests"] = limits;
        }
        let tolerations = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
        let own = json!({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"});
        pod["spec"]["tolerations"] = [vec![own], tolerations].concat().into();
        Ok(pod)
    };
    let ask = |objects: &[Value]| {
        let mut state = stranger::state(objects);
        let subject = Subject { json: &written, complete: Some(&complete) };
        changes(&mut state, &profile, subject, &ChangeOptions::at(stranger::NOW))
    };
    let found = ask(&objects);
    let kinds: Vec<_> = found.iter().map(|change| (change.kind, &change.with[..])).collect();
    assert_eq!(kinds, [(ChangeKind::Tolerate, &[ChangeKind::ReduceRequest][..])], "neither is enough alone");
    let paths: Vec<&Value> = found[0].patches[0].patch.iter().map(|operation| &operation["path"]).collect();
    assert_eq!(paths[0], "/spec/tolerations");
    assert_eq!(paths[1], "/spec/containers/0/resources/requests");
    let objects = [node("n1").allocatable("example.com/gpu", "1").json()];
    let found = ask(&objects);
    let patch = json!([
        {"op": "add", "path": "/spec/containers/0/resources/requests", "value": {"example.com/gpu": "1"}},
        {"op": "replace", "path": "/spec/containers/0/resources/limits/example.com~1gpu", "value": "1"},
    ]);
    assert_eq!(json!(found[0].patches[0].patch), patch);
    assert_eq!(
        json!(found[0].patches[0].target),
        json!({"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "p"})
    );
}
