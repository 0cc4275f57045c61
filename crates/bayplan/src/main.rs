//! The binary: parses arguments, puts the parts together, and tells failures in one line.

mod args;
mod bench;
mod cluster;
mod connected;
mod data_folder;
mod shutdown;
mod up;

use std::process::ExitCode;

use args::{Cli, Command};
use clap::Parser;
use tracing_subscriber::EnvFilter;

/// Requests and events are many small objects that one thread makes and another drops; with the system's allocator a third of
/// the time from create to bound went into that (docs/benchmarks.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match start_logging(&cli.log).and_then(|()| run(cli.command)) {
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

fn start_logging(filter: &str) -> anyhow::Result<()> {
    let filter = filter.parse::<EnvFilter>().map_err(|error| anyhow::anyhow!("--log {filter}: {error}"))?;
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    Ok(())
}

fn run(command: Command) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(async {
        match command {
            Command::Up(up) => up::run(up).await,
            Command::Apiserver(apiserver) => up::run_apiserver(apiserver).await,
            Command::Scheduler(scheduler) => connected::run_scheduler_alone(scheduler).await,
            Command::Bench(args) => bench::run(args).await,
            Command::ControllerManager(manager) => connected::run_controller_manager(manager).await,
        }
    });
    // What is still running after an orderly stop is a watch somebody left open: nothing worth waiting for.
    runtime.shutdown_background();
    outcome
}
