//! Backups: taken of a folder that is written to, read back whole or not at all, and put into an empty folder only.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

use bayplan_store::backup::{Attachment, Backup, EmptyFolder};
use bayplan_store::{LogStore, OpenError, ReadError, Store};
use bytes::Bytes;
use futures::executor::block_on;

const JUMP: u64 = 1_000_000_000;

fn example() -> (tempfile::TempDir, LogStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = LogStore::open_folder(folder.path().join("store")).unwrap();
    block_on(async {
        store.create("/registry/b", Bytes::from_static(b"first")).await.unwrap();
        store.create("/registry/a", Bytes::from_static(b"second")).await.unwrap();
        store.update("/registry/b", Bytes::from_static(b"third"), 2).await.unwrap();
        let gone = store.create("/registry/c", Bytes::from_static(b"gone")).await.unwrap();
        store.delete("/registry/c", gone).await.unwrap();
    });
    (folder, store)
}

fn backup(folder: &tempfile::TempDir) -> Backup {
    let mut backup = Backup::of_folder(folder.path().join("store")).unwrap();
    backup.files.push(Attachment { name: "ca.pem".to_owned(), content: Bytes::from_static(b"key") });
    backup
}

fn bytes(backup: &Backup) -> Vec<u8> {
    let mut bytes = Vec::new();
    assert_eq!(backup.write(&mut bytes).unwrap(), bytes.len() as u64);
    bytes
}

#[test]
fn a_folder_in_use_is_backed_up_at_one_revision_and_restored_with_the_revisions_of_its_objects() {
    let (folder, store) = example();
    let taken = backup(&folder);
    assert_eq!(taken.revision, 6);
    let read = Backup::read("file", &*bytes(&taken)).unwrap();
    assert_eq!(read, taken);
    drop(store);
    assert_eq!(backup(&folder), taken, "a store that was closed holds the same");

    let path = folder.path().join("restored");
    let restored = EmptyFolder::open(&path).unwrap().fill(read.revision, read.entries).unwrap();
    assert_eq!(restored, 6 + JUMP);
    let store = LogStore::open_folder(&path).unwrap();
    block_on(async {
        let all = store.range("", "\u{10ffff}", None, 0).await.unwrap();
        assert_eq!((all.revision, &all.entries), (6 + JUMP, &taken.entries));
        let found = all.entries.iter().map(|entry| (&*entry.key, &*entry.value, entry.mod_revision));
        let expected = [("/registry/a", &b"second"[..], 3), ("/registry/b", b"third", 4)];
        assert_eq!(found.collect::<Vec<_>>(), expected);
        let old = store.watch("", "\u{10ffff}", 6).await.err();
        assert!(matches!(old, Some(ReadError::Compacted { .. })), "{old:?}");
        assert_eq!(store.create("/registry/c", Bytes::from_static(b"new")).await.unwrap(), 7 + JUMP);
    });
}

#[test]
fn a_backup_under_writes_holds_every_write_before_it_and_no_gap() {
    let folder = tempfile::tempdir().unwrap();
    let store = LogStore::open_folder(folder.path().join("store")).unwrap();
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            for number in 0..2000_u64 {
                let key = format!("/registry/{number:06}");
                block_on(store.create(&key, Bytes::from(vec![b'x'; 300]))).unwrap();
                if number % 500 == 499 {
                    block_on(store.compact(number)).unwrap();
                }
            }
        });
        let mut last = 0;
        while !writing.is_finished() {
            let before = block_on(store.revision()).unwrap();
            let taken = Backup::of_folder(folder.path().join("store")).unwrap();
            assert!(taken.revision >= before.max(last), "{} after {before} and {last}", taken.revision);
            assert_eq!(taken.entries.len() as u64, taken.revision - 1, "one key for each revision");
            last = taken.revision;
        }
    });
}

#[test]
fn a_backup_that_is_cut_changed_or_newer_is_refused() {
    let (folder, _store) = example();
    let whole = bytes(&backup(&folder));
    for len in 0..whole.len() {
        let error = Backup::read("file", &whole[..len]).unwrap_err();
        assert!(matches!(error, OpenError::Corrupt { .. }), "{len}: {error}");
        let mut changed = whole.clone();
        changed[len] ^= 0x10;
        Backup::read("file", &*changed).unwrap_err();
    }
    let more = [&*whole, b"x"].concat();
    assert!(Backup::read("file", &*more).unwrap_err().to_string().contains("more bytes"));
    let mut newer = whole.clone();
    newer[8] = 2;
    let error = Backup::read("file", &*newer).unwrap_err().to_string();
    assert_eq!(error, "file has format version 2, this build reads up to 1: use the newer build that wrote it");
}

#[test]
fn a_file_that_would_be_written_elsewhere_is_refused() {
    for name in ["../ca.pem", "", ".ssh", "a/b"] {
        let file = Attachment { name: name.to_owned(), content: Bytes::new() };
        let backup = Backup { revision: 1, files: vec![file], ..Backup::default() };
        assert!(Backup::read("file", &*bytes(&backup)).is_err(), "{name}");
    }
}

#[test]
fn a_store_is_put_into_no_folder_that_is_in_use_or_holds_something() {
    let (folder, store) = example();
    let path = folder.path().join("store");
    assert!(matches!(EmptyFolder::open(&path), Err(OpenError::Locked { .. })));
    drop(store);
    assert!(matches!(EmptyFolder::open(&path), Err(OpenError::NotEmpty { .. })));
}
