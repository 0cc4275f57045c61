use serde_json::json;

use super::*;
use crate::serviceaccounts::tests::Fixture;

/// A write in namespace `ns`.
struct Write<'a> {
    operation: Operation,
    group: &'a str,
    plural: &'a str,
    subresource: &'a str,
    name: &'a str,
}

const NEW_POD: Write<'static> =
    Write { operation: Operation::Create, group: "", plural: "pods", subresource: "", name: "" };

/// The object after all plugins, or their refusal.
async fn admit(world: &Fixture, write: &Write<'_>, object: Value, old: Option<Value>) -> Result<Value, String> {
    admit_as(&User::new("alice", ["devs"]), world, write, object, old).await
}

async fn admit_as(
    user: &User,
    world: &Fixture,
    write: &Write<'_>,
    object: Value,
    old: Option<Value>,
) -> Result<Value, String> {
    let resource = bayplan_kinds::find(write.group, "v1", write.plural).unwrap();
    let context = AdmissionContext {
        operation: write.operation,
        resource,
        subresource: write.subresource,
        namespace: if resource.namespaced() { "ns" } else { "" },
        name: write.name,
        requested_name: if write.operation == Operation::Create { "" } else { write.name },
        user,
        dry_run: false,
        warnings: &Warnings::default(),
        objects: world,
        metrics: None,
        authorizer: &Authorizer::default(),
    };
    let plugins = AdmissionPlugins::default();
    let mut object = object;
    let say = |status: Status| format!("{} {}", status.code, status.message);
    plugins.admit(&context, &mut object, old.as_ref()).await.map_err(say)?;
    plugins.validate(&context, &object, old.as_ref()).await.map_err(say)?;
    Ok(object)
}

fn world(more: &[(&str, Value)]) -> Fixture {
    let world = Fixture::with(&[
        ("namespaces", json!({"metadata": {"name": "ns"}, "status": {"phase": "Active"}})),
        ("serviceaccounts", json!({"metadata": {"name": "default", "namespace": "ns"}})),
    ]);
    more.iter().for_each(|(plural, object)| world.put(plural, object.clone()));
    world
}

fn pod(spec: Value) -> Value {
    let mut pod =
        json!({"metadata": {"name": "p", "namespace": "ns"}, "spec": {"automountServiceAccountToken": false}});
    pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    pod
}

#[tokio::test]
async fn a_plain_pod_gets_account_priority_and_tolerations() {
    let container = json!({"name": "c"});
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [container]}});
    let pod = admit(&world(&[]), &NEW_POD, pod, None).await.unwrap();
    let spec = &pod["spec"];
    assert_eq!((&spec["priority"], &spec["preemptionPolicy"]), (&json!(0), &json!("PreemptLowerPriority")));
    assert_eq!((&spec["serviceAccountName"], &spec["serviceAccount"]), (&json!("default"), &json!("default")));
    assert_eq!(spec["tolerations"].as_array().unwrap().len(), 2);
    let volume = spec["volumes"][0]["name"].as_str().unwrap();
    assert!(volume.starts_with("kube-api-access-") && volume.len() == 21, "{volume}");
    assert_eq!(spec["containers"][0]["volumeMounts"][0]["name"], volume);
    assert!(spec.get("initContainers").is_none(), "reading must not write");
}

