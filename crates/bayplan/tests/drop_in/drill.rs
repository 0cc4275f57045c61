//! The drill: upstream leads, Bayplan stands by on the same Lease, takes over and gives back, while work keeps coming.
//!
//! `docs/guide/cluster.md` walks through the same on a cluster of kubeadm's. Leaders end in order, as a kubelet ends
//! them, and also without a word. What both leave behind must be the same.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bayplan_testkit::free_ports;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::assets::Process;
use crate::control_plane::{ControlPlane, eventually};
use crate::controllers::remains;
use crate::normal::{Names, differences, event, normal, writers};
use crate::takeover::election;
use crate::written::instance;

/// As `election` has them: upstream's defaults, five times as fast.
const LEASE: Duration = Duration::from_secs(3);
const RETRY: Duration = Duration::from_millis(500);
/// A leader that says nothing is believed for a lease from when its last renewal was seen, which is at most a retry
/// later than it was; and a lease that has run out is seen at the next retry. client-go lets a retry take 1.2 times
/// as long.
const SILENT_GAP: Duration = LEASE.saturating_add(RETRY.saturating_mul(2)).saturating_add(Duration::from_millis(200));
/// What a busy machine may add to anything.
const SLACK: Duration = Duration::from_secs(1);
/// The time between two pieces of work.
const WORK_EVERY: Duration = Duration::from_millis(150);
const NAMESPACE: &str = "drill";

/// A piece of work: when it was asked for, and when it was seen to be done.
struct Piece {
    name: String,
    asked: Instant,
    done: Option<Instant>,
}

/// What is asked for again and again, and how to see that it is done.
#[derive(Clone, Copy)]
enum Work {
    /// A pod is bound.
    Pods,
    /// A Deployment has its pod.
    Deployments,
}

impl Work {
    fn object(self, name: &str) -> Value {
        let spec = json!({"containers": [{"name": "c", "image": "i"}]});
        let metadata = json!({"name": name, "namespace": NAMESPACE});
        let labels = json!({"app": name});
        match self {
            Work::Pods => json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}),
            Work::Deployments => {
                let template = json!({"metadata": {"labels": labels}, "spec": spec});
                let spec = json!({"selector": {"matchLabels": labels}, "template": template});
                json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
            }
        }
    }

    /// The names of what is done among these pods.
    fn done(self, pods: &[Value]) -> Vec<&str> {
        pods.iter()
            .filter_map(|pod| match self {
                Work::Pods => pod["spec"]["nodeName"].as_str().and(pod["metadata"]["name"].as_str()),
                Work::Deployments => pod["metadata"]["labels"]["app"].as_str(),
            })
            .collect()
    }
}

/// Work that keeps coming until it is dropped.
struct Stream {
    pieces: Arc<Mutex<Vec<Piece>>>,
    running: JoinHandle<()>,
}

impl Stream {
    fn start(plane: &Arc<ControlPlane>, work: Work) -> Stream {
        let pieces: Arc<Mutex<Vec<Piece>>> = Arc::default();
        let (plane, shared) = (Arc::clone(plane), Arc::clone(&pieces));
        let running = tokio::spawn(async move {
            for number in 0.. {
                let name = format!("piece-{number}");
                shared.lock().unwrap().push(Piece { name: name.clone(), asked: Instant::now(), done: None });
                plane.create(work.object(&name)).await;
                let pods = plane.list("Pod", NAMESPACE).await;
                let now = Instant::now();
                for name in work.done(&pods) {
                    let mut pieces = shared.lock().unwrap();
                    if let Some(piece) = pieces.iter_mut().find(|piece| piece.name == name) {
                        piece.done.get_or_insert(now);
                    }
                }
                tokio::time::sleep(WORK_EVERY).await;
            }
        });
        Stream { pieces, running }
    }

    /// The longest that a piece waited which was asked for since then; waits until one that is asked for now is done.
    async fn longest_wait(&self, since: Instant) -> Duration {
        let now = Instant::now();
        eventually("new work is done", async || {
            let pieces = self.pieces.lock().unwrap();
            pieces.iter().any(|piece| piece.asked > now && piece.done.is_some()).then_some(())
        })
        .await;
        eventually("all work so far is done", async || {
            let pieces = self.pieces.lock().unwrap();
            pieces.iter().filter(|piece| piece.asked < now).all(|piece| piece.done.is_some()).then_some(())
        })
        .await;
        let pieces = self.pieces.lock().unwrap();
        let recent = pieces.iter().filter(|piece| piece.asked > since);
        recent.filter_map(|piece| Some(piece.done? - piece.asked)).max().unwrap_or_default()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.running.abort();
    }
}

/// The two that take turns, and the Lease they share.
struct Drill {
    plane: Arc<ControlPlane>,
    work: Stream,
    /// Upstream's binary, our verb, and the arguments that both take.
    upstream: &'static str,
    verb: &'static str,
    arguments: Vec<String>,
    /// Whether a leader that ends in order gives the lease back: schedulers do, controller managers do not, as
    /// upstream's.
    gives_back: bool,
    starts: usize,
}

