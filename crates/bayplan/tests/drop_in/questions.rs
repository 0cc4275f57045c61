//! `bayplan why` asks a real kube-apiserver, as a user who may only read, about a pod that kube-scheduler could not
//! place.

use std::process::Command;

use bayplan_testkit::{binary, node, pod};
use serde_json::{Value, json};

use crate::control_plane::{ControlPlane, eventually};
use crate::kubeconfig::Kubeconfig;

const READER: &str = "
kubectl create serviceaccount reader &&
kubectl apply -f - <<'END' &&
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules: [{apiGroups: ['*'], resources: ['*'], verbs: [get, list, watch]}]
END
kubectl create clusterrolebinding reader --clusterrole=reader --serviceaccount=default:reader";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_api_server_is_asked_by_a_user_who_may_only_read() {
    let Some(plane) = ControlPlane::start().await else { return };
    let config = plane.scheduler_config("theirs", json!({}));
    let theirs = plane.upstream("kube-scheduler", &["--secure-port=0", "--config", &config]);
    let made = plane.shell(READER).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let token = String::from_utf8(plane.shell("kubectl create token reader").output().unwrap().stdout).unwrap();
    for name in ["n1", "n2"] {
        plane.create(node(name).json()).await;
    }
    plane.create(pod("large").image("none").request("cpu", "1000").json()).await;
    if theirs.is_some() {
        eventually("kube-scheduler says that it does not fit", async || {
            let events = plane.list("Event", "default").await;
            events.into_iter().find(|event| event["reason"] == "FailedScheduling")
        })
        .await;
    }

    let admin: Value =
        serde_json::from_slice(&plane.shell("kubectl config view --raw --minify -o json").output().unwrap().stdout)
            .unwrap();
    let server = admin["clusters"][0]["cluster"]["server"].as_str().unwrap();
    let authority = std::fs::read(plane.folder().join("pki/ca.crt")).unwrap();
    let reader = Kubeconfig::new(server).authority(&authority).token(token.trim()).write(plane.folder());
    let ask = |arguments: &str| -> (i32, Value) {
        let mut command = Command::new(binary(env!("CARGO_BIN_EXE_bayplan")));
        command.args(arguments.split_whitespace()).arg("--kubeconfig").arg(&reader);
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let answer = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"));
        assert_eq!(errors, "", "everything may be read, so there is nothing to say");
        (output.status.code().unwrap(), answer)
    };
    let (code, answer) = ask("why pod/large -o json");
    assert_eq!((code, &answer["verdict"]), (11, &json!("Never")), "{answer:#}");
    assert_eq!(answer["source"].get("missing"), None, "{answer:#}");
    if theirs.is_some() {
        assert_eq!(answer["attempts"]["from"], "events", "{answer:#}");
        assert_eq!(answer["lastAttempt"]["message"], answer["message"], "kube-scheduler says the same");
    }
    assert_eq!(ask("whatif --cordon n1 --ties name -o json").0, 0);
}
