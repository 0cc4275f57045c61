//! Claims that wait for their first consumer: what `bayplan scheduler` writes into claims and volumes, beside
//! kube-scheduler. The rest of the binding is kube-controller-manager's.

use serde_json::{Value, json};

use crate::assets::Process;
use crate::control_plane::{ControlPlane, eventually};
use crate::normal::{Names, differences, normal};

/// Who provisions volumes of the class `made`: nobody but the test.
const PROVISIONER: &str = "made.example.com";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volumes_are_chosen_and_asked_for_as_by_kube_scheduler() {
    let Some(plane) = ControlPlane::start().await else { return };
    let kubeconfig = format!("--kubeconfig={}", plane.kubeconfig("admin").display());
    let rest = ["--leader-elect=false", "--secure-port=0", "--controllers=persistentvolume-binder-controller"];
    let manager = plane.upstream("kube-controller-manager", &[&rest[..], &[&kubeconfig]].concat());
    let Some(_manager) = manager else { return };
    prepare(&plane).await;
    let config = plane.scheduler_config("scheduler", json!({}));
    let ours = plane.bayplan("bayplan", &["scheduler", "--secure-port=0", "--config", &config]);
    let ours = played(&plane, "ours", ours).await;
    let theirs = plane.upstream("kube-scheduler", &["--config", &config, "--secure-port=0"]);
    let Some(theirs) = theirs else { return };
    let theirs = played(&plane, "theirs", theirs).await;
    let differences = differences(&ours, &theirs);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

async fn prepare(plane: &ControlPlane) {
    for name in ["a", "b"] {
        let room = json!({"cpu": "4", "memory": "8Gi", "pods": "10"});
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"capacity": room, "allocatable": room},
        });
        plane.create(node).await;
    }
    for (name, provisioner) in [("found", "kubernetes.io/no-provisioner"), ("made", PROVISIONER)] {
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer",
        });
        plane.create(class).await;
    }
}

/// A volume that is found and one that is made; answers claims, volumes and pods as they are left.
async fn played(plane: &ControlPlane, namespace: &str, _scheduler: Process) -> Value {
    plane.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})).await;
    plane.create(volume(namespace, "found", None)).await;
    // Until its controller has seen it, no scheduler takes it; which of the two is started faster is no matter here.
    eventually("the volume is available", async || {
        let volume = plane.find("PersistentVolume", "", &format!("found-{namespace}")).await?;
        (volume["status"]["phase"] == "Available").then_some(())
    })
    .await;
    for class in ["found", "made"] {
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": class, "namespace": namespace},
            "spec": {
                "storageClassName": class, "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        });
        plane.create(claim).await;
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": class, "namespace": namespace},
            "spec": {
                "containers": [{"name": "c", "image": "i"}],
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": class}}],
                // The volume that is found lies there; the one that is made has no place of its own.
                "nodeSelector": if class == "made" { json!({"kubernetes.io/hostname": "b"}) } else { json!({}) },
            },
        });
        plane.create(pod).await;
    }
    let claim = eventually("a node is selected for the claim", async || {
        let claim = plane.find("PersistentVolumeClaim", namespace, "made").await?;
        let selected = claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] == "b";
        let provisioner = claim["metadata"]["annotations"]["volume.kubernetes.io/storage-provisioner"] == PROVISIONER;
        (selected && provisioner).then_some(claim)
    })
    .await;
    plane.create(volume(namespace, "made", Some(&claim))).await;

    let names = Names::from([(namespace.to_owned(), "NAMESPACE".to_owned())]);
    let mut left = json!({});
    for name in ["found", "made"] {
        let pod = eventually(&format!("{namespace}/{name} is bound"), async || {
            let pod = plane.find("Pod", namespace, name).await?;
            pod["spec"]["nodeName"].is_string().then_some(pod)
        })
        .await;
        let claim = plane.find("PersistentVolumeClaim", namespace, name).await.unwrap();
        let mut volume = plane.find("PersistentVolume", "", &format!("{name}-{namespace}")).await.unwrap();
        volume["status"].as_object_mut().unwrap().remove("lastPhaseTransitionTime");
        assert_eq!(claim["status"]["phase"], "Bound", "{namespace}/{name}");
        left[name] = json!([normal(&pod, &names), normal(&claim, &names), normal(&volume, &names)]);
        plane.remove_pod(namespace, name).await;
    }
    left
}

fn volume(namespace: &str, class: &str, claim: Option<&Value>) -> Value {
    let on = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": ["a"]});
    let mut volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("{class}-{namespace}")},
        "spec": {
            "capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "persistentVolumeReclaimPolicy": "Retain",
        },
    });
    match claim {
        None => {
            volume["spec"]["local"] = json!({"path": "/volume"});
            volume["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [on]}]}});
        }
        Some(claim) => {
            volume["spec"]["csi"] = json!({"driver": PROVISIONER, "volumeHandle": namespace});
            let meta = &claim["metadata"];
            volume["spec"]["claimRef"] = json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"],
            });
        }
    }
    volume
}
