//! The image and kubeadm's patch, as far as they can be tried without a container runtime.

use std::process::{Command, Stdio};

use bayplan_testkit::binary;
use serde_json::Value;

use crate::installed::{objects, root};

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The lines of a file that begin so, without that.
fn after<'a>(text: &'a str, begin: &str) -> Vec<&'a str> {
    text.lines().filter_map(|line| line.strip_prefix(begin)).collect()
}

#[test]
fn the_image_is_built_by_the_toolchain_of_the_repository_and_runs_as_nobody() {
    let (dockerfile, toolchain) = (read("Dockerfile"), read("rust-toolchain.toml"));
    let channel = after(&toolchain, "channel = ")[0].trim_matches('"');
    assert!(dockerfile.contains(&format!("RUSTUP_TOOLCHAIN={channel} ")), "the toolchain is {channel}");
    let minor = channel.rsplit_once('.').unwrap().0;
    let bases = after(&dockerfile, "FROM ");
    assert_eq!(bases[0], format!("--platform=$BUILDPLATFORM rust:{minor}-trixie AS build"));
    // Debian 13 is trixie: the C library of the build is that of the image.
    assert_eq!(bases[1], "gcr.io/distroless/cc-debian13:nonroot");
    assert_eq!(after(&dockerfile, "USER "), ["65532:65532"]);
    assert!(dockerfile.contains(&format!("bayplan:{} .", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn what_the_build_needs_is_not_ignored() {
    let ignored = read(".dockerignore");
    let kept = after(&ignored, "!");
    let manifest = read("Cargo.toml");
    let (_, members) = manifest.split_once("members = [").unwrap();
    let members = members.split(']').next().unwrap().split(", ").map(|member| member.trim_matches('"'));
    for needed in members.map(|member| member.trim_end_matches("/*")).chain(["Cargo.toml", "Cargo.lock"]) {
        assert!(kept.contains(&needed), "{needed} is not sent to the build");
    }
    for path in kept {
        assert!(root().join(path).exists(), "{path}");
    }
}

/// distroless/cc has these and no other.
#[test]
fn the_binary_needs_no_library_that_the_image_lacks() {
    let Ok(output) = Command::new("ldd").arg(binary(env!("CARGO_BIN_EXE_bayplan"))).output() else { return };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let has = ["linux-vdso.so", "libgcc_s.so.1", "libm.so.6", "libc.so.6", "ld-linux", "libdl.so.2", "libpthread.so.0"];
    let others: Vec<&str> = text.lines().filter(|line| !has.iter().any(|name| line.contains(name))).collect();
    assert!(others.is_empty(), "{others:?}");
}

/// The patch names this version, and turns kubeadm's flags into ones that this binary takes.
#[test]
#[ignore = "needs kubectl: .ci/run runs it"]
fn kubeadms_patch_runs_this_binary() {
    let (manifest, patch) =
        ("crates/bayplan/tests/deploy/kubeadm/kube-scheduler.yaml", "deploy/kubeadm/kube-scheduler+json.yaml");
    let patched = patched(manifest, patch);
    let container = &patched["spec"]["containers"][0];
    assert_eq!(container["image"], format!("bayplan:{}", env!("CARGO_PKG_VERSION")));
    let command: Vec<&str> =
        container["command"].as_array().unwrap().iter().map(|part| part.as_str().unwrap()).collect();
    assert_eq!(command[..2], ["bayplan", "scheduler"]);
    let original = objects(&read(manifest)).remove(0);
    let flags = original["spec"]["containers"][0]["command"].as_array().unwrap();
    assert_eq!(command[2..], flags.iter().skip(1).map(|flag| flag.as_str().unwrap()).collect::<Vec<_>>());
    for kept in ["livenessProbe", "readinessProbe", "startupProbe", "volumeMounts", "ports", "resources"] {
        assert_eq!(container[kept], original["spec"]["containers"][0][kept], "{kept}");
    }
    let folder = tempfile::tempdir().unwrap();
    let written = folder.path().join("config.yaml");
    let mut process = Command::new(binary(env!("CARGO_BIN_EXE_bayplan")));
    process.args(&command[1..]).arg("--write-config-to").arg(&written).stdout(Stdio::null());
    assert!(process.status().unwrap().success());
    let config = objects(&std::fs::read_to_string(&written).unwrap()).remove(0);
    assert_eq!(config["leaderElection"]["resourceName"], "kube-scheduler");
}

/// A manifest as kubectl patches it, which is how kubeadm does: the drop-in tests compare where kubeadm is at hand.
fn patched(manifest: &str, patch: &str) -> Value {
    let mut kubectl = Command::new("kubectl");
    kubectl.args(["patch", "--local", "-f", manifest, "--type", "json", "--patch-file", patch, "-o", "json"]);
    let output = kubectl.current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}
