//! The disk seam: the few file operations the log needs, so that tests can crash, corrupt and fill a disk.
//!
//! A disk is one flat folder. What was appended is durable after `DiskFile::sync`, what was created, renamed or removed
//! after `Disk::sync_dir`; before that a crash may keep all, some or none of it.

mod folder;
mod simulated;

use std::io;

pub use folder::FolderDisk;
pub use simulated::{Crash, SimulatedDisk};

/// A file's name and length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// The name inside the folder.
    pub name: String,
    /// The length in bytes.
    pub len: u64,
}

/// A folder of append-only files.
pub trait Disk: Send + Sync {
    /// The files of the folder, in no particular order.
    fn list(&self) -> io::Result<Vec<FileInfo>>;
    /// Reads a file from its beginning.
    fn read(&self, name: &str) -> io::Result<Box<dyn io::Read + Send>>;
    /// Creates a file that must not exist.
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;
    /// Cuts an existing file to `len` bytes and opens it to append there.
    fn reopen(&self, name: &str, len: u64) -> io::Result<Box<dyn DiskFile>>;
    /// Gives a file another name, replacing what had it.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes every creation, renaming and removal so far durable.
    fn sync_dir(&self) -> io::Result<()>;
    /// How many more bytes the disk can take.
    fn free_bytes(&self) -> io::Result<u64>;
}

/// Removes a file that may have been left behind.
pub(crate) fn remove_if_there(disk: &dyn Disk, name: &str) -> io::Result<()> {
    match disk.remove(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

/// An open file that only grows.
pub trait DiskFile: Send {
    /// Adds bytes at the end.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Makes every byte so far durable.
    fn sync(&mut self) -> io::Result<()>;
}
