//! The API server with all it needs: data folder, certificates, store, listener, kubeconfig.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use bayplan_apiserver::certificates::{Identity, Names, Pki, authority_of_nobody};
use bayplan_apiserver::{ApiServer, Config, RequestHeaders, ServiceRange, User};
use bayplan_client::Client;
use bayplan_listener::BACKLOG;
use bayplan_metrics::ZPages;
use bayplan_runner::controllers::SigningKeyPair;
use bayplan_runner::metrics::process_registry;
use bayplan_store::{Expect, LogStore, OpenError, Store};
use jiff::Timestamp;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinHandle;

use crate::apiserver::files::{OwnCertificates, Renewal, ServingFiles};
use crate::apiserver::options::ConfigChanges;
use crate::args::Server;
use crate::args::apiserver::Etcd;
use crate::args::component::MetricsAndLogs;
use crate::data_folder::{self, Cleanup, DataFolder};
use crate::traces::Traces;
use crate::{component, etcd, joining};

/// How often a store that had to stop writing is asked to go on, and the space of its disk is looked at: what readiness
/// says is true a second later, and one attempt is a few operations on a file.
const TEND_INTERVAL: Duration = Duration::from_secs(1);

/// What the API server answers beside resources, as `/statusz` lists it.
const SERVER_PATHS: &[&str] = &["/flagz", "/healthz", "/livez", "/metrics", "/readyz", "/statusz", "/version"];

/// What an API server that stands where a kube-apiserver stood does otherwise than that of `bayplan up`.
#[derive(Default)]
pub(crate) struct StandIn {
    /// The address to listen on; loopback without.
    pub(crate) bind: Option<IpAddr>,
    /// The port to listen on, in place of `--port`.
    pub(crate) port: Option<u16>,
    /// The address that the members of the cluster are told.
    pub(crate) advertise: Option<IpAddr>,
    pub(crate) files: ServingFiles,
    pub(crate) request_headers: Option<RequestHeaders>,
    pub(crate) etcd: Etcd,
    pub(crate) service_range: ServiceRange,
    /// Whether the service range is that of the cluster in the store, if there is one.
    pub(crate) joins: bool,
    pub(crate) config: Option<ConfigChanges>,
    /// The flags of traces.
    pub(crate) metrics_and_logs: Option<MetricsAndLogs>,
    /// Serve `metrics.k8s.io` with what simulated pods use.
    pub(crate) simulated_usage: bool,
}

/// A running API server, and what is needed to reach and to stop it.
pub(crate) struct Cluster {
    pub(crate) folder: DataFolder,
    pub(crate) url: String,
    /// The administrator's; none where another authority issues the certificates of users.
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The certificate of the authority that vouches for the server.
    pub(crate) authority: String,
    /// Where its objects are, unless in the folder.
    pub(crate) etcd: Option<String>,
    /// The authority that issues certificates of users, with its key; none where another one does.
    pub(crate) signing: Option<SigningKeyPair>,
    /// The private key that signs the tokens of service accounts.
    pub(crate) service_account_key: String,
    server: ApiServer,
    serving: JoinHandle<()>,
    /// What is done beside serving until the end.
    tending: [JoinHandle<()>; 2],
    traces: Traces,
}

impl Cluster {
    /// Opens the folder and the store, listens, and writes the kubeconfig; answers requests when this returns. A start
    /// that fails leaves nothing behind.
    pub(crate) async fn start(args: &Server, mut stand_in: StandIn) -> Result<Cluster> {
        let (folder, mut cleanup) = DataFolder::open(args.data_dir.as_deref(), args.in_memory)?;
        let store = open(&folder, args.accept_lost_writes, &stand_in, &mut cleanup).await?;
        if stand_in.joins {
            stand_in.service_range = joining::service_range(&*store).await?.unwrap_or_default();
        }
        let names = names(&stand_in);
        let pki = open_pki(&folder, &names)?;
        let listener = listen(stand_in.bind, stand_in.port.unwrap_or(args.port))?;
        let address = advertised(&stand_in, listener.local_addr()?);

        let service_account_key = pki.service_account_key.clone();
        let mut config = Config::new(&service_account_key, address);
        let url = format!("https://{address}");
        config.simulated_usage = stand_in.simulated_usage;
        let (mut kubeconfig, mut kubeconfigs, mut signing) = (None, Vec::new(), None);
        if stand_in.files.issues_users() {
            let Identity { certificate, key } = pki.authority.clone();
            signing = Some(SigningKeyPair { certificate, key });
            let path = args.write_kubeconfig.clone().unwrap_or_else(|| folder.kubeconfig());
            kubeconfigs = vec![folder.kubeconfig(), path.clone()];
            kubeconfig = Some(path);
        }
        let own = OwnCertificates { pki, folder: pki_folder(&folder), names, kubeconfigs, url: url.clone() };
        let renewal = Renewal::start(stand_in.files, own)?;
        let (users, front_proxies) = renewal.authorities();
        if !stand_in.etcd.etcd_servers.is_empty() {
            joining::warn_of_other_authority(&*store, users, &stand_in.etcd.etcd_prefix).await?;
        }
        // Other API servers may work on the same etcd.
        let etcd = Some(stand_in.etcd.etcd_servers.join(", ")).filter(|etcd| !etcd.is_empty());
        config.bootstrap.shared_store = etcd.is_some();
        config.service_range = stand_in.service_range;
        config.bootstrap.client_authority = users.unwrap_or_default().to_owned();
        config.bootstrap.front_proxy = front_proxies.map(str::to_owned).zip(stand_in.request_headers);
        config.bootstrap.nobodys_authority = Some(authority_of_nobody(Timestamp::now())?);
        config.metrics = process_registry();
        config.pages = ZPages { paths: SERVER_PATHS, ..component::pages("apiserver") };
        if let Some(changes) = stand_in.config {
            changes.apply(&mut config);
        }
        let traces = start_traces(stand_in.metrics_and_logs.as_ref(), address, &mut config)?;
        let server = ApiServer::new(config, store.clone()).await?;
        let authority = renewal.server_authority().to_owned();
        if let Err(error) = renewal.own().write_kubeconfigs(&authority) {
            server.shutdown().await;
            return Err(error);
        }
        let serving = tokio::spawn({
            let (server, certificates) = (server.clone(), renewal.serving());
            async move { server.serve_renewed(listener, certificates).await }
        });
        let tending = [tokio::spawn(tend(Arc::downgrade(&store))), tokio::spawn(renewal.run())];
        cleanup.keep();
        tracing::info!(url, "the API server answers");
        Ok(Cluster {
            folder,
            url,
            kubeconfig,
            authority,
            etcd,
            signing,
            service_account_key,
            server,
            serving,
            tending,
            traces,
        })
    }

