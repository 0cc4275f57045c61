//! What a user sees of `bayplan` itself: the first screen, the mistakes, and the next run on the same folder.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

fn bayplan() -> Command {
    Command::new(env!("CARGO_BIN_EXE_bayplan"))
}

fn told_in_one_line(arguments: &[&str], needle: &str) {
    let (code, stderr) = fails(arguments);
    assert_eq!((code, stderr.lines().count()), (1, 1), "{arguments:?}: {stderr}");
    assert!(stderr.starts_with("bayplan: ") && stderr.contains(needle), "{arguments:?}: {stderr}");
}

fn fails(arguments: &[&str]) -> (i32, String) {
    let output = bayplan().args(arguments).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// Starts `up` on a folder and reads its first screen.
fn up(folder: &Path, more: &[&str]) -> (Child, String) {
    let mut process = bayplan()
        .args(["up", "--port", "0", "--nodes", "3", "--data-dir"])
        .arg(folder)
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut screen = String::new();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
    for line in lines.by_ref() {
        screen.push_str(&line);
        screen.push('\n');
        if line.contains("Ctrl-C") {
            break;
        }
    }
    std::thread::spawn(move || lines.for_each(drop));
    (process, screen)
}

fn interrupt(mut process: Child) -> (bool, String) {
    let id = process.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let mut stderr = String::new();
    process.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    (process.wait().unwrap().success(), stderr)
}

#[test]
fn the_first_screen_says_where_everything_is_and_ctrl_c_ends_cleanly() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let (process, screen) = up(&data, &[]);
    let kubeconfig = data.join("kubeconfig");
    for needle in [&*kubeconfig.to_string_lossy(), "https://127.0.0.1:", "node-0001", "kubectl create deployment"] {
        assert!(screen.contains(needle), "{needle} is missing in\n{screen}");
    }
    let (success, stderr) = interrupt(process);
    assert!(success && stderr.is_empty(), "{stderr}");

    use std::os::unix::fs::PermissionsExt;
    let mut folders = vec![data];
    while let Some(folder) = folders.pop() {
        assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o077, 0, "{}", folder.display());
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o077, 0, "{}", entry.path().display());
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            }
        }
    }
}

#[test]
fn two_clusters_cannot_share_a_folder_or_a_port() {
    let folder = tempfile::tempdir().unwrap();
    let (process, screen) = up(folder.path(), &[]);
    let (code, stderr) = fails(&["up", "--port", "0", "--data-dir", folder.path().to_str().unwrap()]);
    assert_eq!((code, stderr.lines().count()), (1, 1), "{stderr}");
    assert!(stderr.contains("in use by another process"), "{stderr}");

    let port = screen.split("https://127.0.0.1:").nth(1).unwrap().split_whitespace().next().unwrap();
    let (code, stderr) = fails(&["up", "--in-memory", "--port", port]);
    assert_eq!((code, stderr.lines().count()), (1, 1), "{stderr}");
    assert!(stderr.contains(port) && stderr.contains("in use") && stderr.contains("--port"), "{stderr}");
    interrupt(process);
}

#[test]
fn mistakes_are_told_in_one_line() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let (code, stderr) = fails(&["up", "--port", "0", "--data-dir", path]);
    assert_eq!((code, stderr.lines().count()), (1, 1), "{stderr}");
    assert!(stderr.starts_with("bayplan: cannot use the data folder") && stderr.contains(path), "{stderr}");

    let (code, stderr) = fails(&["up", "--nodez", "3"]);
    assert_eq!(code, 2);
    assert!(stderr.starts_with("error: unexpected argument '--nodez'"), "{stderr}");

    for command in ["scheduler", "controller-manager"] {
        let (code, stderr) = fails(&[command, "--kubeconfig", "/nonexistent/kubeconfig"]);
        assert_eq!((code, stderr.lines().count()), (1, 1), "{stderr}");
        assert!(stderr.contains("/nonexistent/kubeconfig"), "{stderr}");
    }
}

#[test]
fn flags_that_cannot_be_honoured_are_refused_in_one_line() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for (flags, needle) in [
        (&["--feature-gates", "GangScheduling=true"][..], "only GangScheduling=false, v1.36's default, is there"),
        (&["--feature-gates=SchedulerQueueingHints=false"], "feature is locked to true"),
        (&["--emulated-version=kube=1.34"], "only the behaviour of kube=1.36 is there"),
        (&["--tls-sni-cert-key=a,b"], "--tls-sni-cert-key"),
        (&["--allow-metric-labels=a,b=c"], "--allow-metric-labels"),
        (&["--leader-elect-renew-deadline=2s"], "renewDeadline must be greater than retryPeriod*JitterFactor"),
        (&["--bind-address=127.0.0.1", "--secure-port", &port], "in use"),
    ] {
        for command in ["scheduler", "controller-manager"] {
            told_in_one_line(&[&[command, "--kubeconfig=/nonexistent"], flags].concat(), needle);
        }
    }
    told_in_one_line(&["scheduler", "--leader_elect_lease_duration=5s"], "leaderElection.leaseDuration");
    told_in_one_line(&["controller-manager", "--leader-elect-lease-duration=5s"], "must be greater than renewDeadline");
    told_in_one_line(&["controller-manager", "--controllers=*,-deploymnt"], "\"deploymnt\" is not in the list");
    told_in_one_line(&["controller-manager", "--root-ca-file=/nonexistent/ca.crt"], "/nonexistent/ca.crt");
    told_in_one_line(&["scheduler", "--config=/nonexistent/config.yaml"], "/nonexistent/config.yaml");
    for (flags, needle) in [
        (["scheduler", "--secure-port=70000"], "70000"),
        (["scheduler", "--leader-elect=maybe"], "neither true nor false"),
        (["scheduler", "--pod-max-in-unschedulable-pods-duration=soon"], "not a duration such as"),
        (["scheduler", "--leader-elect-resource-lock=endpoints"], "[possible values: leases]"),
        (["scheduler", "--logging-format=xml"], "[possible values: text, json]"),
        (["scheduler", "stray"], "stray"),
        (["controller-manager", "--concurrent-gc-syncs=0"], "1..=1000"),
    ] {
        let (code, stderr) = fails(&flags);
        assert!(code == 2 && stderr.starts_with("error: ") && stderr.contains(needle), "{flags:?}: {stderr}");
    }
}

/// Runs to a good end and answers what is told on standard error.
fn succeeds(arguments: &[&str]) -> String {
    let output = bayplan().args(arguments).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{arguments:?}: {stderr}");
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

#[test]
fn components_print_the_version_they_stand_for() {
    let output = bayplan().args(["scheduler", "--version"]).output().unwrap();
    assert!(String::from_utf8(output.stdout).unwrap().starts_with("Kubernetes v1.36"));
}
