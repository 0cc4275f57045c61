//! Malformed objects of every kind the scheduler reads: none of them makes it panic or stall, every pod stays in
//! exactly one stage, and an ordinary pod is still scheduled afterwards.
//!
//! `PROPTEST_CASES=20000 cargo test -p bayplan-scheduler --test poison` runs more of them.

#![allow(clippy::unwrap_used)] // Helpers of tests, not the product.

mod world;

use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::{Registry, Scheduler, TieBreak};
use jiff::SignedDuration;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::RngSeed;
use serde_json::{Map, Value, json};
use world::World;

/// The number of cases in an ordinary run, which takes a few seconds.
const CASES: u32 = 250;

type Json = BoxedStrategy<Value>;

fn one_of(values: impl IntoIterator<Item = Value>) -> Json {
    select(values.into_iter().collect::<Vec<_>>()).boxed()
}

fn words(values: &[&str]) -> Json {
    one_of(values.iter().map(|value| json!(value)))
}

/// Keys of labels and topologies, so few that objects share them.
fn key() -> BoxedStrategy<String> {
    select(vec!["", "a", "b", "kubernetes.io/hostname", "topology.kubernetes.io/zone", "x y", "é", "a/b/c"])
        .prop_map(str::to_owned)
        .boxed()
}

fn value() -> Json {
    words(&["", "a", "b", "-5", "7", "9223372036854775807", "x__y", "é", "not a label value!"])
}

fn number() -> Json {
    let numbers = [0, 1, -1, 2, 3, 100, i64::from(i32::MAX), i64::from(i32::MIN)];
    one_of(numbers.map(|number| json!(number)))
}

fn quantity() -> Json {
    words(&["0", "1", "1m", "-1", "-1Gi", "9e18", "1e300", "1n", "100m", "2Gi", "9223372036854775807", "0.1", "1E"])
}

fn resource() -> BoxedStrategy<String> {
    let names = ["cpu", "memory", "ephemeral-storage", "pods", "hugepages-2Mi", "x.io/gpu", "nonsense", ""];
    let more = ["deviceclass.resource.kubernetes.io/c", "attachable-volumes-x", "requests.cpu"];
    select(names.into_iter().chain(more).collect::<Vec<_>>()).prop_map(str::to_owned).boxed()
}

fn map(keys: BoxedStrategy<String>, values: Json, most: usize) -> Json {
    prop::collection::vec((keys, values), 0..=most).prop_map(|pairs| Value::Object(pairs.into_iter().collect())).boxed()
}

fn list(items: Json, most: usize) -> Json {
    prop::collection::vec(items, 0..=most).prop_map(Value::Array).boxed()
}

