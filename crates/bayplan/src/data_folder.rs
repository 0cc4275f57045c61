//! Where a cluster keeps its objects, certificates and kubeconfig.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use bayplan_store::backup::{Attachment, EmptyFolder};
use bayplan_store::{Entry, Revision};

/// The entries of a data folder.
const STORE: &str = "store";
const PKI: &str = "pki";
const KUBECONFIG: &str = "kubeconfig";
const DECISION_LOG: &str = "decisions.jsonl";
const PAGE: &str = "page";
/// There while a restore or a migration fills the folder; says which.
const UNFINISHED: &str = "unfinished";

/// The data folder, or the stand-in for one.
#[derive(Debug)]
pub(crate) enum DataFolder {
    /// Kept between runs.
    Kept(PathBuf),
    /// Holds nothing but the kubeconfig; removed at the end.
    InMemory(tempfile::TempDir),
}

impl DataFolder {
    /// Opens the given folder, or the user's default one, and creates it if it does not exist. An existing folder keeps
    /// its mode: what it holds is private by itself.
    pub(crate) fn open(given: Option<&Path>, in_memory: bool) -> Result<(DataFolder, Cleanup)> {
        if in_memory {
            let folder = tempfile::Builder::new().prefix("bayplan-").tempdir();
            let folder = folder.context("cannot create a temporary folder for the kubeconfig")?;
            return Ok((DataFolder::InMemory(folder), Cleanup::default()));
        }
        let path = path(given)?;
        check_finished(&path)?;
        let cannot = |error: std::io::Error| {
            anyhow!(
                "cannot use the data folder {}: {error}; choose another with --data-dir, or use --in-memory",
                path.display()
            )
        };
        let cleanup = match content(&path).map_err(cannot)? {
            Content::Bayplan => Cleanup::default(),
            Content::Empty => Cleanup::of(&path, Vec::new()),
            Content::Missing => Cleanup::of(&path, create(&path).map_err(cannot)?),
            Content::Other => bail!(
                "the data folder {} is neither empty nor Bayplan's: choose another with --data-dir, or use --in-memory",
                path.display()
            ),
        };
        Ok((DataFolder::Kept(path), cleanup))
    }

    fn path(&self) -> &Path {
        match self {
            DataFolder::Kept(path) => path,
            DataFolder::InMemory(folder) => folder.path(),
        }
    }

    /// The file of the decision log; none in memory.
    pub(crate) fn decision_log(&self) -> Option<PathBuf> {
        match self {
            DataFolder::Kept(path) => Some(path.join(DECISION_LOG)),
            DataFolder::InMemory(_) => None,
        }
    }

    /// The file of the administrator's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.path().join(KUBECONFIG)
    }

    /// The file of the page's token and port.
    pub(crate) fn page(&self) -> PathBuf {
        self.path().join(PAGE)
    }
}

/// The folder of the objects.
pub(crate) fn store(folder: &Path) -> PathBuf {
    folder.join(STORE)
}

/// The folder of keys and certificates.
pub(crate) fn pki(folder: &Path) -> PathBuf {
    folder.join(PKI)
}

/// Whether an earlier run left its certificates here.
pub(crate) fn has_certificates(folder: &Path) -> bool {
    pki(folder).join("ca.pem").is_file()
}

/// Whether an earlier run was here: the store's lock is the first file a start creates, and it is never removed.
pub(crate) fn is_used(folder: &Path) -> bool {
    store(folder).join("lock").is_file() || has_certificates(folder)
}

/// The given folder, or the user's default one.
fn path(given: Option<&Path>) -> Result<PathBuf> {
    match given {
        Some(path) => Ok(std::path::absolute(path)?),
        None => default_path(),
    }
}

/// Refuses a folder that a restore or a migration did not finish: what is in it may be a part only.
fn check_finished(path: &Path) -> Result<()> {
    match std::fs::read_to_string(path.join(UNFINISHED)) {
        Ok(what) => bail!(
            "the data folder {} is incomplete: {} into it is under way or was interrupted; if nothing works on it, \
             remove the folder and begin again",
            path.display(),
            what.trim()
        ),
        Err(_) => Ok(()),
    }
}

