//! The files of a decision log: one that is written, and older ones with a number behind its name.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Bytes that are gathered before they are written.
const BUFFER: usize = 1 << 16;

/// A file that is written, and what is kept of its predecessors.
pub(super) struct LogFiles {
    path: PathBuf,
    bytes_max: u64,
    files_max: usize,
    output: Option<Counted>,
    /// The size of the state with which the file begins.
    state_bytes: u64,
}

impl LogFiles {
    pub(super) fn new(path: PathBuf, bytes_max: u64, files_max: usize) -> Self {
        LogFiles { path, bytes_max, files_max: files_max.max(1), output: None, state_bytes: 0 }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn older(&self, number: usize) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }

    /// Closes the file, gives each older one the next number, and opens a new one.
    pub(super) fn rotate(&mut self) -> io::Result<()> {
        self.output = None;
        for number in (1..self.files_max).rev() {
            let from = if number == 1 { self.path.clone() } else { self.older(number - 1) };
            match std::fs::rename(&from, self.older(number)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        // Names of pods and nodes are for the owner's eyes.
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&self.path)?;
        self.output = Some(Counted { file: BufWriter::with_capacity(BUFFER, file), bytes: 0 });
        self.state_bytes = 0;
        Ok(())
    }

    /// Where lines go.
    pub(super) fn output(&mut self) -> io::Result<&mut Counted> {
        self.output.as_mut().ok_or_else(|| io::Error::other("the file could not be opened"))
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.output.as_mut().map_or(Ok(()), Write::flush)
    }

    /// From now on everything that is written finds the disk full.
    #[cfg(test)]
    pub(super) fn fill_disk(&mut self) {
        let full = OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
        self.output = Some(Counted { file: BufWriter::with_capacity(BUFFER, full), bytes: 0 });
    }

    /// Everything that was written so far is the state with which the file begins.
    pub(super) fn state_is_written(&mut self) {
        self.state_bytes = self.output.as_ref().map_or(0, |output| output.bytes);
    }

    /// True for a file that is as large as a file may be. In a cluster whose state alone is that large, as much again
    /// follows it: otherwise a log would be nothing but states.
    pub(super) fn is_full(&self) -> bool {
        let bytes = self.output.as_ref().map_or(0, |output| output.bytes);
        bytes > self.bytes_max.max(self.state_bytes.saturating_mul(2))
    }
}

/// A file that knows its size.
pub(super) struct Counted {
    file: BufWriter<File>,
    bytes: u64,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
