//! Those who work: each asks again and again, and every answer is timed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bayplan_model::api::{Api, DeleteOptions, ListOptions, PatchKind, Request, Resource, Verb};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

use super::cluster::Cluster;
use super::{ANSWER_MAX, PERCENT};

/// The pause between two questions of one asker.
const PAUSE: Duration = Duration::from_millis(50);
/// How long an asker waits before it counts an answer as missing.
const PATIENCE: Duration = Duration::from_secs(10);

/// Watches all of them for a while; a line for each who was not served as promised.
pub(crate) async fn watch(cluster: &Arc<Cluster>, duration: Duration) -> Vec<String> {
    let until = Instant::now() + duration;
    let (probes, schedulers, administrators, leases, bindings) = tokio::join!(
        ask(until, async |_| probe(cluster).await),
        ask(until, async |_| probe_second_scheduler(cluster).await),
        ask(until, async |_| administer(cluster).await),
        ask(until, async |_| renew(cluster).await),
        ask(until, async |count| place(cluster, count).await),
    );
    let all = [
        ("probes", probes),
        ("probes of a scheduler with a bad extender", schedulers),
        ("an administrator", administrators),
        ("leases", leases),
        ("bindings", bindings),
    ];
    all.into_iter().filter_map(|(who, answers)| judge(who, &answers)).collect()
}

/// How long each answer took, or what was wrong with it.
type Answers = Vec<Result<Duration, String>>;

async fn ask(until: Instant, mut question: impl AsyncFnMut(usize) -> Result<(), String>) -> Answers {
    let mut answers = Vec::new();
    while Instant::now() < until {
        let asked = Instant::now();
        let answer = tokio::time::timeout(PATIENCE, question(answers.len())).await;
        let answer = answer.unwrap_or_else(|_| Err(format!("no answer in {PATIENCE:?}")));
        answers.push(answer.map(|()| asked.elapsed()));
        tokio::time::sleep(PAUSE).await;
    }
    answers
}

fn judge(who: &str, answers: &Answers) -> Option<String> {
    let in_time = answers.iter().filter(|answer| answer.as_ref().is_ok_and(|took| *took <= ANSWER_MAX)).count();
    if !answers.is_empty() && in_time * 100 >= answers.len() * PERCENT {
        return None;
    }
    let slowest = answers.iter().flatten().max();
    let failure = answers.iter().find_map(|answer| answer.as_ref().err());
    let of = answers.len();
    Some(format!("{who}: {in_time} of {of} answers in {ANSWER_MAX:?}, the slowest {slowest:?}, failures {failure:?}"))
}

/// A probe has no credentials, and a new connection each time.
async fn probe(cluster: &Cluster) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    let mut stream = cluster.send("GET /readyz HTTP/1.1\r\nConnection: close", "", b"").await.map_err(text)?;
    let mut start = [0; 12];
    stream.read_exact(&mut start).await.map_err(text)?;
    if &start == b"HTTP/1.1 200" { Ok(()) } else { Err(String::from_utf8_lossy(&start).into_owned()) }
}

/// A kubelet asks the scheduler that waits for its extender. Before it is there, nobody asks.
async fn probe_second_scheduler(cluster: &Cluster) -> Result<(), String> {
    match cluster.second_scheduler.get() {
        Some(scheduler) => scheduler.probe().await,
        None => Ok(()),
    }
}

/// A list, a write and a delete.
async fn administer(cluster: &Cluster) -> Result<(), String> {
    let maps = Resource::new("", "v1", "configmaps");
    let object = json!({"metadata": {"name": "administrators"}}).to_string();
    for request in [
        Request::collection(&Resource::new("", "v1", "nodes"), "", Verb::List(ListOptions::default())),
        Request::collection(&maps, "default", Verb::Create(object.into())),
        Request::object(&maps, "default", "administrators", Verb::Delete(DeleteOptions::default())),
    ] {
        cluster.admin.call(request).await.map_err(|status| status.message)?;
    }
    Ok(())
}

/// A leader renews its lease, and makes it first.
async fn renew(cluster: &Cluster) -> Result<(), String> {
    let leases = Resource::new("coordination.k8s.io", "v1", "leases");
    let lease = json!({"metadata": {"name": "leader"}, "spec": {"holderIdentity": "leader"}}).to_string();
    let renew = Verb::Patch(PatchKind::Merge, lease.clone().into());
    let renewed = cluster.admin.call(Request::object(&leases, "kube-system", "leader", renew)).await;
    let held = match renewed {
        Err(status) if status.code == 404 => {
            cluster.admin.call(Request::collection(&leases, "kube-system", Verb::Create(lease.into()))).await
        }
        held => held,
    };
    held.map(drop).map_err(|status| status.message)
}

/// A pod gets a node.
async fn place(cluster: &Cluster, count: usize) -> Result<(), String> {
    let pods = Resource::new("", "v1", "pods");
    let name = format!("p-{count}-{}", std::process::id());
    let pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}}).to_string();
    let create = Request::collection(&pods, "default", Verb::Create(pod.into()));
    let created = cluster.admin.call(create).await;
    if let Err(status) = created
        && status.code != 409
    {
        return Err(status.message);
    }
    loop {
        let read = cluster.admin.call(Request::object(&pods, "default", &name, Verb::Get)).await;
        let pod: Value = serde_json::from_slice(&read.map_err(|status| status.message)?).unwrap();
        if pod["spec"]["nodeName"].is_string() {
            let gone = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
            // It makes room for the next; the node may be faster.
            let _ = cluster.admin.call(Request::object(&pods, "default", &name, Verb::Delete(gone))).await;
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
