//! How many durable writes of 1 KiB the store takes each second: `cargo run --release -p bayplan-store --example puts
//! -- FOLDER`.
#![allow(clippy::print_stdout, reason = "it prints figures")]

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bayplan_store::{LogStore, Store, WriteError};
use futures::executor::block_on;

const SECONDS: u64 = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("name a folder for the store's files; it must not exist")?;
    for concurrency in [1, 16, 256] {
        let path = format!("{folder}/{concurrency}");
        let mut latencies = measure(&LogStore::open_folder(&path)?, concurrency)?;
        latencies.sort_unstable();
        let at = |percent: usize| latencies[(latencies.len() - 1) * percent / 100];
        println!(
            "{concurrency:>4} at a time: {:>7} puts/s, median {:?}, 99 % below {:?}",
            latencies.len() as u64 / SECONDS,
            at(50),
            at(99)
        );
        let started = Instant::now();
        let reopened = LogStore::open_folder(&path)?;
        println!("      reopened {} revisions in {:?}", reopened.recovery().revision, started.elapsed());
        let started = Instant::now();
        let range = block_on(reopened.range("/registry/pods/", "/registry/pods0", None, 5000))?;
        println!(
            "      read {} entries, counted {} more in {:?}",
            range.entries.len(),
            range.remaining,
            started.elapsed()
        );
    }
    Ok(())
}

/// Each thread writes one key after another, waiting for every answer; answers how long each write took.
fn measure(store: &LogStore, concurrency: usize) -> Result<Vec<Duration>, WriteError> {
    let next = AtomicU64::new(0);
    let end = Instant::now() + Duration::from_secs(SECONDS);
    let run = || {
        let mut latencies = Vec::new();
        while Instant::now() < end {
            let key = format!("/registry/pods/default/{:012}", next.fetch_add(1, Ordering::Relaxed));
            let started = Instant::now();
            block_on(store.create(&key, vec![7; 1024].into()))?;
            latencies.push(started.elapsed());
        }
        Ok(latencies)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..concurrency).map(|_| scope.spawn(run)).collect();
        let results = threads.into_iter().map(|thread| thread.join().expect("the threads do not panic"));
        Ok(results.collect::<Result<Vec<_>, WriteError>>()?.concat())
    })
}