/// The folder of an earlier run, or of one that is running.
pub(crate) fn existing(given: Option<&Path>, flag: &str) -> Result<PathBuf> {
    let path = path(given)?;
    check_finished(&path)?;
    if !is_used(&path) {
        bail!("{} is no data folder of Bayplan: name one with {flag}", path.display());
    }
    if !store(&path).is_dir() {
        bail!(
            "the data folder {} holds certificates only: the objects of its cluster are in etcd (etcdctl snapshot save \
             backs that up)",
            path.display()
        );
    }
    Ok(path)
}

/// A data folder that a restore or a migration fills; removed again unless it is filled to the end.
pub(crate) struct NewFolder {
    path: PathBuf,
    store: EmptyFolder,
    cleanup: Cleanup,
}

impl NewFolder {
    /// Takes a folder that is empty or not there yet; `what` is done to it, should it be interrupted.
    pub(crate) fn claim(given: Option<&Path>, flag: &str, what: &str) -> Result<NewFolder> {
        let path = path(given)?;
        check_finished(&path)?;
        let cleanup = match content(&path).with_context(|| cannot_use(&path))? {
            Content::Missing => Cleanup::of(&path, create(&path).with_context(|| cannot_use(&path))?),
            Content::Empty => Cleanup::of(&path, Vec::new()),
            Content::Bayplan | Content::Other => return Err(not_empty(&path, flag)),
        };
        NewFolder::take(path, cleanup, what)
    }

    /// The same of a folder that may hold the keys and certificates of a server whose objects were elsewhere.
    pub(crate) fn claim_beside_keys(given: &Path, flag: &str, what: &str) -> Result<NewFolder> {
        let path = path(Some(given))?;
        check_finished(&path)?;
        if !matches!(content(&path), Ok(Content::Bayplan)) {
            return NewFolder::claim(Some(given), flag, what);
        }
        if store(&path).exists() {
            return Err(not_empty(&path, flag));
        }
        let mut cleanup = Cleanup::of(&path, Vec::new());
        cleanup.keeps_keys = true;
        NewFolder::take(path, cleanup, what)
    }

    fn take(path: PathBuf, mut cleanup: Cleanup, what: &str) -> Result<NewFolder> {
        let cannot = || cannot_use(&path);
        // Before anything else, so that no crash leaves a folder that seems whole. Who makes the file has the folder.
        write_private(&path.join(UNFINISHED), what.as_bytes()).with_context(cannot)?;
        cleanup.own_content();
        let store = EmptyFolder::open(store(&path)).with_context(cannot)?;
        Ok(NewFolder { path, store, cleanup })
    }

    /// Writes keys, certificates and objects; answers the revision at which the store begins.
    pub(crate) fn fill(self, revision: Revision, entries: Vec<Entry>, files: &[Attachment]) -> Result<Revision> {
        let cannot = || format!("cannot fill the data folder {}", self.path.display());
        if !files.is_empty() {
            create(&pki(&self.path)).with_context(cannot)?;
        }
        for file in files {
            write_private(&pki(&self.path).join(&file.name), &file.content).with_context(cannot)?;
        }
        let begins_at = self.store.fill(revision, entries).with_context(cannot)?;
        let finish = || {
            std::fs::remove_file(self.path.join(UNFINISHED))?;
            std::fs::File::open(&self.path)?.sync_all()
        };
        finish().with_context(cannot)?;
        self.cleanup.keep();
        Ok(begins_at)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

fn cannot_use(path: &Path) -> String {
    format!("cannot use the data folder {}", path.display())
}

fn not_empty(path: &Path, flag: &str) -> anyhow::Error {
    anyhow!("the folder {} is not empty: choose a new one with {flag}", path.display())
}

/// Writes a file that must not exist, for its owner alone, durably.
fn write_private(path: &Path, content: &[u8]) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    file.sync_all()?;
    match path.parent() {
        Some(folder) => std::fs::File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

fn default_path() -> Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = set("XDG_DATA_HOME").or_else(|| set("HOME").map(|home| home.join(".local/share")));
    match base {
        Some(base) => Ok(base.join("bayplan")),
        None => bail!("neither XDG_DATA_HOME nor HOME is set: name a folder with --data-dir, or use --in-memory"),
    }
}

/// What a folder holds.
enum Content {
    Missing,
    Empty,
    /// An earlier run's files.
    Bayplan,
    /// Somebody else's files.
    Other,
}

fn content(path: &Path) -> std::io::Result<Content> {
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Content::Missing),
        Err(error) => return Err(error),
    };
    let mut is_empty = true;
    for entry in entries {
        // A file system of its own, such as a volume, has this folder from the start.
        is_empty &= entry?.file_name() == "lost+found";
    }
    Ok(match (is_empty, is_used(path)) {
        (true, _) => Content::Empty,
        (false, true) => Content::Bayplan,
        (false, false) => Content::Other,
    })
}

