//! A simulation as a table.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::{Metrics, Simulation};

/// How many divergences the text shows.
const DIVERGENCES_SHOWN: usize = 10;

/// A row of the table: what is measured, and its text for one configuration.
pub(super) type Row = (String, Box<dyn Fn(&Metrics) -> String>);

/// What is shown of each configuration.
pub(super) fn rows(simulation: &Simulation) -> Vec<Row> {
    let mut rows: Vec<Row> = vec![
        ("nodes in use, mean".into(), Box::new(|m: &Metrics| format!("{:.1}", m.nodes_in_use))),
        ("nodes in use, most".into(), Box::new(|m: &Metrics| m.nodes_in_use_max.to_string())),
        ("pending pod-minutes".into(), Box::new(|m: &Metrics| format!("{:.1}", m.pending_pod_minutes))),
        ("pods placed".into(), Box::new(|m: &Metrics| m.pods_placed.to_string())),
        ("pods never placed".into(), Box::new(|m: &Metrics| m.pods_never_placed.to_string())),
        ("preemptions".into(), Box::new(|m: &Metrics| m.preemptions.to_string())),
        ("spread violations".into(), Box::new(|m: &Metrics| m.spread_violations.to_string())),
    ];
    for (what, of) in [("wait p50", 0), ("wait p99", 1), ("wait max", 2)] {
        rows.push((
            what.into(),
            Box::new(move |m: &Metrics| {
                let wait = &m.wait_seconds;
                format!("{:.1} s", [wait.p50, wait.p99, wait.max][of])
            }),
        ));
    }
    let percent = |share: Option<&f64>| share.map_or("–".to_owned(), |share| format!("{:.1} %", share * 100.0));
    for resource in resources(simulation, |metrics| &metrics.utilisation) {
        let name = format!("{resource} requested");
        rows.push((name, Box::new(move |m: &Metrics| percent(m.utilisation.get(&resource)))));
    }
    for resource in resources(simulation, |metrics| &metrics.fragmented) {
        let name = format!("free {resource} nobody can use");
        rows.push((name, Box::new(move |m: &Metrics| percent(m.fragmented.get(&resource)))));
    }
    rows
}

/// The resources that any configuration has figures of.
fn resources(simulation: &Simulation, of: impl Fn(&Metrics) -> &crate::capacity::Shares) -> BTreeSet<String> {
    simulation.configs.iter().flat_map(|config| of(&config.metrics).keys().cloned()).collect()
}

/// The figures of all configurations side by side, and the first divergences.
pub fn table(simulation: &Simulation) -> String {
    let mut out = format!(
        "{} events on {} nodes, from {} to {}\n\n",
        simulation.events, simulation.nodes, simulation.from, simulation.to
    );
    let mut lines: Vec<Vec<String>> = vec![vec![String::new()]];
    lines[0].extend(simulation.configs.iter().map(|config| config.name.clone()));
    for (name, of) in rows(simulation) {
        let mut line = vec![name];
        line.extend(simulation.configs.iter().map(|config| of(&config.metrics)));
        lines.push(line);
    }
    let columns = simulation.configs.len() + 1;
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for line in &lines {
        for (column, cell) in line.iter().enumerate() {
            let pad = widths[column] - cell.chars().count();
            let _ = match column {
                0 => write!(out, "{cell}{:pad$}", ""),
                _ => write!(out, "  {:pad$}{cell}", ""),
            };
        }
        out.push('\n');
    }
    if simulation.configs.len() > 1 {
        let _ = writeln!(out, "\n{} pods went to different nodes", simulation.divergent_pods);
        for divergence in simulation.divergences.iter().take(DIVERGENCES_SHOWN) {
            let nodes: Vec<String> = divergence.nodes.iter().map(|(name, node)| format!("{name} {node}")).collect();
            let plugin = divergence.plugin.map_or_else(String::new, |plugin| format!(" ({plugin})"));
            let _ = writeln!(out, "  {} {}: {}{plugin}", divergence.time, divergence.pod, nodes.join(", "));
        }
        if simulation.divergent_pods > DIVERGENCES_SHOWN {
            let _ = writeln!(out, "  … (-o json lists more)");
        }
    }
    for note in &simulation.notes {
        let _ = writeln!(out, "Note: {note}");
    }
    out
}
