//! `bayplan migrate`: the objects of a cluster from a data folder into etcd, and back.
//!
//! ```text
//!   folder ─▶ etcd   claim the prefix ─▶ raise etcd's revision ─▶ objects in the order of their last write ─▶ release
//!   etcd ─▶ folder   read all at one revision ─▶ a store with these revisions, which begins beyond them
//! ```

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use bayplan_bench::report::grouped;
use bayplan_etcd::EtcdStore;
use bayplan_kinds::stored_value::{ENCRYPTED, SERVER_LEASES};
use bayplan_store::{Entry, Revision, Store, Unreadable, WriteError};
use bytes::Bytes;

use crate::args::migrate::Migrate;
use crate::cluster::open_store;
use crate::data_folder::{self, NewFolder};
use crate::etcd::{self, UNFINISHED_KEY};
use crate::progress::Progress;

/// All keys of a store.
const FIRST: &str = "/registry/";
const END: &str = "/registry0";
/// Where events are, which etcd deletes after their time.
const EVENTS: &str = "/registry/events/";
/// The most that etcd's revision is raised by: a minute or two of writes to a good disk.
const RAISE_MAX: u64 = 500_000;
/// A move that takes less needs no progress.
const QUIET: Duration = Duration::from_secs(1);
/// Keys that are named when several cannot be moved.
const NAMED_MAX: usize = 3;

/// Moves the objects, and says on standard output what to start next.
pub(crate) async fn run(args: Migrate) -> Result<()> {
    match (&args.from, &args.to) {
        (Some(folder), _) => into_etcd(&args, folder).await,
        (None, Some(folder)) => into_folder(&args, folder).await,
        (None, None) => bail!("name a data folder with --from or --to"),
    }
}

async fn into_etcd(args: &Migrate, folder: &Path) -> Result<()> {
    let flags = args.etcd();
    let folder = data_folder::existing(Some(folder), "--from")?;
    // Opened as a cluster would: that locks the folder, and finds what is damaged.
    let source = open_store(&folder, false)?;
    let range = source.range(FIRST, END, None, 0).await?;
    let mut objects = range.entries;
    objects.retain(|entry| !entry.key.starts_with(SERVER_LEASES));
    objects.sort_by_key(|entry| entry.mod_revision);
    let target = etcd::connect(&flags).await.context("--to-etcd")?;
    let what = format!("a migration of {} objects from {}", grouped(objects.len() as u64), folder.display());
    let mut claim = claim(&target, &flags.etcd_prefix, &what).await?;
    let raised = raise(&target, range.revision, claim, &what).await?;
    claim = raised.unwrap_or(claim);
    write(&target, &objects, args.event_ttl.unsigned()).await?;
    let last = target.delete(UNFINISHED_KEY, claim).await.map_err(|error| stopped(UNFINISHED_KEY, &error))?;
    let mut stdout = io::stdout().lock();
    writeln!(
        stdout,
        "{}: {} objects of {} at revision {}",
        target.describe(),
        grouped(objects.len() as u64),
        folder.display(),
        grouped(last)
    )?;
    if claim <= range.revision {
        writeln!(
            stdout,
            "etcd's revisions are lower than the folder's ({}): restart the clients of the cluster, so that none goes \
             on with what it has read",
            grouped(range.revision)
        )?;
    }
    writeln!(
        stdout,
        "Start it with: bayplan up --data-dir {} --etcd-servers {}",
        folder.display(),
        args.to_etcd.join(",")
    )?;
    Ok(())
}

/// Takes a prefix that holds nothing; answers the revision of the key that marks it as unfinished.
async fn claim(target: &EtcdStore, prefix: &str, what: &str) -> Result<Revision> {
    etcd::check_finished(target, prefix).await?;
    let in_use = |count: usize| {
        anyhow!(
            "the prefix {prefix} in etcd is in use ({} keys): choose another with --etcd-prefix, or remove what is \
             there",
            grouped(count as u64)
        )
    };
    let count = keys(target).await?;
    if count > 0 {
        return Err(in_use(count));
    }
    let claim = target.create(UNFINISHED_KEY, Bytes::from(what.to_owned())).await;
    let claim = claim.map_err(|error| stopped(UNFINISHED_KEY, &error))?;
    // A server that started at the same moment may not have seen the mark.
    match keys(target).await? {
        1 => Ok(claim),
        count => {
            let _ = target.delete(UNFINISHED_KEY, claim).await;
            Err(in_use(count))
        }
    }
}

