//! When to stop: Ctrl-C or a termination signal, the first orderly, the second at once.

use tokio::signal::unix::{SignalKind, signal};

/// Waits for the first request to stop, and arms the second to end the process.
pub(crate) async fn requested() -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        // 128 + SIGINT, as shells report it.
        std::process::exit(130);
    });
    Ok(())
}
