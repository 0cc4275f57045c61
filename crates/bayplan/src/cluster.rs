//! The API server with all it needs: data folder, certificates, store, listener, kubeconfig.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use bayplan_apiserver::certificates::{Names, Pki, kubeconfig, tls};
use bayplan_apiserver::{ApiServer, Config, ServiceRange, User};
use bayplan_client::Client;
use bayplan_listener::BACKLOG;
use bayplan_store::{Expect, LogStore, OpenError, Store};
use jiff::Timestamp;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinHandle;

use crate::args::Server;
use crate::data_folder::{self, Cleanup, DataFolder};

/// How often a store that had to stop writing is asked to go on, and the space of its disk is looked at: what readiness
/// says is true a second later, and one attempt is a few operations on a file.
const TEND_INTERVAL: Duration = Duration::from_secs(1);

/// A running API server, and what is needed to reach and to stop it.
pub(crate) struct Cluster {
    pub(crate) folder: DataFolder,
    pub(crate) url: String,
    pub(crate) kubeconfig: PathBuf,
    /// The certificate of the authority that vouches for the server.
    pub(crate) authority: String,
    server: ApiServer,
    serving: JoinHandle<()>,
    tending: JoinHandle<()>,
}

impl Cluster {
    /// Opens the folder and the store, listens, and writes the kubeconfig; answers requests when this returns. A start
    /// that fails leaves nothing behind.
    pub(crate) async fn start(args: &Server) -> Result<Cluster> {
        let (folder, mut cleanup) = DataFolder::open(args.data_dir.as_deref(), args.in_memory)?;
        let (pki, store) = open(&folder, args.accept_lost_writes, &mut cleanup)?;
        let store = Arc::new(store);
        let listener = listen(args.port)?;
        let address = listener.local_addr()?;

        let mut config = Config::new(&pki.service_account_key, address);
        config.bootstrap.client_authority = pki.authority.certificate.clone();
        let server = ApiServer::new(config, store.clone()).await?;
        let tls = tls::server_config(&pki)?;
        let url = format!("https://{address}");
        let kubeconfig = args.write_kubeconfig.clone().unwrap_or_else(|| folder.kubeconfig());
        for path in [&folder.kubeconfig(), &kubeconfig] {
            let written = kubeconfig::write(path, &url, &pki.authority.certificate, &pki.admin);
            if let Err(error) = written {
                server.shutdown().await;
                return Err(error).context("cannot write the kubeconfig");
            }
        }
        let serving = tokio::spawn({
            let server = server.clone();
            async move { server.serve(listener, tls).await }
        });
        let tending = tokio::spawn(tend(Arc::downgrade(&store)));
        cleanup.keep();
        tracing::info!(url, kubeconfig = %kubeconfig.display(), "the API server answers");
        Ok(Cluster { folder, url, kubeconfig, authority: pki.authority.certificate, server, serving, tending })
    }

    /// A client in this process that acts as `user`, with that user's rights alone.
    pub(crate) fn client(&self, user: &str, groups: &[&str]) -> Result<Client> {
        let user_agent = user.rsplit(':').next().unwrap_or(user);
        Ok(Client::from_service(self.server.service(User::new(user, groups.iter().copied())))
            .with_user_agent(&format!("{user_agent}/v{}", env!("CARGO_PKG_VERSION")))?)
    }

    /// Ends watches and connections; every acknowledged write is already durable.
    pub(crate) async fn stop(self) {
        self.tending.abort();
        let _ = self.tending.await;
        self.server.shutdown().await;
        let _ = self.serving.await;
    }
}

/// Lets a store write again as soon as its disk does, and warns before that is needed.
async fn tend(store: Weak<LogStore>) {
    let mut warned = false;
    loop {
        tokio::time::sleep(TEND_INTERVAL).await;
        let Some(store) = store.upgrade() else { return };
        // What fails is logged by the store, once for each reason.
        let _ = store.writable().await;
        match store.warning() {
            Some(warning) if !warned => {
                tracing::warn!("{warning}");
                warned = true;
            }
            None if warned => {
                tracing::warn!("the disk of the store has enough space again");
                warned = false;
            }
            _ => {}
        }
    }
}

fn listen(port: u16) -> Result<TcpListener> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let open = || {
        let socket = TcpSocket::new_v4()?;
        // As Go's listeners do: a restart must not wait for the connections of the previous process.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    open().map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            anyhow!("port {port} is in use: choose another with --port, or let --port 0 find one")
        }
        _ => anyhow!("cannot listen on {address}: {error}"),
    })
}

fn open(folder: &DataFolder, accept_lost_writes: bool, cleanup: &mut Cleanup) -> Result<(Pki, LogStore)> {
    let names = Names::standard(hostname().as_deref(), ServiceRange::default().first().into());
    let now = Timestamp::now();
    match folder {
        DataFolder::Kept(path) => {
            // The store first: it holds the lock that keeps a second process out of the folder.
            let store = open_store(path, accept_lost_writes)?;
            cleanup.own_content();
            Ok((Pki::open(&data_folder::pki(path), &names, now)?, store))
        }
        DataFolder::InMemory(_) => Ok((Pki::in_memory(&names, now)?, LogStore::in_memory()?)),
    }
}

fn open_store(folder: &Path, accept_lost_writes: bool) -> Result<LogStore> {
    // Certificates are made after the store.
    let expect = match accept_lost_writes {
        true if data_folder::is_used(folder) => Expect::WhatIsLeft,
        false if data_folder::has_certificates(folder) => Expect::Data,
        _ => Expect::Anything,
    };
    LogStore::open_folder_expecting(data_folder::store(folder), expect).map_err(|error| match error {
        OpenError::Lost { .. } => anyhow!(
            "the store in {} has lost objects that it held: {error}; restore the folder from a backup, or start with \
             what is left: --accept-lost-writes",
            folder.display()
        ),
        OpenError::Locked { holder, .. } => {
            let pid = holder.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
            anyhow!(
                "another Bayplan{pid} uses the data folder {}: choose another with --data-dir, or use --in-memory",
                folder.display()
            )
        }
        error => anyhow::Error::from(error).context(format!("cannot open the store in {}", folder.display())),
    })
}

fn hostname() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned())
}