#[tokio::test]
async fn refusals_are_worded_as_upstream() {
    let class = |name: &str, more: Value| {
        let mut class = json!({"metadata": {"name": name}, "value": 50});
        class.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ("priorityclasses", class)
    };
    let limits = json!({"metadata": {"name": "l", "namespace": "ns"}, "spec": {"limits": [
        {"type": "Container", "min": {"cpu": "10m"}, "max": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "10"},
         "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "100m"}}]}});
    let quota = json!({"metadata": {"name": "q", "namespace": "ns"},
        "status": {"hard": {"pods": "3"}, "used": {"pods": "3"}}});
    let cases: Vec<(Fixture, Value, &str)> = vec![
        (Fixture::default(), pod(json!({})), "404 namespaces \"ns\" not found"),
        (
            world(&[("namespaces", json!({"metadata": {"name": "ns"}, "status": {"phase": "Terminating"}}))]),
            pod(json!({})),
            "403 pods \"p\" is forbidden: unable to create new content in namespace ns because it is being terminated",
        ),
        (
            world(&[]),
            pod(json!({"serviceAccountName": "robot"})),
            "403 pods \"p\" is forbidden: error looking up service account ns/robot: serviceaccount \"robot\" not \
             found",
        ),
        (
            world(&[]),
            pod(json!({"priorityClassName": "nope"})),
            "403 pods \"p\" is forbidden: no PriorityClass with name nope was found",
        ),
        (
            world(&[class("hi", json!({}))]),
            pod(json!({"priorityClassName": "hi", "priority": 7})),
            "403 pods \"p\" is forbidden: the integer value of priority (7) must not be provided in pod spec; priority \
             admission controller computed 50 from the given PriorityClass name",
        ),
        (
            world(&[class("never", json!({"preemptionPolicy": "Never"}))]),
            pod(json!({"priorityClassName": "never", "preemptionPolicy": "PreemptLowerPriority"})),
            "403 pods \"p\" is forbidden: the string value of PreemptionPolicy (PreemptLowerPriority) must not be \
             provided in pod spec; priority admission controller computed Never from the given PriorityClass name",
        ),
        (
            world(&[("limitranges", limits.clone())]),
            pod(
                json!({"containers": [{"name": "c", "resources": {"limits": {"cpu": "3"}, "requests": {"cpu": "3"}}}]}),
            ),
            "403 pods \"p\" is forbidden: maximum cpu usage per Container is 2, but limit is 3",
        ),
        (
            world(&[("limitranges", limits)]),
            pod(json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "1m"}}}]})),
            "403 pods \"p\" is forbidden: [minimum cpu usage per Container is 10m, but request is 1m, cpu max limit to \
             request ratio per Container is 10, but provided ratio is 500.000000]",
        ),
        (
            world(&[("resourcequotas", quota)]),
            pod(json!({})),
            "403 pods \"p\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3",
        ),
        (
            world(&[]),
            pod(json!({"runtimeClassName": "kata"})),
            "403 pods \"p\" is forbidden: pod rejected: RuntimeClass \"kata\" not found",
        ),
    ];
    for (world, pod, expected) in cases {
        assert_eq!(admit(&world, &NEW_POD, pod, None).await.unwrap_err(), expected);
    }
}

#[tokio::test]
async fn limits_fill_in_defaults_and_annotate_them() {
    let limits = json!({"metadata": {"name": "l", "namespace": "ns"}, "spec": {"limits": [
        {"type": "Container", "default": {"cpu": "500m", "memory": "256Mi"},
         "defaultRequest": {"cpu": "100m", "memory": "256Mi"}}]}});
    let containers = json!([{"name": "c"}]);
    let pod = admit(&world(&[("limitranges", limits)]), &NEW_POD, pod(json!({"containers": containers})), None).await;
    let pod = pod.unwrap();
    assert_eq!(
        pod["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu, memory request for container c; cpu, memory limit for container c"
    );
    assert_eq!(
        pod["spec"]["containers"][0]["resources"],
        json!({"limits": {"cpu": "500m", "memory": "256Mi"}, "requests": {"cpu": "100m", "memory": "256Mi"}})
    );
}

#[tokio::test]
async fn a_quota_is_charged_and_demands_what_it_limits() {
    let quota = |used: &str| {
        json!({"metadata": {"name": "q", "namespace": "ns"}, "status": {
            "hard": {"pods": "3", "requests.cpu": "1"}, "used": {"pods": "2", "requests.cpu": used}}})
    };
    let asking = |cpu: &str| pod(json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}));
    let world = world(&[("resourcequotas", quota("300m"))]);
    admit(&world, &NEW_POD, asking("100m"), None).await.unwrap();
    let used = world.one("resourcequotas", "ns", "q").unwrap()["status"]["used"].clone();
    assert_eq!(used, json!({"pods": "3", "requests.cpu": "400m"}));
    world.put("resourcequotas", quota("300m"));
    let refusal = admit(&world, &NEW_POD, asking("800m"), None).await.unwrap_err();
    assert!(refusal.ends_with(
        "exceeded quota: q, requested: requests.cpu=800m, used: requests.cpu=300m, limited: requests.cpu=1"
    ));
    let silent = admit(&world, &NEW_POD, pod(json!({"containers": [{"name": "c"}]})), None).await.unwrap_err();
    assert!(silent.ends_with("failed quota: q: must specify requests.cpu for: c"), "{silent}");
    let inert = json!({"metadata": {"name": "q", "namespace": "ns"}, "spec": {"hard": {"pods": "0"}}, "status": {}});
    world.put("resourcequotas", inert);
    admit(&world, &NEW_POD, asking("1"), None).await.unwrap();
}

