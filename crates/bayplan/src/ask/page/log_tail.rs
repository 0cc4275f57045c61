//! A decision log as it is written: its older files, the one that is being written, and those that follow it.

use std::fs::File;
use std::io::{BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bayplan_page::ClusterView;
use bayplan_sources::decision_log::DecisionLogReader;

/// How often the file is looked at for more: decisions are seen as they happen, and it costs nothing.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Entries that are shown together, so that a long log is not drawn at every line of it.
const TOGETHER_MAX: usize = 1000;

/// The files of a log one after the other; at the end of the last it waits for more, until it is stopped.
struct Tail {
    path: PathBuf,
    /// Those that were there at the beginning and are not read yet, the oldest last.
    waiting: Vec<File>,
    file: Option<File>,
    /// How much of the file was read.
    bytes: u64,
    stopped: Arc<AtomicBool>,
    /// Whether all that is written so far was read.
    at_end: Arc<AtomicBool>,
}

impl Tail {
    /// Begins one file before the one that is being written, which may have just begun.
    fn new(path: &Path, stopped: Arc<AtomicBool>, at_end: Arc<AtomicBool>) -> Self {
        let mut before = path.as_os_str().to_owned();
        before.push(".1");
        let waiting = [path, Path::new(&before)].into_iter().filter_map(|path| File::open(path).ok()).collect();
        Tail { path: path.to_owned(), waiting, file: None, bytes: 0, stopped, at_end }
    }

    /// The file that follows the one that is read, if there is one.
    fn next_file(&mut self) -> Option<File> {
        if let Some(next) = self.waiting.pop() {
            return Some(next);
        }
        let next = File::open(&self.path).ok()?;
        let Some(current) = &self.file else { return Some(next) };
        let (about, current) = (next.metadata().ok()?, current.metadata().ok()?);
        // A log of one file is written over.
        (about.ino() != current.ino() || about.len() < self.bytes).then_some(next)
    }

    fn read_file(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let count = self.file.as_mut().map_or(Ok(0), |file| file.read(into))?;
        self.bytes += count as u64;
        Ok(count)
    }
}

impl Read for Tail {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        loop {
            let count = self.read_file(into)?;
            if count > 0 {
                return Ok(count);
            }
            if let Some(next) = self.next_file() {
                // What was written between the last look at the old file and its end.
                let rest = self.read_file(into)?;
                if rest > 0 {
                    self.waiting.push(next);
                    return Ok(rest);
                }
                (self.file, self.bytes) = (Some(next), 0);
                continue;
            }
            if self.stopped.load(Ordering::Relaxed) {
                return Ok(0);
            }
            self.at_end.store(true, Ordering::Relaxed);
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// Shows a log as it is written; dropping it stops it.
pub(super) struct FollowedLog {
    stopped: Arc<AtomicBool>,
}

impl Drop for FollowedLog {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

/// Begins to show a log, which need not be there yet.
pub(super) fn follow_log(path: &Path, view: Arc<ClusterView>) -> std::io::Result<FollowedLog> {
    let stopped = Arc::new(AtomicBool::new(false));
    let at_end = Arc::new(AtomicBool::new(false));
    let tail = Tail::new(path, stopped.clone(), at_end.clone());
    let thread = std::thread::Builder::new().name("page-decisions".into());
    thread.spawn(move || {
        let mut reader = DecisionLogReader::new(BufReader::new(tail));
        let mut together = Vec::new();
        for entry in reader.by_ref() {
            together.push(entry);
            if at_end.load(Ordering::Relaxed) || together.len() >= TOGETHER_MAX {
                view.log(together.drain(..));
            }
        }
        view.log(together);
        for note in reader.notes() {
            tracing::warn!("decision log: {note}");
        }
    })?;
    Ok(FollowedLog { stopped })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;

    fn next(tail: &mut Tail) -> String {
        let mut bytes = [0; 64];
        let count = tail.read(&mut bytes).unwrap();
        String::from_utf8(bytes[..count].to_vec()).unwrap()
    }

    #[test]
    fn a_log_is_read_across_its_files_while_they_are_renamed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, older) = (folder.path().join("log"), folder.path().join("log.1"));
        fs::write(&older, "one").unwrap();
        fs::write(&path, "two").unwrap();
        // What is stopped reads to the end and does not wait.
        let flag = |set: bool| Arc::new(AtomicBool::new(set));
        let mut tail = Tail::new(&path, flag(true), flag(false));
        assert_eq!((next(&mut tail), next(&mut tail), next(&mut tail)), ("one".into(), "two".into(), String::new()));
        let mut current = fs::OpenOptions::new().append(true).open(&path).unwrap();
        current.write_all(b"three").unwrap();
        assert_eq!(next(&mut tail), "three");
        current.write_all(b"four").unwrap();
        fs::rename(&path, &older).unwrap();
        fs::write(&path, "five").unwrap();
        assert_eq!((next(&mut tail), next(&mut tail)), ("four".into(), "five".into()));
        fs::write(&path, "6").unwrap();
        assert_eq!((next(&mut tail), next(&mut tail)), ("6".into(), String::new()));
    }

    #[test]
    fn a_log_that_is_not_there_yet_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let flag = |set: bool| Arc::new(AtomicBool::new(set));
        let mut tail = Tail::new(&path, flag(true), flag(false));
        assert_eq!(next(&mut tail), "");
        fs::write(&path, "one").unwrap();
        assert_eq!(next(&mut tail), "one");
    }
}
