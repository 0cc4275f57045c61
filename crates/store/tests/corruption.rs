//! Damage: every byte of every file flipped, files missing, formats from the future. Never silently different.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod workload;

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_store::disk::{Crash, SimulatedDisk};
use bayplan_store::{Expect, LogStore, OpenError, Options, ReadError, Store};
use futures::executor::block_on;
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
    let (log, _, closed) = written();
    let last = closed.keys().rfind(|name| name.starts_with("log-")).unwrap();
    for name in closed.keys() {
        let mut files = closed.clone();
        files.remove(name);
        let opened = open(&SimulatedDisk::with_files(files));
        match &opened {
            // A folder of an older build has no marker either; it gets one.
            Ok(store) if name == "marker" => assert_eq!(check(store, &log), Ok(log.acknowledged)),
            Err(OpenError::Lost { found, .. }) if name == last => assert!(found.contains(last), "{found}"),
            Err(OpenError::Corrupt { expected, .. }) if name != last => {
                assert!(expected.contains("revision"), "{name}")
            }
            other => panic!("{name}: {other:?}"),
        }
    }
}

/// The ways to lose what was acknowledged, and what the error says is there instead.
fn losses() -> Vec<(&'static str, Files, String)> {
    let (log, running, closed) = written();
    let last = closed.keys().rfind(|name| name.starts_with("log-")).unwrap().clone();
    let without = |files: &Files, keep: fn(&str) -> bool| -> Files {
        files.iter().filter(|(name, _)| keep(name)).map(|(name, bytes)| (name.clone(), bytes.clone())).collect()
    };
    let cut_last = |files: &Files, len: usize| {
        let mut files = files.clone();
        files.get_mut(&last).unwrap().truncate(len);
        files
    };
    let nothing = "the folder has no log segment and no snapshot".to_owned();
    let mut losses = vec![
        ("all but the marker, after closing", without(&closed, |name| name == "marker"), nothing.clone()),
        ("all but the marker, after a kill", without(&running, |name| name == "marker"), nothing),
    ];
    for len in [0, 1, 11, 27] {
        losses.push(("the last segment's header", cut_last(&closed, len), format!("{last} is cut to {len} bytes")));
        losses.push(("the last segment's header", cut_last(&running, len), format!("{last} is cut to {len} bytes")));
    }
    // The seal is 29 bytes; what is before it was acknowledged before the store was closed.
    let sealed = closed[&last].len() - 29;
    for len in (28..sealed).step_by(9) {
        losses.push(("the end of a closed log", cut_last(&closed, len), "the log ends at revision ".to_owned()));
    }
    assert!(log.acknowledged > 10);
    losses
}

#[test]
fn a_store_that_lost_acknowledged_writes_is_refused_and_left_alone() {
    for (case, files, found_there) in losses() {
        let disk = SimulatedDisk::with_files(files.clone());
        let error = open(&disk).expect_err(case);
        assert!(matches!(&error, OpenError::Lost { found, .. } if found.starts_with(&found_there)), "{case}: {error}");
        assert!(error.to_string().contains("the folder's marker says that there was log-"), "{case}: {error}");
        assert_eq!(disk.files(), files, "{case}");
    }
}

#[test]
fn a_store_that_lost_writes_goes_on_with_what_is_left_when_that_is_asked_for() {
    let accept = |disk: &SimulatedDisk| {
        LogStore::open(Arc::new(disk.clone()), Options { expect: Expect::WhatIsLeft, ..workload::options() })
    };
    let (log, ..) = written();
    for (case, files, _) in losses() {
        let disk = SimulatedDisk::with_files(files);
        let store = accept(&disk).unwrap_or_else(|error| panic!("{case}: {error}"));
        assert!(store.recovery().lost.as_ref().is_some_and(|lost| lost.contains("acknowledged writes are missing")));
        let revision = block_on(store.revision()).unwrap();
        assert!(revision > log.acknowledged + 100_000_000, "{case}: no lost revision is given out again");
        let left = block_on(store.range("", "~", None, 0)).unwrap().entries;
        let seen = block_on(store.watch("", "~", log.acknowledged)).map(drop);
        assert!(matches!(seen, Err(ReadError::Compacted { .. })), "{case}: watchers of lost revisions read again");
        assert_eq!(block_on(store.create("/after", "x".into())), Ok(revision + 1));
        drop(store);
        let store = open(&disk).unwrap_or_else(|error| panic!("{case}, again: {error}"));
        assert_eq!(store.recovery().lost, None);
        let found = block_on(store.range("", "~", None, 0)).unwrap().entries;
        assert_eq!((found[0].key.as_ref(), &found[1..]), ("/after", &left[..]), "{case}");
    }
    // A store that lost nothing is not changed by the offer.
    let (log, _, closed) = written();
    let store = accept(&SimulatedDisk::with_files(closed)).unwrap();
    assert_eq!((store.recovery().lost.clone(), check(&store, &log)), (None, Ok(log.acknowledged)));
}

#[test]
fn a_crash_while_a_loss_is_accepted_leaves_a_store_that_says_so_or_is_whole() {
    for (case, files, _) in losses().into_iter().step_by(3) {
        for at in 1.. {
            let disk = SimulatedDisk::with_files(files.clone());
            disk.crash_at(at);
            let options = || Options { expect: Expect::WhatIsLeft, ..workload::options() };
            let opened = LogStore::open(Arc::new(disk.clone()), options()).is_ok();
            for crash in [Crash::LoseAll, Crash::KeepAll, Crash::Torn] {
                let rebooted = disk.reboot(crash, at);
                let plain = open(&rebooted);
                let refused = matches!(plain, Err(OpenError::Lost { .. } | OpenError::Corrupt { .. }));
                assert!(refused || plain.is_ok(), "{case}, crash at {at}: {plain:?}");
                drop(plain);
                let again = LogStore::open(Arc::new(rebooted), options());
                again.unwrap_or_else(|error| panic!("{case}, crash at {at}, {crash:?}: {error}"));
            }
            if opened && disk.operations() < at {
                break;
            }
        }
    }
}

#[test]
fn a_folder_that_its_owner_knows_to_be_used_is_not_taken_for_a_new_one() {
    let known = Options { expect: Expect::Data, ..workload::options() };
    let error = LogStore::open(Arc::new(SimulatedDisk::new()), known.clone()).unwrap_err().to_string();
    let expected = "acknowledged writes are missing: the folder has no log segment and no snapshot, though the folder \
                    was used before";
    assert_eq!(error, expected);
    // A folder of an older build, without a marker, whose only segment was cut.
    let headless = BTreeMap::from([(format!("log-{:020}.segment", 2), vec![0; 5])]);
    let disk = SimulatedDisk::with_files(headless.clone());
    assert!(matches!(LogStore::open(Arc::new(disk), known), Err(OpenError::Lost { .. })));
    assert!(open(&SimulatedDisk::with_files(headless)).is_ok(), "a crash of an older build left this");
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
