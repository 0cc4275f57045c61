//! The binary: parses arguments, puts the parts together, and tells failures in one line.

mod args;
mod bench;
mod cluster;
mod component;
mod controller_manager;
mod data_folder;
mod feature_gates;
mod scheduler;
mod shutdown;
mod up;
mod yaml;

use std::process::ExitCode;

use args::{Cli, Command};
use clap::Parser;
use tracing_subscriber::EnvFilter;

/// Requests and events are many small objects that one thread makes and another drops; with the system's allocator a third of
/// the time from create to bound went into that (docs/benchmarks.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse_from(args::go::normalized(std::env::args()));
    match start_logging(&cli).and_then(|()| run(cli.command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The chain of causes in one line: what could not be done, and why.
            #[allow(clippy::print_stderr)]
            {
                eprintln!("bayplan: {error:#}");
            }
            ExitCode::FAILURE
        }
    }
}

fn start_logging(cli: &Cli) -> anyhow::Result<()> {
    let telling = match &cli.command {
        Command::Scheduler(scheduler) => Some(&scheduler.component.telling),
        Command::ControllerManager(manager) => Some(&manager.component.telling),
        Command::Up(_) | Command::Apiserver(_) | Command::Bench(_) => None,
    };
    let filter = cli.log.as_deref().or_else(|| component::log_filter(telling?)).unwrap_or("warn");
    let filter = filter.parse::<EnvFilter>().map_err(|error| anyhow::anyhow!("--log {filter}: {error}"))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match telling.is_some_and(|telling| telling.logging_format == "json") {
        true => log.json().init(),
        false => log.init(),
    }
    Ok(())
}

fn run(command: Command) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(async {
        match command {
            Command::Up(up) => up::run(up).await,
            Command::Apiserver(apiserver) => up::run_apiserver(apiserver).await,
            Command::Scheduler(scheduler) => scheduler::run(*scheduler).await,
            Command::ControllerManager(manager) => controller_manager::run(*manager).await,
            Command::Bench(args) => bench::run(args).await,
        }
    });
    // What is still running after an orderly stop is a watch somebody left open: nothing worth waiting for.
    runtime.shutdown_background();
    outcome
}
