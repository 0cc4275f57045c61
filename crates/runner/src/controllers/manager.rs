//! The control loops as `bayplan controller-manager` runs them: under leader election, with metrics and health.

use std::sync::Arc;

use bayplan_client::leader_election::{self, Elector};
use bayplan_client::metrics::ElectionMetrics;
use bayplan_client::{Client, EventRecorder};
use futures::future::BoxFuture;
use tokio::sync::watch;

use super::{ControllersConfig, run_controllers_with_telemetry};
use crate::telemetry::Telemetry;

/// Why the control loops stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another process leads, or the lease could not be renewed: this process must not go on.
    #[error("leader election lost")]
    LeaseLost,
}

/// Runs the control loops until `shutdown` is true; with leader election, only while this process leads.
///
/// As upstream, the lease is not released at the end: the next leader waits until it has expired.
///
/// The future is boxed so that it is compiled in this crate, and not once more in each crate that awaits it.
pub fn run_controller_manager(
    client: Client,
    config: ControllersConfig,
    election: Option<leader_election::Config>,
    telemetry: Telemetry,
    shutdown: watch::Receiver<bool>,
) -> BoxFuture<'static, Result<(), Error>> {
    Box::pin(run(client, config, election, telemetry, shutdown))
}

async fn run(
    client: Client,
    config: ControllersConfig,
    election: Option<leader_election::Config>,
    mut telemetry: Telemetry,
    mut shutdown: watch::Receiver<bool>,
) -> Result<(), Error> {
    let Some(election) = election else {
        run_controllers_with_telemetry(client, config, Some(telemetry), shutdown).await;
        return Ok(());
    };
    let recorder = EventRecorder::core(&client, "kube-controller-manager");
    let mut elector = Elector::new(&client, election, Some(Arc::new(recorder)))
        .with_leadership(Arc::clone(&telemetry.leadership))
        .with_metrics(ElectionMetrics::new(&telemetry.registry));
    {
        let mut leading = std::pin::pin!(elector.acquire());
        loop {
            tokio::select! {
            biased;
                () = &mut leading => break,
                // A standby has no new values.
                scrape = telemetry.scraped() => scrape.acknowledge(),
                _ = shutdown.wait_for(|stop| *stop) => return Ok(()),
            }
        }
    }
    tokio::select! {
            biased;
        () = run_controllers_with_telemetry(client, config, Some(telemetry), shutdown) => Ok(()),
        () = elector.hold() => Err(Error::LeaseLost),
    }
}
