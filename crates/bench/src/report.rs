//! Reports of runs: JSON with one object per run, or a table of medians.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

/// The mode of an engine that logs its decisions.
pub const LOGGED: &str = "engine+log";

/// One run of one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Name of the workload.
    pub workload: String,
    /// `engine`, `engine+log` or `e2e`.
    pub mode: String,
    /// Nodes in the cluster.
    pub nodes: usize,
    /// Measured pods.
    pub pods: usize,
    /// Measured pods divided by the measured time.
    pub pods_per_second: f64,
    /// Latency of a decision (engine), or from create to bound (e2e).
    pub latency_us: Latency,
    /// Processor time of the measured part.
    pub cpu_seconds: f64,
    /// Peak resident memory of the process.
    pub peak_rss_bytes: u64,
    /// What other processes that took part used in the measured part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<ProcessCost>,
    /// Requests that wrote in the measured part, where they are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes: Option<u64>,
}

/// The processor time of a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessCost {
    /// What it is.
    pub name: String,
    /// Processor time, user and system.
    pub cpu_seconds: f64,
}

/// Latencies in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Maximum.
    pub max: f64,
}

/// The medians of runs of the same workload, mode and size, in the order in which they first appear.
pub fn medians(runs: &[Run]) -> Vec<(Run, usize)> {
    let mut groups: Vec<Vec<&Run>> = Vec::new();
    for run in runs {
        let same = |other: &&Run| {
            (&other.workload, &other.mode, other.nodes, other.pods) == (&run.workload, &run.mode, run.nodes, run.pods)
        };
        match groups.iter_mut().find(|group| group.first().is_some_and(same)) {
            Some(group) => group.push(run),
            None => groups.push(vec![run]),
        }
    }
    groups.iter().filter_map(|group| Some((median_run(group)?, group.len()))).collect()
}

fn median_run(group: &[&Run]) -> Option<Run> {
    let of = |field: fn(&Run) -> f64| median(group.iter().map(|run| field(run)));
    let latency_us =
        Latency { p50: of(|r| r.latency_us.p50), p99: of(|r| r.latency_us.p99), max: of(|r| r.latency_us.max) };
    Some(Run {
        pods_per_second: of(|r| r.pods_per_second),
        latency_us,
        cpu_seconds: of(|r| r.cpu_seconds),
        peak_rss_bytes: of(|r| r.peak_rss_bytes as f64) as u64,
        others: median_costs(group),
        writes: group.first()?.writes.map(|_| of(|r| r.writes.unwrap_or(0) as f64) as u64),
        ..(*group.first()?).clone()
    })
}

