//! The binary: parses arguments, puts the parts together, and prints a failure in one line.

mod apiserver;
mod args;
mod ask;
mod backup;
mod bench;
mod cluster;
mod component;
mod controller_manager;
mod data_folder;
mod etcd;
mod failure;
mod feature_gates;
mod greeting;
mod joining;
mod json_log;
mod logging;
mod manual;
mod migrate;
mod nodes;
mod output;
mod plugin;
mod progress;
mod scheduler;
mod shared_parts;
mod shutdown;
mod traces;
mod up;
mod version;
mod yaml;

use std::process::ExitCode;

use args::Command;

/// Requests and events are many small objects that one thread makes and another drops; with the system's allocator a
/// third of the time from create to bound went into that (docs/benchmarks.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments = plugin::with_verb(args::go::normalized(std::env::args()));
    let (arguments, filter) = args::decision_log::without_filter(arguments);
    let cli = args::given::parse(arguments);
    let failed = cli.command.exit_code_of_failure();
    match logging::start(&cli, filter.as_deref()).and_then(|()| run(cli.command)) {
        Ok(code) => code,
        // Whoever reads our output has read enough, as `head` does.
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            #[allow(clippy::print_stderr)]
            {
                eprintln!("bayplan: {}", failure::one_line(&error));
            }
            failed
        }
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Draws the key with which names that clients choose are hashed. Questions about a cluster are asked and answered by
/// one person, and do without: they stay the same from run to run.
fn draw_hash_key(command: &Command) {
    use Command::{Apiserver, ControllerManager, Nodes, Scheduler, Shadow, Up};
    if matches!(command, Up(_) | Apiserver(_) | Scheduler(_) | ControllerManager(_) | Nodes(_) | Shadow(_)) {
        bayplan_model::keyed::set_process_key(rand::random());
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    draw_hash_key(&command);
    let done = match command {
        Command::Version(args) => version::run(&args, &mut std::io::stdout().lock()),
        Command::Completions(args) => manual::write_completions(&args, &mut std::io::stdout().lock()),
        Command::Man(args) => manual::write_manual(&args, &mut std::io::stdout().lock()),
        Command::Up(args) => block_on(up::run(args)),
        Command::Apiserver(args) => block_on(apiserver::run(*args)),
        Command::Scheduler(args) => block_on(scheduler::run(*args)),
        Command::ControllerManager(args) => block_on(controller_manager::run(*args)),
        Command::Nodes(args) => block_on(nodes::run(*args)),
        Command::Backup(args) => backup::back_up(&args),
        Command::Restore(args) => backup::restore(&args),
        Command::Migrate(args) => block_on(migrate::run(*args)),
        Command::Simulate(args) => return block_on(ask::simulate::run(*args)),
        Command::Whatif(args) => return block_on(ask::whatif::run(*args)),
        Command::Snapshot(args) => return block_on(ask::snapshot::run(args)),
        Command::Shadow(args) => return block_on(ask::shadow::run(args)),
        Command::Bench(args) => block_on(bench::run(args)),
        Command::Mcp(args) => return block_on(ask::mcp::run(args)),
        Command::Page(args) => block_on(ask::page::run(args)),
        Command::Plugin(args) => plugin::run(&args, &mut std::io::stdout().lock()),
        Command::Why(args) => return block_on(ask::why::run(*args)),
    };
    done.map(|()| ExitCode::SUCCESS)
}

fn block_on<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    bayplan_listener::raise_file_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(command);
    // After an orderly stop only watches that clients left open still run: nothing worth waiting for.
    runtime.shutdown_background();
    outcome
}
