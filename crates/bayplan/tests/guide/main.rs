//! The user guide, run: every command in `docs/guide` and in the README, in order, with what it prints.
//!
//! The form is that of a terminal, so that readers need not know of the test:
//!
//! - In a `console` block, `$ ` begins a command and the lines up to the next are its output. `…` stands for any text
//!   within a line; a line of only `…` stands for any number of lines.
//! - A command that serves (`bayplan up`) goes on until `^C`, or until the comment `<!-- guide: stop bayplan up -->`.
//! - A block ```` ```yaml pod.yaml ```` is that file, written where the commands run.
//! - `<!-- guide: cluster -->` starts what the page takes for granted: a cluster with nodes and a kube-scheduler.
//!
//! Each page is a session with a home folder and ports of its own; what the page calls `/home/you`, `/etc/kubernetes`
//! and port 6443 is replaced by them. Commands that build Bayplan are replaced by the binary that is tested.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may fail by panicking and say how far it came")]

mod cluster;
mod document;
#[path = "../deploy/installed/mod.rs"]
mod installed;
mod kubelet;
#[path = "../transcript/pattern.rs"]
mod pattern;
mod session;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use document::Step;
use session::Session;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The README and every page of the guide.
fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> = std::fs::read_dir(root().join("docs/guide"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .chain([root().join("README.md")])
        .collect();
    pages.sort();
    pages
}

fn play(page: &Path) {
    let name = page.file_name().unwrap().to_string_lossy().into_owned();
    let mut session = Session::new();
    for step in document::steps(&std::fs::read_to_string(page).unwrap()) {
        println!("{name}: {step:?}");
        match step {
            Step::Run(command) => session.run(&name, &command),
            Step::Write { path, text } => session.write(&path, &text),
            Step::Stop { line, command } => session.stop(&format!("{name}:{line}"), &command),
            Step::Cluster => session.start_cluster(),
        }
    }
}

#[test]
#[ignore = "needs kubectl: .ci/run runs it"]
fn every_command_of_the_guide_prints_what_the_guide_says() {
    let found = Command::new("kubectl").args(["version", "--client"]).output();
    assert!(found.is_ok_and(|o| o.status.success()), "kubectl is not installed");
    // `BAYPLAN_PAGE=up.md` runs one page.
    let only = std::env::var("BAYPLAN_PAGE").unwrap_or_default();
    let pages = pages().into_iter().filter(|page| page.ends_with(&only) || only.is_empty());
    let failed: Vec<PathBuf> = pages.filter(|page| std::panic::catch_unwind(|| play(page)).is_err()).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn no_command_of_the_guide_is_left_out() {
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for (line, language) in document::fences(&text) {
            let shells = ["", "bash", "sh", "shell", "zsh"];
            assert!(!shells.contains(&language), "{}:{line}: write commands in a `console` block", page.display());
        }
    }
}

/// Metrics that the page names and that dashboards and alerts would be built on.
#[test]
fn every_metric_of_the_guide_exists() {
    let folders = ["crates/scheduler/src", "crates/client/src", "crates/runner/src"].map(|folder| root().join(folder));
    let sources = folders.iter().flat_map(|folder| texts(folder)).collect::<String>();
    let page = std::fs::read_to_string(root().join("docs/guide/metrics.md")).unwrap();
    let words = page.split(|c: char| !c.is_ascii_lowercase() && c != '_');
    let prefixes = ["scheduler_", "workqueue_", "rest_client_", "leader_election_", "process_"];
    let names: BTreeSet<&str> = words.filter(|word| prefixes.iter().any(|prefix| word.starts_with(prefix))).collect();
    assert!(names.len() > 15, "{names:?}");
    for name in names {
        let name = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        assert!(sources.contains(&format!("\"{name}\"")), "{name} is not a metric");
    }
}

/// Methods and fields that the page tells authors of plugins to write.
#[test]
fn every_name_a_plugin_author_reads_exists() {
    let sources = texts(&root().join("crates/scheduler/src")).concat();
    let page = std::fs::read_to_string(root().join("docs/guide/plugins.md")).unwrap();
    let (_, prose) = page.split_once("## Extension points").unwrap();
    let spans = prose.split('`').skip(1).step_by(2).map(|span| span.split('(').next().unwrap_or_default());
    let is_method = |span: &&str| span.contains('_') && span.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let names: BTreeSet<&str> = spans.filter(is_method).collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        assert!(sources.contains(&format!("fn {name}")), "{name} is not a method");
    }
}

/// The text of all Rust files in a folder.
fn texts(folder: &Path) -> Vec<String> {
    let mut texts = Vec::new();
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            texts.extend(self::texts(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            texts.push(std::fs::read_to_string(path).unwrap());
        }
    }
    texts
}
