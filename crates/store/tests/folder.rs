//! A real folder: its rights, its lock, and processes that are killed.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::Arc;

use bayplan_store::disk::FolderDisk;
use bayplan_store::{LogStore, OpenError, Options, Store};
use futures::executor::block_on;

/// Names the folder for the process that is to be killed.
const FOLDER: &str = "STORE_TEST_FOLDER";

#[test]
fn a_new_folder_and_its_files_are_the_owners_alone() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("deep/data");
    let store = LogStore::open_folder(&path).unwrap();
    block_on(store.create("/a", "1".into())).unwrap();
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    let files: Vec<_> = path.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 3, "{files:?}");
    assert!(files.iter().all(|file| mode(file) == 0o600), "{files:?}");
}

#[test]
fn a_folder_is_opened_once_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let store = LogStore::open_folder(folder.path()).unwrap();
    let watch = block_on(store.watch("", "~", 1)).unwrap();
    let error = LogStore::open_folder(folder.path()).unwrap_err();
    assert!(matches!(error, OpenError::Locked { .. }));
    assert_eq!(error.to_string(), format!("the folder {} is in use by another process", folder.path().display()));
    drop(store);
    LogStore::open_folder(folder.path()).expect("a watch that is left over does not keep the folder");
    drop(watch);
}

#[test]
fn a_folder_that_cannot_be_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = LogStore::open_folder(file.path()).unwrap_err().to_string();
    assert!(error.starts_with(&format!("could not create the folder {}", file.path().display())), "{error}");
}

#[test]
fn a_folder_does_not_grow_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { segment_bytes: 16 << 10, garbage_bytes_min: 32 << 10, ..Options::default() };
    let open = || LogStore::open(Arc::new(FolderDisk::open(folder.path()).unwrap()), options.clone()).unwrap();
    let size = || folder.path().read_dir().unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum::<u64>();
    let mut store = open();
    let mut revision = block_on(store.create("/hot", "".into())).unwrap();
    block_on(store.create("/cold", "kept".into())).unwrap();
    for round in 0..20 {
        for _ in 0..20 {
            revision = block_on(store.update("/hot", vec![round; 1024].into(), revision)).unwrap();
        }
        block_on(store.compact(revision)).unwrap();
        assert!(size() < 100 << 10, "{} after round {round}", size());
        drop(store);
        store = open();
        assert_eq!(block_on(store.revision()), Ok(revision));
    }
    assert_eq!(block_on(store.get("/cold")).unwrap().unwrap().mod_revision, 3);
}

/// Not a test of its own: the process that the next test kills. It says which revisions were acknowledged.
#[test]
#[ignore = "run by the test that kills it"]
fn writes_until_it_is_killed() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let options = Options { segment_bytes: 4 << 10, garbage_bytes_min: 8 << 10, ..Options::default() };
    let store = LogStore::open(Arc::new(FolderDisk::open(folder).unwrap()), options).unwrap();
    block_on(async {
        loop {
            let next = store.revision().await.unwrap() + 1;
            let keys: Vec<String> = (next..next + 5).map(|revision| format!("/{revision:08}")).collect();
            for result in futures::future::join_all(keys.iter().map(|key| store.create(key, vec![7; 100].into()))).await
            {
                writeln!(std::io::stdout(), "acknowledged {}", result.unwrap()).unwrap();
            }
            if next % 7 == 0 {
                store.compact(next).await.unwrap();
            }
        }
    });
}

#[test]
fn a_killed_process_loses_nothing_it_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged = 1;
    for lines in [1, 7, 40, 3, 111, 23, 64, 5, 90, 17, 2, 55] {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["writes_until_it_is_killed", "--exact", "--ignored", "--nocapture"])
            .env(FOLDER, folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let mut said = said.filter_map(|line| line.split("acknowledged ").nth(1)?.parse::<u64>().ok());
        let mut heard: Vec<u64> = said.by_ref().take(lines).collect();
        child.kill().unwrap();
        heard.extend(said);
        child.wait().unwrap();
        assert_eq!(heard.first(), Some(&(acknowledged + 1)), "revisions go on where they ended");
        acknowledged = *heard.last().unwrap();
        let store = LogStore::open_folder(folder.path()).unwrap();
        let range = block_on(store.range("/", "0", None, 0)).unwrap();
        assert!(range.revision >= acknowledged, "{} < {acknowledged}", range.revision);
        let keys = (2..=range.revision).map(|revision| (format!("/{revision:08}"), revision));
        assert!(keys.eq(range.entries.iter().map(|entry| (entry.key.to_string(), entry.mod_revision))));
        acknowledged = range.revision;
    }
}
