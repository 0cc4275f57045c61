//! The committed inputs: seeds by hand, and every input that once broke a promise.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use bayplan_fuzz::TARGETS;

/// The most bytes that the inputs of all targets have together; they are read on every run of the tests.
const CORPUS_BYTES_MAX: usize = 1_000_000;

fn inputs(target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Runs one target over its inputs, and names the one that breaks a promise.
fn replay(target: &str) {
    let run = bayplan_fuzz::target(target).unwrap().run;
    let files = inputs(target);
    assert!(!files.is_empty(), "{target} has no inputs");
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        let kept = std::panic::catch_unwind(|| run(&bytes));
        assert!(kept.is_ok(), "{} breaks the promise above", file.display());
    }
    // Every target takes any bytes.
    for bytes in [&b""[..], b"\n", b"\n\n", b"\xff\xfe\n\xff", &[0; 64], &[b'{'; 4096], &[b'['; 4096]] {
        run(bytes);
    }
}

#[test]
fn bodies_are_read_defaulted_and_written_without_a_change() {
    replay("bodies");
}

#[test]
fn device_selectors_stay_within_their_allowance() {
    replay("cel");
}

#[test]
fn answers_of_extenders_are_read_or_refused() {
    replay("extender");
}

#[test]
fn headers_make_nobody_somebody_else() {
    replay("headers");
}

#[test]
fn kubeconfigs_are_used_or_refused_in_words() {
    replay("kubeconfig");
}

#[test]
fn numbers_and_times_are_written_as_they_are_read() {
    replay("numbers");
}

#[test]
fn patches_are_bounded_and_can_be_undone() {
    replay("patches");
}

#[test]
fn paths_and_queries_are_answered_with_a_status() {
    replay("paths");
}

#[test]
fn a_completed_configuration_is_complete() {
    replay("scheduler_configuration");
}

#[test]
fn selectors_are_written_as_they_are_read() {
    replay("selectors");
}

#[test]
fn snapshots_are_read_and_written_again() {
    replay("snapshots");
}

#[test]
fn sources_of_any_form_are_read_or_noted() {
    replay("sources");
}

#[test]
fn databases_are_read_whatever_their_pages_say() {
    replay("etcd");
}

#[test]
fn a_store_that_opens_is_one_that_there_was() {
    replay("store_log");
}

#[test]
fn dry_runs_write_nothing() {
    replay("writes");
}

#[test]
fn every_target_has_inputs_and_a_test() {
    let source = include_str!("corpus.rs");
    for target in TARGETS {
        assert!(source.contains(&format!("replay({:?});", target.name)), "{} is not replayed", target.name);
    }
}

#[test]
fn the_inputs_stay_small() {
    let files = TARGETS.iter().flat_map(|target| inputs(target.name));
    let bytes: usize = files.map(|file| std::fs::read(file).unwrap().len()).sum();
    assert!(bytes <= CORPUS_BYTES_MAX, "{bytes} bytes of inputs");
}
