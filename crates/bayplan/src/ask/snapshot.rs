//! `bayplan snapshot`: what decisions depend on, in one file.

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use bayplan_sources::{ClusterObjects, Redaction, write_snapshot};

use super::{Outcome, load};
use crate::args::snapshot::Snapshot;

/// Writes the snapshot, and on standard error what is in it and what is not.
pub(crate) async fn run(args: Snapshot) -> Result<ExitCode> {
    let objects = load::load(&args.source).await?;
    let redaction = if args.redact { Redaction::Names } else { Redaction::None };
    let count = write(&objects, redaction, &args.output)?;
    report(&objects, count, &args.output)?;
    Ok(Outcome::Fits.into())
}

/// Writes a file beside the one that is asked for, and puts it in its place once it is whole.
fn write(objects: &ClusterObjects, redaction: Redaction, path: &Path) -> Result<usize> {
    if path.as_os_str() == "-" {
        return Ok(write_snapshot(objects, redaction, BufWriter::new(io::stdout().lock()))?);
    }
    let cannot_write = || format!("cannot write {}", path.display());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = tempfile::NamedTempFile::new_in(folder).with_context(cannot_write)?;
    let count = write_snapshot(objects, redaction, BufWriter::new(&file)).with_context(cannot_write)?;
    file.persist(path).map_err(|error| error.error).with_context(cannot_write)?;
    Ok(count)
}

fn report(objects: &ClusterObjects, count: usize, path: &Path) -> Result<()> {
    let mut stderr = io::stderr().lock();
    if path.as_os_str() != "-" {
        let size = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        writeln!(stderr, "{}: {count} objects in {}", path.display(), spoken(size))?;
    }
    let missing = objects.missing();
    if !missing.is_empty() {
        writeln!(stderr, "not in it, although it may change answers: {}", missing.join(", "))?;
    }
    objects.notes.iter().try_for_each(|note| writeln!(stderr, "{note}"))?;
    Ok(())
}

/// A size in the largest unit of which it has one.
fn spoken(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}
