//! The manifests of `deploy` on a real kube-apiserver: taken as Bayplan's server takes them, and with rights that are
//! enough there too; and kubeadm's patch as kubeadm applies it.

use std::process::Command;

use serde_json::{Value, json};

use crate::assets::Assets;
use crate::control_plane::ControlPlane;
use crate::installed::rights::try_rights;
use crate::installed::server::Server;
use crate::installed::{Target, manifest, objects, root, work};
use crate::normal::{Names, differences, normal};

const MANIFESTS: [&str; 3] = ["second-scheduler", "shadow", "in-place-of-kube-scheduler"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_manifests_are_taken_as_by_bayplan() {
    let Some(plane) = ControlPlane::start().await else { return };
    let server = Server::start();
    let (theirs, ours) = (Target::new(&plane.kubeconfig("admin")).await, Target::new(&server.kubeconfig()).await);
    work::prepare(&ours).await;
    for name in MANIFESTS {
        for object in manifest(name) {
            let (kind, called) = (&object["kind"], &object["metadata"]["name"]);
            let answers = [ours.try_create(&object).await, theirs.try_create(&object).await];
            let [ours, theirs] = answers.map(|answer| match answer {
                Ok(object) => comparable(&object),
                Err(status) => json!({"code": status.code, "reason": status.reason, "message": status.message}),
            });
            let differences = differences(&ours, &theirs);
            assert!(differences.is_empty(), "{name}: {kind} {called}\n{}", differences.join("\n"));
            // Two manifests share names, so that one takes the place of the other.
            let is_there = theirs["reason"] == "AlreadyExists" && name == "in-place-of-kube-scheduler";
            assert!(theirs["code"].is_null() || is_there, "{name}: {kind} {called}: {theirs}");
        }
        let apply = format!("kubectl apply --server-side --dry-run=server --force-conflicts -f {}", path(name));
        let output = plane.shell(&apply).output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

fn path(name: &str) -> String {
    root().join(format!("deploy/manifests/{name}.yaml")).display().to_string()
}

/// Without who wrote which field, which Bayplan's server does not keep.
fn comparable(object: &Value) -> Value {
    let mut object = normal(object, &Names::new());
    object["metadata"].as_object_mut().unwrap().remove("managedFields");
    object
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rights_of_a_second_scheduler_are_enough() {
    let Some(plane) = ControlPlane::start().await else { return };
    let target = Target::new(&plane.kubeconfig("admin")).await;
    try_rights(&target, "second-scheduler", "bayplan", plane.folder()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rights_in_place_of_kube_scheduler_are_enough() {
    let Some(plane) = ControlPlane::start().await else { return };
    let target = Target::new(&plane.kubeconfig("admin")).await;
    try_rights(&target, "in-place-of-kube-scheduler", "default-scheduler", plane.folder()).await;
}

/// Where the folder has kubeadm too: the manifest is still the one that kubeadm writes, and kubeadm patches it as
/// kubectl does in the guide.
#[test]
fn kubeadm_applies_the_patch_as_the_guide_does() {
    let Some(assets) = Assets::find() else { return };
    let Some(kubeadm) = assets.binary("kubeadm") else { return };
    let folder = tempfile::tempdir().unwrap();
    let written = |patches: Value| -> Value {
        let init = json!({
            "apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "InitConfiguration", "patches": patches,
            "localAPIEndpoint": {"advertiseAddress": "192.0.2.1"},
            "nodeRegistration": {"name": "node", "criSocket": "unix:///run/none.sock"},
        });
        let cluster = json!({"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "ClusterConfiguration",
            "kubernetesVersion": "v1.36.4"});
        let config = folder.path().join("config.yaml");
        std::fs::write(&config, format!("{init}\n---\n{cluster}\n")).unwrap();
        let mut command = Command::new(&kubeadm);
        command.args(["init", "phase", "control-plane", "scheduler", "--dry-run", "--config"]).arg(&config);
        let output = command.env("KUBEADM_INIT_DRYRUN_DIR", folder.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        objects(&std::fs::read_to_string(folder.path().join("kube-scheduler.yaml")).unwrap()).remove(0)
    };
    let kept = root().join("crates/bayplan/tests/deploy/kubeadm/kube-scheduler.yaml");
    assert_eq!(written(Value::Null), objects(&std::fs::read_to_string(&kept).unwrap()).remove(0));
    let patches = root().join("deploy/kubeadm");
    let by_kubeadm = written(json!({"directory": patches}));
    let mut kubectl = Command::new(assets.binary("kubectl").unwrap());
    kubectl.args(["patch", "--local", "--type", "json", "-o", "json", "--patch-file"]);
    let output = kubectl.arg(patches.join("kube-scheduler+json.yaml")).arg("-f").arg(&kept).output().unwrap();
    let by_kubectl: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(differences(&by_kubectl, &by_kubeadm), [""; 0]);
    assert_eq!(by_kubeadm["spec"]["containers"][0]["command"][0], "bayplan");
}
