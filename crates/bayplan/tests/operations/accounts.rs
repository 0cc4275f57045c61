//! Controllers that act as service accounts of their own: each does its work, and none is refused anything.

use std::path::Path;
use std::time::Instant;

use bayplan_client::Client;
use bayplan_model::api::{Api, DeleteOptions, PatchKind, Request, Resource, Verb};
use serde_json::{Value, json};

use super::{PATIENCE, Process, apiserver, eventually, read};

const NAMESPACE: &str = "/api/v1/namespaces/default";

async fn call(admin: &Client, request: Request) -> Value {
    let answer = admin.call(request.clone()).await;
    serde_json::from_slice(&answer.unwrap_or_else(|status| panic!("{request:?}: {status}"))).unwrap()
}

fn resource(api: &'static str, plural: &'static str) -> Resource {
    let (group, version) = api.split_once('/').unwrap_or(("", api));
    Resource::new(group, version, plural)
}

async fn make(admin: &Client, api: &'static str, plural: &'static str, namespace: &str, object: Value) {
    let verb = Verb::Create(object.to_string().into());
    call(admin, Request::collection(&resource(api, plural), namespace, verb)).await;
}

async fn remove(admin: &Client, api: &'static str, plural: &'static str, namespace: &str, name: &str) {
    let verb = Verb::Delete(DeleteOptions::default());
    call(admin, Request::object(&resource(api, plural), namespace, name, verb)).await;
}

fn named(name: &str, more: Value) -> Value {
    let mut object = more;
    object["metadata"]["name"] = json!(name);
    object
}

/// Pods that a controller makes, on the node, with this label.
fn template(app: &str) -> Value {
    let container = json!({"name": "c", "image": "c"});
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"nodeName": "n1", "containers": [container], "automountServiceAccountToken": false},
    })
}

fn selecting(app: &str, more: &Value) -> Value {
    let mut spec = more.clone();
    spec["selector"] = json!({"matchLabels": {"app": app}});
    spec["template"] = template(app);
    json!({"spec": spec})
}

/// Waits until a path has an answer with all of these texts.
async fn says(admin: &Client, path: &str, texts: &[&str]) {
    eventually(admin, path, |answer| texts.iter().all(|text| answer.contains(text))).await;
}

