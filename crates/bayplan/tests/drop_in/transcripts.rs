//! The transcripts of kubectl that `bayplan up` is held to, played on upstream's API server, scheduler and controllers:
//! what they say must be what upstream says.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use crate::control_plane::{ControlPlane, eventually};
use crate::transcript;
use crate::upstreams_components::{FLAGS, Flags};

/// Those that tell of what simulated clusters alone have: usage, logs, and a provisioner.
const OURS_ALONE: [&str; 3] = ["autoscale.txt", "logs.txt", "statefulset.txt"];

/// Plays one on a control plane of its own; answers whether it read as written.
async fn reads_as_written(path: &Path) -> Option<bool> {
    let plane = ControlPlane::start_with(&FLAGS).await?;
    let [manager, scheduler] = [("controller-manager", Flags::Manager), ("scheduler", Flags::Scheduler)]
        .map(|(user, flags)| flags.at(&plane, &plane.kubeconfig(user)));
    let _manager = plane.upstream_as("kube-controller-manager", "kube-controller-manager", &manager)?;
    let _scheduler = plane.upstream_as("kube-scheduler", "kube-scheduler", &scheduler)?;
    let admin = plane.kubeconfig("admin").display().to_string();
    let nodes =
        ["nodes", "--kubeconfig", &admin, "--count", "4", "--name-prefix", "node-", "--pod-start-delay", "200ms"];
    let _nodes = plane.bayplan("nodes", &nodes);
    eventually("nodes and accounts are there", async || {
        let ready = "kubectl wait --for=condition=Ready node/node-0001 node/node-0002 node/node-0003 node/node-0004";
        let look = plane.shell(&format!("{ready} && kubectl get serviceaccount default")).output().unwrap();
        look.status.success().then_some(())
    })
    .await;
    Some(
        catch_unwind(AssertUnwindSafe(|| transcript::play(path, |command| plane.shell(command).output().unwrap())))
            .is_ok(),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_transcripts_of_kubectl_read_the_same_on_kube_apiserver() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kubectl");
    let mut transcripts: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    transcripts.retain(|path| !OURS_ALONE.iter().any(|name| path.ends_with(name)));
    transcripts.sort();
    let mut differing = Vec::new();
    for transcript in transcripts {
        match reads_as_written(&transcript).await {
            None => return,
            Some(true) => {}
            Some(false) => differing.push(transcript),
        }
    }
    assert!(differing.is_empty(), "{differing:?}");
}
