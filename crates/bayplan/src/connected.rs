//! `bayplan scheduler` and `bayplan controller-manager`: one part alone, against any API server.

use anyhow::{Context, Result};
use bayplan_client::Client;
use bayplan_runner::controllers::{ControllersConfig, run_controllers};
use bayplan_runner::scheduler::{SchedulerConfig, run_scheduler};
use bayplan_scheduler::config::{self, Configuration};
use tokio::sync::watch;

use crate::args::{Connection, ControllerManager, Scheduler};
use crate::shutdown;

/// Runs the scheduler until asked to stop.
pub(crate) async fn run_scheduler_alone(args: Scheduler) -> Result<()> {
    let configuration = configuration(&args)?;
    let mut connection = args.connection;
    if !configuration.client_connection.kubeconfig.is_empty() {
        connection.kubeconfig = Some(configuration.client_connection.kubeconfig.as_str().into());
    }
    let client = connect(&connection, "kube-scheduler").await?;
    let config = SchedulerConfig { configuration, ..SchedulerConfig::default() }.with_leader_election();
    until_stopped(|stopping| run_scheduler(client, config, stopping)).await??;
    Ok(())
}

/// The configuration of the file, or the default one, with what the command line says about it.
fn configuration(args: &Scheduler) -> Result<Configuration> {
    let Some(path) = &args.config else {
        let mut configuration = Configuration::default();
        configuration.leader_election.leader_elect = args.leader_elect.unwrap_or(true);
        return Ok(configuration);
    };
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let unusable = || format!("cannot use {}", path.display());
    let mut completed = config::load(&text).with_context(unusable)?;
    if let Some(leader_elect) = args.leader_elect {
        completed["leaderElection"]["leaderElect"] = leader_elect.into();
    }
    Configuration::from_completed(completed).with_context(unusable)
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
