//! `bayplan page`: any cluster or dump in a browser. `bayplan up` serves its own with the same parts.

pub(crate) mod address;
mod follow;
mod log_tail;
mod whole_log;

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use bayplan_explain::{Profiles, State};
use bayplan_page::ClusterView;
use bayplan_page::server::PageServer;
use bayplan_scheduler::Registry;
use bayplan_scheduler::config::Configuration;
use tokio::net::TcpListener;

use super::{live, load};
use crate::args::page::Page;
use crate::args::source::Source;
use crate::shutdown::StopSignals;
use follow::Following;
use log_tail::FollowedLog;

/// Serves the page until a signal stops it.
pub(crate) async fn run(args: Page) -> Result<()> {
    let signals = StopSignals::listen()?;
    let listener = listen(args.port, "--port").await?;
    let (view, _following) = match &args.log {
        Some(log) => (of_log(Path::new(log)).await?, None),
        None => of_source(&args.source).await?,
    };
    let server = PageServer::start(listener, &address::random(), view)?;
    let mut out = std::io::stdout();
    writeln!(out, "The page is at {}", server.url())?;
    writeln!(out, "\nIt only reads; the token in the URL lets in whoever has it. Ctrl-C stops it.")?;
    out.flush()?;
    signals.requested().await;
    server.stop().await;
    Ok(())
}

/// A live cluster, or files.
async fn of_source(source: &Source) -> Result<(Arc<ClusterView>, Option<Following>)> {
    let profiles = Profiles::build(&load::configuration(source)?, &Registry::default())?;
    if source.from.is_empty() {
        let client = live::connect(source).await?;
        let name = client.host().to_owned();
        let (view, following) = follow::follow(&client, profiles, &name, None).await?;
        following.synced().await;
        return Ok((view, Some(following)));
    }
    let objects = load::load(source).await?;
    let name: Vec<String> = source.from.iter().map(|path| path.display().to_string()).collect();
    let state = tokio::task::spawn_blocking(move || State::new(objects)).await?;
    Ok((Arc::new(ClusterView::new(state, profiles, &name.join(", "), false, &address::random())), None))
}

/// A cluster as a decision log leaves it, and how it came to be.
async fn of_log(path: &Path) -> Result<Arc<ClusterView>> {
    let (path, shown) = (path.to_owned(), path.display().to_string());
    let read = tokio::task::spawn_blocking(move || whole_log::read(&path)).await??;
    let profiles = Profiles::build(&read.configuration, &Registry::default())?;
    let view = ClusterView::new(read.state, profiles, &shown, false, &address::random()).with_log(&shown);
    view.log(read.entries);
    Ok(Arc::new(view))
}

/// The page of a cluster in this process.
pub(crate) struct OwnPage {
    server: PageServer,
    _following: Following,
    _log: Option<FollowedLog>,
}

impl OwnPage {
    /// Serves the page of a cluster that decides by this configuration and writes its decisions to this log.
    pub(crate) async fn start(
        client: &bayplan_client::Client,
        configuration: &Configuration,
        log: Option<&Path>,
        listener: TcpListener,
        token: &str,
    ) -> Result<Self> {
        let profiles = Profiles::build(configuration, &Registry::default())?;
        let shown = log.map(|log| log.display().to_string());
        let (view, following) = follow::follow(client, profiles, "bayplan up", shown.as_deref()).await?;
        let log = log.map(|log| log_tail::follow_log(log, Arc::clone(&view))).transpose()?;
        Ok(OwnPage { server: PageServer::start(listener, token, view)?, _following: following, _log: log })
    }

    /// What to open in a browser.
    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    /// Stops it.
    pub(crate) async fn stop(self) {
        self.server.stop().await;
    }
}

/// Opens a port on loopback; `flag` chooses another.
pub(crate) async fn listen(port: u16, flag: &str) -> Result<TcpListener> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            anyhow!("port {port} is in use: choose another with {flag}, or let {flag} 0 find one")
        }
        _ => anyhow!("cannot listen on {address}: {error}"),
    })
}

/// Opens the port that was asked for, or that of the last run if it is free, or any.
pub(crate) async fn listen_again(asked: Option<u16>, last: Option<u16>) -> Result<TcpListener> {
    if let Some(port) = asked {
        return listen(port, "--page-port").await;
    }
    match listen(last.unwrap_or_default(), "--page-port").await {
        Err(_) if last.is_some() => listen(0, "--page-port").await,
        listener => listener.context("cannot serve the page; --no-page does without"),
    }
}
