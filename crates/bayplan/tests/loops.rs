//! The loops without which placing pods is not whole, each in a live cluster in this process.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bayplan_apiserver::certificates::{Names, Pki};
use bayplan_apiserver::{ApiServer, Config, ServiceRange, User};
use bayplan_client::Client;
use bayplan_model::api::{Api, DeleteOptions, ListOptions, PatchKind, Request, Resource, Verb};
use bayplan_runner::controllers::{ControllersConfig, create_default_class, run_controllers};
use bayplan_runner::nodes::run_nodes;
use bayplan_runner::scheduler::{SchedulerConfig, run_scheduler};
use bayplan_sim::{FleetConfig, NodeTemplate};
use bayplan_store::LogStore;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How long a cluster may take to do what it must; generous because shared machines stall.
const PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(100);

const NODES: Resource = Resource::new("", "v1", "nodes");
const PODS: Resource = Resource::new("", "v1", "pods");
const REPLICATION_CONTROLLERS: Resource = Resource::new("", "v1", "replicationcontrollers");
const VOLUMES: Resource = Resource::new("", "v1", "persistentvolumes");
const VOLUME_ATTACHMENTS: Resource = Resource::new("storage.k8s.io", "v1", "volumeattachments");
const VOLUME_CLAIMS: Resource = Resource::new("", "v1", "persistentvolumeclaims");
const DEVICE_CLASSES: Resource = Resource::new("resource.k8s.io", "v1", "deviceclasses");
const RESOURCE_SLICES: Resource = Resource::new("resource.k8s.io", "v1", "resourceslices");
const RESOURCE_CLAIMS: Resource = Resource::new("resource.k8s.io", "v1", "resourceclaims");
const RESOURCE_CLAIM_TEMPLATES: Resource = Resource::new("resource.k8s.io", "v1", "resourceclaimtemplates");

/// What `bayplan up` runs, without the process around it.
struct Cluster {
    client: Client,
    server: ApiServer,
    stop: watch::Sender<bool>,
    parts: JoinSet<()>,
}

impl Cluster {
    async fn start(nodes: usize, controllers: ControllersConfig) -> Cluster {
        let names = Names::standard(None, ServiceRange::default().first().into());
        let pki = Pki::in_memory(&names, Timestamp::now()).unwrap();
        let config = Config::new(&pki.service_account_key, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let server = ApiServer::new(config, Arc::new(LogStore::in_memory().unwrap())).await.unwrap();
        let client =
            |user: &str, groups: &[&str]| Client::from_service(server.service(User::new(user, groups.iter().copied())));
        let admin = client("admin", &["system:masters"]);
        create_default_class(&admin).await.unwrap();
        let (stop, stopping) = watch::channel(false);
        let mut parts = JoinSet::new();
        let controllers = ControllersConfig { simulated_volumes: true, ..controllers };
        parts.spawn(run_controllers(client("system:kube-controller-manager", &[]), controllers, stopping.clone()));
        let scheduler =
            run_scheduler(client("system:kube-scheduler", &[]), SchedulerConfig::default(), stopping.clone());
        parts.spawn(async { scheduler.await.unwrap() });
        let template = NodeTemplate { zones: NodeTemplate::zones(1), ..NodeTemplate::default() };
        let fleet =
            FleetConfig { nodes, template, pod_start_delay: Duration::from_millis(10), ..FleetConfig::default() };
        let nodes = run_nodes(admin.clone(), fleet, watch::channel(0).0, stopping);
        parts.spawn(async { nodes.await.unwrap() });
        Cluster { client: admin, server, stop, parts }
    }

    async fn stop(mut self) {
        self.stop.send_replace(true);
        while self.parts.join_next().await.is_some() {}
        self.server.shutdown().await;
    }

    async fn call(&self, request: Request) -> Result<Value, bayplan_model::status::Status> {
        self.client.call(request).await.map(|answer| serde_json::from_slice(&answer).unwrap())
    }

    /// Creates an object; a namespace may still miss its service account.
    async fn create(&self, resource: &Resource, namespace: &str, object: Value) -> Value {
        let mut refusal = None;
        let created = eventually(async || {
            let verb = Verb::Create(object.to_string().into());
            match self.call(Request::collection(resource, namespace, verb)).await {
                Ok(created) => Some(created),
                Err(status) => {
                    refusal = Some(status);
                    None
                }
            }
        });
        created.await.unwrap_or_else(|| panic!("{} is refused: {}", resource.plural, refusal.unwrap()))
    }

    async fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Option<Value> {
        self.call(Request::object(resource, namespace, name, Verb::Get)).await.ok()
    }

    async fn list(&self, resource: &Resource) -> Vec<Value> {
        let mut list = self.call(Request::collection(resource, "", Verb::List(ListOptions::default()))).await.unwrap();
        list["items"].take().as_array().cloned().unwrap_or_default()
    }

    async fn delete(&self, resource: &Resource, namespace: &str, name: &str) {
        let verb = Verb::Delete(DeleteOptions::default());
        self.call(Request::object(resource, namespace, name, verb)).await.unwrap();
    }

    /// Waits until an object is as it should be.
    async fn wait(&self, resource: &Resource, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let namespaced = [&PODS, &VOLUME_CLAIMS, &RESOURCE_CLAIMS].contains(&resource);
        let namespace = if namespaced { "default" } else { "" };
        let mut last = None;
        let found = eventually(async || {
            last = self.get(resource, namespace, name).await;
            last.clone().filter(&wanted)
        })
        .await;
        found.unwrap_or_else(|| panic!("{} {name} stays {last:#?}", resource.plural))
    }
}

/// Asks until there is an answer or patience ends.
async fn eventually<T>(mut ask: impl AsyncFnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if let Some(answer) = ask().await {
            return Some(answer);
        }
        tokio::time::sleep(POLL).await;
    }
    None
}

