//! What the tree must look like, checked by a test: `cargo xtask tidy`, and part of `cargo test --workspace`.
//!
//! Each rule is a function from the tree to what violates it, with a planted sample of each violation in its tests.
//! Known exceptions are in `exceptions.txt`, each with its reason; one that is not needed any more is a failure too.

mod dependencies;
mod lexer;
mod limits;
mod links;
mod modules;
mod packages;
mod retired;
mod sizes;
mod tree;

use std::fmt;
use std::path::Path;
use std::process::Command;

use tree::Tree;

/// Rules that read the tree.
const RULES: [fn(&Tree) -> Vec<Violation>; 6] =
    [sizes::check, modules::check, dependencies::check, retired::check, links::check, limits::check];

const EXCEPTIONS: &str = include_str!("exceptions.txt");

/// Something in the tree that a rule forbids.
#[derive(Debug)]
pub(crate) struct Violation {
    rule: &'static str,
    at: String,
    /// What an exception names: stays the same when lines move.
    subject: String,
    why: String,
}

fn violation(rule: &'static str, at: &str, subject: &str, why: String) -> Violation {
    Violation { rule, at: at.to_owned(), subject: subject.to_owned(), why }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.why)
    }
}

/// Everything in the tree at `root` that no rule allows, a line each.
pub(crate) fn check(root: &Path) -> Result<Vec<String>, String> {
    let tree = Tree::read(root).map_err(|error| format!("cannot read {}: {error}", root.display()))?;
    let mut violations: Vec<Violation> = RULES.iter().flat_map(|rule| rule(&tree)).collect();
    violations.extend(packages::check(&packages_used(root)?, tree.text("deny.toml").unwrap_or_default()));
    Ok(without_exceptions(&violations, EXCEPTIONS))
}

/// The violations that are no exceptions, and the exceptions that are no violations.
fn without_exceptions(violations: &[Violation], exceptions: &str) -> Vec<String> {
    let exceptions: Vec<(&str, &str)> = exceptions
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_once(" # ").unwrap_or((line, "")))
        .collect();
    let key = |violation: &Violation| format!("{} {}", violation.rule, violation.subject);
    let forbidden = violations.iter().filter(|violation| !exceptions.iter().any(|(known, _)| *known == key(violation)));
    let mut lines: Vec<String> = forbidden.map(ToString::to_string).collect();
    for (known, reason) in exceptions {
        if !violations.iter().any(|violation| known == key(violation)) {
            lines.push(format!("exceptions.txt: `{known}` is not needed any more"));
        }
        if reason.trim().is_empty() {
            lines.push(format!("exceptions.txt: `{known}` gives no reason"));
        }
    }
    lines
}

/// The packages that are built on this platform, so that nothing has to be fetched for others.
fn packages_used(root: &Path) -> Result<String, String> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(["tree", "--workspace", "--locked", "--prefix=none", "--edges=normal,build,dev", "--format"])
        .arg(packages::FORMAT)
        .current_dir(root)
        .output()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo tree: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds a rule against a sample tree.
    pub(crate) fn check_rule(rule: fn(&Tree) -> Vec<Violation>, files: &[(&str, &str)], expected: &[&str]) {
        let found: Vec<String> = rule(&Tree::of(files)).iter().map(ToString::to_string).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn the_tree_is_tidy() {
        let found = check(&crate::root()).unwrap();
        assert!(found.is_empty(), "{} violations\n{}", found.len(), found.join("\n"));
    }

    #[test]
    fn an_exception_holds_for_its_subject_gives_a_reason_and_is_needed() {
        let found = || vec![violation("file", "a.rs", "a.rs", "is long".into())];
        assert_eq!(without_exceptions(&found(), ""), ["a.rs: is long"]);
        assert_eq!(without_exceptions(&found(), "# all of them\n\nfile a.rs # a table"), [""; 0]);
        assert_eq!(without_exceptions(&found(), "file a.rs"), ["exceptions.txt: `file a.rs` gives no reason"]);
        let stale = "file a.rs # a table\nline a.rs # a table";
        assert_eq!(without_exceptions(&found(), stale), ["exceptions.txt: `line a.rs` is not needed any more"]);
    }
}