/// An object with some of these fields.
fn object(fields: Vec<(&'static str, Json)>) -> Json {
    let fields: Vec<_> = fields.into_iter().map(|(name, value)| (Just(name), prop::option::of(value))).collect();
    fields
        .prop_map(|fields| {
            let given = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
            Value::Object(given.collect::<Map<String, Value>>())
        })
        .boxed()
}

fn text(keys: BoxedStrategy<String>) -> Json {
    keys.prop_map(Value::from).boxed()
}

fn labels() -> Json {
    map(key(), value(), 4)
}

fn requirements() -> Json {
    let operators = words(&["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "", "Nonsense"]);
    list(object(vec![("key", text(key())), ("operator", operators), ("values", list(value(), 3))]), 3)
}

fn label_selector() -> Json {
    object(vec![("matchLabels", labels()), ("matchExpressions", requirements())])
}

fn node_selector() -> Json {
    let by_name = json!([{"key": "metadata.name", "operator": "In", "values": ["n0", "odd", "nobody"]}]);
    let fields = prop_oneof![requirements(), Just(by_name)].boxed();
    let term = object(vec![("matchExpressions", requirements()), ("matchFields", fields)]);
    object(vec![("nodeSelectorTerms", list(term, 3))])
}

fn affinity() -> Json {
    let term = || {
        object(vec![
            ("labelSelector", label_selector()),
            ("topologyKey", text(key())),
            ("namespaces", list(words(&["d", "", "e"]), 2)),
            ("namespaceSelector", label_selector()),
        ])
    };
    let pods = || {
        let weighted = object(vec![("weight", number()), ("podAffinityTerm", term())]);
        object(vec![
            ("requiredDuringSchedulingIgnoredDuringExecution", list(term(), 3)),
            ("preferredDuringSchedulingIgnoredDuringExecution", list(weighted, 3)),
        ])
    };
    let preference = object(vec![("matchExpressions", requirements()), ("matchFields", requirements())]);
    let weighted = object(vec![("weight", number()), ("preference", preference)]);
    let nodes = object(vec![
        ("requiredDuringSchedulingIgnoredDuringExecution", node_selector()),
        ("preferredDuringSchedulingIgnoredDuringExecution", list(weighted, 3)),
    ]);
    object(vec![("nodeAffinity", nodes), ("podAffinity", pods()), ("podAntiAffinity", pods())])
}

fn containers() -> Json {
    let port = object(vec![
        ("hostPort", number()),
        ("protocol", words(&["TCP", "UDP", "SCTP", "", "?"])),
        ("hostIP", words(&["", "0.0.0.0", "::", "127.0.0.1", "?"])),
    ]);
    let resources =
        object(vec![("requests", map(resource(), quantity(), 4)), ("limits", map(resource(), quantity(), 2))]);
    let container = object(vec![
        ("name", words(&["c", "", "d"])),
        ("image", words(&["", "img", "img:1", ":", "a/b@sha256:0"])),
        ("resources", resources),
        ("ports", list(port, 3)),
        ("restartPolicy", words(&["Always", "Never", "?"])),
    ]);
    let many = container.clone().prop_map(|container| Value::Array(vec![container; 3_000])).boxed();
    prop_oneof![20 => list(container, 4), 1 => many].boxed()
}

fn volume() -> Json {
    let claim = object(vec![("claimName", words(&["", "claim", "nobody"]))]);
    let disk = object(vec![("pdName", value()), ("readOnly", one_of([json!(true), json!(false)]))]);
    let rbd = object(vec![("monitors", list(value(), 2)), ("pool", value()), ("image", value())]);
    object(vec![
        ("name", words(&["v", "", "w"])),
        ("persistentVolumeClaim", claim),
        ("ephemeral", Just(json!({})).boxed()),
        ("gcePersistentDisk", disk),
        ("awsElasticBlockStore", object(vec![("volumeID", words(&["", "vol", "aws://z/vol"]))])),
        ("rbd", rbd),
        ("csi", object(vec![("driver", value())])),
        ("azureDisk", object(vec![("diskName", value()), ("diskURI", value())])),
    ])
}

fn spread() -> Json {
    object(vec![
        ("maxSkew", number()),
        ("minDomains", number()),
        ("topologyKey", text(key())),
        ("whenUnsatisfiable", words(&["DoNotSchedule", "ScheduleAnyway", ""])),
        ("labelSelector", label_selector()),
        ("nodeAffinityPolicy", words(&["Honor", "Ignore", "?"])),
        ("nodeTaintsPolicy", words(&["Honor", "Ignore", "?"])),
        ("matchLabelKeys", list(text(key()), 2)),
    ])
}

fn taint() -> Json {
    let effects = words(&["NoSchedule", "NoExecute", "PreferNoSchedule", "", "?"]);
    object(vec![("key", text(key())), ("value", value()), ("effect", effects)])
}

fn toleration() -> Json {
    object(vec![
        ("key", text(key())),
        ("operator", words(&["", "Exists", "Equal", "Lt", "Gt", "?"])),
        ("value", value()),
        ("effect", words(&["", "NoSchedule", "NoExecute", "?"])),
        ("tolerationSeconds", number()),
    ])
}

fn metadata(name: &'static str) -> Json {
    let extended = json!({"resource.kubernetes.io/extended-resource-claim": "true"});
    let selected = json!({"volume.kubernetes.io/selected-node": "n0", "pv.kubernetes.io/bind-completed": "yes"});
    object(vec![
        ("labels", labels()),
        ("annotations", one_of([extended, selected, json!({}), json!({"": "é"})])),
        ("generation", number()),
        ("ownerReferences", list(Just(json!({"controller": true, "kind": "Pod", "uid": "uid-q0"})).boxed(), 2)),
    ])
    .prop_map(move |mut metadata| {
        metadata["name"] = name.into();
        metadata
    })
    .boxed()
}

fn in_namespace(name: &'static str) -> Json {
    metadata(name)
        .prop_map(|mut metadata| {
            metadata["namespace"] = "d".into();
            metadata
        })
        .boxed()
}

fn pod_spec() -> Json {
    let first = vec![
        ("containers", containers()),
        ("initContainers", containers()),
        ("overhead", map(resource(), quantity(), 2)),
        ("priority", number()),
        ("preemptionPolicy", words(&["Never", "PreemptLowerPriority", "?"])),
        ("nodeSelector", labels()),
        ("affinity", affinity()),
        ("tolerations", list(toleration(), 3)),
    ];
    let claims = json!([{"name": "r", "resourceClaimName": "claim"}, {"name": "s", "resourceClaimTemplateName": "t"}]);
    let second = vec![
        ("topologySpreadConstraints", list(spread(), 3)),
        ("volumes", list(volume(), 3)),
        ("resourceClaims", one_of([claims.clone(), json!([claims[0]]), json!([{}])])),
        ("hostNetwork", one_of([json!(true), json!(false)])),
        ("hostUsers", one_of([json!(true), json!(false)])),
        ("resources", object(vec![("requests", map(resource(), quantity(), 3))])),
        ("schedulingGates", one_of([json!([]), json!([{}]), json!([{"name": ""}])])),
    ];
    (object(first), object(second))
        .prop_map(|(mut spec, more)| {
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            spec["schedulerName"] = "default-scheduler".into();
            spec
        })
        .boxed()
}

fn pod() -> Json {
    let conditions = one_of([
        json!([]),
        json!([{"type": "PodScheduled", "status": "False", "reason": "é".repeat(600), "message": "x".repeat(3000)}]),
        json!([{"type": "PodResizePending", "reason": "Infeasible"}, {}]),
    ]);
    let statuses =
        json!([{"name": "c", "allocatedResources": {"cpu": "9e18"}, "resources": {"requests": {"cpu": "-3"}}}]);
    let status = object(vec![
        ("nominatedNodeName", words(&["", "n0", "odd", "nobody"])),
        ("conditions", conditions),
        ("containerStatuses", Just(statuses).boxed()),
        ("startTime", words(&["1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])),
        ("resourceClaimStatuses", Just(json!([{"name": "s", "resourceClaimName": "claim"}])).boxed()),
    ]);
    (in_namespace("q"), pod_spec(), status)
        .prop_map(|(metadata, spec, status)| {
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status})
        })
        .boxed()
}

fn kind(api: &'static str, kind: &'static str, metadata: Json, fields: Vec<(&'static str, Json)>) -> Json {
    (metadata, object(fields))
        .prop_map(move |(metadata, mut fields)| {
            fields["apiVersion"] = api.into();
            fields["kind"] = kind.into();
            fields["metadata"] = metadata;
            fields
        })
        .boxed()
}

fn node() -> Json {
    let image = object(vec![("names", list(words(&["img:latest", "img:1", ""]), 3)), ("sizeBytes", number())]);
    let status = object(vec![
        ("allocatable", map(resource(), quantity(), 6)),
        ("images", list(image, 3)),
        ("declaredFeatures", list(value(), 2)),
    ]);
    let spec = object(vec![("taints", list(taint(), 3)), ("unschedulable", one_of([json!(true), json!(false)]))]);
    kind("v1", "Node", metadata("odd"), vec![("spec", spec), ("status", status)])
}

fn access_modes() -> Json {
    list(words(&["ReadWriteOnce", "ReadWriteOncePod", "?"]), 2)
}

fn storage_class_name() -> Json {
    words(&["", "class", "nobody"])
}

fn phase(names: &[&str]) -> Json {
    object(vec![("phase", words(names))])
}

fn persistent_volume() -> Json {
    let spec = object(vec![
        ("capacity", map(Just("storage".to_owned()).boxed(), quantity(), 1)),
        ("storageClassName", storage_class_name()),
        ("accessModes", access_modes()),
        ("claimRef", one_of([json!({}), json!({"namespace": "d", "name": "claim", "uid": "?"})])),
        ("csi", object(vec![("driver", value()), ("volumeHandle", value())])),
        ("awsElasticBlockStore", object(vec![("volumeID", words(&["", "aws:///", "vol"]))])),
        ("nodeAffinity", object(vec![("required", node_selector())])),
        ("volumeMode", words(&["Block", "Filesystem", ""])),
    ]);
    let status = phase(&["Available", "Bound"]);
    kind("v1", "PersistentVolume", metadata("volume"), vec![("spec", spec), ("status", status)])
}

fn persistent_volume_claim() -> Json {
    let spec = object(vec![
        ("storageClassName", storage_class_name()),
        ("accessModes", access_modes()),
        ("volumeName", words(&["", "volume", "nobody"])),
        ("resources", object(vec![("requests", map(Just("storage".to_owned()).boxed(), quantity(), 1))])),
        ("selector", label_selector()),
    ]);
    let status = phase(&["Lost", "Pending"]);
    kind("v1", "PersistentVolumeClaim", in_namespace("claim"), vec![("spec", spec), ("status", status)])
}

fn storage() -> Json {
    const API: &str = "storage.k8s.io/v1";
    let topology = json!([{"matchLabelExpressions": [{"key": "a", "values": []}]}, {}]);
    let drivers =
        json!([{"name": "a", "allocatable": {"count": -1}}, {"name": "", "allocatable": {"count": 2147483647}}, {}]);
    let class = vec![
        ("provisioner", words(&["", "a", "kubernetes.io/no-provisioner", "kubernetes.io/aws-ebs"])),
        ("volumeBindingMode", words(&["WaitForFirstConsumer", "Immediate", "?"])),
        ("allowedTopologies", Just(topology).boxed()),
    ];
    let capacity = vec![
        ("storageClassName", storage_class_name()),
        ("capacity", quantity()),
        ("maximumVolumeSize", quantity()),
        ("nodeTopology", label_selector()),
    ];
    let budget = vec![
        ("spec", object(vec![("selector", label_selector())])),
        ("status", object(vec![("disruptionsAllowed", number())])),
    ];
    let spec = |fields: Value| vec![("spec", Just(fields).boxed())];
    prop_oneof![
        persistent_volume(),
        persistent_volume_claim(),
        kind(API, "StorageClass", metadata("class"), class),
        kind(API, "CSINode", metadata("odd"), spec(json!({"drivers": drivers}))),
        kind(API, "CSIDriver", metadata("a"), spec(json!({"storageCapacity": true}))),
        kind(API, "CSIStorageCapacity", in_namespace("s"), capacity),
        kind("policy/v1", "PodDisruptionBudget", in_namespace("b"), budget),
    ]
    .boxed()
}

fn selectors() -> Json {
    let expressions = [
        "true",
        "",
        "device.driver",
        "device.attributes['a'].b == 1",
        "[1,2,3].map(x, [1,2,3].map(y, x * y * 9223372036854775807))",
        "device.capacity['a'].b.add(quantity('9e18')).isGreaterThan(quantity('1e300'))",
        "'é'.substring(1, 99) == string(b'\\xff')",
        "1/0 == 1 || semver('x', true).major() == 1",
        "'aaaaaaaaaaaaaaaaaaaaaaaa'.matches('(a*)*$')",
        "(((((",
        "cel.bind(a, device, a.attributes.exists(k, k == device.driver))",
    ];
    list(
        one_of(expressions.map(|expression| json!({"cel": {"expression": expression}})).into_iter().chain([json!({})])),
        2,
    )
}

fn device() -> Json {
    let attribute = one_of([
        json!({"int": -1}),
        json!({"version": "not one"}),
        json!({"string": "é"}),
        json!({"bool": true}),
        json!({}),
    ]);
    let range = object(vec![("min", quantity()), ("max", quantity()), ("step", quantity())]);
    let policy = object(vec![("default", quantity()), ("validValues", list(quantity(), 3)), ("validRange", range)]);
    let capacity = object(vec![("value", quantity()), ("requestPolicy", policy)]);
    object(vec![
        ("name", words(&["", "d0", "d1", "d2"])),
        ("attributes", map(key(), attribute, 3)),
        ("capacity", map(key(), capacity, 3)),
        ("consumesCounters", Just(json!([{"counterSet": "s", "counters": {"c": {"value": "-1"}}}])).boxed()),
        ("taints", list(taint(), 2)),
        ("nodeSelector", node_selector()),
        ("allNodes", one_of([json!(true), json!(false)])),
        ("allowMultipleAllocations", one_of([json!(true), json!(false)])),
        ("bindingConditions", list(value(), 2)),
    ])
}

fn resource_slice() -> Json {
    let pool = object(vec![("name", words(&["", "pool"])), ("generation", number()), ("resourceSliceCount", number())]);
    let spec = object(vec![
        ("driver", words(&["", "a", "x.io"])),
        ("pool", pool),
        ("nodeName", words(&["", "n0", "odd"])),
        ("nodeSelector", node_selector()),
        ("allNodes", one_of([json!(true), json!(false)])),
        ("perDeviceNodeSelection", one_of([json!(true), json!(false)])),
        ("devices", list(device(), 4)),
        ("sharedCounters", Just(json!([{"name": "s", "counters": {"c": {"value": "9e18"}}}])).boxed()),
    ]);
    kind("resource.k8s.io/v1", "ResourceSlice", metadata("slice"), vec![("spec", spec)])
}

fn device_request() -> Json {
    object(vec![
        ("name", words(&["", "r", "s"])),
        ("deviceClassName", words(&["", "c", "nobody"])),
        ("selectors", selectors()),
        ("allocationMode", words(&["ExactCount", "All", "", "?"])),
        ("count", one_of([json!(1), json!(0), json!(-1), json!(33), json!(i64::MAX)])),
        ("adminAccess", one_of([json!(true), json!(false)])),
        ("capacity", object(vec![("requests", map(key(), quantity(), 2))])),
        ("tolerations", list(toleration(), 2)),
    ])
}

fn resource_claim() -> Json {
    let request = object(vec![
        ("name", words(&["", "r"])),
        ("exactly", device_request()),
        ("firstAvailable", list(device_request(), 3)),
    ]);
    let constraint = object(vec![
        ("matchAttribute", text(key())),
        ("distinctAttribute", text(key())),
        ("requests", list(words(&["r", "r/s"]), 2)),
    ]);
    let devices = object(vec![("requests", list(request, 3)), ("constraints", list(constraint, 2))]);
    let result =
        json!({"driver": "a", "pool": "pool", "device": "d0", "shareID": "s", "consumedCapacity": {"a": "-1"}});
    let allocation = object(vec![
        ("devices", one_of([json!({}), json!({"results": [result]})])),
        ("nodeSelector", node_selector()),
        ("allocationTimestamp", words(&["1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])),
    ]);
    let status = object(vec![("allocation", allocation), ("reservedFor", list(Just(json!({"uid": "?"})).boxed(), 2))]);
    let fields = vec![("spec", object(vec![("devices", devices)])), ("status", status)];
    kind("resource.k8s.io/v1", "ResourceClaim", in_namespace("claim"), fields)
}

fn devices() -> Json {
    let class = object(vec![("selectors", selectors()), ("extendedResourceName", text(resource()))]);
    prop_oneof![
        resource_slice(),
        resource_claim(),
        kind("resource.k8s.io/v1", "DeviceClass", metadata("c"), vec![("spec", class)]),
    ]
    .boxed()
}

/// Numbers pods, and gives some of them a node.
fn placed(pod: &mut Value, at: usize) {
    pod["metadata"]["name"] = format!("q{at}").into();
    pod["metadata"]["uid"] = format!("uid-q{at}").into();
    if at % 4 == 3 {
        pod["spec"]["nodeName"] = ["n0", "odd", "nobody"][at % 3].into();
    }
}

fn ordinary() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "plain", "namespace": "e", "uid": "uid-plain", "labels": {"app": "plain"}},
        "spec": {
            "schedulerName": "default-scheduler",
            "nodeSelector": {"ordinary": "yes"},
            "containers": [{"name": "c", "image": "img", "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}}}],
        },
    })
}

/// Delivers everything, lets the scheduler work, and checks that it still does.
fn endure(objects: &[Value], mut pods: Vec<Value>) -> Result<(), TestCaseError> {
    let scheduler = Scheduler::new(&Configuration::default(), &Registry::default(), TieBreak::SmallestName).unwrap();
    let mut world = World::new(0, scheduler);
    for name in 0..2 {
        let name = format!("n{name}");
        world.upsert_object(&json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"ordinary": "yes", "kubernetes.io/hostname": name}},
            "status": {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "500"}},
        }));
    }
    for object in objects {
        world.upsert_object(object);
    }
    for (at, pod) in pods.iter_mut().enumerate() {
        placed(pod, at);
        world.server.store(pod.clone());
    }
    while world.deliver_watch_event() {}
    for _ in 0..4 {
        for _ in 0..100 {
            if !world.schedule(1) {
                break;
            }
        }
        while world.run_effect() | world.deliver_result() | world.deliver_watch_event() {}
        world.check_stages();
        world.advance(SignedDuration::from_secs(400));
    }
    // Malformed pods may keep others away; once they are gone, an ordinary pod fits.
    for pod in &pods {
        world.server.end(pod["metadata"]["name"].as_str().unwrap());
    }
    world.server.store(ordinary());
    for _ in 0..20 {
        while world.run_effect() | world.deliver_result() | world.deliver_watch_event() {}
        world.schedule(10);
        world.advance(SignedDuration::from_secs(20));
    }
    prop_assert!(world.server.is_bound("plain"), "an ordinary pod is no longer scheduled");
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_object_stops_the_scheduler(
        nodes in prop::collection::vec(node(), 0..3),
        storage in prop::collection::vec(storage(), 0..8),
        devices in prop::collection::vec(devices(), 0..6),
        pods in prop::collection::vec(pod(), 1..6),
    ) {
        let objects: Vec<Value> = nodes.into_iter().chain(storage).chain(devices).collect();
        endure(&objects, pods)?;
    }
}

/// The same cases in every ordinary run; new ones each time when `PROPTEST_CASES` asks for more.
fn config() -> ProptestConfig {
    let shared = ProptestConfig { max_shrink_iters: 500, failure_persistence: None, ..ProptestConfig::default() };
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => shared,
        None => ProptestConfig { cases: CASES, rng_seed: RngSeed::Fixed(7), ..shared },
    }
}
