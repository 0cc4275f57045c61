//! The user: workloads that come, change and go, and objects that nobody should write.

use std::sync::Arc;
use std::time::Duration;

use bayplan_client::Client;
use bayplan_model::api::{Api, DeleteOptions, ListOptions, PatchKind, Request, Resource, Verb, decode, encode};
use bayplan_model::status::Status;
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::network::Link;
use crate::plan::{Action, Part};
use crate::points::Point;
use crate::shared::Shared;

const PODS: Resource = Resource::new("", "v1", "pods");
const NODES: Resource = Resource::new("", "v1", "nodes");
const CONFIG_MAPS: Resource = Resource::new("", "v1", "configmaps");
const SERVICES: Resource = Resource::new("", "v1", "services");
const NAMESPACES: Resource = Resource::new("", "v1", "namespaces");
const DEPLOYMENTS: Resource = Resource::new("apps", "v1", "deployments");
const STATEFUL_SETS: Resource = Resource::new("apps", "v1", "statefulsets");
const DAEMON_SETS: Resource = Resource::new("apps", "v1", "daemonsets");
const JOBS: Resource = Resource::new("batch", "v1", "jobs");
const BUDGETS: Resource = Resource::new("policy", "v1", "poddisruptionbudgets");

/// The label of objects that nobody should write.
pub(crate) const HOSTILE: &str = "hostile";

/// The namespace that comes and goes.
const SHOP: &str = "shop";

/// A user tries so often, a second apart.
const TRIES_MAX: usize = 60;

/// The user.
pub(crate) struct User {
    shared: Arc<Shared>,
    client: Client,
}

fn pod_spec(millis: usize) -> Value {
    json!({
        "terminationGracePeriodSeconds": 2,
        "containers": [{"name": "c", "image": "app:1", "resources": {"requests": {"cpu": format!("{millis}m")}}}],
    })
}

fn template(app: &str) -> Value {
    json!({"metadata": {"labels": {"app": app}}, "spec": pod_spec(500)})
}

fn workload(name: &str, spec: Value) -> Value {
    let mut spec = spec;
    spec["selector"] = json!({"matchLabels": {"app": name}});
    spec["template"] = template(name);
    json!({"metadata": {"name": name}, "spec": spec})
}

impl User {
    pub(crate) fn new(shared: &Arc<Shared>) -> User {
        let life = shared.begin_life(Part::User);
        let link = Link { shared: shared.clone(), part: Part::User, life };
        User { shared: shared.clone(), client: link.client().with_timeout(Duration::from_secs(5)) }
    }

    /// Does what is planned, when it is planned.
    pub(crate) async fn act(&self) {
        for (at, action) in &self.shared.plan.actions {
            sleep(at.saturating_sub(self.shared.elapsed())).await;
            self.shared.stress("user", format!("{action:?}"), "");
            self.take(*action).await;
        }
    }

