//! Who may do what: the same requests under the same identities, answered by kube-apiserver and by Bayplan.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bayplan_apiserver::certificates::{Names, Pki, tls};
use bayplan_apiserver::{ApiServer, Config as ServerConfig};
use bayplan_client::{Config, HttpClient};
use bayplan_store::LogStore;
use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderValue, Request};
use http_body_util::BodyExt;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::control_plane::{ControlPlane, PATIENCE, eventually};

const RBAC: &str = "rbac.authorization.k8s.io";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1";
/// How long a token may outlive its account: upstream's cache (10 s) and a slow machine.
const TOKEN_OUTLIVES_MAX: Duration = Duration::from_secs(12);

/// How many requests each server answers at a time.
const AT_ONCE: usize = 16;

/// How often a request is sent before it counts as not answered.
const ATTEMPTS: usize = 10;

/// Under whom a request is sent.
enum Identity {
    Anonymous,
    /// A token that each server gave out, by its name.
    Token(&'static str),
    /// A user and groups, by an administrator's impersonation.
    User(&'static str, &'static [&'static str]),
}

use Identity::{Anonymous, Token, User};

const IDENTITIES: [(&str, Identity); 13] = [
    ("anonymous", Anonymous),
    ("a service account without rights", Token("idle")),
    ("a service account that reads pods", Token("robot")),
    ("a token for another audience", Token("elsewhere")),
    ("a node", User("system:node:n1", &["system:nodes"])),
    ("the scheduler", User("system:kube-scheduler", &[])),
    ("the controller manager", User("system:kube-controller-manager", &[])),
    ("an administrator of the namespace", User("ada", &[])),
    ("an editor of the namespace", User("ed", &[])),
    ("a viewer of the namespace", User("vi", &[])),
    ("a viewer of the cluster", User("cleo", &[])),
    ("somebody with rights to one name", User("one", &[])),
    ("somebody without rights", User("nobody", &[])),
];

struct Server {
    name: &'static str,
    admin: HttpClient,
    bare: HttpClient,
    tokens: BTreeMap<&'static str, String>,
}

/// A request, and whether its whole answer is compared or only whether it was let in.
struct Question {
    method: &'static str,
    path: String,
    content_type: &'static str,
    body: Value,
    whole: bool,
}

impl Question {
    fn new(method: &'static str, path: impl Into<String>) -> Self {
        Question { method, path: path.into(), content_type: "application/json", body: Value::Null, whole: true }
    }

    fn with(self, body: Value) -> Self {
        Question { body, ..self }
    }

    fn merge(path: impl Into<String>, body: Value) -> Self {
        Question { content_type: "application/merge-patch+json", ..Question::new("PATCH", path).with(body) }
    }

    /// Its body is too small to be an object: only the way to it is compared.
    fn only_let_in(self) -> Self {
        Question { whole: false, body: if self.body.is_null() { json!({}) } else { self.body }, ..self }
    }
}

impl Server {
    fn new(name: &'static str, config: &Config) -> Self {
        let mut bare = config.clone();
        bare.tls.identity = None;
        let client = |config: &Config| HttpClient::new(config).unwrap();
        Server { name, admin: client(config), bare: client(&bare), tokens: BTreeMap::new() }
    }

    /// Code and body; the body of a watch is not waited for. kube-apiserver closes connections after a 401, with the
    /// requests that others have begun on them: those are sent again.
    async fn send(&self, identity: Option<&Identity>, question: &Question, more: &[(&str, &[u8])]) -> (u16, Value) {
        for _ in 0..ATTEMPTS {
            if let Some(answer) = self.try_send(identity, question, more).await {
                return answer;
            }
        }
        panic!("{}: {} {}: no answer in {ATTEMPTS} attempts", self.name, question.method, question.path);
    }

    async fn try_send(
        &self,
        identity: Option<&Identity>,
        question: &Question,
        more: &[(&str, &[u8])],
    ) -> Option<(u16, Value)> {
        let mut request = Request::builder().method(question.method).uri(&question.path);
        request = request.header("Content-Type", question.content_type);
        for (name, value) in more {
            request = request.header(*name, HeaderValue::from_bytes(value).unwrap());
        }
        let client = match identity {
            None => &self.admin,
            Some(Anonymous) => &self.bare,
            Some(Token(name)) => {
                request = request.header("Authorization", format!("Bearer {}", self.tokens[name]));
                &self.bare
            }
            Some(User(name, groups)) => {
                request = request.header("Impersonate-User", *name);
                request = groups.iter().fold(request, |request, group| request.header("Impersonate-Group", *group));
                &self.admin
            }
        };
        let body = if question.body.is_null() { Bytes::new() } else { question.body.to_string().into() };
        let answer = client.send(request.body(body).unwrap()).await.ok()?;
        let code = answer.status().as_u16();
        if question.path.contains("watch=1") && code == 200 {
            return Some((code, Value::Null));
        }
        let bytes = answer.into_body().collect().await.ok()?.to_bytes();
        Some((code, serde_json::from_slice(&bytes).unwrap_or(Value::Null)))
    }

    /// What is compared of an answer.
    async fn answer(&self, identity: &Identity, question: &Question) -> String {
        let sent = self.send(Some(identity), question, &[]);
        let Ok((code, body)) = tokio::time::timeout(PATIENCE, sent).await else { return "no answer".to_owned() };
        match (code, body["message"].as_str()) {
            (401 | 403, message) => format!("{code} {}", message.unwrap_or_default()),
            (_, _) if !question.whole => "let in".to_owned(),
            (_, message) => format!("{code} {}", message.unwrap_or_default()),
        }
    }

    async fn create(&self, path: &str, object: Value) -> Value {
        let (code, answer) = self.send(None, &Question::new("POST", path).with(object), &[]).await;
        assert!(code == 201, "{}: {path}: {answer}", self.name);
        answer
    }

    async fn token(&mut self, name: &'static str, account: &str, audiences: Value) {
        let path = format!("/api/v1/namespaces/team/serviceaccounts/{account}/token");
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": audiences}});
        let answer = self.create(&path, request).await;
        self.tokens.insert(name, answer["status"]["token"].as_str().unwrap().to_owned());
    }

    async fn fill(&mut self) {
        let named = |name: &str| json!({"metadata": {"name": name}});
        for namespace in ["team", "other"] {
            self.create("/api/v1/namespaces", named(namespace)).await;
        }
        for account in ["idle", "robot", "gone"] {
            self.create("/api/v1/namespaces/team/serviceaccounts", named(account)).await;
        }
        let own = json!(["https://kubernetes.default.svc"]);
        for account in ["idle", "robot", "gone"] {
            self.token(account, account, own.clone()).await;
        }
        self.token("elsewhere", "robot", json!(["else"])).await;
        let role = |name: &str, rules: Value| json!({"metadata": {"name": name}, "rules": rules});
        let verbs = json!(["get", "list", "watch"]);
        let robot = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": verbs}]);
        let one = json!([
            {"apiGroups": ["*"], "resources": ["*"], "resourceNames": ["none"], "verbs": ["*"]},
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["update", "patch"]},
            {"apiGroups": [RBAC], "resources": ["clusterroles"], "verbs": ["get", "patch"]},
        ]);
        self.create(&format!("{ROLES}/clusterroles"), role("robot", robot)).await;
        self.create(&format!("{ROLES}/clusterroles"), role("one", one)).await;
        let binding = |name: &str, role: &str, subject: Value| {
            json!({"metadata": {"name": name}, "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
                "subjects": [subject]})
        };
        let user = |name: &str| json!({"apiGroup": RBAC, "kind": "User", "name": name});
        let account = json!({"kind": "ServiceAccount", "name": "robot", "namespace": "team"});
        let inside = format!("{ROLES}/namespaces/team/rolebindings");
        for (name, role, subject) in [
            ("ada", "admin", user("ada")),
            ("ed", "edit", user("ed")),
            ("vi", "view", user("vi")),
            ("robot", "robot", account),
        ] {
            self.create(&inside, binding(name, role, subject)).await;
        }
        for (name, role) in [("cleo", "view"), ("one", "one")] {
            self.create(&format!("{ROLES}/clusterrolebindings"), binding(name, role, user(name))).await;
        }
    }

    /// The group versions that are served.
    async fn group_versions(&self) -> Vec<String> {
        let (_, groups) = self.send(None, &Question::new("GET", "/apis"), &[]).await;
        let groups = groups["groups"].as_array().unwrap().clone();
        let versions = groups.iter().flat_map(|group| group["versions"].as_array().unwrap());
        let paths = versions.map(|version| format!("/apis/{}", version["groupVersion"].as_str().unwrap()));
        ["/api/v1".to_owned()].into_iter().chain(paths).collect()
    }

    /// Every verb on every resource and subresource that is served.
    async fn questions(&self) -> Vec<Question> {
        let mut questions = Vec::new();
        for prefix in self.group_versions().await {
            let (_, list) = self.send(None, &Question::new("GET", &prefix), &[]).await;
            for resource in list["resources"].as_array().unwrap() {
                let verbs: Vec<&str> = resource["verbs"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
                let namespaced = resource["namespaced"] == true;
                questions.extend(of_resource(&prefix, resource["name"].as_str().unwrap(), namespaced, &verbs));
            }
        }
        for path in ["/", "/api", "/apis", "/version", "/healthz", "/livez", "/readyz", "/metrics", "/openapi/v2"]
            .into_iter()
            .chain(["/openapi/v3", "/logs", "/openid/v1/jwks", "/.well-known/openid-configuration", "/nowhere"])
        {
            questions.push(Question { whole: false, ..Question::new("GET", path) });
            questions.push(Question { whole: false, ..Question::new("POST", path) });
        }
        questions
    }
}

fn of_resource(prefix: &str, resource: &str, namespaced: bool, verbs: &[&str]) -> Vec<Question> {
    let (plural, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let scope = if namespaced { "/namespaces/team" } else { "" };
    let (all, collection) = (format!("{prefix}/{plural}"), format!("{prefix}{scope}/{plural}"));
    let mut object = format!("{collection}/none");
    if !subresource.is_empty() {
        object = format!("{object}/{subresource}");
    }
    let mut questions = Vec::new();
    for verb in verbs {
        match *verb {
            "get" => questions.push(Question::new("GET", &object)),
            "list" | "watch" => {
                let query = if *verb == "watch" { "watch=1&timeoutSeconds=1&" } else { "" };
                for base in [&collection, &all] {
                    questions.push(Question { whole: false, ..Question::new("GET", format!("{base}?{query}")) });
                    let one = format!("{base}?{query}fieldSelector=metadata.name%3Dnone");
                    questions.push(Question { whole: false, ..Question::new("GET", one) });
                }
            }
            "create" if subresource.is_empty() => {
                questions.push(Question::new("POST", format!("{collection}?dryRun=All")).only_let_in());
            }
            "create" => questions.push(Question::new("POST", format!("{object}?dryRun=All")).only_let_in()),
            "update" => questions.push(Question::new("PUT", format!("{object}?dryRun=All")).only_let_in()),
            "patch" => questions.push(Question::merge(format!("{object}?dryRun=All"), json!({})).only_let_in()),
            // Without a body, which would count instead of the query.
            "delete" => questions.push(Question::new("DELETE", format!("{object}?dryRun=All"))),
            // Upstream keeps its own priority classes from a DELETE of one, and forgets them in that of a collection.
            "deletecollection" if plural == "priorityclasses" => {}
            "deletecollection" => {
                for query in ["", "&fieldSelector=metadata.name%3Dnone"] {
                    let all = Question::new("DELETE", format!("{collection}?dryRun=All{query}"));
                    questions.push(Question { whole: false, ..all });
                }
            }
            other => panic!("{resource}: {other}"),
        }
    }
    questions
}

/// Both servers with the same certificates, users and roles, and what keeps them running.
async fn both() -> Option<(ControlPlane, Server, Server, ApiServer)> {
    let plane = ControlPlane::start().await?;
    let upstream = Config::load(Some(&plane.kubeconfig("admin")), None, None).unwrap();
    let names = Names::standard(None, [10, 0, 0, 1].into());
    let pki = Pki::open(&plane.folder().join("pki"), &names, Timestamp::now()).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut config = ServerConfig::new(&pki.service_account_key, address);
    config.plugins.service_account = false;
    let server = ApiServer::new(config, Arc::new(LogStore::in_memory().unwrap())).await.unwrap();
    let (serving, tls) = (server.clone(), tls::server_config(&pki).unwrap());
    tokio::spawn(async move { serving.serve(listener, tls).await });
    let mut bayplan = upstream.clone();
    bayplan.server = format!("https://{address}").parse().unwrap();
    let (mut upstream, mut bayplan) = (Server::new("kube-apiserver", &upstream), Server::new("bayplan", &bayplan));
    upstream.fill().await;
    bayplan.fill().await;
    Some((plane, upstream, bayplan, server))
}

/// The roles admin, edit and view collect their rules by a controller.
async fn aggregate(plane: &ControlPlane, upstream: &Server) -> Option<crate::assets::Process> {
    let kubeconfig = plane.kubeconfig("admin");
    let manager = plane.upstream(
        "kube-controller-manager",
        &[
            &format!("--kubeconfig={}", kubeconfig.display()),
            "--controllers=clusterrole-aggregation-controller",
            "--leader-elect=false",
            "--secure-port=0",
        ],
    )?;
    eventually("the roles are aggregated", async || {
        let (_, roles) = upstream.send(None, &Question::new("GET", format!("{ROLES}/clusterroles")), &[]).await;
        let roles = roles["items"].as_array().unwrap();
        let rules = |role: &Value| role["rules"].as_array().cloned().unwrap_or_default();
        let complete = |role: &Value| {
            let selectors = role["aggregationRule"]["clusterRoleSelectors"].as_array().into_iter().flatten();
            let mut labels = selectors.flat_map(|selector| selector["matchLabels"].as_object().unwrap());
            labels.all(|(key, value)| {
                let has = rules(role);
                let collected = roles.iter().filter(|role| role["metadata"]["labels"][key] == *value);
                collected.flat_map(rules).all(|rule| has.contains(&rule))
            })
        };
        roles.iter().all(complete).then_some(())
    })
    .await;
    Some(manager)
}

/// All controllers of `bayplan controller-manager` act as one user, so Bayplan binds their roles to it, where upstream
/// has a service account for each. The same bindings on kube-apiserver let the roles be compared.
async fn bind_controllers(upstream: &Server, bayplan: &Server) {
    let bindings = Question::new("GET", format!("{ROLES}/clusterrolebindings"));
    let (_, bindings) = bayplan.send(None, &bindings, &[]).await;
    let manager = json!("system:kube-controller-manager");
    let of_controllers = |binding: &&Value| {
        let role = binding["roleRef"]["name"].as_str().unwrap();
        let subjects = binding["subjects"].as_array().into_iter().flatten();
        role.starts_with("system:controller:") && subjects.filter(|subject| subject["name"] == manager).count() > 0
    };
    let bindings: Vec<&Value> = bindings["items"].as_array().unwrap().iter().filter(of_controllers).collect();
    assert!(!bindings.is_empty());
    for binding in bindings {
        let name = format!("bayplan:{}", binding["roleRef"]["name"].as_str().unwrap());
        let subject = json!({"apiGroup": RBAC, "kind": "User", "name": manager});
        let same = json!({"metadata": {"name": name}, "roleRef": binding["roleRef"], "subjects": [subject]});
        upstream.create(&format!("{ROLES}/clusterrolebindings"), same).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_verb_on_every_resource_is_allowed_to_the_same_users() {
    let Some((plane, upstream, bayplan, _server)) = both().await else { return };
    let Some(_manager) = aggregate(&plane, &upstream).await else { return };
    bind_controllers(&upstream, &bayplan).await;
    let questions = bayplan.questions().await;
    assert!(questions.len() > 400, "{}", questions.len());
    let mut differences = Vec::new();
    for (who, identity) in &IDENTITIES {
        let (upstream, bayplan) = (&upstream, &bayplan);
        let asked = questions.iter().map(|question| async move {
            let answers = futures::join!(upstream.answer(identity, question), bayplan.answer(identity, question));
            (question, answers)
        });
        let mut answers = futures::stream::iter(asked).buffer_unordered(AT_ONCE);
        let mut refused = 0;
        while let Some((question, (theirs, ours))) = answers.next().await {
            refused += usize::from(theirs.starts_with("40"));
            if theirs != ours {
                let (method, path) = (question.method, &question.path);
                differences.push(format!("{who}: {method} {path}\n  upstream: {theirs}\n  bayplan:  {ours}"));
            }
        }
        assert!(refused > 0, "{who} was refused nothing");
    }
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

/// Who asks for what, with which headers.
type Case<'a> = (&'a Identity, Question, Vec<(&'static str, &'static [u8])>);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_beyond_the_verb_are_the_same() {
    let Some((_plane, upstream, bayplan, _server)) = both().await else { return };
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "new"}});
    let label = json!({"metadata": {"labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}});
    let pods = "/api/v1/namespaces/team/pods";
    let one = User("one", &[]);
    let robot = Token("robot");
    let cases: Vec<Case> = vec![
        (&one, Question::new("PUT", "/apis/coordination.k8s.io/v1/namespaces/team/leases/new").with(lease), vec![]),
        (&one, Question::merge(format!("{ROLES}/clusterroles/cluster-admin"), label), vec![]),
        (
            &one,
            Question::merge(format!("{ROLES}/clusterroles/view"), json!({"aggregationRule": null, "rules": []})),
            vec![],
        ),
        (&one, Question::new("GET", format!("{pods}?fieldSelector=spec.nodeName!%3D%5C,metadata.name%3Dnone")), vec![]),
        (&one, Question::new("GET", format!("{pods}?fieldSelector=metadata.name%3Dnone%5C")), vec![]),
        (&one, Question::new("GET", "/api/v1/watch/namespaces/team/pods?fieldSelector=metadata.name%3Dnone"), vec![]),
        (&robot, Question::new("GET", pods), vec![("Impersonate-User", b"bob")]),
        (&robot, Question::new("GET", pods), vec![("Impersonate-User", b"b\xffb")]),
        (&robot, Question::new("GET", pods), vec![("Impersonate-User", "bøb".as_bytes())]),
        (&robot, Question::new("GET", pods), vec![("Impersonate-User", b"bob"), ("Impersonate-Group", b"\xff")]),
        (&robot, Question::new("GET", pods), vec![("Impersonate-User", b"system:node:n1")]),
        (&robot, Question::new("GET", pods), vec![("Impersonate-User", b"system:serviceaccount:team:idle")]),
        (&robot, Question::new("GET", pods), vec![("Impersonate-User", b"system:serviceaccount:TEAM:idle")]),
        (&robot, Question::new("GET", "/metrics"), vec![("Impersonate-User", b"bob")]),
        (&robot, Question::new("GET", pods), vec![("Impersonate-Group", b"g")]),
        (&robot, Question::new("GET", pods), vec![("Impersonate-Uid", b"u")]),
        (&robot, Question::new("GET", pods), vec![("Impersonate-Extra-A", b"x"), ("Impersonate-Extra-A", b"y")]),
        (&Anonymous, Question::new("GET", pods), vec![("Authorization", b"Bearer \xff")]),
        (&Anonymous, Question::new("GET", pods), vec![("Authorization", b"Bearer nobodys")]),
        (&Anonymous, Question::new("GET", pods), vec![("Authorization", b"Bearer  twice")]),
        (&Anonymous, Question::new("GET", "/a&b"), vec![]),
    ];
    for (identity, question, headers) in cases {
        let (theirs, ours) = tokio::join!(
            upstream.send(Some(identity), &question, &headers),
            bayplan.send(Some(identity), &question, &headers)
        );
        let (method, path) = (question.method, &question.path);
        assert!(theirs.0 >= 400, "{method} {path} {headers:?}: {theirs:?}");
        let shown = |(code, body): &(u16, Value)| format!("{code} {} {}", body["reason"], body["message"]);
        assert_eq!(shown(&ours), shown(&theirs), "{method} {path} {headers:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_does_not_outlive_its_account_for_longer() {
    let Some((_plane, upstream, bayplan, _server)) = both().await else { return };
    let question = Question::new("GET", "/api/v1/namespaces/team/pods");
    let outlives = async |server: &Server| {
        assert_eq!(server.send(Some(&Token("gone")), &question, &[]).await.0, 403, "{}", server.name);
        let account = Question::new("DELETE", "/api/v1/namespaces/team/serviceaccounts/gone");
        assert_eq!(server.send(None, &account, &[]).await.0, 200);
        let deleted = Instant::now();
        eventually("the token is refused", async || {
            (server.send(Some(&Token("gone")), &question, &[]).await.0 == 401).then_some(())
        })
        .await;
        deleted.elapsed()
    };
    let (theirs, ours) = tokio::join!(outlives(&upstream), outlives(&bayplan));
    println!("a token outlived its account by {theirs:?} on kube-apiserver, by {ours:?} on bayplan");
    assert!(ours < TOKEN_OUTLIVES_MAX, "{ours:?}");
}
