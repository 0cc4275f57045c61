//! Where a cluster keeps its things: the data folder and the files in it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// A folder only its owner can read, or no folder at all.
#[derive(Debug)]
pub(crate) enum DataFolder {
    /// Kept between runs.
    Kept(PathBuf),
    /// A kubeconfig must be somewhere even when nothing else is; removed at the end.
    InMemory(tempfile::TempDir),
}

impl DataFolder {
    /// The folder asked for, or the per-user default; made when missing.
    pub(crate) fn open(asked: Option<&Path>, in_memory: bool) -> Result<DataFolder> {
        if in_memory {
            let folder = tempfile::Builder::new().prefix("bayplan-").tempdir();
            return Ok(DataFolder::InMemory(folder.context("cannot make a temporary folder for the kubeconfig")?));
        }
        let path = match asked {
            Some(path) => std::path::absolute(path)?,
            None => default_path()?,
        };
        make_private(&path).with_context(|| format!("cannot use the data folder {}", path.display()))?;
        Ok(DataFolder::Kept(path))
    }

    /// The folder itself.
    pub(crate) fn path(&self) -> &Path {
        match self {
            DataFolder::Kept(path) => path,
            DataFolder::InMemory(folder) => folder.path(),
        }
    }

    /// Where the administrator's kubeconfig is written.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.path().join("kubeconfig")
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

fn make_private(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    // An existing folder may be wider; keys and secrets will lie in it.
    let mode = std::fs::metadata(path)?.permissions().mode();
    if mode & 0o077 != 0 {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode & !0o077))?;
    }
    std::fs::read_dir(path).map(drop)
}
