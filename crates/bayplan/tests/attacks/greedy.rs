//! Clients that hold what others need: connections, requests, answers and bodies.

use std::sync::Arc;
use std::time::Duration;

use bayplan_listener::raise_file_limit;
use bayplan_model::api::Resource;
use futures::future::join_all;
use http_body_util::BodyExt;
use hyper::client::conn::http2::Builder;
use hyper_util::rt::TokioExecutor;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::TURN;
use crate::cluster::component::Component;
use crate::cluster::{Cluster, NAMESPACE, get};
use crate::stopwatch::{ANSWER_MAX, Answers, ROUNDS, ask_beside, probe, read};

/// How long those who do no harm are watched beside an attack that lasts.
const WATCHED: Duration = Duration::from_secs(10);

/// Holds so many reads of the future at once, for ever.
async fn read_the_future(cluster: Arc<Cluster>, count: usize) {
    let client = cluster.http2(&Builder::new(TokioExecutor::new())).await.unwrap();
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/kube-root-ca.crt?resourceVersion=999999999");
    join_all((0..count).map(async |_| {
        loop {
            match client.clone().send_request(get(&path, &cluster.user)).await {
                Ok(answer) => drop(answer.into_body().collect().await),
                Err(_) => return,
            }
        }
    }))
    .await;
}

/// Requests that everybody depends on, another one at each call: of an administrator by group and of one by rights, of
/// the scheduler, the controllers and a probe.
fn those_who_work(cluster: &Cluster) -> impl AsyncFnMut() -> Result<(), String> {
    const SYSTEM: [(&str, &str); 3] = [
        ("system:kube-scheduler", "/api/v1/nodes"),
        ("system:kube-controller-manager", "/api/v1/namespaces"),
        ("system:serviceaccount:kube-system:deployment-controller", "/apis/apps/v1/deployments"),
    ];
    let mut turn = 0;
    async move || {
        turn += 1;
        match turn % (SYSTEM.len() + 3) {
            0 => probe(cluster, "/livez").await,
            1 => read(cluster, "/api/v1/nodes", &[], &cluster.root).await,
            2 => cluster.admin.get("/api/v1/nodes", "*/*").await.map(drop).map_err(|status| status.message),
            user => {
                let (user, path) = SYSTEM[user - 3];
                read(cluster, path, &[("Impersonate-User", user)], &cluster.root).await
            }
        }
    }
}

/// Watches those who work beside attackers, a few times if they are late; nobody may ever be refused.
async fn watch(what: &str, mut question: impl AsyncFnMut() -> Result<(), String>) -> Answers {
    let mut answers = Answers::default();
    for _ in 0..ROUNDS {
        ((), answers) = ask_beside(tokio::time::sleep(WATCHED), &mut question).await;
        #[allow(clippy::print_stdout, reason = "figures for whoever runs it")]
        {
            println!("{what}: {answers:?}");
        }
        assert!(answers.failures.is_empty(), "{what}: {answers:?}");
        if answers.are_prompt() {
            break;
        }
    }
    answers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "bounds in seconds, for a release build"]
async fn reads_of_the_future_refuse_nobody_else() {
    let _turn = TURN.lock().await;
    let cluster = Arc::new(Cluster::start().await);
    let mut attackers = JoinSet::new();
    for _ in 0..6 {
        attackers.spawn(read_the_future(cluster.clone(), 950));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let answers = watch("beside 5,700 reads of the future", those_who_work(&cluster)).await;
    assert!(answers.slowest <= ANSWER_MAX, "{answers:?}");
    // The controllers work as well: a Deployment has its pods soon.
    let template = json!({
        "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    let spec = json!({"replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "template": template});
    let deployment = json!({"metadata": {"name": "beside"}, "spec": spec});
    cluster.create(&Resource::new("apps", "v1", "deployments"), "default", deployment).await;
    let bound = async {
        let placed = |pod: &serde_json::Value| pod["spec"]["nodeName"].is_string();
        while cluster.list(&Resource::new("", "v1", "pods"), "default").await.iter().filter(|pod| placed(pod)).count()
            < 3
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), bound).await.expect("three pods are bound within five seconds");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "bounds in megabytes, for a release build"]
async fn lists_that_nobody_reads_take_less_than_64_megabytes() {
    let _turn = TURN.lock().await;
    let cluster = Arc::new(Cluster::start().await);
    let maps = Resource::new("", "v1", "configmaps");
    let data = "x".repeat(5_000);
    for numbers in (0..2_000).collect::<Vec<_>>().chunks(50) {
        let create = |number: &i32| {
            let object = json!({"metadata": {"name": format!("c{number}")}, "data": {"text": data}});
            cluster.create(&maps, NAMESPACE, object)
        };
        join_all(numbers.iter().map(create)).await;
    }
    let before = cluster.memory();
    let mut builder = Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(0);
    let client = cluster.http2(&builder).await.unwrap();
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    let mut unread = JoinSet::new();
    for _ in 0..150 {
        let (mut client, list) = (client.clone(), get(&path, &cluster.user));
        unread.spawn(async move { client.send_request(list).await.map(drop) });
    }
    let mut most = before;
    let answers = ask_beside(tokio::time::sleep(WATCHED), async || {
        most = most.max(cluster.memory());
        probe(&cluster, "/livez").await
    });
    let ((), answers) = answers.await;
    let grown = most - before;
    println!("150 lists of 10 MB that nobody reads take {grown} MB, {before} MB before them; probes {answers:?}");
    assert!(grown < 64, "150 lists that nobody reads take {grown} MB");
    assert!(answers.failures.is_empty(), "{answers:?}");
}

