//! Every verb that the table of resources advertises works, for every resource and subresource.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use bayplan_kinds::{Kind, Subresource, Verb, served};
use serde_json::{Value, json};
use support::objects::{collection, name, object};
use support::{Client, Cluster, Watch, cluster};

fn words(verbs: &'static [Verb]) -> Vec<&'static str> {
    verbs.iter().map(Verb::as_str).collect()
}

/// A row under test, with the verbs that were tested.
struct Trial<'a> {
    admin: &'a Client,
    resource: &'static Kind,
    at: String,
    tried: Vec<&'static str>,
}

impl Trial<'_> {
    async fn ask(&mut self, verb: &'static str, method: &str, path: &str, body: Value, code: u16) -> Value {
        let (answered, value) = match method {
            "PATCH" => self.admin.patch(path, "merge", body).await,
            _ => self.admin.json(method, path, body).await,
        };
        assert_eq!(answered, code, "{method} {path}: {value}");
        self.tried.push(verb);
        value
    }

    async fn standard(&mut self) {
        let (resource, at) = (self.resource, self.at.clone());
        let list = self.ask("list", "GET", &format!("{at}?labelSelector=made"), Value::Null, 200).await;
        assert_eq!(list["kind"], resource.list_kind());
        let version = list["metadata"]["resourceVersion"].as_str().unwrap();
        let watch = format!("{at}?watch=1&labelSelector=made&resourceVersion={version}");
        let mut watch = self.admin.watch(&watch).await;

        let created = self.ask("create", "POST", &at, object(resource, "one"), 201).await;
        assert_eq!(created["kind"], resource.kind);
        let first = name(resource, "one");
        let one = format!("{at}/{first}");
        let mut read = self.ask("get", "GET", &one, Value::Null, 200).await;
        assert_eq!(read, created);
        read["metadata"]["annotations"]["n"] = json!("updated");
        let updated = self.ask("update", "PUT", &one, read, 200).await;
        assert_eq!(updated["metadata"]["annotations"]["n"], "updated", "{at}");
        let patch = json!({"metadata": {"annotations": {"n": "patched"}}});
        let patched = self.ask("patch", "PATCH", &one, patch, 200).await;
        assert_eq!(patched["metadata"]["annotations"]["n"], "patched", "{at}");
        for expected in ["ADDED", "MODIFIED", "MODIFIED"] {
            assert_eq!(watch.event().await, (expected.into(), first.clone()), "{at}");
        }
        self.tried.push("watch");
        self.subresources(&one).await;
        self.ask("delete", "DELETE", &one, Value::Null, 200).await;
        self.until_deleted(&mut watch, &one).await;
        if resource.verbs.contains(&Verb::DeleteCollection) {
            self.admin.create(&at, object(resource, "two")).await;
            let all = format!("{at}?labelSelector=made");
            self.ask("deletecollection", "DELETE", &all, Value::Null, 200).await;
            self.finish("two").await;
        }
    }

    /// Does what controllers do for objects that wait for them.
    async fn finish(&self, name: &str) {
        let path = format!("{}/{}", self.at, self::name(self.resource, name));
        let (code, found) = self.admin.get(&path).await;
        if code == 200 {
            assert!(found["metadata"]["deletionTimestamp"].is_string(), "{path} stays: {found}");
            let (code, done) = match self.resource.kind {
                "Namespace" => {
                    let mut emptied = found;
                    emptied["spec"]["finalizers"] = json!([]);
                    self.admin.json("PUT", &format!("{path}/finalize"), emptied).await
                }
                _ => self.admin.patch(&path, "merge", json!({"metadata": {"finalizers": null}})).await,
            };
            assert_eq!(code, 200, "{done}");
        }
        assert_eq!(self.admin.get(&path).await.0, 404, "{path}");
    }

    async fn until_deleted(&self, watch: &mut Watch, path: &str) {
        self.finish("one").await;
        loop {
            match watch.event().await {
                (kind, gone) if gone == name(self.resource, "one") && kind == "DELETED" => return,
                (kind, _) => assert_eq!(kind, "MODIFIED", "{path}"),
            }
        }
    }

    async fn subresources(&mut self, one: &str) {
        for subresource in self.resource.subresources {
            let path = format!("{one}/{}", subresource.name);
            let tried = match subresource.name {
                "approval" | "status" | "scale" | "ephemeralcontainers" | "resize" => {
                    self.written(&path, subresource.name).await
                }
                "finalize" => {
                    let (code, namespace) = self.admin.get(one).await;
                    assert_eq!(code, 200);
                    self.ask("", "PUT", &path, namespace, 200).await;
                    vec!["update"]
                }
                "token" => {
                    let token = self.ask("", "POST", &path, json!({"spec": {"audiences": ["a"]}}), 201).await;
                    assert!(token["status"]["token"].is_string(), "{token}");
                    vec!["create"]
                }
                "binding" | "eviction" => self.once(subresource.name).await,
                "attach" | "exec" | "log" | "portforward" | "proxy" => self.passed_on(&path, subresource).await,
                other => panic!("nothing tries {other}"),
            };
            assert_eq!(tried, words(subresource.verbs), "{path}");
        }
    }

    /// Subresources that are read, replaced and patched.
    async fn written(&mut self, path: &str, name: &str) -> Vec<&'static str> {
        let change = match name {
            "scale" => json!({"spec": {"replicas": 3}}),
            "ephemeralcontainers" => json!({"spec": {"ephemeralContainers": [{"name": "e", "image": "i"}]}}),
            "resize" => {
                json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}]}})
            }
            _ => json!({"metadata": {"annotations": {"s": "t"}}}),
        };
        let read = self.ask("", "GET", path, Value::Null, 200).await;
        let same = self.ask("", "PUT", path, read.clone(), 200).await;
        assert_eq!(same["kind"], read["kind"]);
        let patched = self.ask("", "PATCH", path, change, 200).await;
        match name {
            "scale" => assert_eq!(patched["spec"]["replicas"], 3),
            "ephemeralcontainers" => assert_eq!(patched["spec"]["ephemeralContainers"][0]["name"], "e"),
            "resize" => assert_eq!(patched["spec"]["containers"][0]["resources"]["requests"]["cpu"], "2"),
            _ => {}
        }
        vec!["get", "patch", "update"]
    }

    /// Subresources that upstream passes on: what they would reach does not run.
    async fn passed_on(&mut self, path: &str, subresource: &'static Subresource) -> Vec<&'static str> {
        for verb in subresource.verbs {
            let method = match verb {
                Verb::Create => "POST",
                Verb::Delete => "DELETE",
                Verb::Patch => "PATCH",
                Verb::Update => "PUT",
                _ => "GET",
            };
            let (code, answer) = self.admin.json(method, path, Value::Null).await;
            let why = match (subresource.name, self.resource.kind) {
                ("log", _) => "",
                ("proxy", "Pod") => "address not allowed",
                ("proxy", "Service") => "endpoints \"one\" not found",
                ("proxy", _) => "one is not simulated",
                _ => "pod one does not have a host assigned",
            };
            let said = answer["message"].as_str().unwrap_or_default();
            assert!(said.starts_with(why) && !matches!(code, 405 | 500), "{method} {path}: {code} {answer}");
        }
        words(subresource.verbs)
    }

    /// Subresources that can be used once for each pod.
    async fn once(&mut self, name: &str) -> Vec<&'static str> {
        let pod = format!("used-by-{name}");
        self.admin
            .create(&self.at, {
                let mut object = object(self.resource, &pod);
                object["metadata"]["labels"] = json!({});
                object
            })
            .await;
        let path = format!("{}/{pod}/{name}", self.at);
        self.ask("", "POST", &path, json!({"metadata": {"name": pod}, "target": {"name": "n"}}), 201).await;
        vec!["create"]
    }
}

