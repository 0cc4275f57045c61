//! How to reach etcd, and why it may not be possible.

use std::sync::Arc;

use bayplan_store::{IdentityCodec, ValueCodec};

/// What the keys of the API server begin with, here and, unless `Options::prefix` says otherwise, in etcd.
pub const DEFAULT_PREFIX: &str = "/registry";

/// Certificates for the connection, in PEM.
#[derive(Clone, Default)]
pub struct Tls {
    /// The CA that signed the members' certificates; `None`: those the system trusts.
    pub ca_pem: Option<Vec<u8>>,
    /// Our certificate and its key, if etcd wants one.
    pub identity_pem: Option<(Vec<u8>, Vec<u8>)>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (ca, identity) = (self.ca_pem.is_some(), self.identity_pem.is_some());
        formatter.debug_struct("Tls").field("ca", &ca).field("identity", &identity).finish()
    }
}

/// How to reach etcd and what to keep.
#[derive(Clone)]
pub struct Options {
    /// The members' addresses, `http://` or `https://` with a port.
    pub endpoints: Vec<String>,
    /// Certificates for `https://`.
    pub tls: Option<Tls>,
    /// What stands in etcd for the `/registry` that keys begin with.
    pub prefix: String,
    /// How values are stored.
    pub codec: Arc<dyn ValueCodec>,
    /// History beyond this is forgotten by the mirror, oldest first; older revisions are then read from etcd.
    pub history_bytes_max: usize,
}

impl Options {
    /// Values as they are under the default prefix; 256 MiB of history are five minutes of 680 writes/s of 1 KiB (each
    /// counted with 256 bytes of overhead), which is what upstream's compaction leaves in etcd.
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Options {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            tls: None,
            prefix: DEFAULT_PREFIX.to_owned(),
            codec: Arc::new(IdentityCodec),
            history_bytes_max: 256 << 20,
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Options")
            .field("endpoints", &self.endpoints)
            .field("tls", &self.tls)
            .field("prefix", &self.prefix)
            .field("history_bytes_max", &self.history_bytes_max)
            .finish_non_exhaustive()
    }
}

/// Why the store could not be opened, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// No address was given.
    #[error("no address of etcd was given")]
    NoAddress,
    /// An address makes no sense.
    #[error("the address '{address}' of etcd cannot be used: {reason}")]
    Address {
        /// The address.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The certificates cannot be used.
    #[error("the certificates for etcd cannot be used: {0}")]
    Tls(String),
    /// The prefix makes no sense.
    #[error("the etcd prefix '{0}' cannot be used: it must have a name in it")]
    Prefix(String),
    /// No member answered; each with its reason.
    #[error("cannot reach etcd: {0}")]
    Unreachable(String),
    /// No member answered, because the certificates on either side do not fit; each with its reason.
    #[error("cannot reach etcd: {0}")]
    Untrusted(String),
    /// A member is too old.
    #[error("etcd at {address} has version {version}; 3.5 or newer is needed")]
    Version {
        /// The member.
        address: String,
        /// Its version.
        version: String,
    },
    /// The keys could not be read.
    #[error("cannot read the keys from etcd: {0}")]
    List(String),
}
