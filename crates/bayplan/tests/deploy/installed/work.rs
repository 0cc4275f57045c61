//! Everything a scheduler is ever asked to do, once: so that it requests all that it ever requests.

use bayplan_client::{Client, Config};
use http::Method;
use serde_json::{Value, json};

use super::recorder::{Fault, Recorder};
use super::{Target, eventually};

/// Requests that fail once, so that what follows a failure is requested too: a claim is read again after a conflict,
/// and one that was made for a pod is deleted when the pod is not bound.
pub(crate) fn faults() -> Vec<Fault> {
    vec![
        Fault { method: Method::PATCH, part: "/resourceclaims/claimed/status", code: 409 },
        Fault { method: Method::POST, part: "/pods/extended/binding", code: 500 },
    ]
}

/// Objects that every cluster has, in one that nobody else fills.
pub(crate) async fn prepare(target: &Target) {
    let object = |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
    for namespace in ["default", "kube-system"] {
        target.create(&object("Namespace", namespace)).await;
    }
    let mut account = object("ServiceAccount", "default");
    account["metadata"]["namespace"] = "default".into();
    target.create(&account).await;
    for name in ["node-1", "node-2"] {
        let room = json!({"cpu": "4", "memory": "8Gi", "pods": "50"});
        let mut node = object("Node", name);
        node["metadata"]["labels"] = json!({"kubernetes.io/hostname": name});
        node["status"] = json!({"capacity": room, "allocatable": room});
        target.create(&node).await;
    }
}

/// Gives a scheduler of this name, which serves its metrics at `port`, all its kinds of work, and waits for each.
pub(crate) async fn give(target: &Target, recorder: &Recorder, scheduler: &str, port: u16) {
    let pods = Pods { target, scheduler };
    pods.create("plain", json!({})).await;
    pods.bound("plain").await;
    fail(&pods, recorder).await;
    preempt(&pods, recorder).await;
    use_volumes(&pods, recorder).await;
    use_devices(&pods, recorder).await;
    scrape(target, recorder, port).await;
}

struct Pods<'a> {
    target: &'a Target,
    scheduler: &'a str,
}

impl Pods<'_> {
    async fn create(&self, name: &str, more: Value) {
        let mut spec = json!({
            "schedulerName": self.scheduler,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "registry.example/app"}],
        });
        for (key, value) in more.as_object().unwrap() {
            match key.as_str() {
                "resources" => spec["containers"][0]["resources"] = value.clone(),
                key => spec[key] = value.clone(),
            }
        }
        let metadata = json!({"name": name, "namespace": "default"});
        self.target.create(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})).await;
    }

    async fn bound(&self, name: &str) {
        eventually(&format!("{name} is bound"), async || {
            let pod = self.target.find("Pod", "default", name).await?;
            pod["spec"]["nodeName"].as_str().map(drop)
        })
        .await;
    }
}

async fn passed(recorder: &Recorder, method: Method, part: &str) {
    eventually(&format!("{method} {part}"), async || recorder.has_passed(&method, part).then_some(())).await;
}

/// A pod that fits nowhere is told so, and told again when room that others leave did not help.
async fn fail(pods: &Pods<'_>, recorder: &Recorder) {
    pods.create("huge", json!({"resources": {"requests": {"cpu": "1000"}}})).await;
    passed(recorder, Method::PATCH, "/pods/huge/status").await;
    let mut number = 0;
    eventually("the event is repeated", async || {
        number += 1;
        let name = format!("leaves-{number}");
        pods.create(&name, json!({"resources": {"requests": {"cpu": "1"}}})).await;
        pods.bound(&name).await;
        pods.target.remove_pod("default", &name).await;
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        let events = "/apis/events.k8s.io/v1/namespaces/default/events/huge";
        recorder.has_passed(&Method::PATCH, events).then_some(())
    })
    .await;
    pods.target.remove_pod("default", "huge").await;
}

