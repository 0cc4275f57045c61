//! The explanation of one node.

use super::explanation::{missing, paragraph};
use super::style::Style;
use super::table::Table;
use super::words::{count, number, some};
use crate::why::NodeExplanation;

/// How many pods a line names.
const PODS_MAX: usize = 3;

/// What a node refuses and would take, as text with a line end after each line.
pub fn node(answer: &NodeExplanation, style: Style) -> String {
    let shown = if style.wide { usize::MAX } else { PODS_MAX };
    let free: Vec<String> = answer.free.iter().map(|(resource, amount)| format!("{amount} {resource}")).collect();
    let mut lines = vec![
        format!("{}  {}", style.heading(&format!("node {}", answer.node)), count(answer.pods, "pod")),
        format!("  free: {}", free.join(", ")),
    ];
    if !answer.would_take.is_empty() {
        let pods = count(answer.would_take.len(), "pending pod");
        lines.push(format!("  would take {pods}: {}", some(&answer.would_take, shown)));
    }
    if answer.refuses.is_empty() && answer.would_take.is_empty() {
        lines.push("  no pod is pending".to_owned());
    }
    if !answer.refuses.is_empty() {
        let mut table = Table::new(["REFUSES", "PODS#", "REASON", "FOR EXAMPLE"]);
        for refused in &answer.refuses {
            let plugin = if refused.plugin.is_empty() { "PreFilter" } else { refused.plugin };
            let pods = number(refused.pods.len());
            table.row([plugin.to_owned(), pods, refused.reason.clone(), some(&refused.pods, shown)]);
        }
        let mut table = table.lines();
        table[0] = style.dim(&table[0]);
        paragraph(&mut lines, table);
    }
    let notes = answer.notes.iter().map(|note| format!("  note: {note}"));
    let notes: Vec<String> = missing(&answer.missing_here).into_iter().chain(notes).collect();
    paragraph(&mut lines, notes.iter().map(|note| style.dim(note)).collect());
    lines.push(String::new());
    lines.join("\n")
}
