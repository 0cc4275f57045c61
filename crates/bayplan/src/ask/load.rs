//! Brings in what a question is asked of: the cluster, the configuration, and objects that somebody wrote.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bayplan_scheduler::config::Configuration;
use bayplan_sources::{ClusterObjects, Given, SourceReader, manifests};
use serde_json::Value;

use super::live;
use crate::args::source::Source;
use crate::progress::Progress;

/// The name of standard input.
const STANDARD_INPUT: &str = "-";

/// How long a load takes before it is worth a line.
const PROGRESS_DELAY: Duration = Duration::from_millis(500);

/// How deep folders may nest; a bind mount can make them endless.
const FOLDER_DEPTH_MAX: usize = 64;

/// What `-f` may hold: more than anybody writes by hand, less than memory.
const MANIFEST_BYTES_MAX: u64 = 256 << 20;

/// Reads the cluster that a question is asked of: the files of `--from`, or a live one.
pub(crate) async fn load(source: &Source) -> Result<ClusterObjects> {
    if source.from.is_empty() {
        return live::read(&live::connect(source).await?).await;
    }
    let from = source.from.clone();
    tokio::task::spawn_blocking(move || read_files(&from)).await?
}

/// The configuration to decide with: the file of `--config`, or upstream's defaults.
pub(crate) fn configuration(source: &Source) -> Result<Configuration> {
    source.config.as_deref().map_or_else(|| Ok(Configuration::default()), configuration_of)
}

/// The configuration in a file.
pub(crate) fn configuration_of(path: &Path) -> Result<Configuration> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Configuration::from_yaml(&text).with_context(|| format!("cannot use {}", path.display()))
}

/// The objects of `-f`: files, folders and `-`, all objects in their order, whatever their kind.
pub(crate) fn read_manifests(paths: &[PathBuf]) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    let mut files = Vec::new();
    for path in paths {
        match is_standard_input(path) {
            true => files.push(path.clone()),
            false => list_files(path, 0, &mut files)?,
        }
    }
    for path in &files {
        let shown = path.display();
        let mut text = Vec::new();
        let mut input = open(path)?;
        let count = input.by_ref().take(MANIFEST_BYTES_MAX + 1).read_to_end(&mut text);
        let count = count.with_context(|| format!("cannot read {shown}"))?;
        ensure!(count as u64 <= MANIFEST_BYTES_MAX, "{shown} is larger than {} MiB", MANIFEST_BYTES_MAX >> 20);
        objects.extend(manifests(&text).with_context(|| format!("cannot use {shown}"))?);
    }
    ensure!(!objects.is_empty(), "there are no objects in {}", display_all(paths));
    Ok(objects)
}

/// Reads all files and folders of `--from`.
fn read_files(from: &[PathBuf]) -> Result<ClusterObjects> {
    let mut reader = SourceReader::default();
    let (mut bytes, mut progress) = (0, LoadProgress::new());
    for path in from {
        let name = path.display().to_string();
        if is_standard_input(path) {
            let mut input = Counted { input: io::stdin(), bytes: &mut bytes, progress: &mut progress };
            reader.read(&name, &mut input, Given::Directly);
            continue;
        }
        if !path.is_dir() {
            let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
            let mut input = Counted { input: file, bytes: &mut bytes, progress: &mut progress };
            match input.input.metadata().is_ok_and(|metadata| metadata.is_file()) {
                true => reader.read_seekable(&name, &mut input, Given::Directly)?,
                // A pipe, `<(kubectl get …)` for example.
                false => reader.read(&name, &mut input, Given::Directly),
            }
            continue;
        }
        let mut files = Vec::new();
        list_files(path, 0, &mut files)?;
        for file in files {
            let name = file.display().to_string();
            match File::open(&file) {
                Ok(input) => {
                    let mut input = Counted { input, bytes: &mut bytes, progress: &mut progress };
                    reader.read(&name, &mut input, Given::Within);
                }
                Err(error) => reader.note(format!("{name} is left out: {error}")),
            }
        }
    }
    progress.clear();
    let seen = reader.seen();
    let objects = reader.finish();
    if seen == 0 && objects.listed.is_empty() {
        let why = objects.notes.first().map_or_else(String::new, |note| format!(": {note}"));
        bail!("there are no Kubernetes objects in {}{why}", display_all(from));
    }
    Ok(objects)
}

fn is_standard_input(path: &Path) -> bool {
    path.as_os_str() == STANDARD_INPUT
}

fn display_all(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn open(path: &Path) -> Result<Box<dyn Read>> {
    if is_standard_input(path) {
        return Ok(Box::new(io::stdin()));
    }
    Ok(Box::new(File::open(path).with_context(|| format!("cannot read {}", path.display()))?))
}

/// The files below a path, by name. Links to folders are not followed: they may lead back.
fn list_files(path: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<()> {
    let cannot_read = || format!("cannot read {}", path.display());
    if !path.is_dir() {
        std::fs::metadata(path).with_context(cannot_read)?;
        files.push(path.to_owned());
        return Ok(());
    }
    ensure!(depth < FOLDER_DEPTH_MAX, "{} is more than {FOLDER_DEPTH_MAX} folders deep", path.display());
    let mut entries: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(path).with_context(cannot_read)? {
        let entry = entry.with_context(cannot_read)?;
        let kind = entry.file_type().with_context(cannot_read)?;
        let leads_to_file = kind.is_symlink() && entry.path().is_file();
        if kind.is_dir() || kind.is_file() || leads_to_file {
            entries.push(entry.path());
        }
    }
    entries.sort();
    entries.iter().try_for_each(|entry| list_files(entry, depth + 1, files))
}

/// How far a load is, on a terminal.
pub(crate) struct LoadProgress {
    progress: Progress,
    terminal: bool,
}

impl LoadProgress {
    /// Shows nothing while a load is short.
    pub(crate) fn new() -> Self {
        LoadProgress { progress: Progress::after(PROGRESS_DELAY), terminal: io::stderr().is_terminal() }
    }

    /// Shows a line, if it is time for one.
    pub(crate) fn report(&mut self, line: impl FnOnce() -> String) {
        if self.terminal && Instant::now() >= self.progress.next() {
            self.progress.show(&line());
        }
    }

    /// Takes the line away.
    pub(crate) fn clear(&self) {
        self.progress.clear();
    }
}

/// A reader that shows how far it is.
struct Counted<'c, R> {
    input: R,
    bytes: &'c mut u64,
    progress: &'c mut LoadProgress,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        *self.bytes += count as u64;
        self.progress.report(|| format!("reading the cluster: {} MiB", *self.bytes >> 20));
        Ok(count)
    }
}

impl<R: Seek> Seek for Counted<'_, R> {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.input.seek(position)
    }
}
