//! `bayplan scheduler` and `bayplan controller-manager`: their first words, and the configuration they write.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::process::{Server, bayplan, run};

/// The first line of a component's log after its time.
fn first_words(arguments: &[&str]) -> String {
    let mut child = bayplan(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let line = BufReader::new(child.stderr.take().unwrap()).lines().next().unwrap().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    line.split_once("  INFO ").unwrap_or_else(|| panic!("{line}")).1.to_owned()
}

#[test]
fn a_component_says_what_it_does_and_where() {
    let server = Server::start(bayplan(&["apiserver", "--port", "0", "--in-memory"]));
    let kubeconfig = format!("--kubeconfig={}", server.shown("kubeconfig"));
    let host = format!("127.0.0.1:{}", server.port());
    assert_eq!(
        first_words(&["scheduler", "--secure-port=0", &kubeconfig]),
        format!(
            "bayplan::scheduler: scheduling the pods of these profiles server={host:?} profiles=\"default-scheduler\" \
             lease=\"kube-system/kube-scheduler\""
        )
    );
    assert_eq!(
        first_words(&[
            "controller-manager",
            "--secure-port=0",
            "--leader-elect=false",
            "--controllers=deployment-controller,replicaset-controller",
            &kubeconfig,
        ]),
        format!(
            "bayplan::controller_manager: running these controllers server={host:?} \
             controllers=\"deployment-controller,replicaset-controller\" lease=\"none\""
        )
    );
}

/// Runs to a good end and returns what is printed on standard error.
fn succeeds(arguments: &[&str]) -> String {
    let (code, _, stderr) = run(arguments);
    assert_eq!(code, 0, "{arguments:?}: {stderr}");
    stderr
}

#[test]
fn the_written_configuration_is_upstreams_to_the_letter() {
    let folder = tempfile::tempdir().unwrap();
    let written = folder.path().join("written.yaml");
    let written_flag = format!("--write-config-to={}", written.display());
    let stderr = succeeds(&["scheduler", "--leader-elect=false", &written_flag]);
    assert_eq!(stderr, "");
    let text = std::fs::read_to_string(&written).unwrap();
    assert_eq!(text.trim_end(), include_str!("default-scheduler-config.yaml").trim_end());

    // What was written is taken again, and flags act on a file as upstream's do.
    let again = folder.path().join("again.yaml");
    let config = format!("--config={}", written.display());
    let again_flag = format!("--write-config-to={}", again.display());
    succeeds(&["scheduler", &config, &again_flag]);
    assert_eq!(std::fs::read_to_string(&again).unwrap(), text);
    let stderr = succeeds(&["scheduler", &config, &again_flag, "--leader-elect", "--kube-api-qps=7"]);
    assert!(stderr.contains("--kube-api-qps is ignored") && stderr.lines().count() == 1, "{stderr}");
    assert_eq!(std::fs::read_to_string(&again).unwrap(), text.replace("leaderElect: false", "leaderElect: true"));
    succeeds(&["scheduler", &again_flag, "--leader-elect=false", "--kube-api-qps=7.5", "--kube-api-burst=9"]);
    let throttled = text.replace("burst: 100", "burst: 9").replace("qps: 50", "qps: 7.5");
    assert_eq!(std::fs::read_to_string(&again).unwrap(), throttled);
}