fn is_running(pod: &Value) -> bool {
    pod["status"]["phase"] == "Running"
}

fn condition<'a>(object: &'a Value, condition_type: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == condition_type)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_whose_claim_waits_for_it_gets_a_volume_and_runs() {
    let cluster = Cluster::start(2, ControllersConfig::default()).await;
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let claim = json!({"metadata": {"name": "data"}, "spec": spec});
    let claim = cluster.create(&VOLUME_CLAIMS, "default", claim).await;
    assert_eq!(claim["spec"]["storageClassName"], "standard");
    let pod = json!({"metadata": {"name": "db"}, "spec": {
        "containers": [{"name": "c", "image": "db", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    }});
    cluster.create(&PODS, "default", pod).await;
    let pod = cluster.wait(&PODS, "db", is_running).await;
    let claim = cluster.wait(&VOLUME_CLAIMS, "data", |claim| claim["status"]["phase"] == "Bound").await;
    assert_eq!(claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"], pod["spec"]["nodeName"]);
    assert_eq!(claim["status"]["capacity"]["storage"], "1Gi");
    let name = claim["spec"]["volumeName"].as_str().unwrap();
    let volume = cluster.wait(&VOLUMES, name, |volume| volume["status"]["phase"] == "Bound").await;
    assert_eq!(volume["spec"]["claimRef"]["uid"], claim["metadata"]["uid"]);
    let node = pod["spec"]["nodeName"].as_str().unwrap();
    let uses = format!("kubernetes.io/csi/bayplan.dev-simulated^{name}");
    let is_used = |node: &Value| node["status"]["volumesInUse"] == json!([uses]);
    let node = cluster.wait(&NODES, node, is_used).await;
    assert_eq!(node["status"]["volumesAttached"], json!([{"name": uses, "devicePath": ""}]));
    let [attachment] = &cluster.list(&VOLUME_ATTACHMENTS).await[..] else { panic!("it is attached once") };
    assert_eq!(attachment["status"]["attached"], true);
    assert_eq!(attachment["spec"]["source"]["persistentVolumeName"], name);

    // The claim stays while the pod uses it.
    cluster.delete(&VOLUME_CLAIMS, "default", "data").await;
    let claim = cluster.wait(&VOLUME_CLAIMS, "data", |claim| claim["metadata"]["deletionTimestamp"].is_string()).await;
    assert_eq!(claim["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    cluster.delete(&PODS, "default", "db").await;
    let gone = eventually(async || cluster.get(&VOLUMES, "", name).await.is_none().then_some(())).await;
    assert!(gone.is_some(), "the volume goes with its claim");
    let detached = eventually(async || cluster.list(&VOLUME_ATTACHMENTS).await.is_empty().then_some(())).await;
    assert!(detached.is_some(), "the volume is detached when its pod is gone");
    let name = node["metadata"]["name"].as_str().unwrap();
    let is_free =
        |node: &Value| node["status"]["volumesAttached"].is_null() && node["status"]["volumesInUse"].is_null();
    cluster.wait(&NODES, name, is_free).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_without_a_provisioner_takes_the_volume_an_administrator_made() {
    let cluster = Cluster::start(1, ControllersConfig::default()).await;
    let volume = json!({"metadata": {"name": "disk"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "5Gi"}, "storageClassName": "manual",
        "hostPath": {"path": "/data"}, "persistentVolumeReclaimPolicy": "Retain",
    }});
    cluster.create(&VOLUMES, "", volume).await;
    cluster.wait(&VOLUMES, "disk", |volume| volume["status"]["phase"] == "Available").await;
    let spec = json!({
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "manual",
    });
    cluster.create(&VOLUME_CLAIMS, "default", json!({"metadata": {"name": "data"}, "spec": spec})).await;
    let claim = cluster.wait(&VOLUME_CLAIMS, "data", |claim| claim["status"]["phase"] == "Bound").await;
    assert_eq!(claim["spec"]["volumeName"], "disk");
    cluster.delete(&VOLUME_CLAIMS, "default", "data").await;
    cluster.wait(&VOLUMES, "disk", |volume| volume["status"]["phase"] == "Released").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_with_a_claim_template_gets_its_device_and_gives_it_back() {
    let cluster = Cluster::start(2, ControllersConfig::default()).await;
    cluster.create(&DEVICE_CLASSES, "", json!({"metadata": {"name": "gpu"}, "spec": {}})).await;
    let slice = json!({"metadata": {"name": "gpus"}, "spec": {
        "driver": "gpu.example.com", "nodeName": "node-0002", "devices": [{"name": "gpu-0"}],
        "pool": {"name": "node-0002", "generation": 1, "resourceSliceCount": 1},
    }});
    cluster.create(&RESOURCE_SLICES, "", slice).await;
    let request = json!({"name": "gpu", "exactly": {"deviceClassName": "gpu"}});
    let template = json!({"metadata": {"name": "one-gpu"}, "spec": {"spec": {"devices": {"requests": [request]}}}});
    cluster.create(&RESOURCE_CLAIM_TEMPLATES, "default", template).await;
    let pod = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {
            "containers": [{"name": "c", "image": "train", "resources": {"claims": [{"name": "gpu"}]}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
        }})
    };
    cluster.create(&PODS, "default", pod("first")).await;
    let first = cluster.wait(&PODS, "first", is_running).await;
    assert_eq!(first["spec"]["nodeName"], "node-0002");
    let name = first["status"]["resourceClaimStatuses"][0]["resourceClaimName"].as_str().unwrap();
    assert!(name.starts_with("first-gpu-"), "{name}");
    let claim = cluster.get(&RESOURCE_CLAIMS, "default", name).await.unwrap();
    assert_eq!(claim["status"]["reservedFor"][0]["name"], "first");

    // There is one device only: the second pod gets it when the first one is gone.
    cluster.create(&PODS, "default", pod("second")).await;
    cluster.wait(&PODS, "second", |pod| condition(pod, "PodScheduled").is_some_and(|c| c["status"] == "False")).await;
    cluster.delete(&PODS, "default", "first").await;
    cluster.wait(&PODS, "second", is_running).await;
    let gone = eventually(async || cluster.get(&RESOURCE_CLAIMS, "default", name).await.is_none().then_some(())).await;
    assert!(gone.is_some(), "the claim goes with its pod");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_kubelet_stops_is_tainted_and_its_pods_are_replaced_elsewhere() {
    let mut config = ControllersConfig::default();
    // Kubelets renew their leases every 10 s. A busy machine may stall as long again, and must not lose healthy nodes.
    config.node_lifecycle.monitor_grace_period = Duration::from_secs(20);
    config.node_lifecycle.monitor_period = Duration::from_millis(500);
    let cluster = Cluster::start(3, config).await;
    let toleration = json!({
        "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1,
    });
    let spread = json!([{
        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}}, "nodeTaintsPolicy": "Honor",
    }]);
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {
        "containers": [{"name": "c", "image": "web"}], "tolerations": [toleration], "topologySpreadConstraints": spread,
    }});
    let controller = json!({"metadata": {"name": "web"}, "spec": {"replicas": 3, "template": template}});
    cluster.create(&REPLICATION_CONTROLLERS, "default", controller).await;
    let ready = async |without: &str| {
        let pods = cluster.list(&PODS).await;
        let elsewhere = pods.iter().filter(|pod| pod["spec"]["nodeName"] != without);
        let ready = elsewhere.filter(|pod| condition(pod, "Ready").is_some_and(|c| c["status"] == "True")).count();
        (ready == 3).then_some(pods)
    };
    let pods = eventually(async || ready("").await).await.expect("three pods are ready");
    let dead = pods[0]["spec"]["nodeName"].as_str().unwrap().to_owned();
    let lost = pods[0]["metadata"]["name"].as_str().unwrap().to_owned();

    let fail = |value: Value| {
        let patch = json!({"metadata": {"annotations": {"bayplan.dev/fail": value}}});
        Request::object(&NODES, "", &dead, Verb::Patch(PatchKind::Merge, patch.to_string().into()))
    };
    cluster.call(fail("true".into())).await.unwrap();
    let has_taint = |node: &Value, effect: &str| {
        let taints = node["spec"]["taints"].as_array().into_iter().flatten();
        taints.into_iter().any(|taint| taint["key"] == "node.kubernetes.io/unreachable" && taint["effect"] == effect)
    };
    let node = cluster.wait(&NODES, &dead, |node| has_taint(node, "NoExecute") && has_taint(node, "NoSchedule")).await;
    assert_eq!(condition(&node, "Ready").unwrap()["reason"], "NodeStatusUnknown");
    let pod = cluster.wait(&PODS, &lost, |pod| pod["metadata"]["deletionTimestamp"].is_string()).await;
    assert_eq!(condition(&pod, "Ready").unwrap()["status"], "False");
    assert_eq!(condition(&pod, "DisruptionTarget").unwrap()["reason"], "DeletionByTaintManager");
    eventually(async || ready(&dead).await).await.expect("three pods are ready elsewhere");

    cluster.call(fail(Value::Null)).await.unwrap();
    cluster.wait(&NODES, &dead, |node| !has_taint(node, "NoExecute") && !has_taint(node, "NoSchedule")).await;
    let gone = eventually(async || cluster.get(&PODS, "default", &lost).await.is_none().then_some(())).await;
    assert!(gone.is_some(), "the kubelet stops the pod when it is back");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_with_an_ephemeral_volume_gets_its_claim_which_goes_with_it() {
    let cluster = Cluster::start(1, ControllersConfig::default()).await;
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let volume = json!({"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}});
    let pod = json!({"metadata": {"name": "job"}, "spec": {
        "containers": [{"name": "c", "image": "job", "volumeMounts": [{"name": "scratch", "mountPath": "/tmp"}]}],
        "volumes": [volume],
    }});
    cluster.create(&PODS, "default", pod).await;
    let pod = cluster.wait(&PODS, "job", is_running).await;
    let claim = cluster.get(&VOLUME_CLAIMS, "default", "job-scratch").await.unwrap();
    assert_eq!(claim["metadata"]["ownerReferences"][0]["uid"], pod["metadata"]["uid"]);
    assert_eq!(claim["status"]["phase"], "Bound");
    cluster.delete(&PODS, "default", "job").await;
    let gone =
        eventually(async || cluster.get(&VOLUME_CLAIMS, "default", "job-scratch").await.is_none().then_some(())).await;
    assert!(gone.is_some(), "the claim goes with its pod");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_that_nobody_else_removes_are_collected() {
    let config = ControllersConfig { terminated_pods_max: 1, ..ControllersConfig::default() };
    let cluster = Cluster::start(1, config).await;
    let container = json!([{"name": "c", "image": "job"}]);
    let ended = |name: &str| {
        let annotations = json!({"bayplan.dev/run-for": "10ms"});
        json!({"metadata": {"name": name, "annotations": annotations},
            "spec": {"restartPolicy": "Never", "containers": container}})
    };
    for name in ["first", "second", "third"] {
        cluster.create(&PODS, "default", ended(name)).await;
        cluster.wait(&PODS, name, |pod| pod["status"]["phase"] == "Succeeded").await;
    }
    // No kubelet will ever start or stop it.
    let lost = json!({"metadata": {"name": "lost"}, "spec": {"nodeName": "no-such-node", "containers": container}});
    cluster.create(&PODS, "default", lost).await;
    let left = eventually(async || {
        let names: Vec<Value> = cluster.list(&PODS).await.iter().map(|pod| pod["metadata"]["name"].clone()).collect();
        (names == ["third"]).then_some(())
    });
    assert!(left.await.is_some(), "{:#?}", cluster.list(&PODS).await);
    cluster.stop().await;
}
