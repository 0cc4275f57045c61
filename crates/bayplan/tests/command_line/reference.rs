//! What the binary says about itself: version, help, completions, manual pages, workloads.

use serde_json::Value;

use crate::process::run;

/// Runs to a good end without a word on standard error.
#[track_caller]
fn output(arguments: &[&str]) -> String {
    let (code, stdout, stderr) = run(arguments);
    assert_eq!((code, &*stderr), (0, ""), "{arguments:?}");
    stdout
}

#[test]
fn the_version_names_bayplan_and_the_kubernetes_it_mirrors() {
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(output(&["--version"]), format!("bayplan {version}\n"));
    let text = output(&["version"]);
    let labels: Vec<&str> = text.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(labels, ["Bayplan", "Kubernetes", "Commit", "Rust", "Platform"]);
    assert!(text.starts_with(&format!("Bayplan     {version}\nKubernetes  v1.36.4\n")), "{text}");

    let json: Value = serde_json::from_str(&output(&["version", "-o", "json"])).unwrap();
    assert_eq!((&json["version"], &json["kubernetesVersion"]), (&version.into(), &"v1.36.4".into()));
    assert!(json["rustVersion"].as_str().unwrap().starts_with("1."));
    assert!(json["platform"].as_str().unwrap().contains('/'));
    assert!(json["gitCommit"].is_null() || json["gitCommit"].as_str().unwrap().len() == 40);
}

#[test]
fn components_print_the_version_they_stand_for() {
    for component in ["scheduler", "controller-manager"] {
        let expected = format!("Kubernetes v1.36.4+bayplan-{}\n", env!("CARGO_PKG_VERSION"));
        assert_eq!(output(&[component, "--version"]), expected);
    }
}

#[test]
fn help_is_there_for_every_command_and_groups_its_flags() {
    let overview = output(&["--help"]);
    let parts = ["up", "apiserver", "scheduler", "controller-manager", "bench", "version", "completions", "man"];
    let operations = ["backup", "restore", "migrate"];
    let questions = ["why", "whatif", "simulate", "shadow", "snapshot", "page", "mcp", "plugin"];
    for command in parts.into_iter().chain(questions).chain(operations) {
        assert!(overview.lines().any(|line| line.starts_with(&format!("  {command} "))), "{command}: {overview}");
        assert_eq!(output(&["help", command]), output(&[command, "--help"]));
    }
    for (command, headings) in [
        ("up", &["API server", "Simulated nodes", "Logging"][..]),
        (
            "scheduler",
            &["Connection", "Scheduling", "Leader election", "Secure serving", "Metrics and logs", "Features"],
        ),
        ("controller-manager", &["Connection", "Controllers", "Leader election", "Secure serving"]),
        ("bench", &["Engine mode", "End-to-end mode", "Output"]),
    ] {
        let help = output(&["help", command]);
        for heading in headings {
            assert!(help.contains(&format!("\n{heading}:\n")), "{command} lacks {heading}: {help}");
        }
    }
}

#[test]
fn completions_come_for_each_shell() {
    for (shell, sign) in [
        ("bash", "complete -F _bayplan"),
        ("zsh", "#compdef bayplan"),
        ("fish", "complete -c bayplan"),
        ("powershell", "Register-ArgumentCompleter"),
        ("elvish", "set edit:completion:arg-completer[bayplan]"),
    ] {
        let script = output(&["completions", shell]);
        assert!(script.contains(sign) && script.contains("controller-manager"), "{shell}: {script}");
    }
}

#[test]
fn manual_pages_come_one_at_a_time_or_all_at_once() {
    let page = output(&["man"]);
    assert!(page.contains(".TH bayplan 1") && page.contains("bayplan\\-up(1)"), "{page}");
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("man1");
    assert_eq!(output(&["man", "--output-dir", target.to_str().unwrap()]), "");
    let mut pages: Vec<String> =
        std::fs::read_dir(&target).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    pages.sort();
    let commands = [
        "apiserver",
        "backup",
        "bench",
        "completions",
        "controller-manager",
        "man",
        "mcp",
        "migrate",
        "nodes",
        "page",
        "plugin-install",
        "plugin",
        "restore",
        "scheduler",
        "shadow",
        "simulate",
        "snapshot",
        "up",
        "version",
        "whatif",
        "why",
    ];
    let mut expected: Vec<String> = commands.iter().map(|command| format!("bayplan-{command}.1")).collect();
    expected.push("bayplan.1".into());
    assert_eq!(pages, expected);
    let up = std::fs::read_to_string(target.join("bayplan-up.1")).unwrap();
    assert!(up.contains(".TH bayplan-up 1") && up.contains("\\-\\-nodes"), "{up}");
}

#[test]
fn every_workload_is_listed() {
    let list = output(&["bench", "--list"]);
    for line in ["SchedulingBasic ", "Deployment ", "DeploymentRollout ", "ManyDeployments "] {
        assert_eq!(list.lines().filter(|listed| listed.starts_with(line)).count(), 1, "{line}: {list}");
    }
    let names = list.lines().map(|line| line.split_whitespace().next().unwrap());
    let (workloads, deployments) = (bayplan_bench::workload::all().len(), bayplan_bench::e2e::Deployments::ALL.len());
    let controllers = bayplan_bench::e2e::ControllerWorkload::ALL.len();
    assert_eq!(names.count(), workloads + deployments + controllers + bayplan_bench::ask::Question::ALL.len());
    assert!(list.contains("until its last pod runs (--mode e2e only)\n"), "{list}");
}
