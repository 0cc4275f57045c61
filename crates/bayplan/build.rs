//! Hands `bayplan version` what only the build knows: the commit, the compiler and the platform.
//!
//! The commit comes from `BAYPLAN_GIT_COMMIT`, or else from the repository's own files, so that no git is needed. Only
//! release builds look: a development build would be linked again after every commit.

#![allow(clippy::print_stdout, reason = "build scripts speak to cargo on standard output")]

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=BAYPLAN_GIT_COMMIT");
    let given = std::env::var("BAYPLAN_GIT_COMMIT").ok().filter(|commit| !commit.is_empty());
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    if let Some(commit) = given.or_else(|| is_release.then(commit_of_repository).flatten()) {
        println!("cargo::rustc-env=BAYPLAN_GIT_COMMIT={commit}");
    }
    if let Some(version) = rustc_version() {
        println!("cargo::rustc-env=BAYPLAN_RUSTC_VERSION={version}");
    }
}

/// `1.95.0` of `rustc 1.95.0 (59807616e 2026-04-14)`.
fn rustc_version() -> Option<String> {
    let output = Command::new(std::env::var_os("RUSTC")?).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.split_whitespace().nth(1).map(str::to_owned)
}

fn commit_of_repository() -> Option<String> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = git_folder(&workspace.join(".git"))?;
    let head_path = folder.join("HEAD");
    println!("cargo::rerun-if-changed={}", head_path.display());
    let head = std::fs::read_to_string(head_path).ok()?;
    let Some(reference) = head.trim().strip_prefix("ref: ") else { return Some(head.trim().to_owned()) };
    // A worktree keeps its branches in the main repository's folder.
    let shared = match std::fs::read_to_string(folder.join("commondir")) {
        Ok(path) => folder.join(path.trim()),
        Err(_) => folder,
    };
    let path = shared.join(reference);
    if path.exists() {
        println!("cargo::rerun-if-changed={}", path.display());
        return Some(std::fs::read_to_string(path).ok()?.trim().to_owned());
    }
    let packed_path = shared.join("packed-refs");
    println!("cargo::rerun-if-changed={}", packed_path.display());
    let packed = std::fs::read_to_string(packed_path).ok()?;
    let line = packed.lines().find(|line| line.split(' ').nth(1) == Some(reference))?;
    line.split(' ').next().map(str::to_owned)
}

/// `.git` is a folder, or in a worktree a file that names one.
fn git_folder(path: &Path) -> Option<PathBuf> {
    if path.is_dir() {
        return Some(path.to_owned());
    }
    let text = std::fs::read_to_string(path).ok()?;
    Some(PathBuf::from(text.trim().strip_prefix("gitdir: ")?))
}
