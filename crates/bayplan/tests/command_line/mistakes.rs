//! Mistakes: one line that names the cause once and says what to do.

use crate::process::{bayplan, check_failure, read, run};

/// Fails with one line that contains this.
#[track_caller]
fn check_one_line(arguments: &[&str], needle: &str) {
    let (code, _, stderr) = run(arguments);
    assert_eq!((code, stderr.lines().count()), (1, 1), "{arguments:?}: {stderr}");
    assert!(stderr.starts_with("bayplan: ") && stderr.contains(needle), "{arguments:?}: {stderr}");
}

#[test]
fn an_unknown_flag_is_refused() {
    let (code, _, stderr) = run(&["up", "--nodez", "3"]);
    assert_eq!(code, 2);
    assert!(stderr.starts_with("error: unexpected argument '--nodez'"), "{stderr}");
}

#[test]
fn a_component_without_a_kubeconfig_says_where_it_looked_and_what_to_do() {
    let home = tempfile::tempdir().unwrap();
    let expected = format!(
        "bayplan: no API server to talk to: --kubeconfig and KUBECONFIG name no file, {}/.kube/config does not exist, \
         and this process does not run in a pod; name a kubeconfig with --kubeconfig\n",
        home.path().display()
    );
    for component in ["scheduler", "controller-manager"] {
        let output = bayplan(&[component, "--secure-port=0"]).env("HOME", home.path()).output().unwrap();
        assert_eq!(read(output), (1, String::new(), expected.clone()));
        let expected =
            "bayplan: cannot read the kubeconfig /nonexistent/config: No such file or directory (os error 2)";
        check_failure(&[component, "--secure-port=0", "--kubeconfig=/nonexistent/config"], expected);
    }
}

#[test]
fn flags_that_cannot_be_honoured_are_refused_in_one_line() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for (flags, needle) in [
        (&["--feature-gates", "GangScheduling=true"][..], "has only GangScheduling=false, the default of v1.36"),
        (&["--feature-gates=SchedulerQueueingHints=false"], "feature is locked to true"),
        (&["--emulated-version=kube=1.34"], "has only the behaviour of kube=1.36"),
        (&["--tls-sni-cert-key=a,b"], "--tls-sni-cert-key"),
        (&["--allow-metric-labels=a,b=c"], "--allow-metric-labels"),
        (&["--leader-elect-renew-deadline=2s"], "renewDeadline must be greater than retryPeriod*JitterFactor"),
        (&["--bind-address=127.0.0.1", "--secure-port", &port], "in use"),
    ] {
        for command in ["scheduler", "controller-manager"] {
            check_one_line(&[&[command, "--kubeconfig=/nonexistent"], flags].concat(), needle);
        }
    }
    check_one_line(&["scheduler", "--leader_elect_lease_duration=5s"], "leaderElection.leaseDuration");
    check_one_line(&["controller-manager", "--leader-elect-lease-duration=5s"], "must be greater than renewDeadline");
    check_one_line(&["controller-manager", "--controllers=*,-deploymnt"], "\"deploymnt\" is not in the list");
    check_one_line(&["controller-manager", "--root-ca-file=/nonexistent/ca.crt"], "/nonexistent/ca.crt");
    check_one_line(&["scheduler", "--config=/nonexistent/config.yaml"], "/nonexistent/config.yaml");
    for (flags, needle) in [
        (["scheduler", "--secure-port=70000"], "70000"),
        (["scheduler", "--leader-elect=maybe"], "neither true nor false"),
        (["scheduler", "--pod-max-in-unschedulable-pods-duration=soon"], "not a duration such as"),
        (["scheduler", "--leader-elect-resource-lock=endpoints"], "[possible values: leases]"),
        (["scheduler", "--logging-format=xml"], "[possible values: text, json]"),
        (["scheduler", "stray"], "stray"),
        (["controller-manager", "--concurrent-gc-syncs=0"], "1..=1000"),
    ] {
        let (code, _, stderr) = run(&flags);
        assert!(code == 2 && stderr.starts_with("error: ") && stderr.contains(needle), "{flags:?}: {stderr}");
    }
}

#[test]
fn a_trace_that_is_not_there_is_named_once() {
    let expected = "bayplan: cannot read /nonexistent/nodes.csv: No such file or directory (os error 2); --trace takes \
                    two CSV files, the nodes of a trace and its pods";
    check_failure(&["bench", "--trace", "/nonexistent/nodes.csv", "/nonexistent/pods.csv"], expected);
    let nodes = tempfile::NamedTempFile::new().unwrap();
    let path = nodes.path().to_str().unwrap();
    check_failure(&["bench", "--trace", path, path], &format!("bayplan: Trace: {path}: there is no column \"sn\""));
}

#[test]
fn a_configuration_file_may_begin_with_a_separator_but_holds_one_document() {
    let folder = tempfile::tempdir().unwrap();
    let (path, written) = (folder.path().join("config.yaml"), folder.path().join("written.yaml"));
    let (config, write) = (format!("--config={}", path.display()), format!("--write-config-to={}", written.display()));
    let document = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
    for text in [format!("---\n{document}"), format!("# comment\n---\n{document}"), format!("{document}...\n")] {
        std::fs::write(&path, &text).unwrap();
        assert_eq!(run(&["scheduler", &config, &write]), (0, String::new(), String::new()), "{text}");
    }
    std::fs::write(&path, format!("{document}---\n{document}")).unwrap();
    let expected = format!(
        "bayplan: cannot use {}: the file holds more than one YAML document: a configuration is the only \
         document of its file",
        path.display()
    );
    check_failure(&["scheduler", &config, &write], &expected);
}
