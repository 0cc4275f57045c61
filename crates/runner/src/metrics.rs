//! Metrics of the process, and the monotonic clock of durations.

use std::sync::LazyLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bayplan_metrics::{Gauge, Registry};

/// Linux has counted processor time in hundredths of a second towards user space for as long as it has had /proc.
const TICKS_PER_SECOND: f64 = 100.0;
/// Memory pages of every platform we run on.
const PAGE_BYTES: f64 = 4096.0;

static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Nanoseconds since the first call.
pub fn steady_nanos() -> u64 {
    u64::try_from(ORIGIN.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// When the clock of [`steady_nanos`] is at zero, in nanoseconds since 1970.
pub fn steady_zero() -> u64 {
    let steady = steady_nanos();
    unix_nanos().saturating_sub(steady)
}

/// Nanoseconds since 1970.
pub(crate) fn unix_nanos() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// A registry with the metrics of the process and its build.
pub fn process_registry() -> Registry {
    let registry = Registry::default();
    let gauge = |name, help, read: fn() -> Option<f64>| registry.callback(name, help, "gauge", read);
    registry.callback("process_cpu_seconds_total", "Processor time spent, in seconds.", "counter", || {
        // User and system time: the 14th and 15th field.
        Some((stat(14)? + stat(15)?) / TICKS_PER_SECOND)
    });
    gauge("process_resident_memory_bytes", "Memory in use.", || Some(stat(24)? * PAGE_BYTES));
    gauge("process_virtual_memory_bytes", "Memory reserved.", || stat(23));
    gauge("process_open_fds", "Open file descriptors.", || {
        Some(std::fs::read_dir("/proc/self/fd").ok()?.count() as f64)
    });
    gauge("process_max_fds", "The most file descriptors that may be open.", max_fds);
    if let Some(started) = start_time() {
        registry.callback(
            "process_start_time_seconds",
            "When the process started, in seconds since 1970.",
            "gauge",
            move || Some(started),
        );
    }
    // Dashboards of every component of Kubernetes ask for this name; what goroutines are there, tasks are here.
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        let tasks = move || Some(runtime.metrics().num_alive_tasks() as f64);
        registry.callback("go_goroutines", "Tasks that are alive.", "gauge", tasks);
    }
    let build = registry.family::<Gauge>(
        "kubernetes_build_info",
        "[ALPHA] The version of Kubernetes whose behaviour this is, and our own.",
        &[
            "major",
            "minor",
            "git_version",
            "git_commit",
            "git_tree_state",
            "build_date",
            "go_version",
            "compiler",
            "platform",
        ],
        (),
    );
    // In Go's words.
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let platform = format!("{}/{architecture}", std::env::consts::OS);
    let version = concat!("v1.36.4+bayplan-", env!("CARGO_PKG_VERSION"));
    // As `/version` says it.
    build.get(&["1", "36", version, "", "clean", "1970-01-01T00:00:00Z", "rust", "rustc", &platform]).set(1.0);
    registry
}

/// A field of /proc/self/stat, counted from 1 as in proc(5).
fn stat(field: usize) -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The second field, the name of the program, is in parentheses and may contain anything.
    let (_, rest) = text.rsplit_once(')')?;
    rest.split_whitespace().nth(field.checked_sub(3)?)?.parse().ok()
}

fn max_fds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = text.lines().find(|line| line.starts_with("Max open files"))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

fn start_time() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let boot: f64 = text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(boot + stat(22)? / TICKS_PER_SECOND)
}
