//! The server side put together: certificates, store, API server, listener, kubeconfig.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use bayplan_apiserver::certificates::{Names, Pki, kubeconfig, tls};
use bayplan_apiserver::registry::ServiceRange;
use bayplan_apiserver::server::{ApiServer, Config};
use bayplan_apiserver::user::User;
use bayplan_client::Client;
use bayplan_store::LogStore;
use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::args::Server;
use crate::data_folder::DataFolder;

/// A served API, and everything needed to reach and to stop it.
pub(crate) struct Cluster {
    pub(crate) folder: DataFolder,
    pub(crate) url: String,
    pub(crate) kubeconfig: PathBuf,
    /// The authority's certificate, which pods get to recognise the server by.
    pub(crate) authority: String,
    server: ApiServer,
    serving: JoinHandle<()>,
}

impl Cluster {
    /// Opens the folder and the store, listens, and writes the kubeconfig; answers requests when this returns.
    pub(crate) async fn start(args: &Server) -> Result<Cluster> {
        let folder = DataFolder::open(args.data_dir.as_deref(), args.in_memory)?;
        let listener = listen(args.port).await?;
        let address = listener.local_addr()?;
        let (pki, store) = open(&folder)?;

        let mut config = Config::new(&pki.service_account_key, address);
        config.bootstrap.client_authority = pki.authority.certificate.clone();
        let server = ApiServer::new(config, Arc::new(store)).await?;
        let tls = tls::server_config(&pki)?;
        let serving = tokio::spawn({
            let server = server.clone();
            async move { server.serve(listener, tls).await }
        });

        let url = format!("https://{address}");
        let kubeconfig = args.write_kubeconfig.clone().unwrap_or_else(|| folder.kubeconfig());
        for path in [&folder.kubeconfig(), &kubeconfig] {
            kubeconfig::write(path, &url, &pki.authority.certificate, &pki.admin)
                .with_context(|| format!("cannot write the kubeconfig {}", path.display()))?;
        }
        Ok(Cluster { folder, url, kubeconfig, authority: pki.authority.certificate, server, serving })
    }

    /// A client of this process with a user's name and that user's rights, no more.
    pub(crate) fn client(&self, user: &str, groups: &[&str]) -> Result<Client> {
        let user_agent = user.rsplit(':').next().unwrap_or(user);
        Ok(Client::from_service(self.server.service(User::new(user, groups.iter().copied())))
            .with_user_agent(&format!("{user_agent}/v{}", env!("CARGO_PKG_VERSION")))?)
    }

    /// Ends watches and connections; every acknowledged write is already durable.
    pub(crate) async fn stop(self) {
        self.server.shutdown().await;
        let _ = self.serving.await;
    }
}

async fn listen(port: u16) -> Result<TcpListener> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            anyhow!("port {port} is in use: choose another with --port, or let --port 0 find one")
        }
        _ => anyhow!("cannot listen on {address}: {error}"),
    })
}

fn open(folder: &DataFolder) -> Result<(Pki, LogStore)> {
    let names = Names::standard(hostname().as_deref(), ServiceRange::default().first().into());
    let now = Timestamp::now();
    match folder {
        DataFolder::Kept(path) => {
            // The store first: it holds the lock that keeps a second process out of the folder.
            let store = open_store(&path.join("store"))?;
            Ok((Pki::open(&path.join("pki"), &names, now)?, store))
        }
        DataFolder::InMemory(_) => Ok((Pki::in_memory(&names, now)?, LogStore::in_memory()?)),
    }
}

fn open_store(path: &Path) -> Result<LogStore> {
    LogStore::open_folder(path).with_context(|| format!("cannot open the store in {}", path.display()))
}

fn hostname() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned())
}
