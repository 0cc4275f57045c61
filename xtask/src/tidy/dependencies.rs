//! Which crate of the workspace may know which.
//!
//! The arrows point inward: a core never learns of HTTP or a runtime through a crate of ours. What a core may take from
//! elsewhere is checked by `.ci/run`, which reads the whole dependency tree.

use super::tree::Tree;
use super::{Violation, violation};

/// What a crate may depend on, and what its tests may use besides.
struct Arrows {
    name: &'static str,
    knows: &'static [&'static str],
    tests_know: &'static [&'static str],
}

const fn arrows(name: &'static str, knows: &'static [&'static str], tests_know: &'static [&'static str]) -> Arrows {
    Arrows { name, knows, tests_know }
}

/// All parts, for the crate that puts them together.
const ALL: &[&str] = &[
    "apiserver",
    "bench",
    "cel",
    "client",
    "controllers",
    "etcd",
    "explain",
    "flowcontrol",
    "kinds",
    "listener",
    "metrics",
    "model",
    "otlp",
    "page",
    "patch",
    "runner",
    "scheduler",
    "sim",
    "sources",
    "store",
];

/// The only place that says who may know whom.
const ARROWS: &[Arrows] = &[
    arrows("metrics", &[], &[]),
    arrows("listener", &[], &["testkit"]),
    // kinds: the objects that every cluster starts with.
    arrows("flowcontrol", &[], &["kinds"]),
    arrows("model", &[], &["testkit"]),
    arrows("store", &[], &["testkit"]),
    arrows("etcd", &["store"], &["testkit"]),
    arrows("otlp", &["metrics", "model"], &["testkit"]),
    // store: one suite of tests for every store.
    arrows("testkit", &["model", "store"], &[]),
    arrows("patch", &["model"], &["testkit"]),
    arrows("cel", &["model"], &["testkit"]),
    arrows("kinds", &["cel", "model", "patch"], &["testkit"]),
    arrows("scheduler", &["cel", "metrics", "model"], &["testkit"]),
    // kinds: whether an old revision means what the template says is a question of defaults.
    arrows("controllers", &["kinds", "model"], &["testkit"]),
    arrows("sim", &["model"], &["testkit"]),
    arrows("sources", &["kinds", "model"], &["testkit"]),
    arrows("explain", &["controllers", "kinds", "model", "patch", "scheduler", "sources"], &["testkit"]),
    // patch: a change that is tried is a JSON patch.
    arrows("page", &["explain", "listener", "model", "patch", "scheduler", "sources"], &["testkit"]),
    arrows("client", &["metrics", "model"], &["testkit"]),
    arrows("apiserver", &["flowcontrol", "kinds", "listener", "metrics", "model", "patch", "store"], &["testkit"]),
    arrows(
        "runner",
        &["client", "controllers", "listener", "metrics", "model", "scheduler", "sim"],
        &["apiserver", "explain", "sources", "store", "testkit"],
    ),
    arrows(
        "bench",
        &[
            "apiserver",
            "client",
            "explain",
            "kinds",
            "model",
            "patch",
            "runner",
            "scheduler",
            "sim",
            "sources",
            "store",
        ],
        &["testkit"],
    ),
    arrows("bayplan", ALL, &["testkit"]),
    arrows(
        "conformance",
        &[
            "apiserver",
            "client",
            "controllers",
            "explain",
            "kinds",
            "model",
            "patch",
            "runner",
            "scheduler",
            "sources",
            "store",
            "testkit",
        ],
        &[],
    ),
    arrows(
        "fuzz",
        &["apiserver", "cel", "client", "kinds", "model", "patch", "runner", "scheduler", "sources", "store"],
        &[],
    ),
    arrows("world", &["apiserver", "client", "model", "runner", "sim", "store", "testkit"], &[]),
    arrows("xtask", &[], &[]),
];

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let manifests = tree.with_extension("toml").filter(|(path, _)| path.ends_with("/Cargo.toml"));
    manifests.flat_map(|(path, text)| check_manifest(path, text)).collect()
}

fn check_manifest(path: &str, text: &str) -> Vec<Violation> {
    let name = path.trim_end_matches("/Cargo.toml").rsplit('/').next().unwrap_or(path);
    let Some(arrows) = ARROWS.iter().find(|arrows| arrows.name == name) else {
        let why = format!("{name} is not in the table of arrows in xtask/src/tidy/dependencies.rs");
        return vec![violation("dependency", path, name, why)];
    };
    let dependencies = dependencies(text).into_iter().filter_map(|(line, section, dependency)| {
        let known = dependency.strip_prefix("bayplan-").or((dependency == "conformance").then_some(dependency))?;
        let for_tests = section == "dev-dependencies";
        let allowed = arrows.knows.contains(&known) || (for_tests && arrows.tests_know.contains(&known));
        (!allowed).then(|| {
            let whom = if for_tests { format!("the tests of {name}") } else { name.to_owned() };
            let why = format!("{whom} must not depend on {known}");
            violation("dependency", &format!("{path}:{line}"), &format!("{name} {known}"), why)
        })
    });
    dependencies.collect()
}

/// Line, section and name of every dependency in a manifest.
fn dependencies(manifest: &str) -> Vec<(usize, &str, &str)> {
    let mut section = "";
    let mut found = Vec::new();
    for (index, line) in manifest.lines().enumerate() {
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            // `[dependencies]`, `[target.'cfg(unix)'.dependencies]` or `[dependencies.name]`
            section = header.rsplit('.').find(|part| part.ends_with("dependencies")).unwrap_or("");
            if let Some((_, name)) = header.rsplit_once("dependencies.") {
                found.push((index + 1, section, name));
                section = "";
            }
        } else if !section.is_empty() && line.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            let end = line.find(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_').unwrap_or(line.len());
            found.push((index + 1, section, &line[..end]));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::check_rule;

    #[test]
    fn a_crate_depends_only_along_the_arrows() {
        let manifest = |name: &str, text: &str, expected: &[&str]| {
            check_rule(check, &[(&format!("crates/{name}/Cargo.toml"), text)], expected);
        };
        let against = ["crates/model/Cargo.toml:2: model must not depend on store"];
        manifest("model", "[dependencies]\nbayplan-store.workspace = true", &against);
        manifest("model", "[package]\n[dependencies.bayplan-store]\npath = \"../store\"", &against);
        let for_unix = "[target.'cfg(unix)'.dependencies]\nbayplan-store = { path = \"../store\" }";
        manifest("model", for_unix, &against);
        manifest("apiserver", "[dependencies]\nbayplan-store.workspace = true\ntokio = \"1\"", &[]);
    }

    #[test]
    fn tests_may_use_more_than_the_crate() {
        let manifest = |section: &str| format!("[{section}]\nbayplan-apiserver.workspace = true");
        let path = "crates/runner/Cargo.toml";
        check_rule(check, &[(path, &manifest("dev-dependencies"))], &[]);
        let expected = ["crates/runner/Cargo.toml:2: runner must not depend on apiserver"];
        check_rule(check, &[(path, &manifest("dependencies"))], &expected);
    }

    #[test]
    fn a_crate_without_arrows_is_not_overlooked() {
        let why = "crates/new/Cargo.toml: new is not in the table of arrows in xtask/src/tidy/dependencies.rs";
        check_rule(check, &[("crates/new/Cargo.toml", "")], &[why]);
    }
}
