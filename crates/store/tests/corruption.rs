//! Damage: every byte of every file flipped, files missing, formats from the future. Never silently different.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod workload;

use std::collections::BTreeMap;

use bayplan_store::OpenError;
use bayplan_store::disk::SimulatedDisk;
use workload::{WriteLog, check, names, open, run};

type Files = BTreeMap<String, Vec<u8>>;

/// A store with a snapshot and several segments, and its files before and after it was closed.
fn written() -> (WriteLog, Files, Files) {
    // Where segments end depends on how writes fell into batches: take the first run that has all we want to damage.
    (0..)
        .find_map(|seed| {
            let disk = SimulatedDisk::new();
            let store = open(&disk).unwrap();
            let log = run(&store, seed, 24);
            let running = disk.files();
            drop(store);
            let fits = names(&disk, "log-").len() >= 2 && names(&disk, "snapshot-").len() == 1;
            fits.then(|| (log, running, disk.files()))
        })
        .unwrap()
}

fn flips(files: &Files) -> impl Iterator<Item = (&String, usize, u8)> {
    files.iter().flat_map(|(name, bytes)| (0..bytes.len()).map(move |at| (name, at, 1 << (at % 8))))
}

#[test]
fn a_flipped_byte_of_a_closed_store_is_harmless_or_named() {
    let (log, _, closed) = written();
    let (mut named, mut harmless) = (0, 0);
    for (name, at, mask) in flips(&closed) {
        let disk = SimulatedDisk::with_files(closed.clone());
        disk.flip(name, at, mask);
        match open(&disk) {
            Ok(store) => {
                assert_eq!(check(&store, &log), Ok(log.acknowledged), "{name} at {at}");
                harmless += 1;
            }
            Err(OpenError::Corrupt { file, offset, .. }) => {
                assert!(file == *name && offset <= at, "{name} at {at}: reported {file} at {offset}");
                named += 1;
            }
            Err(OpenError::NewerFormat { file, .. }) => assert_eq!(&file, name),
            Err(other) => panic!("{name} at {at}: {other}"),
        }
    }
    // Only the seal itself may be damaged without harm: 8 bytes of envelope and 21 of body.
    assert_eq!(harmless, 29);
    assert!(named > 500, "{named}");
}

#[test]
fn a_flipped_byte_of_a_store_that_was_killed_is_harmless_or_named_or_in_the_reported_tail() {
    let (log, running, _) = written();
    let last = running.keys().rfind(|name| name.starts_with("log-")).unwrap();
    let mut cuts = 0;
    for (name, at, mask) in flips(&running) {
        let disk = SimulatedDisk::with_files(running.clone());
        disk.flip(name, at, mask);
        if let Ok(store) = open(&disk) {
            // Only the last append can be taken for torn, and that is said.
            let cut = store.recovery().cut.clone().unwrap_or_else(|| panic!("{name} at {at} went unseen"));
            assert!(name == last && cut.file == *name && cut.offset <= at as u64, "{name} at {at}: {cut:?}");
            let kept = WriteLog { acknowledged: log.acknowledged - 4, ..log.clone() };
            check(&store, &kept).unwrap();
            cuts += 1;
        }
    }
    assert!(cuts > 0);
}

#[test]
fn a_missing_file_is_named() {
    let (_, _, closed) = written();
    let segments = closed.keys().filter(|name| name.starts_with("log-")).count();
    for (position, name) in closed.keys().enumerate() {
        let mut files = closed.clone();
        files.remove(name);
        let opened = open(&SimulatedDisk::with_files(files));
        // That a last segment once existed is written nowhere else.
        if segments > 1 && position + 1 == segments {
            continue;
        }
        assert!(matches!(&opened, Err(OpenError::Corrupt { expected, .. }) if expected.contains("revision")), "{name}");
    }
}

#[test]
fn a_snapshot_or_an_earlier_segment_that_is_too_short_is_named() {
    let (_, _, closed) = written();
    let last = closed.keys().rfind(|name| name.starts_with("log-")).unwrap();
    for (name, bytes) in closed.iter().filter(|(name, _)| *name != last) {
        for len in (0..bytes.len()).step_by(13) {
            let mut files = closed.clone();
            files.get_mut(name).unwrap().truncate(len);
            let opened = open(&SimulatedDisk::with_files(files));
            let Err(OpenError::Corrupt { file, .. }) = &opened else { panic!("{name} cut to {len}: {opened:?}") };
            assert!(file == name || file == "the folder" || closed.contains_key(file), "{name} cut to {len}: {file}");
        }
    }
}

#[test]
fn a_folder_of_a_newer_format_is_refused_and_left_alone() {
    let (_, _, closed) = written();
    for name in closed.keys() {
        let mut files = closed.clone();
        files.get_mut(name).unwrap()[8] = 2;
        let disk = SimulatedDisk::with_files(files.clone());
        let error = open(&disk).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("{name} has format version 2, this build reads up to 1: use the newer build that wrote it")
        );
        assert_eq!(disk.files(), files);
    }
}

#[test]
fn an_error_leaves_every_file_as_it_was() {
    let (_, _, closed) = written();
    for (name, at, mask) in flips(&closed).step_by(11) {
        let disk = SimulatedDisk::with_files(closed.clone());
        disk.flip(name, at, mask);
        let before = disk.files();
        if open(&disk).is_err() {
            assert_eq!(disk.files(), before, "{name} at {at}");
        }
    }
}
