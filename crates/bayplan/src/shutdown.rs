//! When to stop: Ctrl-C, a termination signal or the end of the terminal; the first stops in order, the second at once.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that stop a process. A signal counts from the moment this exists, not from when somebody waits for it.
pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    /// Absent under `nohup`, which asks for exactly that: to outlive the terminal.
    hangup: Option<Signal>,
}

impl StopSignals {
    /// Catches signals from now on. Must be called inside a tokio runtime.
    pub(crate) fn listen() -> std::io::Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let hangup = if ignores_hangup(&status) { None } else { Some(signal(SignalKind::hangup())?) };
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(StopSignals { interrupt, terminate, hangup })
    }

    /// Waits for the first signal, and arms the second to end the process.
    pub(crate) async fn requested(mut self) {
        self.next().await;
        tracing::info!("stopping");
        tokio::spawn(async move {
            self.next().await;
            // 128 + SIGINT, as shells report it.
            std::process::exit(130);
        });
    }

    async fn next(&mut self) {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = hangup => {}
        }
    }
}

/// Reads the mask of ignored signals in Linux's process status; SIGHUP is its first bit.
fn ignores_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_started_with_nohup_ignores_hangups() {
        assert!(ignores_hangup("Name:\tbayplan\nSigBlk:\t0000000000000001\nSigIgn:\t0000000000001001\n"));
        assert!(!ignores_hangup("SigIgn:\t0000000000001000\n"));
        assert!(!ignores_hangup(""));
    }
}