    /// A client in this process that acts as `user`, with that user's rights alone.
    pub(crate) fn client(&self, user: &str, groups: &[&str]) -> Result<Client> {
        let user_agent = user.rsplit(':').next().unwrap_or(user);
        Ok(Client::from_service(self.server.service(User::new(user, groups.iter().copied())))
            .with_user_agent(&format!("{user_agent}/v{}", env!("CARGO_PKG_VERSION")))?)
    }

    /// Ends watches and connections; every acknowledged write is already durable.
    pub(crate) async fn stop(self) {
        for task in self.tending {
            task.abort();
            let _ = task.await;
        }
        self.server.shutdown().await;
        let _ = self.serving.await;
        self.traces.stop().await;
    }
}

/// Lets a store write again as soon as its disk does, and warns before that is needed.
async fn tend(store: Weak<dyn Store>) {
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

/// Where the certificates are kept, if anywhere.
fn pki_folder(folder: &DataFolder) -> Option<PathBuf> {
    match folder {
        DataFolder::Kept(path) => Some(data_folder::pki(path)),
        DataFolder::InMemory(_) => None,
    }
}

/// Begins to trace requests if the flags say so, and leaves out the metrics that they name.
fn start_traces(flags: Option<&MetricsAndLogs>, address: SocketAddr, config: &mut Config) -> Result<Traces> {
    let Some(flags) = flags else { return Ok(Traces::default()) };
    config.metrics.disable(flags.disabled_metrics.iter().cloned());
    let traces = Traces::start(flags, "apiserver", &address.to_string(), &config.metrics)?;
    config.tracer.clone_from(&traces.tracer);
    Ok(traces)
}

/// The names that the server's own certificate is good for.
fn names(stand_in: &StandIn) -> Names {
    let mut names = Names::standard(hostname().as_deref(), stand_in.service_range.first().into());
    let given = stand_in.bind.filter(|address| !address.is_unspecified()).into_iter().chain(stand_in.advertise);
    for address in given {
        if !names.addresses.contains(&address) {
            names.addresses.push(address);
        }
    }
    names
}

/// Where the members of the cluster find a server that listens here.
fn advertised(stand_in: &StandIn, listening: SocketAddr) -> SocketAddr {
    let address = match stand_in.advertise {
        Some(address) => address,
        None if listening.ip().is_unspecified() => outgoing_address().unwrap_or(Ipv4Addr::LOCALHOST.into()),
        None => listening.ip(),
    };
    SocketAddr::new(address, listening.port())
}

/// The address of this machine that others see. Nothing is sent: connecting a datagram socket only chooses a route.
fn outgoing_address() -> Option<IpAddr> {
    // An address for documentation, which leads wherever the default route does.
    let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

fn listen(bind: Option<IpAddr>, port: u16) -> Result<TcpListener> {
    let address = SocketAddr::from((bind.unwrap_or(Ipv4Addr::LOCALHOST.into()), port));
    let open = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
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

async fn open(
    folder: &DataFolder,
    accept_lost_writes: bool,
    stand_in: &StandIn,
    cleanup: &mut Cleanup,
) -> Result<Arc<dyn Store>> {
    if let Some(path) = &stand_in.etcd.encryption_provider_config
        && stand_in.etcd.etcd_servers.is_empty()
    {
        bail!(
            "--encryption-provider-config {}: the embedded store is not encrypted; the flag goes with --etcd-servers",
            path.display()
        );
    }
    let store: Arc<dyn Store> = match folder {
        _ if !stand_in.etcd.etcd_servers.is_empty() => Arc::new(etcd::connect_server(&stand_in.etcd).await?),
        // The store first: it holds the lock that keeps a second process out of the folder.
        DataFolder::Kept(path) => Arc::new(open_store(path, accept_lost_writes)?),
        DataFolder::InMemory(_) => Arc::new(LogStore::in_memory()?),
    };
    cleanup.own_content();
    Ok(store)
}

fn open_pki(folder: &DataFolder, names: &Names) -> Result<Pki> {
    let now = Timestamp::now();
    match folder {
        DataFolder::Kept(path) => Ok(Pki::open(&data_folder::pki(path), names, now)?),
        DataFolder::InMemory(_) => Ok(Pki::in_memory(names, now)?),
    }
}

/// Opens the embedded store of a data folder, and names what is wrong with it.
pub(crate) fn open_store(folder: &Path, accept_lost_writes: bool) -> Result<LogStore> {
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
