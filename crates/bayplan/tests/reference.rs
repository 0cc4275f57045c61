//! The reference in `docs/guide/reference` is what the binary says of itself.
//!
//! `cargo xtask reference` writes it; without `BAYPLAN_WRITE_REFERENCE` these tests fail when it is out of date.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The commands that have a page, with the sentence it begins with.
const COMMANDS: [(&str, &str); 20] = [
    ("up", "A whole cluster in one process; [the tour](../up.md) shows it at work."),
    (
        "apiserver",
        "The API server alone, on its durable store; [in place of kube-apiserver](../kube-apiserver.md) has the flags \
         that do nothing here.",
    ),
    (
        "scheduler",
        "The scheduler against any API server; [in an existing cluster](../scheduler.md) says how to run it.",
    ),
    ("controller-manager", "The controllers against any API server."),
    ("nodes", "Simulated nodes in any cluster; [nodes for any cluster](../nodes.md) shows them at work."),
    (
        "backup",
        "A data folder in one file; [backups, and moving to etcd](../backup.md) shows it at work, and the next two.",
    ),
    ("restore", "A backup as a data folder again."),
    ("migrate", "A cluster's objects from a data folder into etcd, and back."),
    ("why", "Why a pod is pending, or where it is; [my pod is pending](../why.md) begins with a real problem."),
    ("whatif", "What would happen if workloads, nodes or priorities were others."),
    ("simulate", "What a history comes to under one or several configurations."),
    ("shadow", "How another scheduler's bindings compare with ours."),
    ("snapshot", "What decisions depend on, in one file; [sources](../sources.md) says what else can be read."),
    ("page", "A cluster or a dump of one [in a browser](../page.md)."),
    ("mcp", "The questions for clients of the Model Context Protocol; [my pod is pending](../why.md) names its tools."),
    ("plugin", "The questions as kubectl plugins."),
    ("bench", "What a decision costs; [benchmarks](../../benchmarks.md) says what is measured."),
    ("version", "Which Bayplan this is, and which Kubernetes it mirrors."),
    ("completions", "Completion of commands and flags in a shell; [installing](../install.md) says where to put it."),
    ("man", "Manual pages."),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/reference")
}

/// What the binary prints, laid out for 100 columns.
fn printed(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bayplan"));
    let output = command.args(arguments).env("COLUMNS", "100").stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Holds a page to what it must be, or writes it.
fn hold(name: &str, expected: &str) {
    let path = folder().join(name);
    if std::env::var_os("BAYPLAN_WRITE_REFERENCE").is_some() {
        std::fs::create_dir_all(folder()).unwrap();
        std::fs::write(&path, expected).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == expected, "docs/guide/reference/{name} is out of date: run `cargo xtask reference`");
}

#[test]
fn the_pages_of_commands_are_their_help() {
    let mut index = "# Reference\n\n<!-- Written by `cargo xtask reference`. -->\n\n".to_owned();
    for (command, about) in COMMANDS {
        let help = printed(&["help", command]);
        let page = format!(
            "# bayplan {command}\n\n<!-- Written by `cargo xtask reference`. -->\n\n{about}\n\n```text\n{}\n```\n",
            help.trim_end()
        );
        hold(&format!("{command}.md"), &page);
        index.push_str(&format!("- [`bayplan {command}`]({command}.md)\n"));
    }
    index.push_str("- [The scheduler's configuration](scheduler-configuration.md)\n");
    hold("README.md", &index);
    let listed = printed(&["help"]);
    let commands = listed.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = commands.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names: Vec<&str> =
        names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").collect();
    assert_eq!(names, COMMANDS.map(|(name, _)| name), "a command without a page, or a page without a command");
}

#[test]
fn the_page_of_the_configuration_is_what_the_scheduler_writes() {
    let temporary = tempfile::tempdir().unwrap();
    let written = temporary.path().join("config.yaml");
    printed(&["scheduler", "--write-config-to", written.to_str().unwrap()]);
    let page = format!(
        "# The scheduler's configuration\n\n<!-- Written by `cargo xtask reference`. -->\n\n\
         All fields with their defaults, as `bayplan scheduler --write-config-to` writes them. Fields, plugins and \
         arguments are those of\n\
         [kube-scheduler v1.36](https://kubernetes.io/docs/reference/config-api/kube-scheduler-config.v1/);\n\
         [configuration](../configuration.md) has examples.\n\n```yaml\n{}\n```\n",
        std::fs::read_to_string(&written).unwrap().trim_end()
    );
    hold("scheduler-configuration.md", &page);
}
