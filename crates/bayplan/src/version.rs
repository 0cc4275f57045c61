//! `bayplan version`: which Bayplan this is, and which Kubernetes it mirrors.

use std::io::Write;

use anyhow::Result;
use serde_json::{Value, json};

use crate::args::Version;
use crate::output;

/// The release of Kubernetes whose behaviour Bayplan mirrors.
pub(crate) const KUBERNETES: &str = "v1.36.4";

/// Prints the version.
pub(crate) fn run(args: &Version, out: &mut impl Write) -> Result<()> {
    let facts = facts();
    let rows = [
        ("Bayplan", "version"),
        ("Kubernetes", "kubernetesVersion"),
        ("Commit", "gitCommit"),
        ("Rust", "rustVersion"),
        ("Platform", "platform"),
    ];
    let row = |(label, field): (&str, &str)| format!("{label:<11} {}\n", facts[field].as_str().unwrap_or("unknown"));
    output::write(out, args.output, &facts, || rows.map(row).concat())
}

fn facts() -> Value {
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "kubernetesVersion": KUBERNETES,
        "gitCommit": option_env!("BAYPLAN_GIT_COMMIT"),
        "rustVersion": option_env!("BAYPLAN_RUSTC_VERSION"),
        "platform": format!("{}/{}", std::env::consts::OS, go_architecture()),
    })
}

/// The architecture as Kubernetes names it.
fn go_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
