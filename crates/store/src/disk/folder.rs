//! A real folder: files for the owner only, locked against a second process.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::{Disk, DiskFile, FileInfo};
use crate::OpenError;

/// The file whose lock marks the folder as open; it is never removed, or two processes could lock two files.
const LOCK_FILE: &str = "lock";

/// A folder of the file system, locked as long as the value lives.
#[derive(Debug)]
pub struct FolderDisk {
    path: PathBuf,
    /// `None`: somebody else may write in it.
    lock: Option<File>,
}

impl FolderDisk {
    /// Opens a folder, creating it if need be, and locks it.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, OpenError> {
        let path = path.into();
        let failed = |step, source| OpenError::Io { step, file: path.display().to_string(), source };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .map_err(|error| failed("create the folder", error))?;
        let lock = owner_only().read(true).write(true).create(true).truncate(false).open(path.join(LOCK_FILE));
        let mut lock = lock.map_err(|error| failed("open the lock file in", error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder = std::io::read_to_string(&lock).ok().and_then(|text| text.trim().parse().ok());
                return Err(OpenError::Locked { folder: path.display().to_string(), holder });
            }
            Err(TryLockError::Error(error)) => return Err(failed("lock", error)),
        }
        // Only for the message to a second process, so it need not survive a crash.
        lock.set_len(0)
            .and_then(|()| writeln!(lock, "{}", std::process::id()))
            .map_err(|error| failed("write the lock file in", error))?;
        if let Some(parent) = path.canonicalize().ok().as_deref().and_then(Path::parent) {
            File::open(parent)
                .and_then(|parent| parent.sync_all())
                .map_err(|error| failed("sync the parent of", error))?;
        }
        Ok(FolderDisk { path, lock: Some(lock) })
    }

    /// Looks at a folder that another process may be writing in; for reading alone.
    pub(crate) fn unlocked(path: impl Into<PathBuf>) -> Self {
        FolderDisk { path: path.into(), lock: None }
    }
}

impl Drop for FolderDisk {
    fn drop(&mut self) {
        // Closing the file alone would leave the lock with a process that was forked meanwhile and has not run exec
        // yet.
        if let Some(Err(error)) = self.lock.as_ref().map(File::unlock) {
            tracing::warn!(%error, "could not unlock the store's folder");
        }
    }
}

fn owner_only() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

impl Disk for FolderDisk {
    fn list(&self) -> io::Result<Vec<FileInfo>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?;
            // No file of ours has a name that is not UTF-8.
            let Ok(name) = entry.file_name().into_string() else { continue };
            let metadata = entry.metadata()?;
            if metadata.is_file() && name != LOCK_FILE {
                files.push(FileInfo { name, len: metadata.len() });
            }
        }
        Ok(files)
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn io::Read + Send>> {
        Ok(Box::new(File::open(self.path.join(name))?))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(owner_only().append(true).create_new(true).open(self.path.join(name))?))
    }

    fn reopen(&self, name: &str, len: u64) -> io::Result<Box<dyn DiskFile>> {
        let file = owner_only().append(true).open(self.path.join(name))?;
        file.set_len(len)?;
        Ok(Box::new(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path.join(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let disk = rustix::fs::statvfs(&self.path)?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }
}

impl DiskFile for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        // The length is data to us, and fdatasync writes it when it changed.
        self.sync_data()
    }
}