impl Drill {
    /// Starts upstream's; returns when it waits for the lease, or has it.
    async fn start_upstream(&mut self) -> Option<Process> {
        self.starts += 1;
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).chain(["--secure-port=0"]).collect();
        let process = self.plane.upstream(self.upstream, &arguments)?;
        eventually(&format!("{} waits for the lease", self.upstream), async || {
            // Its log goes on from the last time.
            let waits = process.log().matches("ttempting to acquire leader lease").count();
            (waits >= self.starts).then_some(())
        })
        .await;
        Some(process)
    }

    /// Starts ours; returns when it has read the cluster's state and waits for the lease, or has it.
    async fn start_ours(&self) -> Process {
        let [port] = free_ports();
        let port_argument = format!("--secure-port={port}");
        let more = [port_argument.as_str(), "--bind-address=127.0.0.1"];
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).chain(more).collect();
        let process = self.plane.bayplan("ours", &[&[self.verb], &arguments[..]].concat());
        let client = self.plane.unverified_client(port).await;
        eventually("ours is ready", async || client.get("/readyz", "*/*").await.ok()).await;
        process
    }

    async fn holder(&self) -> String {
        let lease = self.plane.find("Lease", "kube-system", self.upstream).await.unwrap_or_default();
        lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }

    /// Waits until ours leads, or upstream's.
    async fn led_by_us(&self, ours: bool) {
        eventually("the lease changes hands", async || {
            let holder = self.holder().await;
            (!holder.is_empty() && holder.starts_with("ours_") == ours).then_some(())
        })
        .await;
    }

    /// Ends the leader, in order or without a word; answers how long work waited.
    async fn end(&self, leader: Process, in_order: bool, ours_is_next: bool) -> Duration {
        let before = Instant::now();
        // Blocking, while the work goes on in its own task.
        tokio::task::block_in_place(|| match in_order {
            true => drop(leader.stop()),
            false => drop(leader),
        });
        self.led_by_us(ours_is_next).await;
        let gap = self.work.longest_wait(before.checked_sub(RETRY).unwrap_or(before)).await;
        let how = if in_order { "in order" } else { "without a word" };
        let (from, to) = if ours_is_next { (self.upstream, "bayplan") } else { ("bayplan", self.upstream) };
        // Not by a macro: a figure is worth seeing when the test passes, too.
        let _ = writeln!(std::io::stderr(), "{from} ends {how}, {to} takes over: {gap:?} of a lease of {LEASE:?}");
        gap
    }

    /// Upstream leads, ours takes over, upstream's is back; in order and without a word.
    async fn run(mut self, mut leads: impl AsyncFnMut(&ControlPlane, &'static str)) {
        let Some(upstream) = self.start_upstream().await else { return };
        self.led_by_us(false).await;
        leads(&self.plane, "theirs").await;
        let ours = self.start_ours().await;
        let longest = if self.gives_back { LEASE } else { SILENT_GAP + SLACK };
        let gap = self.end(upstream, true, true).await;
        assert!(gap < longest, "{gap:?}");
        leads(&self.plane, "ours").await;
        let upstream = self.start_upstream().await.unwrap();
        let gap = self.end(ours, true, false).await;
        assert!(gap < longest, "{gap:?}");
        let ours = self.start_ours().await;
        let gap = self.end(upstream, false, true).await;
        assert!(gap < SILENT_GAP + SLACK, "{gap:?}");
        let _upstream = self.start_upstream().await.unwrap();
        let gap = self.end(ours, false, false).await;
        assert!(gap < SILENT_GAP + SLACK, "{gap:?}");
        let lease = self.plane.find("Lease", "kube-system", self.upstream).await.unwrap();
        // Giving a lease back counts as well where the next one takes it.
        assert!(lease["spec"]["leaseTransitions"].as_u64().unwrap() >= 4, "{lease}");
    }
}