    async fn take(&self, action: Action) {
        let web = |index: usize| format!("web-{index}");
        let size = |replicas: usize| json!({"spec": {"replicas": replicas}});
        match action {
            Action::CreateDeployment { index, replicas } => {
                self.create(&DEPLOYMENTS, "default", workload(&web(index), json!({"replicas": replicas}))).await;
            }
            Action::ScaleDeployment { index, replicas } => {
                self.patch(&DEPLOYMENTS, &web(index), size(replicas)).await;
            }
            Action::RollDeployment { index } => {
                let version = self.shared.elapsed().as_millis().to_string();
                let change = json!({"spec": {"template": {"metadata": {"annotations": {"version": version}}}}});
                self.patch(&DEPLOYMENTS, &web(index), change).await;
            }
            Action::DeleteDeployment { index } => self.delete(&DEPLOYMENTS, "default", &web(index)).await,
            Action::CreateStatefulSet { replicas } => {
                let spec = json!({"replicas": replicas, "serviceName": "db"});
                self.create(&STATEFUL_SETS, "default", workload("db", spec)).await;
            }
            Action::ScaleStatefulSet { replicas } => self.patch(&STATEFUL_SETS, "db", size(replicas)).await,
            Action::CreateDaemonSet => self.create(&DAEMON_SETS, "default", workload("agent", json!({}))).await,
            Action::CreateJob { completions } => {
                let mut pod = template("work");
                pod["metadata"]["annotations"] = json!({"bayplan.dev/run-for": "4s"});
                pod["spec"]["restartPolicy"] = json!("Never");
                let spec = json!({"completions": completions, "parallelism": 2, "template": pod});
                self.create(&JOBS, "default", json!({"metadata": {"name": "work"}, "spec": spec})).await;
            }
            Action::CreateService { index } => {
                let spec = json!({"selector": {"app": web(index)}, "ports": [{"port": 80}]});
                self.create(&SERVICES, "default", json!({"metadata": {"name": web(index)}, "spec": spec})).await;
            }
            Action::CreateBudget { index } => {
                let spec = json!({"maxUnavailable": 1, "selector": {"matchLabels": {"app": web(index)}}});
                self.create(&BUDGETS, "default", json!({"metadata": {"name": web(index)}, "spec": spec})).await;
            }
            Action::CreateNamespace => {
                self.create(&NAMESPACES, "", json!({"metadata": {"name": SHOP}})).await;
                self.create(&DEPLOYMENTS, SHOP, workload("shop", json!({"replicas": 2}))).await;
            }
            Action::DeleteNamespace => self.delete(&NAMESPACES, "", SHOP).await,
            Action::DeleteSomePod { which } => {
                let pods = self.list(&PODS, "default").await;
                if let Some(pod) = pods.get(which % pods.len().max(1)) {
                    self.delete(&PODS, "default", name_of(pod)).await;
                }
            }
        }
    }

    /// Sends a request until there is an answer that stays.
    async fn insist(&self, request: Request) -> Result<Bytes, Status> {
        let mut last = Status::failure(0, "", "nothing was tried");
        for _ in 0..TRIES_MAX {
            match self.client.call(request.clone()).await {
                // What was refused because of somebody else's write, or for now, is tried again.
                Err(status)
                    if matches!(status.code, 0 | 409 | 410 | 429 | 500..) && status.reason != "AlreadyExists" =>
                {
                    last = status;
                }
                answer => return answer,
            }
            sleep(Duration::from_secs(1)).await;
        }
        self.shared.stress("user", format!("gives up: {last}"), "");
        Err(last)
    }

    async fn create(&self, resource: &Resource, namespace: &str, object: Value) {
        // Refusals are for users to read.
        let _ = self.insist(Request::collection(resource, namespace, Verb::Create(encode(&object)))).await;
    }

    async fn patch(&self, resource: &Resource, name: &str, change: Value) {
        let namespace = if *resource == NODES { "" } else { "default" };
        let verb = Verb::Patch(PatchKind::Merge, encode(&change));
        let _ = self.insist(Request::object(resource, namespace, name, verb)).await;
    }

    async fn delete(&self, resource: &Resource, namespace: &str, name: &str) {
        let verb = Verb::Delete(DeleteOptions::default());
        let _ = self.insist(Request::object(resource, namespace, name, verb)).await;
    }

    async fn list(&self, resource: &Resource, namespace: &str) -> Vec<Value> {
        let request = Request::collection(resource, namespace, Verb::List(ListOptions::default()));
        let list: Option<Value> = self.insist(request).await.ok().and_then(|list| decode(&list).ok());
        list.and_then(|list| list["items"].as_array().cloned()).unwrap_or_default()
    }

    async fn get(&self, resource: &Resource, name: &str) -> Value {
        let answer = self.insist(Request::object(resource, "default", name, Verb::Get)).await;
        answer.ok().and_then(|object| decode(&object).ok()).unwrap_or_default()
    }

