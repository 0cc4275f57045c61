//! A scheduler with a plugin of one's own: the plugin, its registration, and the whole of Bayplan's scheduler around
//! it.
//!
//! ```text
//! cargo run -p bayplan-runner --example out_of_tree -- KUBECONFIG crates/runner/examples/out_of_tree/config.yaml
//! ```

mod plugin;

use std::path::Path;
use std::process::ExitCode;

use bayplan_client::Client;
use bayplan_runner::scheduler::{SchedulerConfig, run_scheduler};
use bayplan_scheduler::Registry;
use bayplan_scheduler::config::Configuration;

async fn run(kubeconfig: &str, config: &str) -> Result<(), Box<dyn std::error::Error>> {
    let configuration = Configuration::from_yaml(&std::fs::read_to_string(config)?)?;
    // All in-tree plugins, and ours.
    let mut registry = Registry::default();
    plugin::register(&mut registry);
    let client = Client::from_kubeconfig(Some(Path::new(kubeconfig)), None).await?;
    let (stop, stopping) = tokio::sync::watch::channel(false);
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            stop.send_replace(true);
        }
    });
    let config = SchedulerConfig { configuration, registry, ..SchedulerConfig::default() };
    Ok(run_scheduler(client, config.with_leader_election(), stopping).await?)
}

#[tokio::main]
#[allow(clippy::print_stderr)] // It is a program.
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [kubeconfig, config] = args.as_slice() else {
        eprintln!("usage: out_of_tree KUBECONFIG CONFIG");
        return ExitCode::from(2);
    };
    match run(kubeconfig, config).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