/// Creates a folder for its owner alone; returns the folders that did not exist, the innermost first.
fn create(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    use std::os::unix::fs::DirBuilderExt;
    let missing: Vec<PathBuf> = path.ancestors().take_while(|path| !path.exists()).map(Path::to_owned).collect();
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    Ok(missing)
}

/// Removes what a start created, unless the start succeeds.
#[derive(Debug, Default)]
pub(crate) struct Cleanup {
    /// The data folder, if it was empty before.
    folder: Option<PathBuf>,
    /// The folders that did not exist before, the innermost first.
    created: Vec<PathBuf>,
    /// True once this process holds the store's lock: until then, files in the folder may be another process's.
    owns_content: bool,
    /// True if keys and kubeconfig were there before.
    keeps_keys: bool,
}

impl Cleanup {
    fn of(folder: &Path, created: Vec<PathBuf>) -> Self {
        Cleanup { folder: Some(folder.to_owned()), created, ..Cleanup::default() }
    }

    /// The store is open, so what is in the folder is this process's.
    pub(crate) fn own_content(&mut self) {
        self.owns_content = true;
    }

    /// The start succeeded.
    pub(crate) fn keep(mut self) {
        self.folder = None;
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        let Some(folder) = &self.folder else { return };
        // What cannot be removed stays: the error that ended the start matters more.
        if self.owns_content {
            let _ = std::fs::remove_dir_all(store(folder));
            let _ = std::fs::remove_file(folder.join(UNFINISHED));
        }
        if self.owns_content && !self.keeps_keys {
            let _ = std::fs::remove_dir_all(pki(folder));
            let _ = std::fs::remove_file(folder.join(KUBECONFIG));
        }
        let _ = std::fs::remove_dir(store(folder));
        for created in &self.created {
            let _ = std::fs::remove_dir(created);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_new_folder_is_private_and_an_existing_one_keeps_its_mode() {
        let parent = tempfile::tempdir().unwrap();
        let new = parent.path().join("a/b");
        DataFolder::open(Some(&new), false).unwrap().1.keep();
        assert_eq!((mode(&new), mode(&parent.path().join("a"))), (0o700, 0o700));
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
        DataFolder::open(Some(&new), false).unwrap().1.keep();
        assert_eq!(mode(&new), 0o755);
    }

    #[test]
    fn a_folder_with_somebody_elses_files_is_refused_and_one_with_an_earlier_runs_is_not() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("lost+found")).unwrap();
        assert!(DataFolder::open(Some(folder.path()), false).is_ok());
        std::fs::write(folder.path().join("thesis.txt"), "").unwrap();
        let error = DataFolder::open(Some(folder.path()), false).unwrap_err().to_string();
        assert!(error.ends_with("is neither empty nor Bayplan's: choose another with --data-dir, or use --in-memory"));
        std::fs::create_dir(store(folder.path())).unwrap();
        std::fs::write(store(folder.path()).join("lock"), "").unwrap();
        assert!(DataFolder::open(Some(folder.path()), false).is_ok());
    }

    #[test]
    fn a_failed_start_removes_what_it_created_and_nothing_else() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/b");
        let fill = || {
            std::fs::create_dir_all(store(&path)).unwrap();
            std::fs::write(store(&path).join("lock"), "").unwrap();
        };
        let (_, mut cleanup) = DataFolder::open(Some(&path), false).unwrap();
        fill();
        cleanup.own_content();
        drop(cleanup);
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);

        // Another process filled the folder first.
        let (_, cleanup) = DataFolder::open(Some(&path), false).unwrap();
        fill();
        drop(cleanup);
        assert!(store(&path).join("lock").exists());

        let (_, mut cleanup) = DataFolder::open(Some(&path), false).unwrap();
        cleanup.own_content();
        drop(cleanup);
        assert!(store(&path).join("lock").exists());
    }
}
