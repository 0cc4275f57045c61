//! `bayplan scheduler` and `bayplan controller-manager`: one part alone, against any API server.

use anyhow::{Context, Result};
use bayplan_client::Client;
use bayplan_runner::controllers::{ControllersConfig, run_controllers};
use bayplan_runner::scheduler::{SchedulerConfig, run_scheduler};
use bayplan_scheduler::config::Configuration;
use tokio::sync::watch;

use crate::args::{Connection, ControllerManager, Scheduler};
use crate::shutdown;

/// Runs the scheduler until asked to stop.
pub(crate) async fn run_scheduler_alone(args: Scheduler) -> Result<()> {
    let mut configuration = match &args.config {
        None => Configuration::default(),
        Some(path) => {
            let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
            Configuration::from_yaml(&text).with_context(|| format!("cannot use {}", path.display()))?
        }
    };
    if let Some(leader_elect) = args.leader_elect {
        configuration.leader_election.leader_elect = leader_elect;
    }
    let mut connection = args.connection;
    if !configuration.client_connection.kubeconfig.is_empty() {
        connection.kubeconfig = Some(configuration.client_connection.kubeconfig.as_str().into());
    }
    let client = connect(&connection, "kube-scheduler").await?;
    let config = SchedulerConfig { configuration, ..SchedulerConfig::default() }.with_leader_election();
    until_stopped(|stopping| run_scheduler(client, config, stopping)).await??;
    Ok(())
}

/// Runs the controllers until asked to stop.
pub(crate) async fn run_controller_manager(args: ControllerManager) -> Result<()> {
    let client = connect(&args.connection, "kube-controller-manager").await?;
    until_stopped(|stopping| run_controllers(client, ControllersConfig::default(), stopping)).await
}

async fn connect(connection: &Connection, user_agent: &str) -> Result<Client> {
    let client = Client::from_kubeconfig(connection.kubeconfig.as_deref(), None).await?;
    Ok(client.with_user_agent(&format!("{user_agent}/v{}", env!("CARGO_PKG_VERSION")))?)
}

/// Runs a part until it ends by itself or a signal asks it to; answers how it ended.
async fn until_stopped<F: Future>(part: impl FnOnce(watch::Receiver<bool>) -> F) -> Result<F::Output> {
    let (stop, stopping) = watch::channel(false);
    let mut part = std::pin::pin!(part(stopping));
    tokio::select! {
        end = &mut part => return Ok(end),
        requested = shutdown::requested() => requested?,
    }
    stop.send_replace(true);
    Ok(part.await)
}
