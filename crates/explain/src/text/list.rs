//! The explanations of several pods.

use super::explanation::{let_in, missing, paragraph};
use super::style::Style;
use super::words::{count, number, some};
use crate::why::{Counts, ExplanationList, Group, Verdict};

/// How many pods of a group are named.
const PODS_MAX: usize = 3;

/// Several explanations as text, each group once, with a line end after each line.
pub fn list(answer: &ExplanationList, style: Style) -> String {
    let mut lines = vec![style.heading(&headline(&answer.counts))];
    for group in &answer.groups {
        paragraph(&mut lines, describe(group, style));
    }
    let mut here: Vec<&str> = answer.groups.iter().flat_map(|group| &group.explanation.missing_here).copied().collect();
    here.sort_unstable();
    here.dedup();
    let mut notes: Vec<String> = missing(&here).into_iter().collect();
    let all = answer.groups.iter().flat_map(|group| &group.explanation.notes).chain(&answer.notes);
    for note in all.map(|note| format!("  note: {note}")) {
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    paragraph(&mut lines, notes.iter().map(|note| style.dim(note)).collect());
    lines.push(String::new());
    lines.join("\n")
}

fn headline(counts: &Counts) -> String {
    let Counts { placed, will_place, not_yet, never, gated } = *counts;
    let pending = will_place + not_yet + never + gated;
    let parts = [(will_place, "will be placed"), (not_yet, "not yet"), (never, "never as specified"), (gated, "gated")];
    let parts: Vec<String> =
        parts.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{} {what}", number(n))).collect();
    let mut line = match pending {
        0 => "no pending pods".to_owned(),
        n => format!("{}: {}", count(n, "pending pod"), parts.join(", ")),
    };
    if placed > 0 {
        line.push_str(&format!("; {} placed", number(placed)));
    }
    line
}

fn describe(group: &Group, style: Style) -> Vec<String> {
    let explanation = &group.explanation;
    let verdict = style.verdict(explanation.verdict);
    let mut lines = vec![format!("{}  {verdict}: {}", count(group.pods.len(), "pod"), group.cause)];
    lines.push(format!("  pods: {}", some(&group.pods, if style.wide { usize::MAX } else { PODS_MAX })));
    if let Some(message) = &explanation.message {
        lines.push(format!("  {message}"));
    }
    for near in explanation.rejections.iter().filter_map(|rejection| rejection.nearest.as_ref()) {
        lines.push(format!("  nearest: {} {} short on {}", near.short, near.resource, near.node));
    }
    lines.extend(let_in(&explanation.changes, style));
    if explanation.verdict == Verdict::Never {
        lines.push(format!("  has to change: {}", explanation.must_change.join("; ")));
    }
    lines
}
