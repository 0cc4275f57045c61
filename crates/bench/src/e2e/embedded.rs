//! A cluster in this process: an API server on a durable store in a temporary folder.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bayplan_apiserver::certificates::{Names, Pki};
use bayplan_apiserver::{ApiServer, Config, ServiceRange, StartError, User};
use bayplan_client::Client;
use bayplan_store::LogStore;
use jiff::Timestamp;
use tempfile::TempDir;

use super::Cluster;

/// Why the embedded cluster does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The temporary folder cannot be created.
    #[error("cannot make a folder for the store: {0}")]
    Folder(#[source] std::io::Error),
    /// The store does not open.
    #[error("cannot open the store: {0}")]
    Store(#[source] Box<bayplan_store::OpenError>),
    /// The certificates cannot be created.
    #[error("cannot make keys: {0}")]
    Keys(String),
    /// The API server does not start.
    #[error(transparent)]
    Server(#[from] StartError),
}

/// An embedded cluster. Dropping it removes its folder.
pub struct Embedded {
    server: ApiServer,
    _folder: TempDir,
}

impl Embedded {
    /// Starts an API server on an empty durable store.
    pub async fn start() -> Result<Self, Error> {
        let folder = tempfile::Builder::new().prefix("bayplan-bench-").tempdir().map_err(Error::Folder)?;
        let store =
            LogStore::open_folder(folder.path().join("store")).map_err(|error| Error::Store(Box::new(error)))?;
        let names = Names::standard(None, ServiceRange::default().first().into());
        let pki = Pki::in_memory(&names, Timestamp::now()).map_err(|error| Error::Keys(error.to_string()))?;
        let config = Config::new(&pki.service_account_key, SocketAddr::from((Ipv4Addr::LOCALHOST, 6443)));
        let server = ApiServer::new(config, Arc::new(store)).await?;
        Ok(Embedded { server, _folder: folder })
    }

    /// Clients with the same rights as the parts of `bayplan up`.
    pub fn cluster(&self) -> Cluster {
        Cluster {
            admin: self.client("kubernetes-admin", &["system:masters"]),
            scheduler: self.client("system:kube-scheduler", &[]),
        }
    }

    /// A client that acts as this user.
    pub fn client(&self, user: &str, groups: &[&str]) -> Client {
        Client::from_service(self.server.service(User::new(user, groups.iter().copied())))
    }

    /// Stops the server: ends its watches and background work.
    pub async fn stop(self) {
        self.server.shutdown().await;
    }
}
