//! The cost of a run: latencies, processor time and memory.

use std::fs;
use std::time::Duration;

use crate::report::Latency;

/// Clock ticks a second in `/proc/<pid>/stat`: fixed by the kernel's interface on every Linux platform we run on.
const TICKS_PER_SECOND: f64 = 100.0;

/// Latencies of single decisions or pods.
#[derive(Default)]
pub struct Latencies(Vec<u64>);

impl Latencies {
    /// Allocates for this many, so that measuring does not.
    pub fn with_capacity(count: usize) -> Self {
        Latencies(Vec::with_capacity(count))
    }

    /// Adds a latency.
    pub fn add(&mut self, latency: Duration) {
        self.0.push(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Number of latencies.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True when no latency was added.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The sum of all latencies.
    pub fn total_seconds(&self) -> f64 {
        self.0.iter().map(|nanos| *nanos as f64).sum::<f64>() / 1e9
    }

    /// Median, 99th percentile (nearest rank) and maximum.
    pub fn summary(mut self) -> Latency {
        self.0.sort_unstable();
        let at = |share: f64| {
            let rank = (self.0.len() as f64 * share).ceil() as usize;
            self.0.get(rank.saturating_sub(1)).map_or(0.0, |nanos| *nanos as f64 / 1000.0)
        };
        Latency { p50: at(0.5), p99: at(0.99), max: at(1.0) }
    }
}

/// Processor seconds of the calling thread, to the nanosecond; 0 where the kernel does not report it.
pub fn thread_cpu_seconds() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|nanos| nanos.parse::<f64>().ok()).map_or(0.0, |nanos| nanos / 1e9)
}

/// Processor seconds of the process, user and system; 0 where the kernel does not report it.
pub fn process_cpu_seconds() -> f64 {
    cpu_seconds_in("/proc/self/stat")
}

/// Processor seconds of another process, user and system; 0 where the kernel does not report it.
pub fn cpu_seconds_of(process: u32) -> f64 {
    cpu_seconds_in(&format!("/proc/{process}/stat"))
}

fn cpu_seconds_in(file: &str) -> f64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    // The second field, the command, is in parentheses and may hold anything.
    let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = |at: usize| fields.split_whitespace().nth(at).and_then(|t| t.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / TICKS_PER_SECOND
}

/// Resident memory of the process; 0 where the kernel does not report it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Bytes resident now.
    pub current_bytes: u64,
    /// The most bytes that were ever resident at once.
    pub peak_bytes: u64,
}

impl Memory {
    /// Takes both figures from one reading, because the process may grow between two.
    pub fn read() -> Self {
        Memory::parse(&fs::read_to_string("/proc/self/status").unwrap_or_default())
    }

    fn parse(status: &str) -> Self {
        let bytes = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
            line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).map_or(0, |kib| kib * 1024)
        };
        Memory { current_bytes: bytes("VmRSS:"), peak_bytes: bytes("VmHWM:") }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let mut latencies = Latencies::default();
        for micros in 1..=200 {
            latencies.add(Duration::from_micros(micros));
        }
        let Latency { p50, p99, max } = latencies.summary();
        assert_eq!((p50, p99, max), (100.0, 198.0, 200.0));
        assert_eq!(Latencies::default().summary(), Latency { p50: 0.0, p99: 0.0, max: 0.0 });
    }

    #[test]
    fn memory_is_read_from_one_status_so_that_the_peak_is_never_below_the_present() {
        let status = "Name:\tbayplan\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\nThreads:\t1\n";
        assert_eq!(Memory::parse(status), Memory { current_bytes: 1 << 20, peak_bytes: 2 << 20 });
        assert_eq!(Memory::parse(""), Memory { current_bytes: 0, peak_bytes: 0 });
        let Memory { current_bytes, peak_bytes } = Memory::read();
        assert!(current_bytes > 100_000 && peak_bytes >= current_bytes, "{current_bytes} {peak_bytes}");
    }

    #[test]
    fn work_costs_processor_time() {
        let before = (thread_cpu_seconds(), process_cpu_seconds());
        // The kernel charges a thread and its process with a delay, and the process in hundredths of a second.
        let started = Instant::now();
        let mut sum = 0u64;
        while thread_cpu_seconds() <= before.0 || process_cpu_seconds() <= before.1 {
            sum = std::hint::black_box(sum + 1);
            assert!(started.elapsed() < Duration::from_secs(60), "the kernel charges work to its thread and process");
        }
    }
}
