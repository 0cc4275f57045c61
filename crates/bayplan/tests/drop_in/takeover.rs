//! Leader election between schedulers: a standby takes over, and whoever loses the lease stops.

use serde_json::{Value, json};

use crate::assets::Process;
use crate::control_plane::{ControlPlane, eventually};
use crate::normal::{Names, differences, event, normal};

/// Upstream's defaults, five times as fast.
pub(crate) fn election() -> Value {
    json!({"leaderElection": {
        "leaderElect": true, "leaseDuration": "3s", "renewDeadline": "2s", "retryPeriod": "500ms",
    }})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_takes_over_and_the_loser_stops() {
    let Some(plane) = ControlPlane::start().await else { return };
    let config = plane.scheduler_config("election", election());
    let start = |name: &str| plane.bayplan(name, &["scheduler", "--secure-port=0", "--config", &config]);
    prepare(&plane).await;

    let mut first = start("first");
    assert_eq!(binder(&plane, "one").await, "first");
    let second = start("second");
    eventually("the standby waits", async || second.log().is_empty().then_some(())).await;
    assert_eq!(binder(&plane, "two").await, "first");

    // A leader that stalls for longer than its lease has lost it, whatever it believes when it wakes up.
    first.signal("STOP");
    assert_eq!(binder(&plane, "three").await, "second");
    first.signal("CONT");
    let ended = eventually("the loser ends", async || first.ended()).await;
    assert_eq!(ended.code(), Some(1));
    assert!(first.log().contains("leader election lost"), "{}", first.log());
    assert_eq!(binder(&plane, "four").await, "second");

    // One that stops in order gives the lease back, so that the next need not wait for it to run out.
    let mut third = start("third");
    assert!(second.stop().success());
    assert_eq!(binder(&plane, "five").await, "third");
    let lease = lease(&plane).await;
    assert!(lease["spec"]["holderIdentity"].as_str().unwrap().starts_with("third_"), "{lease}");
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 3);

    // Somebody else's word in the lease is enough.
    let usurped = json!({"spec": {"holderIdentity": "stranger", "leaseDurationSeconds": 3}});
    plane.patch(("Lease", "kube-system", "kube-scheduler"), usurped).await;
    assert_eq!(eventually("the loser ends", async || third.ended()).await.code(), Some(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bayplan_and_kube_scheduler_stand_by_for_each_other() {
    let Some(plane) = ControlPlane::start().await else { return };
    let config = plane.scheduler_config("election", election());
    prepare(&plane).await;
    let kube_scheduler = || plane.upstream("kube-scheduler", &["--secure-port=0", "--config", &config]);
    let Some(upstream) = kube_scheduler() else { return };
    assert_ne!(binder(&plane, "one").await, "ours");
    let their_lease = lease(&plane).await;
    let ours = plane.bayplan("ours", &["scheduler", "--secure-port=0", "--config", &config]);
    assert_ne!(binder(&plane, "two").await, "ours");
    kill(upstream);
    assert_eq!(binder(&plane, "three").await, "ours");
    let our_lease = lease(&plane).await;
    let _upstream = kube_scheduler();
    kill(ours);
    assert_ne!(binder(&plane, "four").await, "ours");
    assert_eq!(lease(&plane).await["spec"]["leaseTransitions"], 2);

    // The lease and the news of it read the same, whoever leads.
    let names = |lease: &Value| Names::from([(lease["spec"]["holderIdentity"].as_str().unwrap().into(), "ID".into())]);
    let mut compared = [&our_lease, &their_lease].map(|lease| normal(lease, &names(lease)));
    compared.iter_mut().for_each(|lease| lease["spec"]["leaseTransitions"] = Value::Null);
    assert_eq!(differences(&compared[0], &compared[1]), [""; 0]);
    let news = plane.list("Event", "kube-system").await;
    let [ours, theirs] = [&our_lease, &their_lease].map(|lease| {
        let identity = lease["spec"]["holderIdentity"].as_str().unwrap();
        let told = news.iter().find(|event| event["note"].as_str().is_some_and(|note| note.starts_with(identity)));
        event(told.unwrap_or_else(|| panic!("{identity} says that it leads: {news:?}")), &names(lease))
    });
    assert_eq!(differences(&ours, &theirs), [""; 0]);
}

async fn lease(plane: &ControlPlane) -> Value {
    plane.find("Lease", "kube-system", "kube-scheduler").await.unwrap()
}

fn kill(process: Process) {
    drop(process);
}

async fn prepare(plane: &ControlPlane) {
    let room = json!({"cpu": "4", "memory": "8Gi", "pods": "10"});
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"},
        "status": {"capacity": room, "allocatable": room},
    });
    plane.create(node).await;
}

/// Creates a pod and answers on which host the scheduler runs that bound it.
async fn binder(plane: &ControlPlane, name: &str) -> String {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    plane.create(pod).await;
    let event = eventually(&format!("{name} is bound"), async || {
        let events = plane.list("Event", "default").await;
        events.into_iter().find(|event| event["regarding"]["name"] == name && event["reason"] == "Scheduled")
    })
    .await;
    event["reportingInstance"].as_str().unwrap().trim_start_matches("default-scheduler-").to_owned()
}
