//! A cluster in this process: an API server on a durable store in a folder that is gone afterwards.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bayplan_apiserver::certificates::{Names, Pki};
use bayplan_apiserver::registry::ServiceRange;
use bayplan_apiserver::server::{self, ApiServer, Config};
use bayplan_apiserver::user::User;
use bayplan_client::Client;
use bayplan_store::LogStore;
use jiff::Timestamp;
use tempfile::TempDir;

use super::Cluster;

/// Why there is no embedded cluster.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No folder for the store.
    #[error("cannot make a folder for the store: {0}")]
    Folder(#[source] std::io::Error),
    /// The store does not open.
    #[error("cannot open the store: {0}")]
    Store(#[source] Box<bayplan_store::OpenError>),
    /// No keys.
    #[error("cannot make keys: {0}")]
    Keys(String),
    /// The API server does not start.
    #[error(transparent)]
    Server(#[from] server::Error),
}

/// The cluster; its folder is removed when it is dropped.
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

    /// Clients with the rights of their parts, as the parts of `bayplan up` have them.
    pub fn cluster(&self) -> Cluster {
        Cluster {
            admin: self.client("kubernetes-admin", &["system:masters"]),
            scheduler: self.client("system:kube-scheduler", &[]),
        }
    }

    /// A client with a user's rights.
    pub fn client(&self, user: &str, groups: &[&str]) -> Client {
        Client::from_service(self.server.service(User::new(user, groups.iter().copied())))
    }

    /// Ends watches and background work.
    pub async fn stop(self) {
        self.server.shutdown().await;
    }
}
