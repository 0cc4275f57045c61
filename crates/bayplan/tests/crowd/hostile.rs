//! Those who do harm, or try: each kind is a function that sends what it can for as long as it is let.

use std::sync::Arc;
use std::time::Duration;

use bayplan_model::api::Resource;
use futures::future::join_all;
use hyper::client::conn::http2::Builder;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::Size;
use super::cluster::claims::{ALLOWED, claim, create_devices};
use super::cluster::component::Component;
use super::cluster::{Cluster, NAMESPACE, get};

/// One kind of hostile client.
pub(crate) struct Hostile {
    pub(crate) name: &'static str,
    pub(crate) start: fn(&Arc<Cluster>, Size, &mut JoinSet<()>),
}

/// All of them. A kind that is added here is beside those who work from then on.
pub(crate) const ALL: &[Hostile] = &[
    Hostile { name: "silent connections", start: silent_connections },
    Hostile { name: "handshakes that never end", start: endless_handshakes },
    Hostile { name: "headers that never end", start: endless_headers },
    Hostile { name: "a flood of health checks", start: flood_of_health_checks },
    Hostile { name: "bodies a byte at a time", start: slow_bodies },
    Hostile { name: "reads of the future", start: reads_of_the_future },
    Hostile { name: "answers nobody reads", start: unread_answers },
    Hostile { name: "watches of everything", start: watches },
    Hostile { name: "costly objects", start: costly_objects },
    Hostile { name: "costly roles", start: costly_roles },
    Hostile { name: "costly patches", start: costly_patches },
    Hostile { name: "pods nobody can place", start: hopeless_pods },
    Hostile { name: "lists nobody reads, over HTTP/2", start: unread_lists },
    Hostile { name: "a node that reports all the time", start: busy_node },
    Hostile { name: "an extender that never answers", start: hanging_extender },
    Hostile { name: "claims with expensive selectors", start: expensive_claims },
];

/// How long a client waits before it tries again what failed: it costs the server, not us.
const RETRY: Duration = Duration::from_millis(100);

/// Starts so many clients of a kind, each of which begins again whenever it ends.
fn crowd<F: Future<Output = std::io::Result<()>> + Send + 'static>(
    cluster: &Arc<Cluster>,
    count: usize,
    attackers: &mut JoinSet<()>,
    attack: impl Fn(Arc<Cluster>) -> F + Clone + Send + Sync + 'static,
) {
    for _ in 0..count {
        let (cluster, attack) = (cluster.clone(), attack.clone());
        attackers.spawn(async move {
            loop {
                // A server that hangs up is one that defends itself.
                let _ = attack(cluster.clone()).await;
                tokio::time::sleep(RETRY).await;
            }
        });
    }
}

fn silent_connections(cluster: &Arc<Cluster>, size: Size, attackers: &mut JoinSet<()>) {
    crowd(cluster, size.idle, attackers, async |cluster| {
        let mut stream = cluster.connect().await?;
        stream.read_to_end(&mut Vec::new()).await.map(drop)
    });
}

fn endless_handshakes(cluster: &Arc<Cluster>, size: Size, attackers: &mut JoinSet<()>) {
    crowd(cluster, size.idle / 2, attackers, async |cluster| {
        let mut stream = cluster.tcp().await?;
        stream.write_all(&[0x16, 3, 1]).await?;
        stream.read_to_end(&mut Vec::new()).await.map(drop)
    });
}

