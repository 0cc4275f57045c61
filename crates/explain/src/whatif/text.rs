//! The answer of a what-if as people read it.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::answer::WhatIf;
use crate::capacity::Capacity;
use crate::why::Explanation;

/// How many lines a section has before it says how many more there are.
const LINES_MAX: usize = 20;

/// How much an answer shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// What fits on a screen.
    Summary,
    /// Every pod.
    Wide,
}

/// The answer as text.
pub fn render(answer: &WhatIf, detail: Detail) -> String {
    let mut out = String::new();
    let lines_max = if detail == Detail::Wide { usize::MAX } else { LINES_MAX };
    for action in &answer.actions {
        let _ = writeln!(out, "• {action}");
    }
    if !answer.actions.is_empty() {
        out.push('\n');
    }
    let _ = writeln!(out, "{}", headline(answer));
    for (section, lines) in [
        ("Placed", placed(answer, detail)),
        ("Pending", pending(answer, detail)),
        ("Moved", answer.moved.iter().map(moved).collect()),
        ("Stuck", answer.stuck.iter().map(|s| format!("{} stays on {}: {}", s.pod, s.node, s.why)).collect()),
        ("Preempted", answer.preempted.iter().map(|p| format!("{} leaves {} for {}", p.pod, p.node, p.by)).collect()),
        ("Deleted", answer.deleted.iter().map(deleted).collect()),
    ] {
        write_section(&mut out, section, &lines, lines_max);
    }
    let _ = write!(out, "\n{}", comparison(&answer.before, &answer.after));
    if let Some(more) = answer.more_copies {
        let at_least = if answer.more_copies_at_least { "at least " } else { "" };
        let _ = writeln!(out, "\n{at_least}{more} more {} would fit.", if more == 1 { "copy" } else { "copies" });
    }
    if !answer.source.missing.is_empty() {
        let _ = writeln!(out, "\nNot in the source, and may change the answer: {}", answer.source.missing.join(", "));
    }
    for note in &answer.notes {
        let _ = writeln!(out, "Note: {note}");
    }
    out
}

fn write_section(out: &mut String, section: &str, lines: &[String], lines_max: usize) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{section}");
    for line in lines.iter().take(lines_max) {
        let _ = writeln!(out, "  {line}");
    }
    if lines.len() > lines_max {
        let _ = writeln!(out, "  … and {} more (-o wide shows all)", lines.len() - lines_max);
    }
}

fn headline(answer: &WhatIf) -> String {
    let counts = [
        (answer.placed.len(), "placed"),
        (answer.pending.len(), "pending"),
        (answer.moved.len(), "moved"),
        (answer.stuck.len(), "stuck"),
        (answer.preempted.len(), "preempted"),
        (answer.deleted.len(), "deleted"),
    ];
    let said = counts.iter().filter(|(count, what)| *count > 0 || matches!(*what, "placed" | "pending"));
    said.map(|(count, what)| format!("{count} {what}")).collect::<Vec<_>>().join(", ")
}

fn placed(answer: &WhatIf, detail: Detail) -> Vec<String> {
    if answer.placed.is_empty() && answer.moved.is_empty() {
        return Vec::new();
    }
    let mut lines = Vec::new();
    for (what, counts) in [("zone", &answer.placed_by.zone), ("pool", &answer.placed_by.pool)] {
        if counts.keys().any(|name| !name.is_empty()) {
            let shown =
                counts.iter().map(|(name, count)| format!("{} {count}", if name.is_empty() { "(none)" } else { name }));
            lines.push(format!("by {what}: {}", shown.collect::<Vec<_>>().join(", ")));
        }
    }
    if detail == Detail::Wide {
        lines.extend(answer.placed.iter().map(|placed| format!("{} → {}", placed.pod, placed.node)));
        return lines;
    }
    let mut by_node: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    for placed in &answer.placed {
        by_node.entry(&placed.node).or_insert((0, &placed.pod)).0 += 1;
    }
    lines.extend(by_node.into_iter().map(|(node, (count, first))| match count {
        1 => format!("{node}: {first}"),
        count => format!("{node}: {first} and {} more", count - 1),
    }));
    lines
}

/// Pods with the same answer are one line.
fn pending(answer: &WhatIf, detail: Detail) -> Vec<String> {
    let line = |pending: &Explanation, more: usize| {
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{}{more} [{}]: {}", pending.pod, pending.verdict.name(), why(pending))
    };
    if detail == Detail::Wide {
        return answer.pending.iter().map(|pending| line(pending, 0)).collect();
    }
    let mut groups: Vec<(&Explanation, usize)> = Vec::new();
    for pending in &answer.pending {
        let same = |(first, _): &&mut (&Explanation, usize)| {
            first.pod.namespace == pending.pod.namespace && why(first) == why(pending)
        };
        match groups.iter_mut().find(same) {
            Some((_, more)) => *more += 1,
            None => groups.push((pending, 0)),
        }
    }
    groups.into_iter().map(|(pending, more)| line(pending, more)).collect()
}

/// Why a pod is pending, in one line.
fn why(pending: &Explanation) -> String {
    let gate = pending.pre_enqueue.as_ref().map(|answer| answer.reasons.join(", "));
    pending.error.clone().or(gate).or_else(|| pending.message.clone()).unwrap_or_default()
}

fn moved(moved: &super::answer::Moved) -> String {
    let unmanaged = if moved.unmanaged { " (no controller: somebody has to create it again)" } else { "" };
    format!("{} {} → {}{unmanaged}", moved.pod, moved.from, moved.to)
}

fn deleted(deleted: &super::answer::Deleted) -> String {
    if deleted.node.is_empty() { deleted.pod.clone() } else { format!("{} from {}", deleted.pod, deleted.node) }
}

/// Both states side by side.
fn comparison(before: &Capacity, after: &Capacity) -> String {
    let mut rows: Vec<[String; 3]> = vec![["".into(), "before".into(), "after".into()]];
    for (name, from, to) in [
        ("nodes", before.nodes, after.nodes),
        ("pods on nodes", before.pods, after.pods),
        ("pods pending", before.pending, after.pending),
    ] {
        rows.push([name.into(), from.to_string(), to.to_string()]);
    }
    let percent = |share: Option<&f64>| share.map_or("–".to_owned(), |share| format!("{:.1} %", share * 100.0));
    let resources: Vec<&String> = after.utilisation.keys().collect();
    for resource in &resources {
        let (from, to) = (before.utilisation.get(*resource), after.utilisation.get(*resource));
        rows.push([format!("{resource} requested"), percent(from), percent(to)]);
    }
    for resource in &resources {
        let hole = |capacity: &Capacity| match capacity.largest_hole.get(*resource) {
            Some(hole) => format!("{hole} on {}", capacity.largest_hole_nodes.get(*resource).map_or("?", |node| node)),
            None => "–".to_owned(),
        };
        if after.largest_hole.contains_key(*resource) {
            rows.push([format!("largest hole, {resource}"), hole(before), hole(after)]);
        }
    }
    for resource in &resources {
        let (from, to) = (before.fragmented.get(*resource), after.fragmented.get(*resource));
        if from.or(to).is_some() {
            rows.push([format!("free {resource} nobody can use"), percent(from), percent(to)]);
        }
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (first, second) = (width(0), width(1));
    let lines = rows.iter().map(|[name, from, to]| {
        let (name_pad, from_pad) = (first - name.chars().count(), second - from.chars().count());
        format!("{name}{:name_pad$}  {from}{:from_pad$}  {to}\n", "", "")
    });
    lines.collect()
}
