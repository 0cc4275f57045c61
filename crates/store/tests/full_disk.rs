//! A real file system that is full: a small tmpfs. Mounting one takes rights that not every machine gives its tests.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

use std::path::Path;
use std::process::Command;

use bayplan_store::{LogStore, Store, WriteError};
use bayplan_testkit::skipped;
use futures::executor::block_on;

/// A file system of its own, unmounted with the test.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(kib: usize) -> Option<SmallDisk> {
        let folder = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={kib}k"), "none"]).arg(folder.path());
        match mount.output() {
            Ok(output) if output.status.success() => Some(SmallDisk(folder)),
            outcome => {
                skipped(&format!("cannot mount a tmpfs here: {outcome:?}"));
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path()).status();
    }
}

#[test]
fn a_full_disk_is_named_and_writing_goes_on_once_there_is_space() {
    let Some(disk) = SmallDisk::mount(512) else { return };
    let ballast = disk.path().join("ballast");
    std::fs::write(&ballast, vec![0; 256 << 10]).unwrap();
    let folder = disk.path().join("store");
    let store = LogStore::open_folder(&folder).unwrap();
    assert!(store.warning().is_some_and(|warning| warning.contains("has 0 MiB left")), "{:?}", store.warning());

    let key = |number: u64| format!("/{number:06}");
    let mut acknowledged = 1;
    let reason = loop {
        match block_on(store.create(&key(acknowledged + 1), vec![7; 3000].into())) {
            Ok(revision) => acknowledged = revision,
            Err(WriteError::Unavailable(reason)) => break reason,
            Err(other) => panic!("{other}"),
        }
    };
    assert!(reason.contains("No space left on device"), "{reason}");
    assert!(acknowledged > 50, "{acknowledged}");
    // The last pages may still take a small write, but not another one of this size.
    let full = || block_on(store.create("/large", vec![7; 64 << 10].into()));
    assert!(matches!(full(), Err(WriteError::Unavailable(_))));
    assert_eq!(block_on(store.revision()), Ok(acknowledged));
    assert_eq!(block_on(store.range("/0", "/1", None, 0)).unwrap().entries.len() as u64, acknowledged - 1);

    std::fs::remove_file(&ballast).unwrap();
    assert_eq!(block_on(store.writable()), Ok(()));
    assert_eq!(full(), Ok(acknowledged + 1));
    drop(store);
    let store = LogStore::open_folder(&folder).unwrap();
    assert_eq!((store.recovery().cut.clone(), block_on(store.revision())), (None, Ok(acknowledged + 1)));
    let found = block_on(store.range("/", "0", None, 0)).unwrap().entries;
    let expected = (2..=acknowledged).map(|revision| (key(revision), revision));
    assert!(expected.eq(found[..found.len() - 1].iter().map(|entry| (entry.key.to_string(), entry.mod_revision))));
}
