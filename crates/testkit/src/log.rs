//! Captures what code logs.

use std::io;
use std::sync::{Arc, Mutex};

/// A writer that every clone of it shares.
#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl io::Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The lines that this thread logs at a level while `run` runs, without time and target.
pub fn logged(level: tracing::Level, run: impl FnOnce()) -> Vec<String> {
    let log = Captured::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .with_target(false)
        .without_time()
        .finish();
    tracing::subscriber::with_default(subscriber, run);
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    text.lines().map(|line| line.trim().to_owned()).collect()
}
