//! The cluster's certificates: its own authority, and an identity for the server and each component.
//!
//! ```text
//!   material (keys and certificates in memory) ◀─▶ folder (the `pki` folder: owner only, written atomically)
//!        │
//!        ├─▶ tls (server configuration: h2 + http/1.1, optional client certificates)
//!        └─▶ kubeconfig (what kubectl reads)
//! ```

pub mod folder;
pub mod kubeconfig;
pub mod material;
pub mod tls;

pub use material::{Identity, Names, Pki};

use std::path::PathBuf;

/// Why there are no certificates.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A key or certificate could not be made.
    #[error("cannot make the {what}: {source}")]
    Generate {
        /// Which one.
        what: String,
        /// Why.
        source: rcgen::Error,
    },
    /// A stored key or certificate is not what it should be.
    #[error("{what} is not usable: {why}; remove it to get a new one")]
    Broken {
        /// The file, or the name of the material.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// A file or folder could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// `read`, `write`, `create`.
        action: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The TLS library refused the material.
    #[error("cannot serve TLS: {0}")]
    Tls(String),
}
