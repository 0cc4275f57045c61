//! Those who do harm, or try: each kind is a function that sends what it can for as long as it is let.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use super::Size;
use super::cluster::{Cluster, NAMESPACE};

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

/// Pods that stay pending: each change of the cluster may be a reason to try them again.
fn hopeless_pods(cluster: &Arc<Cluster>, size: Size, attackers: &mut JoinSet<()>) {
    let count = size.requests;
    let cluster = cluster.clone();
    attackers.spawn(async move {
        for n in 0..count {
            let pod = json!({"metadata": {"name": format!("hopeless-{n}")}, "spec": {
                "containers": [{"name": "c", "image": "i"}], "nodeSelector": {"no": format!("such-{n}")},
            }});
            let head = format!("POST /api/v1/namespaces/{NAMESPACE}/pods HTTP/1.1\r\nConnection: close");
            let sent = cluster.send(&head, &cluster.user, pod.to_string().as_bytes()).await;
            if let Ok(mut stream) = sent {
                let _ = stream.read_to_end(&mut Vec::new()).await;
            }
        }
        std::future::pending().await
    });
}
