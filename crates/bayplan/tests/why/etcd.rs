//! A real cluster's etcd snapshot: its pending pods are explained in the words that kube-scheduler left in them.

use std::path::Path;

use serde_json::Value;

use crate::BESIDE;

#[test]
fn every_pending_pod_of_a_dead_cluster_is_explained_as_its_own_scheduler_did() {
    let snapshot = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sources/tests/etcd/snapshot.db.gz");
    let folder = tempfile::tempdir().unwrap();
    let ask = |question: &str| -> Value {
        let command = format!("bayplan why {question} --from {} -o json", snapshot.display());
        let output = BESIDE.shell(&command, folder.path());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
    };
    let list = ask("-A");
    assert_eq!(list["source"]["kind"], "etcd");
    let pods: usize =
        list["groups"].as_array().unwrap().iter().map(|group| group["pods"].as_array().unwrap().len()).sum();
    assert_eq!(pods, 15);
    assert_eq!((&list["counts"]["Never"], &list["counts"]["WillPlace"]), (&14.into(), &1.into()));
    let mut compared = 0;
    for group in list["groups"].as_array().unwrap() {
        let explanation = &group["explanation"];
        // The scheduler that ran there left its message in the pod's status.
        let theirs = &explanation["lastAttempt"]["message"];
        if theirs.is_string() {
            assert_eq!(explanation["message"], *theirs);
            compared += group["pods"].as_array().unwrap().len();
        }
    }
    assert_eq!(compared, 14);
    assert_eq!(ask("db-0 -n shop")["node"], "node-037");
}