async fn preempt(pods: &Pods<'_>, recorder: &Recorder) {
    let metadata = json!({"name": "urgent"});
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata,
        "value": 1000});
    pods.target.create(&class).await;
    let most = json!({"requests": {"cpu": "3"}});
    for name in ["low-1", "low-2"] {
        pods.create(name, json!({"resources": most})).await;
        pods.bound(name).await;
    }
    pods.create("urgent", json!({"resources": most, "priorityClassName": "urgent"})).await;
    passed(recorder, Method::DELETE, "/pods/low-").await;
    for name in ["low-1", "low-2", "urgent"] {
        pods.target.remove_pod("default", name).await;
    }
}

/// A volume that is there is taken, and one that is not is asked for.
async fn use_volumes(pods: &Pods<'_>, recorder: &Recorder) {
    for (class, provisioner) in [("there", "kubernetes.io/no-provisioner"), ("made", "example.com/maker")] {
        pods.target
            .create(&json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": class},
                "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer",
            }))
            .await;
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": class, "namespace": "default"},
            "spec": {"storageClassName": class, "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}},
        });
        pods.target.create(&claim).await;
    }
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "there"},
        "spec": {"storageClassName": "there", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "csi": {"driver": "driver.example.com", "volumeHandle": "there"}},
    });
    pods.target.create(&volume).await;
    // As the controller of volumes would say.
    pods.target.patch_status("PersistentVolume", "", "there", &json!({"status": {"phase": "Available"}})).await;
    for class in ["there", "made"] {
        let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": class}}]);
        pods.create(&format!("stores-{class}"), json!({"volumes": volumes})).await;
    }
    passed(recorder, Method::PATCH, "/persistentvolumes/there").await;
    passed(recorder, Method::PATCH, "/persistentvolumeclaims/made").await;
}

/// A claim is allocated, and one is made for a pod that asks for devices as an extended resource.
async fn use_devices(pods: &Pods<'_>, recorder: &Recorder) {
    let create = async |group: &str, kind: &str, metadata: Value, spec: Value| {
        let object = json!({"apiVersion": format!("{group}/v1"), "kind": kind, "metadata": metadata, "spec": spec});
        pods.target.create(&object).await;
    };
    let group = "resource.k8s.io";
    let of_driver = json!([{"cel": {"expression": "device.driver == 'devices.example.com'"}}]);
    let class = json!({"selectors": of_driver, "extendedResourceName": "example.com/device"});
    create(group, "DeviceClass", json!({"name": "devices"}), class).await;
    let pool = json!({"name": "pool", "generation": 1, "resourceSliceCount": 1});
    let devices = json!([{"name": "d1"}, {"name": "d2"}]);
    let slice = json!({"driver": "devices.example.com", "allNodes": true, "pool": pool, "devices": devices});
    create(group, "ResourceSlice", json!({"name": "slice"}), slice).await;
    let requests = json!([{"name": "r", "exactly": {"deviceClassName": "devices"}}]);
    let claim = json!({"devices": {"requests": requests}});
    create(group, "ResourceClaim", json!({"name": "claimed", "namespace": "default"}), claim).await;
    let claims = json!([{"name": "r", "resourceClaimName": "claimed"}]);
    pods.create("claimed", json!({"resourceClaims": claims})).await;
    pods.bound("claimed").await;
    passed(recorder, Method::PATCH, "/resourceclaims/claimed/status").await;
    let one = json!({"example.com/device": "1"});
    pods.create("extended", json!({"resources": {"requests": one, "limits": one}})).await;
    passed(recorder, Method::DELETE, "/resourceclaims/extended-").await;
    pods.bound("extended").await;
}

/// Somebody with a token asks for the metrics.
async fn scrape(target: &Target, recorder: &Recorder, port: u16) {
    let mut config = Config::new(format!("https://127.0.0.1:{port}").parse().unwrap());
    config.tls.insecure = true;
    let token = target.token("default", "default").await;
    let scraper = Client::from_config(&config).unwrap().with_bearer_token(&token).unwrap();
    let refused = scraper.get("/metrics", "*/*").await.unwrap_err();
    assert_eq!(refused.code, 403, "an account without rights reads metrics: {}", refused.message);
    passed(recorder, Method::POST, "/tokenreviews").await;
    passed(recorder, Method::POST, "/subjectaccessreviews").await;
}
