//! `bayplan migrate`: clusters that move between data folders and etcd.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use bayplan_model::api::{Api, Request, Resource, Verb};
use bayplan_store::Entry;
use bayplan_store::backup::Backup;
use bayplan_testkit::Etcd;
use serde_json::{Value, json};

use crate::{PATIENCE, Server, administrator, bayplan};

/// Runs to the end: exit code, standard output, standard error without the progress that a busy machine has time for.
fn migrate(arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bayplan"));
    let ran = command.arg("migrate").args(arguments).env_remove("RUST_LOG").output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let is_progress = |line: &&str| line.ends_with(" objects") || line.starts_with("etcd is raised to revision ");
    let said: String =
        text(ran.stderr).lines().filter(|line| !is_progress(line)).map(|line| format!("{line}\n")).collect();
    (ran.status.code().unwrap(), text(ran.stdout), said)
}

#[track_caller]
fn migrated(arguments: &[&str]) -> String {
    let (code, stdout, stderr) = migrate(arguments);
    assert_eq!((code, &*stderr), (0, ""), "{stdout}");
    stdout
}

#[track_caller]
fn refused(arguments: &[&str], expected: &str) {
    let (code, stdout, stderr) = migrate(arguments);
    // A value that cannot be read is logged, too.
    let said: Vec<&str> =
        stderr.lines().filter(|line| !line.contains(" ERROR bayplan_etcd::mirror: a value ")).collect();
    assert_eq!((code, &*stdout, said.len()), (1, "", 1), "{stderr}");
    assert!(said[0].starts_with("bayplan: ") && said[0].contains(expected), "{stderr}");
}

/// The size of the object that was written last.
const LAST_BYTES: usize = 800_000;

