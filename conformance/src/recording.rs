//! Recorded cases in files.

use std::{
    fs, io,
    io::Read,
    path::{Path, PathBuf},
};

use flate2::read::MultiGzDecoder;
use serde_json::Value;

/// First bytes of a gzip file.
const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be read or inflated.
    #[error("cannot read {}: {source}", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A line is not JSON.
    #[error("{}:{line}: not a JSON document: {source}", .file.display())]
    NotJson {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// Error of the parser.
        source: serde_json::Error,
    },
}

/// One recorded case.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its `id` or `name`, or its file and line.
    pub name: String,
    /// The whole document.
    pub document: Value,
}

/// Reads all cases of a file.
pub fn read(file: &Path) -> Result<Vec<Case>, Error> {
    let unreadable = |source| Error::Unreadable { file: file.into(), source };
    let mut bytes = fs::read(file).map_err(unreadable)?;
    if bytes.starts_with(GZIP_MAGIC) {
        let mut inflated = Vec::new();
        MultiGzDecoder::new(&bytes[..]).read_to_end(&mut inflated).map_err(unreadable)?;
        bytes = inflated;
    }
    let lines = bytes.split(|&byte| byte == b'\n').enumerate();
    lines
        .filter(|(_, line)| !line.trim_ascii().is_empty())
        .map(|(at, line)| {
            let document: Value = serde_json::from_slice(line).map_err(|source| Error::NotJson {
                file: file.into(),
                line: at + 1,
                source,
            })?;
            let name = ["id", "name"].iter().find_map(|key| document.get(key)?.as_str());
            let name = name.map_or_else(|| format!("{}:{}", file.display(), at + 1), Into::into);
            Ok(Case { name, document })
        })
        .collect()
}