/// Holds so many connections that say nothing, opens others in place of those that are closed, and counts those that
/// are open.
fn hold(
    address: (&'static str, u16),
    count: usize,
    attackers: &mut JoinSet<()>,
) -> Arc<std::sync::atomic::AtomicUsize> {
    use std::sync::atomic::Ordering;
    let open = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    for _ in 0..count {
        let open = open.clone();
        attackers.spawn(async move {
            loop {
                if let Ok(stream) = TcpStream::connect(address).await {
                    open.fetch_add(1, Ordering::Relaxed);
                    // Readable is closed: nobody writes to one who says nothing.
                    let _ = stream.readable().await;
                    open.fetch_sub(1, Ordering::Relaxed);
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
    }
    open
}

/// As `hold`, after the TLS handshake.
fn hold_after_handshake(cluster: &Arc<Cluster>, count: usize, attackers: &mut JoinSet<()>) {
    for _ in 0..count {
        let cluster = cluster.clone();
        attackers.spawn(async move {
            loop {
                if let Ok(stream) = cluster.connect().await {
                    let (tcp, _) = stream.get_ref();
                    // The server's session tickets are readable; what ends the connection comes after them.
                    while tcp.readable().await.is_ok() && tcp.try_read(&mut [0; 4096]).is_ok_and(|read| read > 0) {}
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "bounds in seconds, for a release build"]
async fn probes_are_answered_beside_ten_thousand_silent_connections() {
    let _turn = TURN.lock().await;
    raise_file_limit();
    let cluster = Arc::new(Cluster::start().await);
    let (scheduler, manager) = (
        Component::start(&cluster, "scheduler", &[]).await,
        Component::start(&cluster, "controller-manager", &[]).await,
    );
    let before = cluster.memory();
    let mut attackers = JoinSet::new();
    let open = hold(cluster.address(), 8_000, &mut attackers);
    hold_after_handshake(&cluster, 2_000, &mut attackers);
    hold(("127.0.0.1", scheduler.port), 1_000, &mut attackers);
    hold(("127.0.0.1", manager.port), 1_000, &mut attackers);
    let mut turn = 0;
    let answers = watch("beside 10,000 silent connections", async || {
        turn += 1;
        match turn % 4 {
            0 => scheduler.probe().await.map_err(|error| format!("the scheduler's probe: {error}")),
            1 => manager.probe().await.map_err(|error| format!("the controller manager's probe: {error}")),
            2 => probe(&cluster, "/readyz").await,
            _ => read(&cluster, "/api/v1/nodes", &[], &cluster.root).await,
        }
    })
    .await;
    let (grown, open) = (cluster.memory() - before, open.load(std::sync::atomic::Ordering::Relaxed));
    println!("{open} of the 8,000 without a handshake are open; {grown} MB more than the {before} MB before");
    assert!(answers.are_prompt(), "{answers:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "bounds in seconds, for a release build"]
async fn slow_bodies_keep_nobody_waiting() {
    use tokio::io::AsyncWriteExt;
    let _turn = TURN.lock().await;
    let cluster = Arc::new(Cluster::start().await);
    let mut attackers = JoinSet::new();
    for _ in 0..650 {
        let cluster = cluster.clone();
        attackers.spawn(async move {
            let head = format!(
                "POST /api/v1/namespaces/{NAMESPACE}/configmaps HTTP/1.1\r\nHost: localhost\r\n\
                 Authorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n",
                cluster.user
            );
            loop {
                if let Ok(mut stream) = cluster.connect().await
                    && stream.write_all(head.as_bytes()).await.is_ok()
                {
                    while stream.write_all(b" ").await.is_ok() && stream.flush().await.is_ok() {
                        tokio::time::sleep(Duration::from_millis(200)).await;
                    }
                }
            }
        });
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let answers = watch("beside 650 slow bodies", those_who_work(&cluster)).await;
    assert!(answers.are_prompt(), "{answers:?}");
}