async fn rows(cluster: &Cluster) {
    for resource in served().filter(|r| r.stored()) {
        let mut trial = Trial { admin: &cluster.admin, resource, at: collection(resource), tried: Vec::new() };
        trial.standard().await;
        trial.tried.retain(|verb| !verb.is_empty());
        trial.tried.sort_unstable();
        assert_eq!(trial.tried, words(resource.verbs), "{}", trial.at);
    }
}

#[tokio::test]
async fn every_advertised_verb_works() {
    let cluster = cluster().await;
    rows(&cluster).await;
}

#[tokio::test]
async fn every_resource_without_objects_answers() {
    let cluster = cluster().await;
    cluster.admin.create("/api/v1/namespaces/default/pods", support::pod("p", "")).await;
    let attributes = json!({"verb": "get", "resource": "pods", "namespace": "default"});
    for resource in served().filter(|r| !r.stored()) {
        assert_eq!(resource.verbs, [Verb::Create], "{}", resource.plural);
        let body = match resource.kind {
            "Binding" => json!({"metadata": {"name": "p"}, "target": {"name": "n"}}),
            "TokenReview" => json!({"spec": {"token": "t"}}),
            "SelfSubjectRulesReview" => json!({"spec": {"namespace": "default"}}),
            "SelfSubjectReview" => json!({}),
            "SelfSubjectAccessReview" => json!({"spec": {"resourceAttributes": attributes}}),
            _ => json!({"spec": {"user": "u", "resourceAttributes": attributes}}),
        };
        let (code, answer) = cluster.admin.json("POST", &collection(resource), body).await;
        assert_eq!(code, 201, "{}: {answer}", resource.plural);
        assert_eq!(cluster.admin.get(&collection(resource)).await.0, 405, "{}", resource.plural);
    }
}