#[tokio::test]
async fn a_binding_takes_over_the_nodes_topology() {
    let labels = json!({"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r", "other": "o"});
    let world = world(&[("nodes", json!({"metadata": {"name": "n", "labels": labels}}))]);
    let write = Write { subresource: "binding", name: "p", ..NEW_POD };
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    let binding = admit(&world, &write, binding, None).await.unwrap();
    assert_eq!(
        binding["metadata"]["labels"],
        json!({"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"})
    );
    let elsewhere = json!({"metadata": {"name": "p"}, "target": {"name": "unknown"}});
    assert_eq!(admit(&world, &write, elsewhere.clone(), None).await.unwrap(), elsewhere);
}

#[tokio::test]
async fn claims_get_the_newest_default_class_and_a_finalizer() {
    let class = |name: &str, created: &str| {
        let annotations = json!({"storageclass.kubernetes.io/is-default-class": "true"});
        let metadata = json!({"name": name, "creationTimestamp": created, "annotations": annotations});
        ("storageclasses", json!({"metadata": metadata}))
    };
    let world = world(&[class("old", "2020-01-01T00:00:00Z"), class("new", "2021-01-01T00:00:00Z")]);
    let write = Write { plural: "persistentvolumeclaims", ..NEW_POD };
    let claim = admit(&world, &write, json!({"metadata": {"name": "c"}, "spec": {}}), None).await.unwrap();
    assert_eq!(claim["spec"]["storageClassName"], "new");
    assert_eq!(claim["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    let none = admit(&world, &write, json!({"metadata": {"name": "c"}, "spec": {"storageClassName": ""}}), None).await;
    assert_eq!(none.unwrap()["spec"]["storageClassName"], "");

    let sized = |size: &str| {
        let spec = json!({"storageClassName": "new", "resources": {"requests": {"storage": size}}});
        json!({"metadata": {"name": "c"}, "spec": spec, "status": {"phase": "Bound"}})
    };
    let update = Write { operation: Operation::Update, plural: "persistentvolumeclaims", name: "c", ..NEW_POD };
    let refusal = admit(&world, &update, sized("2Gi"), Some(sized("1Gi"))).await.unwrap_err();
    assert!(refusal.contains("only dynamically provisioned pvc can be resized"), "{refusal}");
    admit(&world, &update, sized("1Gi"), Some(sized("2Gi"))).await.unwrap();
}

#[tokio::test]
async fn namespaces_and_classes_of_the_system_cannot_be_deleted() {
    let world = world(&[]);
    let delete = |group, plural, name| Write { operation: Operation::Delete, group, plural, subresource: "", name };
    for (write, expected) in [
        (
            delete("", "namespaces", "kube-system"),
            Some("403 namespaces \"kube-system\" is forbidden: this namespace may not be deleted"),
        ),
        (
            delete("scheduling.k8s.io", "priorityclasses", "system-node-critical"),
            Some(
                "403 priorityclasses.scheduling.k8s.io \"system-node-critical\" is forbidden: this is a system \
                 priority class and cannot be deleted",
            ),
        ),
        (delete("", "namespaces", "ns"), None),
        (delete("", "pods", "p"), None),
    ] {
        assert_eq!(admit(&world, &write, Value::Null, None).await.err().as_deref(), expected);
    }
}

#[tokio::test]
async fn there_is_one_default_priority_class() {
    let default = json!({"metadata": {"name": "def"}, "globalDefault": true, "value": 50});
    let world = world(&[("priorityclasses", default.clone())]);
    let named = admit(&world, &NEW_POD, pod(json!({})), None).await.unwrap();
    assert_eq!((&named["spec"]["priority"], &named["spec"]["priorityClassName"]), (&json!(50), &json!("def")));
    let write = Write { group: "scheduling.k8s.io", plural: "priorityclasses", ..NEW_POD };
    let second = json!({"metadata": {"name": "def2"}, "globalDefault": true, "value": 60});
    assert_eq!(
        admit(&world, &write, second, None).await.unwrap_err(),
        "403 priorityclasses.scheduling.k8s.io \"def2\" is forbidden: PriorityClass def is already marked as default. \
         Only one default can exist"
    );
    admit(&world, &Write { operation: Operation::Update, ..write }, default, None).await.unwrap();
}

#[tokio::test]
async fn a_runtime_class_gives_overhead_and_scheduling() {
    let class = json!({"metadata": {"name": "kata"}, "overhead": {"podFixed": {"cpu": "250m"}},
        "scheduling": {"nodeSelector": {"kata": "yes"}, "tolerations": [{"key": "kata", "operator": "Exists"}]}});
    let world = world(&[("runtimeclasses", class)]);
    let admitted = admit(&world, &NEW_POD, pod(json!({"runtimeClassName": "kata"})), None).await.unwrap();
    assert_eq!(admitted["spec"]["overhead"], json!({"cpu": "250m"}));
    assert_eq!(admitted["spec"]["nodeSelector"], json!({"kata": "yes"}));
    assert_eq!(admitted["spec"]["tolerations"].as_array().unwrap().len(), 3);
    let other = pod(json!({"runtimeClassName": "kata", "nodeSelector": {"kata": "no"}}));
    assert!(
        admit(&world, &NEW_POD, other, None)
            .await
            .unwrap_err()
            .contains("conflict: runtimeClass.scheduling.nodeSelector[kata] = yes")
    );
    let alone = pod(json!({"overhead": {"cpu": "1"}}));
    assert!(admit(&world, &NEW_POD, alone, None).await.unwrap_err().contains("Pod Overhead set without"));
}

#[tokio::test]
async fn no_user_grants_rights_that_they_do_not_hold() {
    let rbac = "rbac.authorization.k8s.io";
    let role = |name: &str, resource: &str, verbs: &[&str]| {
        json!({"metadata": {"name": name, "namespace": "ns"},
            "rules": [{"apiGroups": [""], "resources": [resource], "verbs": verbs}]})
    };
    let binding = |kind: &str, name: &str| {
        json!({"metadata": {"name": "b", "namespace": "ns"}, "subjects": [{"kind": "User", "name": "alice"}],
            "roleRef": {"apiGroup": rbac, "kind": kind, "name": name}})
    };
    let mut secrets = role("secrets", "secrets", &["get"]);
    secrets["metadata"] = json!({"name": "secrets"});
    let world = world(&[
        ("roles", role("pods", "pods", &["get", "list"])),
        ("rolebindings", binding("Role", "pods")),
        ("clusterroles", secrets),
    ]);
    let roles = Write { group: rbac, plural: "roles", ..NEW_POD };
    let bindings = Write { group: rbac, plural: "rolebindings", ..NEW_POD };
    admit(&world, &roles, role("fine", "pods", &["get"]), None).await.unwrap();
    assert_eq!(
        admit(&world, &roles, role("grab", "secrets", &["get", "list"]), None).await.unwrap_err(),
        "403 roles.rbac.authorization.k8s.io \"grab\" is forbidden: user \"alice\" (groups=[\"devs\" \
         \"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], \
         Resources:[\"secrets\"], Verbs:[\"get\" \"list\"]}"
    );
    admit(&world, &bindings, binding("Role", "pods"), None).await.unwrap();
    assert!(admit(&world, &bindings, binding("ClusterRole", "secrets"), None).await.unwrap_err().starts_with("403 "));
    assert_eq!(
        admit(&world, &bindings, binding("ClusterRole", "nope"), None).await.unwrap_err(),
        "404 clusterroles.rbac.authorization.k8s.io \"nope\" not found"
    );
    let unchanged = role("grab", "secrets", &["get"]);
    let update = Write { operation: Operation::Update, name: "grab", ..roles };
    admit(&world, &update, unchanged.clone(), Some(unchanged.clone())).await.unwrap();
    let master = User::new("admin", ["system:masters"]);
    admit_as(&master, &world, &update, unchanged, None).await.unwrap();
}

/// A change of a role: what it is, the verbs its writer holds on secrets, the role before and after, and the answer.
type RoleChange = (&'static str, Value, Value, Value, Result<(), &'static str>);

#[tokio::test]
async fn every_change_of_a_role_but_the_garbage_collectors_is_judged_again() {
    let rbac = "rbac.authorization.k8s.io";
    let role = |more: Value| {
        let mut role = json!({"metadata": {"name": "big", "resourceVersion": "7"},
            "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]});
        for (key, value) in more.as_object().unwrap() {
            match role[key].as_object_mut() {
                Some(fields) => fields.extend(value.as_object().unwrap().clone()),
                None => role[key] = value.clone(),
            }
        }
        role
    };
    let aggregation = json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]});
    let aggregated = || role(json!({"aggregationRule": aggregation}));
    let not_held = "403 clusterroles.rbac.authorization.k8s.io \"big\" is forbidden: user \"alice\" \
                    (groups=[\"devs\" \"system:authenticated\"]) is attempting to grant RBAC permissions not \
                    currently held:\n{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\"]}";
    let aggregates = "403 clusterroles.rbac.authorization.k8s.io \"big\" is forbidden: must have cluster-admin \
                      privileges to use the aggregationRule";
    let owners = json!({"metadata": {"ownerReferences": [{"uid": "u"}], "finalizers": ["a.b/c"]}});
    let label = json!({"metadata": {"labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}});
    let empties = json!({"metadata": {"labels": {}, "annotations": null}, "aggregationRule": null});
    let cases: [RoleChange; 8] = [
        ("nothing", json!([]), role(json!({})), role(json!({})), Ok(())),
        ("empty fields", json!([]), role(json!({})), role(empties), Ok(())),
        ("owners and finalizers", json!([]), role(json!({})), role(owners), Ok(())),
        ("a label, without the rights", json!([]), role(json!({})), role(label.clone()), Err(not_held)),
        ("a label, with the rights", json!(["get"]), role(json!({})), role(label), Ok(())),
        ("a new aggregation", json!(["get"]), role(json!({})), aggregated(), Err(aggregates)),
        ("a removed aggregation", json!(["get"]), aggregated(), role(json!({})), Err(aggregates)),
        ("a removed aggregation, without the rights", json!([]), aggregated(), role(json!({})), Err(not_held)),
    ];
    for (what, held, old, new, expected) in cases {
        let world = world(&[
            (
                "clusterroles",
                json!({"metadata": {"name": "held"},
                "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": held}]}),
            ),
            (
                "clusterrolebindings",
                json!({"metadata": {"name": "b"}, "subjects": [{"kind": "User", "name": "alice"}],
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "held"}}),
            ),
        ]);
        let update =
            Write { operation: Operation::Update, group: rbac, plural: "clusterroles", name: "big", ..NEW_POD };
        let got = admit(&world, &update, new, Some(old)).await.map(drop);
        assert_eq!(got, expected.map_err(str::to_owned), "{what}");
    }
}

#[tokio::test]
async fn a_binding_is_judged_again_when_its_labels_change() {
    let rbac = "rbac.authorization.k8s.io";
    let binding = |labels: Value, kind: &str| {
        json!({"metadata": {"name": "b", "labels": labels}, "subjects": [{"kind": "User", "name": "bob"}],
            "roleRef": {"apiGroup": rbac, "kind": kind, "name": "held"}})
    };
    let world = world(&[(
        "clusterroles",
        json!({"metadata": {"name": "held"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
    )]);
    let update =
        Write { operation: Operation::Update, group: rbac, plural: "clusterrolebindings", name: "b", ..NEW_POD };
    let (old, new) = (binding(json!({}), "ClusterRole"), binding(json!({"a": "b"}), "ClusterRole"));
    admit(&world, &update, old.clone(), Some(old.clone())).await.unwrap();
    assert!(admit(&world, &update, new, Some(old)).await.unwrap_err().starts_with("403 "));
    assert_eq!(
        admit(&world, &Write { operation: Operation::Create, ..update }, binding(json!({}), "Robe"), None).await,
        Err("500 unsupported role reference kind: \"Robe\"".to_owned())
    );
}

#[tokio::test]
async fn the_right_to_escalate_one_role_is_no_right_to_create_it() {
    let rbac = "rbac.authorization.k8s.io";
    let world = world(&[
        (
            "clusterroles",
            json!({"metadata": {"name": "e"}, "rules": [
            {"apiGroups": [rbac], "resources": ["roles"], "resourceNames": ["r"], "verbs": ["escalate"]}]}),
        ),
        (
            "clusterrolebindings",
            json!({"metadata": {"name": "e"}, "subjects": [{"kind": "User", "name": "alice"}],
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "e"}}),
        ),
    ]);
    let role = |verb: &str| {
        json!({"metadata": {"name": "r", "namespace": "ns"},
            "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": [verb]}]})
    };
    let update = Write { operation: Operation::Update, group: rbac, plural: "roles", name: "r", ..NEW_POD };
    admit(&world, &update, role("list"), Some(role("get"))).await.unwrap();
    let create = Write { operation: Operation::Create, ..update };
    assert!(admit(&world, &create, role("list"), None).await.unwrap_err().starts_with("403 "));
}

#[tokio::test]
async fn a_mirror_pod_has_no_account_and_no_secrets() {
    let mirror = |spec: Value| {
        json!({"metadata": {"name": "p", "namespace": "ns", "annotations": {"kubernetes.io/config.mirror": "x"}},
            "spec": spec})
    };
    let secrets = "403 pods \"p\" is forbidden: a mirror pod may not reference secrets";
    let token = json!({"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}});
    let cases = [
        (json!({"containers": [{"name": "c", "env": [{"name": "A", "value": "b"}]}]}), Ok(())),
        (
            json!({"serviceAccountName": "default"}),
            Err("403 pods \"p\" is forbidden: a mirror pod may not reference service accounts"),
        ),
        (json!({"imagePullSecrets": [{"name": "s"}]}), Err(secrets)),
        (json!({"containers": [{"envFrom": [{"secretRef": {"name": "s"}}]}]}), Err(secrets)),
        (
            json!({"initContainers": [{"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s"}}}]}]}),
            Err(secrets),
        ),
        (json!({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}), Err(secrets)),
        (json!({"volumes": [{"name": "v", "csi": {"nodePublishSecretRef": {"name": "s"}}}]}), Err(secrets)),
        (json!({"volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": "s"}}]}}]}), Err(secrets)),
        (
            json!({"volumes": [token]}),
            Err("403 pods \"p\" is forbidden: a mirror pod may not use ServiceAccountToken volume projections"),
        ),
    ];
    for (spec, expected) in cases {
        let got = admit(&world(&[]), &NEW_POD, mirror(spec.clone()), None).await.map(drop);
        assert_eq!(got, expected.map_err(str::to_owned), "{spec}");
    }
}

