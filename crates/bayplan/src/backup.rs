//! `bayplan backup` and `bayplan restore`: a data folder as one checked file, and back.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use bayplan_bench::report::grouped;
use bayplan_store::backup::{Attachment, Backup};

use crate::args;
use crate::data_folder::{self, NewFolder};

/// A key or a certificate has some kilobytes; what is larger is none.
const KEY_BYTES_MAX: u64 = 1 << 20;

/// Writes the backup, and on standard error what is in it.
pub(crate) fn back_up(args: &args::backup::Backup) -> Result<()> {
    let folder = data_folder::existing(args.data_dir.as_deref(), "--data-dir")?;
    let mut backup = Backup::of_folder(data_folder::store(&folder))
        .with_context(|| format!("cannot back up the store in {}", folder.display()))?;
    if !args.without_keys {
        backup.files = keys(&data_folder::pki(&folder))?;
    }
    let bytes = write(&backup, &args.output)?;
    let name = if is_stream(&args.output) { "the backup".to_owned() } else { args.output.display().to_string() };
    let size = format!("{:.1} MB", bytes as f64 / 1e6);
    writeln!(io::stderr(), "{name}: {}, {size}", describe(&backup))?;
    Ok(())
}

/// Checks a backup and makes a data folder of it.
pub(crate) fn restore(args: &args::backup::Restore) -> Result<()> {
    let backup = read(&args.backup)?;
    let mut stdout = io::stdout().lock();
    if args.check {
        writeln!(stdout, "{} is whole: {}", args.backup.display(), describe(&backup))?;
        return Ok(());
    }
    let what = format!("a restore of {}", args.backup.display());
    let folder = NewFolder::claim(args.data_dir.as_deref(), "--data-dir", &what)?;
    let (path, described) = (folder.path().to_owned(), describe(&backup));
    let begins_at = folder.fill(backup.revision, backup.entries, &backup.files)?;
    writeln!(stdout, "{}: {described}; it goes on at revision {}", path.display(), grouped(begins_at))?;
    writeln!(stdout, "Start it with: bayplan up --data-dir {}", path.display())?;
    Ok(())
}

fn is_stream(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// What a backup holds, in a few words.
fn describe(backup: &Backup) -> String {
    let keys = if backup.files.is_empty() { "without keys" } else { "with the cluster's private keys" };
    format!("{} objects at revision {}, {keys}", grouped(backup.entries.len() as u64), grouped(backup.revision))
}

/// The files of the folder of keys and certificates; none if there is no such folder.
fn keys(folder: &Path) -> Result<Vec<Attachment>> {
    let cannot = |path: &Path| format!("cannot read {}", path.display());
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).context(cannot(folder)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.with_context(|| cannot(folder))?;
        let path = entry.path();
        let name = entry.file_name().into_string().map_err(|_| anyhow!("{}: no name of a key", path.display()))?;
        let metadata = entry.metadata().with_context(|| cannot(&path))?;
        // A file that is being written has such a name until it is whole.
        if name.starts_with('.') || !metadata.is_file() {
            continue;
        }
        if metadata.len() > KEY_BYTES_MAX {
            bail!("{} has {} bytes: too large for a key or a certificate", path.display(), metadata.len());
        }
        files.push(Attachment { name, content: std::fs::read(&path).with_context(|| cannot(&path))?.into() });
    }
    files.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(files)
}

/// Writes a file beside the one that is asked for, readable by its owner alone, and puts it in its place once it is
/// durable.
fn write(backup: &Backup, path: &Path) -> Result<u64> {
    if is_stream(path) {
        let mut out = BufWriter::new(io::stdout().lock());
        let bytes = backup.write(&mut out)?;
        out.flush()?;
        return Ok(bytes);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let write = || {
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        let bytes = backup.write(&mut file)?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        File::open(folder)?.sync_all()?;
        Ok(bytes)
    };
    write().map_err(|error: io::Error| anyhow!("cannot write {}: {error}", path.display()))
}

fn read(path: &Path) -> Result<Backup> {
    if is_stream(path) {
        return Ok(Backup::read("the backup on standard input", io::stdin().lock())?);
    }
    let file = File::open(path).map_err(|error| anyhow!("cannot read {}: {error}", path.display()))?;
    Ok(Backup::read(&path.display().to_string(), BufReader::new(file))?)
}