fn endless_headers(cluster: &Arc<Cluster>, size: Size, attackers: &mut JoinSet<()>) {
    crowd(cluster, size.idle / 2, attackers, async |cluster| {
        let mut stream = cluster.connect().await?;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n").await?;
        loop {
            stream.write_all(b"X: y\r\n").await?;
            stream.flush().await?;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
}

fn flood_of_health_checks(cluster: &Arc<Cluster>, size: Size, attackers: &mut JoinSet<()>) {
    crowd(cluster, size.requests / 10, attackers, async |cluster| {
        let head = "GET /livez?verbose HTTP/1.1\r\nConnection: close";
        cluster.send(head, "", b"").await?.read_to_end(&mut Vec::new()).await.map(drop)
    });
}

/// Holds what a body that is being read holds, for as long as the server waits for more of it.
fn slow_bodies(cluster: &Arc<Cluster>, size: Size, attackers: &mut JoinSet<()>) {
    crowd(cluster, size.requests, attackers, async |cluster| {
        let mut stream = cluster.connect().await?;
        let head = format!(
            "POST /api/v1/namespaces/{NAMESPACE}/configmaps HTTP/1.1\r\nHost: localhost\r\n\
             Authorization: Bearer {}\r\nContent-Length: 3000000\r\n\r\n",
            cluster.user
        );
        stream.write_all(head.as_bytes()).await?;
        loop {
            stream.write_all(b" ").await?;
            stream.flush().await?;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    });
}

fn reads_of_the_future(cluster: &Arc<Cluster>, size: Size, attackers: &mut JoinSet<()>) {
    crowd(cluster, size.requests, attackers, async |cluster| {
        let head = format!(
            "GET /api/v1/namespaces/{NAMESPACE}/configmaps/kube-root-ca.crt?resourceVersion=999999999 HTTP/1.1\r\n\
             Connection: close"
        );
        cluster.send(&head, &cluster.user, b"").await?.read_to_end(&mut Vec::new()).await.map(drop)
    });
}

/// Discovery and OpenAPI are large, and everybody with a token may ask for them.
fn unread_answers(cluster: &Arc<Cluster>, size: Size, attackers: &mut JoinSet<()>) {
    crowd(cluster, size.requests, attackers, async |cluster| {
        let stream = cluster.send("GET /openapi/v2 HTTP/1.1", &cluster.user, b"").await?;
        let (tcp, _) = stream.get_ref();
        // Until the server hangs up, which it may do without a word.
        while tcp.peek(&mut [0]).await? > 0 {
            tokio::time::sleep(RETRY).await;
        }
        Ok(())
    });
}

fn watches(cluster: &Arc<Cluster>, size: Size, attackers: &mut JoinSet<()>) {
    crowd(cluster, size.requests, attackers, async |cluster| {
        let head = format!("GET /api/v1/namespaces/{NAMESPACE}/events?watch=1 HTTP/1.1");
        cluster.send(&head, &cluster.user, b"").await?.read_to_end(&mut Vec::new()).await.map(drop)
    });
}

/// Sends a body as a dry run and reads the answer.
async fn try_out(cluster: &Cluster, line: &str, token: &str, content_type: &str, body: &Value) -> std::io::Result<()> {
    let head = format!("{line}?dryRun=All HTTP/1.1\r\nConnection: close\r\nContent-Type: {content_type}");
    let mut stream = cluster.send(&head, token, body.to_string().as_bytes()).await?;
    stream.read_to_end(&mut Vec::new()).await.map(drop)
}

/// Long lists: of owners, of empty containers, of labels that are none.
fn costly_objects(cluster: &Arc<Cluster>, size: Size, attackers: &mut JoinSet<()>) {
    let owners: Vec<Value> = (0..size.elements)
        .map(|n| json!({"apiVersion": "v1", "kind": "Pod", "name": format!("o{n}"), "uid": format!("u{n}")}))
        .collect();
    let labels: serde_json::Map<String, Value> =
        (0..size.elements).map(|n| (format!("bad label {n}!"), json!("bad value!"))).collect();
    let containers = vec![json!({}); size.elements];
    let bodies = Arc::new([
        ("configmaps", json!({"metadata": {"name": "a", "ownerReferences": owners}})),
        ("configmaps", json!({"metadata": {"name": "a", "labels": labels}})),
        ("pods", json!({"metadata": {"name": "a"}, "spec": {"containers": containers}})),
    ]);
    crowd(cluster, 1, attackers, move |cluster| {
        let bodies = bodies.clone();
        async move {
            for (plural, body) in &*bodies {
                let line = format!("POST /api/v1/namespaces/{NAMESPACE}/{plural}");
                try_out(&cluster, &line, &cluster.user, "application/json", body).await?;
            }
            Ok(())
        }
    });
}

/// A rule is a product: what it grants is groups times resources times verbs.
fn costly_roles(cluster: &Arc<Cluster>, size: Size, attackers: &mut JoinSet<()>) {
    let side = size.elements.isqrt();
    let list = |prefix: &str| -> Vec<String> { (0..side).map(|n| format!("{prefix}{n}")).collect() };
    let rule = json!({"apiGroups": list("g"), "resources": list("r"), "verbs": list("v")});
    let role = Arc::new(json!({"metadata": {"name": "a"}, "rules": [rule]}));
    crowd(cluster, 1, attackers, move |cluster| {
        let role = role.clone();
        async move {
            let line = format!("POST /apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles");
            try_out(&cluster, &line, &cluster.namespace_admin, "application/json", &role).await
        }
    });
}

fn costly_patches(cluster: &Arc<Cluster>, size: Size, attackers: &mut JoinSet<()>) {
    let swap = |n: usize| {
        let (from, path) = if n.is_multiple_of(2) { ("/data", "/datum") } else { ("/datum", "/data") };
        json!({"op": "move", "from": from, "path": path})
    };
    let moves: Arc<Value> = Arc::new((0..size.elements).map(swap).collect());
    crowd(cluster, 1, attackers, move |cluster| {
        let moves = moves.clone();
        async move {
            let line = format!("PATCH /api/v1/namespaces/{NAMESPACE}/configmaps/kube-root-ca.crt");
            try_out(&cluster, &line, &cluster.user, "application/json-patch+json", &moves).await
        }
    });
}

/// Creates an object as the user of the namespace, and waits for the answer, whatever it is.
async fn create(cluster: &Cluster, group: &str, plural: &str, object: &Value) {
    let line = format!("POST {group}/namespaces/{NAMESPACE}/{plural}");
    let _ = cluster.ask(&line, &[], &cluster.user, object.to_string().as_bytes()).await;
}

fn pod(name: &str, more: Value) -> Value {
    let mut spec = json!({"containers": [{"name": "c", "image": "i"}]});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"metadata": {"name": name}, "spec": spec})
}

/// Pods that stay pending: each change of the cluster may be a reason to try them again.
fn hopeless_pods(cluster: &Arc<Cluster>, size: Size, attackers: &mut JoinSet<()>) {
    let (cluster, count) = (cluster.clone(), size.requests);
    attackers.spawn(async move {
        for n in 0..count {
            let selector = json!({"nodeSelector": {"no": format!("such-{n}")}});
            create(&cluster, "/api/v1", "pods", &pod(&format!("hopeless-{n}"), selector)).await;
        }
        std::future::pending().await
    });
}

/// A connection whose every stream has a window of 0.
fn unread_lists(cluster: &Arc<Cluster>, size: Size, attackers: &mut JoinSet<()>) {
    let lists = size.requests.div_ceil(10);
    crowd(cluster, 10, attackers, move |cluster| async move {
        let mut builder = Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(0);
        let client = cluster.http2(&builder).await?;
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods");
        let list = async || client.clone().send_request(get(&path, &cluster.user)).await;
        let unread = join_all((0..lists).map(|_| list())).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        drop(unread);
        Ok(())
    });
}

/// It has the rights that the role for nodes gives, renews its lease, and says each time that it has other images.
fn busy_node(cluster: &Arc<Cluster>, size: Size, attackers: &mut JoinSet<()>) {
    let cluster = cluster.clone();
    attackers.spawn(async move {
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node"});
        let nodes = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"});
        let binding = json!({"metadata": {"name": "nodes"}, "roleRef": role, "subjects": [nodes]});
        let bindings = Resource::new("rbac.authorization.k8s.io", "v1", "clusterrolebindings");
        cluster.create(&bindings, "", binding).await;
        let nodes = cluster.list(&Resource::new("", "v1", "nodes"), "").await;
        let name = nodes[0]["metadata"]["name"].as_str().unwrap().to_owned();
        let user = format!("system:node:{name}");
        let headers = [
            ("Impersonate-User", user.as_str()),
            ("Impersonate-Group", "system:nodes"),
            ("Content-Type", "application/merge-patch+json"),
        ];
        for turn in 0.. {
            let image = |n| json!({"names": [format!("i{n}:{turn}")], "sizeBytes": 1});
            let images = json!({"status": {"images": (0..size.elements / 4).map(image).collect::<Vec<_>>()}});
            let lease = json!({"spec": {"leaseDurationSeconds": 40 + turn % 2}});
            for (path, patch) in [
                (format!("/api/v1/nodes/{name}/status"), images),
                (format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}"), lease),
            ] {
                let (line, patch) = (format!("PATCH {path}"), patch.to_string());
                let answer = cluster.ask(&line, &headers, &cluster.root, patch.as_bytes()).await;
                let code = answer.map_or(0, |(code, _)| code);
                assert_ne!(code, 403, "the node has the rights of nodes");
            }
        }
    });
}

/// A second scheduler has an extender that takes each request and never answers it.
fn hanging_extender(cluster: &Arc<Cluster>, size: Size, attackers: &mut JoinSet<()>) {
    let (cluster, count) = (cluster.clone(), size.requests / 10);
    attackers.spawn(async move {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let extender = json!({
            "urlPrefix": format!("http://{}", listener.local_addr().unwrap()), "filterVerb": "filter",
            "httpTimeout": "5s", "ignorable": true,
        });
        let config = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": false}, "extenders": [extender],
            "profiles": [{"schedulerName": "extended"}],
        });
        let path = cluster.kubeconfig().with_file_name("extended.json");
        std::fs::write(&path, config.to_string()).unwrap();
        let arguments = ["--config", path.to_str().unwrap()];
        cluster.second_scheduler.get_or_init(|| Component::start(&cluster, "scheduler", &arguments)).await;
        for n in 0..count {
            let extended = json!({"schedulerName": "extended"});
            create(&cluster, "/api/v1", "pods", &pod(&format!("extended-{n}"), extended)).await;
        }
        let mut held = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            held.push(stream);
        }
    });
}

fn expensive_claims(cluster: &Arc<Cluster>, size: Size, attackers: &mut JoinSet<()>) {
    let (cluster, count) = (cluster.clone(), size.requests / 10);
    attackers.spawn(async move {
        create_devices(&cluster).await;
        for n in 0..count {
            let (name, selector) = (format!("costly-{n}"), format!("{} || {n} == -1", ALLOWED[n % 2]));
            create(&cluster, "/apis/resource.k8s.io/v1", "resourceclaims", &claim(&name, &selector)).await;
            let claims = json!({"resourceClaims": [{"name": "r", "resourceClaimName": name}]});
            create(&cluster, "/api/v1", "pods", &pod(&name, claims)).await;
        }
        std::future::pending().await
    });
}