#[tokio::test]
async fn a_resize_keeps_quality_of_service_limits_and_quota() {
    let cluster = cluster().await;
    let admin = &cluster.admin;
    let pods = "/api/v1/namespaces/default/pods";
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "3"}}});
    admin.create("/api/v1/namespaces/default/resourcequotas", quota).await;
    let hard = json!({"status": {"hard": {"requests.cpu": "3"}, "used": {"requests.cpu": "0"}}});
    let (code, quota) = admin.patch("/api/v1/namespaces/default/resourcequotas/q/status", "merge", hard).await;
    assert_eq!(code, 200, "{quota}");
    let mut pod = support::pod("p", "");
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
    admin.create(pods, pod).await;
    let resize = async |resources: Value| {
        let change = json!({"spec": {"containers": [{"name": "c", "resources": resources}]}});
        admin.patch(&format!("{pods}/p/resize"), "strategic", change).await
    };
    let (code, pod) = resize(json!({"requests": {"cpu": "2"}})).await;
    assert_eq!((code, &pod["metadata"]["generation"]), (200, &json!(2)), "{pod}");
    for (resources, code, why) in [
        (json!({"requests": {"cpu": "4"}}), 403, "exceeded quota"),
        (json!({"requests": {"cpu": null}}), 422, "Pod QOS Class may not change"),
        (json!({"requests": {"cpu": null, "memory": "1Gi"}}), 422, "resource requests cannot be removed"),
        (json!({"requests": {"example.com/a": "1"}, "limits": {"example.com/a": "1"}}), 422, "only cpu and memory"),
    ] {
        let (answered, status) = resize(resources.clone()).await;
        let message = status["message"].as_str().unwrap_or_default();
        assert!(answered == code && message.contains(why), "{resources}: {answered} {status}");
    }
    // What is not about resources is not changed.
    let change = json!({"metadata": {"labels": {"x": "y"}}, "spec": {"nodeName": "n"}});
    let (code, pod) = admin.patch(&format!("{pods}/p/resize"), "merge", change).await;
    assert_eq!(
        (code, &pod["metadata"]["labels"], &pod["spec"]["nodeName"]),
        (200, &json!({"app": "web"}), &Value::Null)
    );
    assert_eq!(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"], "2");
}

#[tokio::test]
async fn ephemeral_containers_are_only_added() {
    let cluster = cluster().await;
    let admin = &cluster.admin;
    let pods = "/api/v1/namespaces/default/pods";
    admin.create(pods, support::pod("p", "")).await;
    let at = format!("{pods}/p/ephemeralcontainers");
    let containers = |names: &[&str], image: &str| {
        let list: Vec<Value> = names.iter().map(|name| json!({"name": name, "image": image})).collect();
        json!({"spec": {"ephemeralContainers": list}})
    };
    assert_eq!(admin.patch(&at, "strategic", containers(&["a"], "i")).await.0, 200);
    let (code, pod) = admin.patch(&at, "strategic", containers(&["b"], "i")).await;
    assert_eq!((code, pod["spec"]["ephemeralContainers"].as_array().map(Vec::len)), (200, Some(2)));
    for (change, why) in [
        (containers(&["a", "b"], "other"), r#"existing ephemeral containers "a" may not be changed"#),
        (containers(&[], ""), r#"existing ephemeral containers "a" may not be removed"#),
    ] {
        let (code, status) = admin.patch(&at, "merge", change).await;
        let message = status["message"].as_str().unwrap_or_default();
        assert!(code == 422 && message.contains(why), "{status}");
    }
}