    /// Writes what nobody should.
    pub(crate) async fn annoy(&self, point: Point, amount: u64) {
        self.shared.reach(point);
        self.shared.stress("stranger", point.name(), "");
        let name = format!("odd-{amount}");
        let meta = |more: Value| {
            let mut meta = json!({"name": name, "labels": {HOSTILE: "yes"}});
            more.as_object().into_iter().flatten().for_each(|(key, value)| meta[key] = value.clone());
            meta
        };
        let pod = |more: Value| {
            let mut spec = pod_spec(500);
            more.as_object().into_iter().flatten().for_each(|(key, value)| spec[key] = value.clone());
            json!({"metadata": meta(json!({})), "spec": spec})
        };
        let node = format!("node-{:04}", 1 + amount % 4);
        let map = |more: Value| json!({"metadata": meta(more)});
        match point {
            Point::PodNowhere => self.create(&PODS, "default", pod(json!({"nodeSelector": {"no": "where"}}))).await,
            Point::PodOnGhost => self.create(&PODS, "default", pod(json!({"nodeName": "ghost"}))).await,
            Point::PodByHand => self.create(&PODS, "default", pod(json!({"nodeName": node}))).await,
            Point::OwnerGone => {
                let owners = json!({"ownerReferences": [owner("never-was", "12345")]});
                self.create(&CONFIG_MAPS, "default", map(owners)).await;
            }
            Point::OwnerLoop => self.loop_owners(&name, map(json!({}))).await,
            Point::Finalizer => {
                let mut pod = pod(json!({}));
                pod["metadata"]["finalizers"] = json!(["world.bayplan.dev/keeps"]);
                self.create(&PODS, "default", pod).await;
                self.delete(&PODS, "default", &name).await;
            }
            Point::HugeAnnotation => {
                let huge = json!({"annotations": {"huge": "x".repeat(200_000)}});
                self.create(&CONFIG_MAPS, "default", map(huge)).await;
            }
            Point::SelectorThief => {
                let pods = self.list(&PODS, "default").await;
                let Some(labels) = pods.first().map(|pod| pod["metadata"]["labels"].clone()) else { return };
                let stranger = json!({"metadata": {"name": name, "labels": labels}, "spec": pod_spec(500)});
                self.create(&PODS, "default", stranger).await;
            }
            Point::NodeCordoned => self.patch(&NODES, &node, json!({"spec": {"unschedulable": true}})).await,
            Point::NodeFails => {
                self.patch(&NODES, &node, json!({"metadata": {"annotations": {"bayplan.dev/fail": "true"}}})).await;
            }
            // Always the same one, so that the others have room for everything.
            Point::NodeDeleted => self.delete(&NODES, "", "node-0004").await,
            _ => {}
        }
    }

    /// Two objects that own each other.
    async fn loop_owners(&self, name: &str, map: Value) {
        self.create(&CONFIG_MAPS, "default", map.clone()).await;
        let first = self.get(&CONFIG_MAPS, name).await;
        let (mut other, second) = (map, format!("{name}-too"));
        other["metadata"]["name"] = json!(second);
        other["metadata"]["ownerReferences"] = json!([owner(name, text(&first["metadata"]["uid"]))]);
        self.create(&CONFIG_MAPS, "default", other).await;
        let other = self.get(&CONFIG_MAPS, &second).await;
        let owners = json!([owner(&second, text(&other["metadata"]["uid"]))]);
        self.patch(&CONFIG_MAPS, name, json!({"metadata": {"ownerReferences": owners}})).await;
    }

    /// Takes away what nobody should have written, and mends the nodes.
    pub(crate) async fn clean_up(&self) {
        for node in self.list(&NODES, "").await {
            let mended = json!({
                "metadata": {"annotations": {"bayplan.dev/fail": null}}, "spec": {"unschedulable": null},
            });
            self.patch(&NODES, name_of(&node), mended).await;
        }
        for resource in [&PODS, &CONFIG_MAPS] {
            for object in self.list(resource, "default").await {
                if object["metadata"]["labels"][HOSTILE].is_null() {
                    continue;
                }
                if !object["metadata"]["finalizers"].is_null() {
                    self.patch(resource, name_of(&object), json!({"metadata": {"finalizers": null}})).await;
                }
                self.delete(resource, "default", name_of(&object)).await;
            }
        }
    }
}

fn owner(name: &str, uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "blockOwnerDeletion": true})
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn name_of(object: &Value) -> &str {
    text(&object["metadata"]["name"])
}