async fn keys(target: &EtcdStore) -> Result<usize> {
    let range = target.range(FIRST, END, None, 1).await?;
    Ok(range.entries.len() + range.unreadable.len() + range.remaining)
}

/// Raises etcd's revision above the folder's, so that no resourceVersion means two things and a watch that goes on from
/// one of the folder's sees every object; answers the revision of the mark if that was written again.
async fn raise(target: &EtcdStore, to: Revision, claim: Revision, what: &str) -> Result<Option<Revision>> {
    if claim > to || to - claim > RAISE_MAX {
        return Ok(None);
    }
    let mut progress = Progress::after(QUIET);
    let told = |at: Revision| progress.report(&format!("etcd is raised to revision {}: {}", grouped(to), grouped(at)));
    let raised = target.raise_revision(to, UNFINISHED_KEY, Bytes::from(what.to_owned()), told).await;
    progress.clear();
    raised.map_err(|error| stopped(UNFINISHED_KEY, &error))
}

/// Writes the objects one after the other: each has a revision of its own, in the order it had.
async fn write(target: &EtcdStore, objects: &[Entry], event_ttl: Duration) -> Result<()> {
    let mut progress = Progress::after(QUIET);
    for (done, object) in objects.iter().enumerate() {
        let written = match object.key.starts_with(EVENTS) {
            true => target.create_expiring(&object.key, object.value.clone(), event_ttl).await,
            false => target.create(&object.key, object.value.clone()).await,
        };
        written.map_err(|error| stopped(&object.key, &error))?;
        progress.report(&format!("{} of {} objects", grouped(done as u64 + 1), grouped(objects.len() as u64)));
    }
    progress.clear();
    Ok(())
}

fn stopped(key: &str, error: &WriteError) -> anyhow::Error {
    anyhow!("the migration stopped at {key}: {error}; what is there is marked as incomplete")
}

async fn into_folder(args: &Migrate, folder: &Path) -> Result<()> {
    let flags = args.etcd();
    let source = etcd::connect(&flags).await.context("--from-etcd")?;
    etcd::check_finished(&source, &flags.etcd_prefix).await?;
    let range = source.range(FIRST, END, None, 0).await?;
    check_source(&range.entries, &range.unreadable, &flags.etcd_prefix)?;
    let what = format!("a migration from {}", source.describe());
    let new = NewFolder::claim_beside_keys(folder, "--to", &what)?;
    let (path, count): (PathBuf, _) = (new.path().to_owned(), range.entries.len());
    let begins_at = new.fill(range.revision, range.entries, &[])?;
    let mut stdout = io::stdout().lock();
    writeln!(
        stdout,
        "{}: {} objects at revision {}; it goes on at revision {}",
        path.display(),
        grouped(count as u64),
        grouped(range.revision),
        grouped(begins_at)
    )?;
    writeln!(stdout, "Start it with: bayplan up --data-dir {}", path.display())?;
    Ok(())
}

/// Refuses what would be moved in part: a cluster that is still written to, and values that cannot be read.
fn check_source(entries: &[Entry], unreadable: &[Unreadable], prefix: &str) -> Result<()> {
    if entries.is_empty() && unreadable.is_empty() {
        bail!("there is nothing behind the prefix {prefix} in etcd: choose another with --etcd-prefix");
    }
    let servers: Vec<&str> = entries.iter().filter_map(|entry| entry.key.strip_prefix(SERVER_LEASES)).collect();
    if !servers.is_empty() {
        bail!(
            "API servers work on the prefix {prefix} in etcd, or did until seconds ago ({}): stop them, and begin \
             again after 15 s",
            servers.join(", ")
        );
    }
    // Kinds that are not served are moved as they are, which for an encrypted value would be of no use.
    let sealed = entries.iter().filter(|entry| entry.value.starts_with(ENCRYPTED));
    let sealed = sealed.map(|entry| format!("the value of {} is encrypted, and its kind is not served", entry.key));
    let bad: Vec<String> = unreadable.iter().map(ToString::to_string).chain(sealed).collect();
    if let Some(first) = bad.first() {
        let more = if bad.len() > NAMED_MAX { format!(" and {} more", bad.len() - NAMED_MAX) } else { String::new() };
        let named = if bad.len() == 1 { first.clone() } else { bad[..bad.len().min(NAMED_MAX)].join("; ") };
        bail!("nothing was moved: {named}{more}");
    }
    Ok(())
}
