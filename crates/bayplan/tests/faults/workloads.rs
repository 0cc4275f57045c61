//! The load on workloads: Deployments that are scaled and rolled out, nodes that are drained, and their arrival.

use std::time::{Duration, Instant};

use bayplan_testkit::Rng;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::cluster::{Cluster, PATIENCE};
use crate::requests::ApiClient;

/// How many Deployments there are.
const DEPLOYMENTS: usize = 4;
/// The pause between two changes of Deployments.
const PAUSE: Duration = Duration::from_millis(900);
/// From the end of a fault to the arrival of every Deployment. A leader that died unseen is replaced within its lease,
/// clients that wait for a silent connection notice within the 45 s of their keep-alives, and then pods start.
const ARRIVAL_MAX: Duration = Duration::from_secs(90);

const COLLECTION: &str = "/apis/apps/v1/namespaces/faults/deployments";
const PODS: &str = "/api/v1/namespaces/faults/pods";

/// Creates the Deployments and waits for their pods.
pub(crate) async fn create(cluster: &mut Cluster) {
    for i in 0..DEPLOYMENTS {
        let labels = json!({"app": format!("app-{i}")});
        let resources = json!({"requests": {"cpu": "50m", "memory": "32Mi"}});
        let container = json!({"name": "app", "image": "registry.example/app:1", "resources": resources});
        let pod = json!({"containers": [container], "terminationGracePeriodSeconds": 1});
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": format!("app-{i}"), "namespace": "faults"},
            "spec": {
                "replicas": 3,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        });
        let created = cluster.clients[i % 2].post(COLLECTION, &deployment).await;
        assert!(created.done().is_some(), "app-{i} could not be created");
    }
    arrived(cluster, PATIENCE * 2).await;
}

/// Changes of Deployments and nodes, under way.
pub(crate) struct Rollouts {
    task: JoinHandle<usize>,
    stop: watch::Sender<bool>,
}

impl Rollouts {
    /// Starts to scale, roll out and drain.
    pub(crate) fn start(clients: &[ApiClient], seed: u64) -> Rollouts {
        let (stop, stopping) = watch::channel(false);
        Rollouts { task: tokio::spawn(run(clients.to_vec(), Rng::new(seed), stopping)), stop }
    }

    /// Ends it, and answers how many changes were acknowledged.
    pub(crate) async fn finish(self) -> usize {
        self.stop.send_replace(true);
        self.task.await.unwrap()
    }
}

async fn run(clients: Vec<ApiClient>, mut rng: Rng, stopping: watch::Receiver<bool>) -> usize {
    let mut changes = 0;
    for turn in 0.. {
        if *stopping.borrow() {
            break;
        }
        let client = rng.pick(&clients).clone();
        let name = format!("{COLLECTION}/app-{}", rng.below(DEPLOYMENTS));
        let change = match rng.below(3) {
            0 => json!({"spec": {"replicas": rng.below(5)}}),
            _ => json!({"spec": {"template": {"metadata": {"annotations": {"turn": rng.next_u64().to_string()}}}}}),
        };
        changes += usize::from(client.patch(&name, &change).await.done().is_some());
        if turn % 4 == 1 {
            drain(&client, &mut rng).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
    changes
}

/// Closes a node, evicts what runs on it, and opens it again; gives up at the first failure.
async fn drain(client: &ApiClient, rng: &mut Rng) -> Option<()> {
    let nodes = client.get("/api/v1/nodes").await.done()?;
    let nodes = nodes["items"].as_array()?;
    let node = rng.pick(nodes)["metadata"]["name"].as_str()?.to_owned();
    cordon(client, &node, true).await?;
    let pods = client.get(&format!("{PODS}?fieldSelector=spec.nodeName%3D{node}")).await.done()?;
    for pod in pods["items"].as_array()? {
        let name = pod["metadata"]["name"].as_str()?;
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "faults"},
        });
        client.post(&format!("{PODS}/{name}/eviction"), &eviction).await.done()?;
    }
    cordon(client, &node, false).await
}

async fn cordon(client: &ApiClient, node: &str, is_closed: bool) -> Option<()> {
    let change = json!({"spec": {"unschedulable": if is_closed { json!(true) } else { Value::Null }}});
    client.patch(&format!("/api/v1/nodes/{node}"), &change).await.done().map(drop)
}

/// Opens every node: a drain may have been cut short.
pub(crate) async fn uncordon(cluster: &mut Cluster) {
    cluster
        .until("every node is open", PATIENCE, async |cluster| {
            let client = &cluster.clients[0];
            let nodes = client.get("/api/v1/nodes").await.done()?;
            for node in nodes["items"].as_array()? {
                if node["spec"]["unschedulable"] == true {
                    cordon(client, node["metadata"]["name"].as_str()?, false).await?;
                }
            }
            Some(())
        })
        .await;
}

/// Waits until every Deployment is what it should be, and answers how long that took.
pub(crate) async fn every_deployment_arrives(cluster: &mut Cluster) -> Duration {
    arrived(cluster, ARRIVAL_MAX).await
}

async fn arrived(cluster: &mut Cluster, within: Duration) -> Duration {
    let begun = Instant::now();
    let look = async |cluster: &Cluster| {
        let deployments = cluster.clients[0].get(COLLECTION).await.done()?;
        let deployments = deployments["items"].as_array()?;
        (deployments.len() == DEPLOYMENTS && deployments.iter().all(is_there)).then_some(())
    };
    cluster.until("every Deployment has arrived", within, look).await;
    begun.elapsed()
}

fn is_there(deployment: &Value) -> bool {
    let (spec, status) = (&deployment["spec"], &deployment["status"]);
    let count = |name: &str| status[name].as_u64().unwrap_or(0);
    let replicas = spec["replicas"].as_u64().unwrap_or(1);
    status["observedGeneration"] == deployment["metadata"]["generation"]
        && ["replicas", "updatedReplicas", "availableReplicas"].iter().all(|name| count(name) == replicas)
}