#[tokio::test]
async fn an_account_may_limit_the_secrets_of_its_pods() {
    let world = world(&[(
        "serviceaccounts",
        json!({"metadata": {"name": "tight", "namespace": "ns",
                            "annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}},
               "secrets": [{"name": "mine"}], "imagePullSecrets": [{"name": "pull"}]}),
    )]);
    let env = |secret: &str| json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": secret, "key": "k"}}}]);
    let not_listed = "is not allowed because service account tight does not reference that";
    let cases = [
        (json!({"containers": [{"name": "c", "env": env("mine")}]}), Ok(())),
        (
            json!({"volumes": [{"name": "v", "secret": {"secretName": "theirs"}}]}),
            Err(format!("volume with secret.secretName=\"theirs\" {not_listed} secret")),
        ),
        (
            json!({"initContainers": [{"name": "i", "env": env("theirs")}]}),
            Err(format!("init container i with envVar A referencing secret.secretName=\"theirs\" {not_listed} secret")),
        ),
        (
            json!({"containers": [{"name": "c", "envFrom": [{"secretRef": {"name": "theirs"}}]}]}),
            Err(format!("container c with envFrom referencing secret.secretName=\"theirs\" {not_listed} secret")),
        ),
        (
            json!({"imagePullSecrets": [{"name": "pull"}, {"name": "mine"}]}),
            Err(format!("imagePullSecrets[1].name=\"mine\" {not_listed} imagePullSecret")),
        ),
    ];
    for (mut spec, expected) in cases {
        spec["serviceAccountName"] = "tight".into();
        let got = admit(&world, &NEW_POD, pod(spec.clone()), None).await.map(drop);
        assert_eq!(got, expected.map_err(|why| format!("403 pods \"p\" is forbidden: {why}")), "{spec}");
    }
    let ephemeral = Write { operation: Operation::Update, subresource: "ephemeralcontainers", name: "p", ..NEW_POD };
    let spec = json!({"serviceAccountName": "tight", "ephemeralContainers": [{"name": "e", "env": env("theirs")}]});
    assert_eq!(
        admit(&world, &ephemeral, pod(spec), Some(pod(json!({})))).await.unwrap_err(),
        format!("500 ephemeral container e with envVar A referencing secret.secretName=\"theirs\" {not_listed} secret")
    );
}