/// A data folder with a cluster that has stopped, and an event, a secret and a changed object in it.
async fn cluster(folder: &Path) {
    let server = Server::run("apiserver", folder, &[]);
    let client = administrator(folder).await;
    let create = async |plural: &'static str, object: Value| {
        let resource = Resource::new("", "v1", plural);
        let request = Request::collection(&resource, "default", Verb::Create(object.to_string().into()));
        client.call(request).await.unwrap();
    };
    create("secrets", json!({"metadata": {"name": "s"}, "stringData": {"password": "swordfish"}})).await;
    create("events", json!({"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}})).await;
    create("configmaps", json!({"metadata": {"name": "last"}, "data": {"a": "b".repeat(LAST_BYTES)}})).await;
    server.stop();
}

/// What a stopped folder holds, in the order of the last writes.
fn objects(folder: &Path) -> Vec<Entry> {
    let mut entries = Backup::of_folder(folder.join("store")).unwrap().entries;
    entries.sort_by_key(|entry| entry.mod_revision);
    entries
}

/// Holds what moved to what there was: keys and values, in the order of their last writes.
#[track_caller]
fn check_equal(before: &[Entry], after: &[Entry]) {
    let parse = |entry: &Entry| serde_json::from_slice::<Value>(&entry.value).unwrap();
    for (one, other) in before.iter().zip(after) {
        assert_eq!((&one.key, parse(one)), (&other.key, parse(other)));
        assert_ne!(one.mod_revision, 0);
    }
    assert_eq!(before.len(), after.len());
    assert!(after.windows(2).all(|two| two[0].mod_revision < two[1].mod_revision), "each has a revision of its own");
}

#[tokio::test]
async fn a_cluster_moves_into_etcd_and_back_with_equal_objects_in_equal_order() {
    let Some(etcd) = Etcd::start("a_cluster_moves_into_etcd_and_back_with_equal_objects_in_equal_order") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (data, back, url) = (folder.path().join("data"), folder.path().join("back"), etcd.url());
    let (from, to) = (data.to_str().unwrap(), back.to_str().unwrap());
    cluster(&data).await;
    let before = objects(&data);
    let said = migrated(&["--from", from, "--to-etcd", &url]);
    assert!(said.ends_with(&format!("Start it with: bayplan up --data-dir {from} --etcd-servers {url}\n")), "{said}");
    refused(&["--from", from, "--to-etcd", &url], "the prefix /registry in etcd is in use (");
    migrated(&["--from-etcd", &url, "--to", to]);
    let after = objects(&back);
    check_equal(&before, &after);
    let newest = before.iter().map(|entry| entry.mod_revision).max().unwrap();
    assert!(after.iter().all(|entry| entry.mod_revision > newest), "no resourceVersion means two things");
    refused(&["--from-etcd", &url, "--to", to], "is not empty: choose a new one with --to");

    // The event has a lease, nothing else has.
    let etcdctl = Etcd::binary("").unwrap().with_file_name("etcdctl");
    let get = |key: &str| {
        let ran = Command::new(&etcdctl).args(["--endpoints", &url, "get", key, "-w", "json"]).output().unwrap();
        serde_json::from_slice::<Value>(&ran.stdout).unwrap()["kvs"][0].clone()
    };
    assert!(get("/registry/events/default/e")["lease"].as_i64().unwrap() != 0);
    let config = get("/registry/configmaps/default/last");
    assert!(config["lease"].is_null() && config["value"].is_string(), "{config}");

    // The same cluster goes on in etcd, with the same keys; a server that works there is noticed.
    let server = Server::run("apiserver", &data, &["--etcd-servers", &url]);
    let client = administrator(&data).await;
    let secret = client.get("/api/v1/namespaces/default/secrets/s", "application/json").await.unwrap();
    let secret: Value = serde_json::from_slice(&secret).unwrap();
    assert_eq!(secret["data"]["password"], "c3dvcmRmaXNo");
    let third = folder.path().join("third");
    let into_third = ["--from-etcd", &url, "--to", third.to_str().unwrap()];
    refused(&into_third, "API servers work on the prefix /registry in etcd, or did until seconds ago (127.0.0.1)");
    server.stop();
    let begun = Instant::now();
    while migrate(&into_third).0 != 0 {
        assert!(begun.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Server::run("apiserver", &third, &[]).stop();
}

#[tokio::test]
async fn encrypted_values_are_moved_with_their_key_and_refused_without() {
    let Some(etcd) = Etcd::start("encrypted_values_are_moved_with_their_key_and_refused_without") else { return };
    let folder = tempfile::tempdir().unwrap();
    let (data, back, url) = (folder.path().join("data"), folder.path().join("back"), etcd.url());
    cluster(&data).await;
    let keys = folder.path().join("encryption.yaml");
    let configuration = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- \
                         resources: [secrets]\n  providers:\n  - aesgcm: {keys: [{name: k, secret: \
                         MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI=}]}\n";
    std::fs::write(&keys, configuration).unwrap();
    let encryption = ["--encryption-provider-config", keys.to_str().unwrap(), "--etcd-prefix", "/elsewhere"];
    migrated(&[&["--from", data.to_str().unwrap(), "--to-etcd", &url], &encryption[..]].concat());
    let into = ["--from-etcd", &url, "--to", back.to_str().unwrap()];
    refused(&into, "there is nothing behind the prefix /registry in etcd: choose another with --etcd-prefix");
    let missing = "nothing was moved: the value of /registry/secrets/default/s at revision ";
    refused(&[&into[..], &["--etcd-prefix", "/elsewhere"]].concat(), missing);
    assert!(!back.exists());
    migrated(&[&into[..], &encryption].concat());
    check_equal(&objects(&data), &objects(&back));
}

#[tokio::test]
async fn a_migration_that_stops_in_the_middle_leaves_a_prefix_that_nobody_takes_for_whole() {
    let test = "a_migration_that_stops_in_the_middle_leaves_a_prefix_that_nobody_takes_for_whole";
    // Too small for the last object alone: what was written before it counts only once etcd has committed it.
    let quota = LAST_BYTES / 2;
    let Some(etcd) = Etcd::start_with(test, |_| vec![format!("--quota-backend-bytes={quota}")]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (data, url) = (folder.path().join("data"), etcd.url());
    cluster(&data).await;
    let before = objects(&data);
    let arguments = ["--from", data.to_str().unwrap(), "--to-etcd", &url];
    refused(&arguments, "etcd has the alarm NOSPACE");
    let unfinished = "bayplan: the prefix /registry in etcd is incomplete: a migration of ";
    refused(&arguments, "the prefix /registry in etcd is incomplete: a migration of ");
    let server = folder.path().join("server");
    let ran = bayplan("apiserver", &server, &["--etcd-servers", &url]).output().unwrap();
    let said = String::from_utf8(ran.stderr).unwrap();
    assert!(ran.status.code() == Some(1) && said.starts_with(unfinished) && said.lines().count() == 1, "{said}");
    assert_eq!(objects(&data), before, "the source is as it was");
}
