//! The cluster's certificates: an authority, and an identity for the server and for each component.
//!
//! ```text
//!   material (keys and certificates in memory) ◀─▶ folder (the `pki` folder: private, written atomically)
//!        │
//!        ├─▶ tls (server configuration: h2 + http/1.1, optional client certificates; replaced while running)
//!        └─▶ kubeconfig (what kubectl reads)
//! ```

mod folder;
pub mod kubeconfig;
mod material;
pub mod tls;

pub use material::{Identity, Names, Pki, authority_of_nobody};

use std::path::PathBuf;

/// Why certificates could not be created, read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A key or certificate could not be created.
    #[error("cannot create the {what}: {source}")]
    Generate {
        /// The name of the key or certificate.
        what: String,
        /// The error of the library.
        source: rcgen::Error,
    },
    /// A stored key or certificate cannot be used.
    #[error("{what} is not usable: {why}; remove it to get a new one")]
    Broken {
        /// The file, or the name of the material.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// A key or certificate that somebody gave cannot be used.
    #[error("{what} cannot be used: {why}")]
    Unusable {
        /// Where it comes from: the flag and the file.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// A file or folder could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// `read`, `write`, `create`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the file system.
        source: std::io::Error,
    },
    /// The TLS library refused the keys or certificates.
    #[error("cannot serve TLS: {0}")]
    Tls(String),
}
