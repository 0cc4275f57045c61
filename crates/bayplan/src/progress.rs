//! How far a long step is, on standard error: on a terminal one line that is overwritten, elsewhere a line at times.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// How often a terminal's line is written over.
const TERMINAL_INTERVAL: Duration = Duration::from_millis(100);

/// How often a line is added where lines stay.
const PLAIN_INTERVAL: Duration = Duration::from_secs(5);

/// Decides which reports are shown.
pub(crate) struct Progress {
    terminal: bool,
    /// When the next report is shown.
    next: Instant,
}

impl Progress {
    /// Shows the first report at once.
    pub(crate) fn new() -> Self {
        Progress { terminal: std::io::stderr().is_terminal(), next: Instant::now() }
    }

    /// Shows nothing before `delay` has passed: a short step needs no progress.
    pub(crate) fn after(delay: Duration) -> Self {
        Progress { next: Instant::now() + delay, ..Self::new() }
    }

    /// When the next report would be shown.
    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// Shows a line, unless the one before it is too recent.
    pub(crate) fn report(&mut self, line: &str) {
        if Instant::now() >= self.next {
            self.show(line);
        }
    }

    /// Shows a line in any case.
    pub(crate) fn show(&mut self, line: &str) {
        self.next = Instant::now() + if self.terminal { TERMINAL_INTERVAL } else { PLAIN_INTERVAL };
        let mut stderr = std::io::stderr().lock();
        // Standard error may be closed; that is no reason to stop.
        let _ = match self.terminal {
            true => write!(stderr, "\r\x1b[K{line}").and_then(|()| stderr.flush()),
            false => writeln!(stderr, "{line}"),
        };
    }

    /// Clears a terminal's line.
    pub(crate) fn clear(&self) {
        if self.terminal {
            let mut stderr = std::io::stderr().lock();
            let _ = write!(stderr, "\r\x1b[K").and_then(|()| stderr.flush());
        }
    }
}