/// Waits until there is nothing at a path any more.
async fn is_gone(admin: &Client, path: &str) {
    let start = Instant::now();
    while read(admin, path).await.is_ok() {
        assert!(start.elapsed() < PATIENCE, "{path} stays");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

async fn workloads(admin: &Client) {
    let annotations = json!({"volumes.kubernetes.io/controller-managed-attach-detach": "true"});
    let ready = json!([{"type": "Ready", "status": "True", "reason": "KubeletReady"}]);
    let allocatable = json!({"cpu": "8", "memory": "8Gi", "pods": "50"});
    let status = json!({"allocatable": allocatable, "conditions": ready});
    let node = named("n1", json!({"metadata": {"annotations": annotations}, "status": status}));
    make(admin, "v1", "nodes", "", node).await;
    says(admin, &format!("{NAMESPACE}/serviceaccounts/default"), &["default"]).await;
    make(admin, "apps/v1", "deployments", "default", named("web", selecting("web", &json!({"replicas": 1})))).await;
    make(admin, "apps/v1", "daemonsets", "default", named("agent", selecting("agent", &json!({})))).await;
    let storage = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let claims = json!([{"metadata": {"name": "data"}, "spec": storage}]);
    let set = selecting("db", &json!({"replicas": 1, "serviceName": "db", "volumeClaimTemplates": claims}));
    make(admin, "apps/v1", "statefulsets", "default", named("db", set)).await;
    let mut job = json!({"spec": {"template": template("job"), "ttlSecondsAfterFinished": 0}});
    job["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    make(admin, "batch/v1", "jobs", "default", named("once", job.clone())).await;
    let cron = json!({"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": job["spec"]}}});
    make(admin, "batch/v1", "cronjobs", "default", named("often", cron)).await;
    let controller = json!({"spec": {"replicas": 1, "selector": {"app": "rc"}, "template": template("rc")}});
    make(admin, "v1", "replicationcontrollers", "default", named("rc", controller)).await;
    let budget = json!({"spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}}});
    make(admin, "policy/v1", "poddisruptionbudgets", "default", named("web", budget)).await;
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let scaler = json!({"spec": {"scaleTargetRef": target, "maxReplicas": 3}});
    make(admin, "autoscaling/v2", "horizontalpodautoscalers", "default", named("web", scaler)).await;
    make(admin, "v1", "resourcequotas", "default", named("all", json!({"spec": {"hard": {"pods": "50"}}}))).await;
    let ports = json!([{"port": 80}]);
    let service = json!({"spec": {"selector": {"app": "web"}, "ports": ports}});
    make(admin, "v1", "services", "default", named("web", service)).await;
    make(admin, "v1", "services", "default", named("outside", json!({"spec": {"ports": ports}}))).await;
    let subsets = json!([{"addresses": [{"ip": "192.0.2.1"}], "ports": ports}]);
    make(admin, "v1", "endpoints", "default", named("outside", json!({"subsets": subsets}))).await;
}

async fn volumes(admin: &Client) {
    let manual = named("manual", json!({"provisioner": "csi.example.com", "allowVolumeExpansion": true}));
    make(admin, "storage.k8s.io/v1", "storageclasses", "", manual).await;
    // For one of the claims: whichever of the others came first would have it.
    let spec = json!({
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "manual",
        "csi": {"driver": "csi.example.com", "volumeHandle": "h"}, "persistentVolumeReclaimPolicy": "Retain",
        "claimRef": {"namespace": "default", "name": "disk"},
    });
    make(admin, "v1", "persistentvolumes", "", named("disk", json!({"spec": spec}))).await;
    let asks = json!({
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "manual",
    });
    make(admin, "v1", "persistentvolumeclaims", "default", named("disk", json!({"spec": asks}))).await;
    let mut pod = template("volumes");
    pod["metadata"]["name"] = json!("volumes");
    let made = json!({"name": "made", "ephemeral": {"volumeClaimTemplate": {"spec": asks}}});
    pod["spec"]["volumes"] = json!([{"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}, made]);
    make(admin, "v1", "pods", "default", pod).await;
    make(admin, "v1", "persistentvolumeclaims", "default", named("unused", json!({"spec": asks}))).await;
    make(
        admin,
        "v1",
        "persistentvolumes",
        "",
        named(
            "unused",
            json!({"spec": {
                "accessModes": ["ReadOnlyMany"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/"},
            }}),
        ),
    )
    .await;
    let class = named("gold", json!({"driverName": "csi.example.com", "parameters": {"a": "b"}}));
    make(admin, "storage.k8s.io/v1", "volumeattributesclasses", "", class).await;
}

async fn cluster_objects(admin: &Client) {
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let part = named("part", json!({"metadata": {"labels": {"part-of": "whole"}}, "rules": rules}));
    make(admin, "rbac.authorization.k8s.io/v1", "clusterroles", "", part).await;
    let selectors = json!([{"matchLabels": {"part-of": "whole"}}]);
    let whole = named("whole", json!({"aggregationRule": {"clusterRoleSelectors": selectors}}));
    make(admin, "rbac.authorization.k8s.io/v1", "clusterroles", "", whole).await;
    let range = named("more", json!({"spec": {"cidrs": ["10.97.0.0/24"]}}));
    make(admin, "networking.k8s.io/v1", "servicecidrs", "", range).await;
    let data = json!({"token-id": "abcdef", "token-secret": "0123456789abcdef", "expiration": "2020-01-01T00:00:00Z"});
    let token = json!({"type": "bootstrap.kubernetes.io/token", "stringData": data});
    make(admin, "v1", "secrets", "kube-system", named("bootstrap-token-abcdef", token)).await;
    make(admin, "v1", "namespaces", "", named("going", json!({}))).await;
    make(admin, "v1", "configmaps", "going", named("kept", json!({"data": {"a": "b"}}))).await;
    let devices = json!({"spec": {"spec": {"devices": {"requests": [
        {"name": "gpu", "exactly": {"deviceClassName": "gpu"}},
    ]}}}});
    make(admin, "resource.k8s.io/v1", "resourceclaimtemplates", "default", named("gpu", devices)).await;
    let mut pod = template("devices");
    pod["metadata"]["name"] = json!("devices");
    pod["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimTemplateName": "gpu"}]);
    make(admin, "v1", "pods", "default", pod).await;
}

/// Every loop has done something.
async fn watch_them_work(admin: &Client) {
    let apps = "/apis/apps/v1/namespaces/default";
    says(admin, &format!("{apps}/deployments/web"), &["\"replicas\":1", "\"observedGeneration\":1"]).await;
    says(admin, &format!("{apps}/daemonsets/agent"), &["\"currentNumberScheduled\":1"]).await;
    says(admin, &format!("{apps}/statefulsets/db"), &["\"currentRevision\""]).await;
    says(admin, &format!("{NAMESPACE}/persistentvolumeclaims/data-db-0"), &["\"Pending\""]).await;
    says(admin, &format!("{NAMESPACE}/replicationcontrollers/rc"), &["\"replicas\":1", "\"fullyLabeledReplicas\":1"])
        .await;
    says(admin, "/apis/policy/v1/namespaces/default/poddisruptionbudgets/web", &["\"expectedPods\":1"]).await;
    let scalers = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/web";
    says(admin, scalers, &["AbleToScale", "SucceededGetScale"]).await;
    says(admin, &format!("{NAMESPACE}/resourcequotas/all"), &["\"used\":{\"pods\""]).await;
    says(admin, &format!("{NAMESPACE}/endpoints/web"), &["web"]).await;
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    says(admin, slices, &["endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io"]).await;
    says(admin, &format!("{NAMESPACE}/persistentvolumeclaims/disk"), &["\"Bound\""]).await;
    let larger = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    let patch = Verb::Patch(PatchKind::Merge, larger.to_string().into());
    call(admin, Request::object(&resource("v1", "persistentvolumeclaims"), "default", "disk", patch)).await;
    says(admin, &format!("{NAMESPACE}/events"), &["ExternalExpanding"]).await;
    says(admin, &format!("{NAMESPACE}/persistentvolumeclaims/volumes-made"), &["\"Pending\""]).await;
    says(admin, "/apis/storage.k8s.io/v1/volumeattachments", &["\"persistentVolumeName\":\"disk\""]).await;
    says(admin, "/apis/rbac.authorization.k8s.io/v1/clusterroles/whole", &["\"resources\":[\"pods\"]"]).await;
    says(admin, "/apis/networking.k8s.io/v1/servicecidrs/more", &["Kubernetes Service CIDR is ready"]).await;
    says(admin, "/api/v1/nodes/n1", &["node.alpha.kubernetes.io/ttl", "node.kubernetes.io/unreachable"]).await;
    says(admin, "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims", &["pod-claim-name"]).await;
    says(admin, &format!("{NAMESPACE}/configmaps/kube-root-ca.crt"), &["authority"]).await;
    is_gone(admin, "/api/v1/namespaces/kube-system/secrets/bootstrap-token-abcdef").await;
    remove(admin, "v1", "namespaces", "", "going").await;
    is_gone(admin, "/api/v1/namespaces/going").await;
    remove(admin, "v1", "persistentvolumeclaims", "default", "unused").await;
    is_gone(admin, &format!("{NAMESPACE}/persistentvolumeclaims/unused")).await;
    remove(admin, "v1", "persistentvolumes", "", "unused").await;
    is_gone(admin, "/api/v1/persistentvolumes/unused").await;
    remove(admin, "storage.k8s.io/v1", "volumeattributesclasses", "", "gold").await;
    is_gone(admin, "/apis/storage.k8s.io/v1/volumeattributesclasses/gold").await;
    remove(admin, "apps/v1", "deployments", "default", "web").await;
    eventually(admin, &format!("{apps}/replicasets"), |answer| !answer.contains("\"web-")).await;
}

/// The pods of the Job succeed, so that it ends and goes.
async fn end_the_job(admin: &Client) {
    let list =
        eventually(admin, &format!("{NAMESPACE}/pods?labelSelector=app%3Djob"), |list| list.contains("once-")).await;
    let list: Value = serde_json::from_str(&list).unwrap();
    let mut names = list["items"].as_array().unwrap().iter().map(|pod| pod["metadata"]["name"].as_str().unwrap());
    let name = names.find(|name| name.starts_with("once-")).unwrap();
    let patch = Verb::Patch(PatchKind::Merge, json!({"status": {"phase": "Succeeded"}}).to_string().into());
    let request = Request::object(&resource("v1", "pods"), "default", name, patch).subresource("status");
    call(admin, request).await;
    is_gone(admin, "/apis/batch/v1/namespaces/default/jobs/once").await;
}

/// The node will not come back: its pods are evicted and forgotten, and it loses its volume.
async fn give_the_node_up(admin: &Client) {
    let taint = json!([{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]);
    let patch = Verb::Patch(PatchKind::Merge, json!({"spec": {"taints": taint}}).to_string().into());
    call(admin, Request::object(&resource("v1", "nodes"), "", "n1", patch)).await;
    is_gone(admin, &format!("{NAMESPACE}/pods/volumes")).await;
    eventually(admin, "/apis/storage.k8s.io/v1/volumeattachments", |list| !list.contains("\"disk\"")).await;
}

/// One account loses its rights, and its controller is refused what it did before.
async fn take_rights_away(admin: &Client) {
    let name = "system:controller:replication-controller";
    remove(admin, "rbac.authorization.k8s.io/v1", "clusterrolebindings", "", name).await;
    let patch = Verb::Patch(PatchKind::Merge, json!({"spec": {"replicas": 2}}).to_string().into());
    call(admin, Request::object(&resource("v1", "replicationcontrollers"), "default", "rc", patch)).await;
    let is_refused = |line: &str| {
        line.starts_with("apiserver_request_total")
            && line.contains("code=\"403\"")
            && line.contains("resource=\"pods\"")
    };
    eventually(admin, "/metrics", |metrics| metrics.lines().any(is_refused)).await;
}

fn start(kubeconfig: &Path, authority: &Path) -> Process {
    std::fs::write(authority, "authority").unwrap();
    Process::start(&[
        "controller-manager",
        &format!("--kubeconfig={}", kubeconfig.display()),
        &format!("--root-ca-file={}", authority.display()),
        "--controllers=*,token-cleaner-controller",
        "--use-service-account-credentials",
        "--leader-elect=false",
        "--secure-port=0",
        "--node-monitor-grace-period=5s",
        "--node-startup-grace-period=5s",
        "--terminated-pod-gc-threshold=1",
        "--v=2",
    ])
}

#[tokio::test]
async fn each_controller_works_with_the_rights_of_its_own_account() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, kubeconfig) = apiserver(folder.path());
    let admin = Client::from_kubeconfig(Some(&kubeconfig), None).await.unwrap();
    let manager = start(&kubeconfig, &folder.path().join("authority"));
    workloads(&admin).await;
    volumes(&admin).await;
    cluster_objects(&admin).await;
    watch_them_work(&admin).await;
    end_the_job(&admin).await;
    let accounts = read(&admin, "/api/v1/namespaces/kube-system/serviceaccounts").await.unwrap();
    for account in ["deployment-controller", "attachdetach-controller", "generic-garbage-collector", "token-cleaner"] {
        assert!(accounts.contains(&format!("\"{account}\"")), "{accounts}");
    }
    let cron_jobs = "/apis/batch/v1/namespaces/default/cronjobs/often";
    says(&admin, cron_jobs, &["lastScheduleTime"]).await;
    take_rights_away(&admin).await;
    give_the_node_up(&admin).await;
    let (_, log) = manager.terminate();
    // Quotas refuse, too; who lacks a right is named.
    let refused = log.lines().filter(|line| line.contains("system:serviceaccount:"));
    let (expected, others): (Vec<&str>, Vec<&str>) =
        refused.partition(|line| line.contains("system:serviceaccount:kube-system:replication-controller"));
    assert!(others.is_empty(), "{}", others.join("\n"));
    assert!(!expected.is_empty(), "the rights are those of the account:\n{log}");
}