async fn start(
    plane: ControlPlane,
    work: Work,
    upstream: &'static str,
    verb: &'static str,
    arguments: Vec<String>,
) -> Drill {
    for name in [NAMESPACE, "theirs", "ours"] {
        plane.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).await;
    }
    let plane = Arc::new(plane);
    let gives_back = matches!(work, Work::Pods);
    let work = Stream::start(&plane, work);
    Drill { plane, work, upstream, verb, arguments, gives_back, starts: 0 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn the_scheduler_changes_hands_and_back_while_pods_keep_coming() {
    let Some(plane) = ControlPlane::start().await else { return };
    let room = json!({"cpu": "64", "memory": "8Gi", "pods": "5000"});
    plane
        .create(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"},
            "status": {"capacity": room, "allocatable": room},
        }))
        .await;
    let config = plane.scheduler_config("election", election());
    let arguments = vec![format!("--config={config}")];
    let drill = start(plane, Work::Pods, "kube-scheduler", "scheduler", arguments).await;
    let written: Mutex<Vec<Value>> = Mutex::default();
    drill
        .run(async |plane, who| {
            let of_leader = scheduled_and_refused(plane, who).await;
            written.lock().unwrap().push(of_leader);
        })
        .await;
    let written = written.into_inner().unwrap();
    let [theirs, ours] = &written[..] else { return };
    assert_eq!(theirs["fits"]["conditions"][0]["type"], "PodScheduled");
    assert_eq!(theirs["huge"]["events"][0]["reason"], "FailedScheduling");
    assert_eq!(differences(ours, theirs), [""; 0], "what is written about pods does not tell who leads");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn the_controller_manager_changes_hands_and_back_while_deployments_keep_coming() {
    let Some(plane) = ControlPlane::start().await else { return };
    let arguments = vec![
        format!("--kubeconfig={}", plane.kubeconfig("admin").display()),
        "--controllers=deployment-controller,replicaset-controller".into(),
        "--leader-elect=true".into(),
        "--leader-elect-lease-duration=3s".into(),
        "--leader-elect-renew-deadline=2s".into(),
        "--leader-elect-retry-period=500ms".into(),
        "--kube-api-qps=1000".into(),
        "--kube-api-burst=1000".into(),
    ];
    let drill = start(plane, Work::Deployments, "kube-controller-manager", "controller-manager", arguments).await;
    let left: Mutex<Vec<Value>> = Mutex::default();
    drill
        .run(async |plane, who| {
            let of_leader = rolled_out(plane, who).await;
            left.lock().unwrap().push(of_leader);
        })
        .await;
    let left = left.into_inner().unwrap();
    let [theirs, ours] = &left[..] else { return };
    assert_eq!(theirs["Pod"].as_array().unwrap().len(), 3);
    assert_eq!(differences(ours, theirs), [""; 0], "what a rollout leaves does not tell who leads");
}

/// What the leader writes about a pod that fits and one that does not.
async fn scheduled_and_refused(plane: &ControlPlane, namespace: &str) -> Value {
    let mut written = json!({});
    for (name, cpu, reason) in [("fits", "1", "Scheduled"), ("huge", "1000", "FailedScheduling")] {
        let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}});
        let metadata = json!({"name": name, "namespace": namespace});
        let spec = json!({"containers": [container]});
        plane.create(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})).await;
        let (pod, mut told) = eventually(&format!("{namespace}/{name} is {reason}"), async || {
            let events = plane.list("Event", namespace).await;
            let told = events.into_iter().find(|each| each["regarding"]["name"] == name && each["reason"] == reason)?;
            let pod = plane.find("Pod", namespace, name).await?;
            (!pod["status"]["conditions"].is_null()).then_some((pod, told))
        })
        .await;
        let uid = pod["metadata"]["uid"].as_str().unwrap().to_owned();
        let names = Names::from([(namespace.to_owned(), "NAMESPACE".into()), (uid, "UID".into())]);
        told = event(&told, &names);
        instance(&mut told);
        let by_scheduler = |writer: &&Value| writer["manager"] == "kube-scheduler";
        written[name] = json!({
            "conditions": normal(&pod["status"], &names)["conditions"],
            "events": [told],
            "writers": writers(&pod).as_array().unwrap().iter().filter(by_scheduler).collect::<Vec<_>>(),
        });
    }
    // It would be tried again by the next leader, which is nobody's business here.
    plane.remove_pod(namespace, "huge").await;
    written
}

/// What the leader leaves of a Deployment of three that was rolled out and scaled.
async fn rolled_out(plane: &ControlPlane, namespace: &str) -> Value {
    let mut deployment = Work::Deployments.object("web");
    deployment["metadata"]["namespace"] = namespace.into();
    deployment["spec"]["replicas"] = 1.into();
    plane.create(deployment).await;
    let pods = async |count: usize| {
        eventually(&format!("{count} pods"), async || {
            let status = plane.find("Deployment", namespace, "web").await?["status"].clone();
            let seen = plane.list("Pod", namespace).await.len() == count && status["replicas"] == count;
            (seen && status["observedGeneration"].as_u64() >= Some(1)).then_some(())
        })
        .await;
    };
    pods(1).await;
    plane.patch(("Deployment", namespace, "web"), json!({"spec": {"replicas": 3}})).await;
    pods(3).await;
    eventually("all of it is told", async || {
        let events = plane.list("Event", namespace).await;
        let created = events.iter().filter(|event| event["reason"] == "SuccessfulCreate").count();
        let scaled = events.iter().filter(|event| event["reason"] == "ScalingReplicaSet").count();
        (created == 3 && scaled == 2).then_some(())
    })
    .await;
    remains(plane, namespace).await
}
