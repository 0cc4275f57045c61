//! The modules of the scheduler depend on each other in one direction, as the drawing in `src/lib.rs` says.
//!
//! Reads every `crate::module` in the sources and compares it with the table below. Tests may use any module.

#![allow(clippy::unwrap_used)] // Helpers of tests, not the product.

use std::collections::BTreeSet;
use std::path::Path;

/// Each module with the modules it may use; a module may only use modules that stand further down.
const ARROWS: &[(&str, &[&str])] = &[
    (
        "scheduler",
        &[
            "engine",
            "effect",
            "cycle",
            "bind",
            "queue",
            "record",
            "profile",
            "extender",
            "config",
            "metrics",
            "shell",
            "framework",
            "trace",
            "cluster",
        ],
    ),
    ("engine", &["cycle", "profile", "nominator", "extender", "metrics", "framework", "cluster"]),
    ("effect", &["bind", "shell", "framework", "cluster"]),
    ("cycle", &["profile", "nominator", "extender", "metrics", "framework", "cluster"]),
    ("bind", &["profile", "shell", "metrics", "framework", "cluster"]),
    ("queue", &["nominator", "metrics", "framework", "cluster"]),
    ("profile", &["config", "extender", "metrics", "framework"]),
    ("plugins", &["config", "framework", "cluster"]),
    ("extender", &["config", "framework", "cluster"]),
    ("config", &["framework", "cluster"]),
    ("metrics", &["framework", "trace"]),
    ("nominator", &["framework", "cluster"]),
    ("shell", &["framework", "cluster"]),
    ("framework", &["trace", "cluster"]),
    ("record", &["cluster"]),
    ("trace", &[]),
    ("cluster", &[]),
];

/// The modules that the code of a file names as `crate::module`; paths in comments are left out.
fn used_modules(source: &str) -> BTreeSet<String> {
    let code = source.lines().map(|line| line.split("//").next().unwrap_or_default());
    let mut used = BTreeSet::new();
    for line in code {
        for rest in line.split("crate::").skip(1) {
            let module: String = rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
            // A name of the root, such as `crate::Scheduler`, is empty here.
            if !module.is_empty() {
                used.insert(module);
            }
        }
    }
    used
}

fn sources(folder: &Path, files: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The uses against the arrows, as `file: module uses module`.
fn violations(files: &[(String, String)]) -> Vec<String> {
    let mut violations = Vec::new();
    for (file, source) in files {
        let module = file.split('/').next().unwrap().trim_end_matches(".rs");
        let name = file.rsplit('/').next().unwrap();
        if module == "lib" || name.ends_with("tests.rs") || file.contains("/testing/") {
            continue;
        }
        let allowed = ARROWS.iter().find(|(name, _)| *name == module).map_or(&[][..], |(_, allowed)| allowed);
        let used = used_modules(source).into_iter().filter(|used| used != module && !allowed.contains(&used.as_str()));
        violations.extend(used.map(|used| format!("{file}: {module} uses {used}")));
    }
    violations
}

#[test]
fn modules_use_only_the_modules_below_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    sources(&root, &mut paths);
    let read = |path: &std::path::PathBuf| {
        let name = path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
        (name, std::fs::read_to_string(path).unwrap())
    };
    let files: Vec<(String, String)> = paths.iter().map(read).collect();
    assert!(files.len() > 50, "the sources are where they were");
    assert_eq!(violations(&files), Vec::<String>::new());
}

#[test]
fn arrows_point_down_the_table() {
    for (at, (module, allowed)) in ARROWS.iter().enumerate() {
        for used in *allowed {
            let below = ARROWS[at + 1..].iter().any(|(name, _)| name == used);
            assert!(below, "{module} -> {used} points up");
        }
    }
}

#[test]
fn a_use_against_the_arrows_is_found() {
    let planted = [("framework/mod.rs".to_owned(), "use crate::cluster::Pod;\nuse crate::queue::Queue;\n".to_owned())];
    assert_eq!(violations(&planted), ["framework/mod.rs: framework uses queue"]);
    let comment = [("cluster/mod.rs".to_owned(), "// see crate::engine\n/// [`crate::Scheduler`]\n".to_owned())];
    assert_eq!(violations(&comment), Vec::<String>::new());
}
