//! A server that starts before its etcd answers.

use std::process::Stdio;
use std::time::Duration;

use bayplan_testkit::{Etcd, free_ports};

use crate::{Server, administrator, bayplan};

#[tokio::test]
async fn a_server_waits_for_an_etcd_that_comes_later() {
    let Some(mut etcd) = Etcd::start("a_server_waits_for_an_etcd_that_comes_later") else { return };
    etcd.kill();
    let folder = tempfile::tempdir().unwrap();
    let (url, data) = (etcd.url(), folder.path().join("data"));
    let started = std::thread::spawn({
        let data = data.clone();
        move || Server::run("apiserver", &data, &["--etcd-servers", &url])
    });
    std::thread::sleep(Duration::from_secs(2));
    assert!(!started.is_finished());
    etcd.restart();
    let _server = started.join().unwrap();
    administrator(&data).await.get("/readyz", "*/*").await.unwrap();
}

#[test]
fn a_server_that_waits_for_etcd_ends_in_order_and_leaves_nothing_behind() {
    let [port] = free_ports();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    for command in ["apiserver", "up"] {
        let etcd = format!("http://127.0.0.1:{port}");
        let mut server = bayplan(command, &data, &["--etcd-servers", &etcd]).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = std::io::BufReader::new(server.stderr.take().unwrap());
        let mut line = String::new();
        std::io::BufRead::read_line(&mut said, &mut line).unwrap();
        assert!(line.contains("cannot reach etcd") && line.ends_with("; trying for 20 s\n"), "{line}");
        assert!(std::process::Command::new("kill").arg(server.id().to_string()).status().unwrap().success());
        assert_eq!(server.wait().unwrap().code(), Some(0));
        assert_eq!(std::io::read_to_string(said).unwrap(), "");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