/// The medians of each process, by its place among the others.
fn median_costs(group: &[&Run]) -> Vec<ProcessCost> {
    let first = group.first().map_or(&[][..], |run| &run.others);
    let cost = |at: usize| median(group.iter().filter_map(|run| run.others.get(at)).map(|cost| cost.cpu_seconds));
    let costs = first.iter().enumerate();
    costs.map(|(at, other)| ProcessCost { name: other.name.clone(), cpu_seconds: cost(at) }).collect()
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

const HEADER: [&str; 10] = ["WORKLOAD", "MODE", "NODES", "PODS", "RUNS", "PODS/S", "P50", "P99", "MAX", "CPU"];

/// An aligned table of medians.
pub fn table(runs: &[Run]) -> String {
    let mut rows: Vec<Vec<String>> = vec![HEADER.iter().chain(&["PEAK MEMORY"]).map(|&h| h.to_owned()).collect()];
    let with_others = runs.iter().any(|run| !run.others.is_empty());
    if with_others {
        rows[0].push("CPU OF OTHERS".to_owned());
    }
    let with_writes = runs.iter().any(|run| run.writes.is_some());
    if with_writes {
        rows[0].push("WRITES".to_owned());
    }
    for (run, count) in medians(runs) {
        let others = run.others.iter().map(|other| format!("{} {:.2} s", other.name, other.cpu_seconds));
        let others = with_others.then(|| others.collect::<Vec<_>>().join(", "));
        let mut row = vec![
            run.workload.clone(),
            run.mode.clone(),
            grouped(run.nodes as u64),
            grouped(run.pods as u64),
            count.to_string(),
            grouped(run.pods_per_second.round() as u64),
            duration(run.latency_us.p50),
            duration(run.latency_us.p99),
            duration(run.latency_us.max),
            format!("{:.2} s", run.cpu_seconds),
            bytes(run.peak_rss_bytes),
        ];
        row.extend(others);
        row.extend(with_writes.then(|| run.writes.map_or_else(String::new, grouped)));
        rows.push(row);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            // Names to the left, numbers to the right.
            let _ = match column {
                0 | 1 | 11.. => write!(line, "{cell:<width$}   "),
                _ => write!(line, "{cell:>width$}   "),
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// What the decision log costs, one line for each workload and size: each run with it is compared with the one without
/// it that was made right before or after it.
pub fn log_costs(runs: &[Run]) -> String {
    let mut text = String::new();
    for (logged, _) in medians(runs).iter().filter(|(run, _)| run.mode == LOGGED) {
        let same = |run: &&Run| (&run.workload, run.nodes, run.pods) == (&logged.workload, logged.nodes, logged.pods);
        let of = |mode: &'static str| runs.iter().filter(same).filter(move |run| run.mode == mode);
        let pairs: Vec<(&Run, &Run)> = of("engine").zip(of(LOGGED)).collect();
        let lost = |(without, with): &(&Run, &Run)| 100.0 * (1.0 - with.pods_per_second / without.pods_per_second);
        let spent = |(without, with): &(&Run, &Run)| 100.0 * (with.cpu_seconds / without.cpu_seconds - 1.0);
        let (speed, cpu) = (median(pairs.iter().map(lost)), median(pairs.iter().map(spent)));
        let _ = writeln!(
            text,
            "{} on {} nodes: the decision log takes {speed:.1} % of the speed, and {cpu:.1} % more of the scheduler's \
             processor time (medians of {} pairs)",
            logged.workload,
            grouped(logged.nodes as u64),
            pairs.len()
        );
    }
    text
}

/// A number with commas between thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn duration(micros: f64) -> String {
    match micros {
        m if m < 1000.0 => format!("{m:.1} µs"),
        m if m < 1e6 => format!("{:.1} ms", m / 1e3),
        m => format!("{:.2} s", m / 1e6),
    }
}

fn bytes(bytes: u64) -> String {
    let mib = bytes as f64 / (1024.0 * 1024.0);
    if mib < 1024.0 { format!("{mib:.0} MiB") } else { format!("{:.2} GiB", mib / 1024.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(workload: &str, pods_per_second: f64) -> Run {
        Run {
            workload: workload.into(),
            mode: "engine".into(),
            nodes: 5000,
            pods: 10_000,
            pods_per_second,
            latency_us: Latency { p50: 3.25, p99: 1200.0, max: 2_500_000.0 },
            cpu_seconds: 0.5,
            peak_rss_bytes: 64 << 20,
            others: Vec::new(),
            writes: None,
        }
    }

    #[test]
    fn the_table_shows_medians_of_runs_of_the_same_kind() {
        let runs = [
            run("SchedulingBasic", 3.0),
            run("Preemption", 7.0),
            run("SchedulingBasic", 1.0),
            run("SchedulingBasic", 200_000.0),
        ];
        let text = table(&runs);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert_eq!(
            lines[0],
            "WORKLOAD          MODE     NODES     PODS   RUNS   PODS/S      P50      P99      MAX      CPU   PEAK \
             MEMORY"
        );
        assert_eq!(
            lines[1],
            "SchedulingBasic   engine   5,000   10,000      3        3   3.2 µs   1.2 ms   2.50 s   0.50 s        64 \
             MiB"
        );
    }

    #[test]
    fn what_the_log_costs_is_the_median_of_pairs() {
        let logged = |pods_per_second: f64| Run { mode: LOGGED.into(), cpu_seconds: 0.51, ..run("a", pods_per_second) };
        // The machine became faster between the pairs; each pair says 2 % or 4 %.
        let runs = [run("a", 100.0), logged(98.0), run("a", 200.0), logged(192.0), run("b", 1.0)];
        let text = "a on 5,000 nodes: the decision log takes 3.0 % of the speed, and 2.0 % more of the scheduler's \
                    processor time (medians of 2 pairs)\n";
        assert_eq!(log_costs(&runs), text);
    }

    #[test]
    fn a_run_has_exactly_the_fields_others_read() {
        let json = serde_json::to_value(run("a", 1.0)).unwrap();
        let names: Vec<&String> = json.as_object().unwrap().keys().collect();
        let wanted =
            ["cpu_seconds", "latency_us", "mode", "nodes", "peak_rss_bytes", "pods", "pods_per_second", "workload"];
        assert_eq!(names, wanted);
        assert_eq!(json["latency_us"], serde_json::json!({"p50": 3.25, "p99": 1200.0, "max": 2_500_000.0}));
    }
}
