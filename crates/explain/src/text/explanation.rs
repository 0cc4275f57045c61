//! The explanation of one pod.

use super::style::Style;
use super::table::Table;
use super::words::{count, events, number, some};
use crate::Change;
use crate::why::{
    Explanation, KnownFrom, NodeAnswer, PluginScore, PreemptionAnswer, PreemptionCandidate, Rejection, Verdict,
};

/// How many changes are shown unless all are asked for.
const CHANGES_SHOWN: usize = 8;

/// How many victims or nodes a line names.
const NAMES_MAX: usize = 5;

/// An explanation as text, with a line end after each line.
pub fn explanation(answer: &Explanation, style: Style) -> String {
    let mut lines = vec![verdict_line(answer, style)];
    paragraph(&mut lines, body(answer, style));
    paragraph(&mut lines, let_in(&answer.changes, style));
    paragraph(&mut lines, footer(answer, style));
    lines.push(String::new());
    lines.join("\n")
}

/// Adds lines after an empty one.
pub(super) fn paragraph(lines: &mut Vec<String>, more: Vec<String>) {
    if !more.is_empty() {
        lines.push(String::new());
        lines.extend(more);
    }
}

/// The pod, the verdict and what it means in one sentence.
fn verdict_line(answer: &Explanation, style: Style) -> String {
    let nodes = answer.nodes.total;
    let on = answer.node.as_deref().unwrap_or("a node");
    let meaning = match answer.verdict {
        Verdict::Placed => format!("it is on {on}"),
        Verdict::WillPlace => format!("it fits on {} and goes to {on}", of_nodes(answer.nodes.feasible, nodes)),
        Verdict::Gated => "it is held back before any node is looked at".to_owned(),
        Verdict::NotYet if answer.error.is_some() => "the scheduler fails on it".to_owned(),
        Verdict::NotYet if answer.pre_filter.is_some() => "what it needs is not there yet".to_owned(),
        Verdict::NotYet => format!("none of {} fits now", count(nodes, "node")),
        Verdict::Never if nodes == 0 => "there are no nodes".to_owned(),
        Verdict::Never => format!("none of {} will ever fit it as specified", count(nodes, "node")),
    };
    format!("{}  {}: {meaning}", style.heading(&answer.pod.to_string()), style.verdict(answer.verdict))
}

fn of_nodes(feasible: usize, total: usize) -> String {
    format!("{} of {}", number(feasible), count(total, "node"))
}

fn body(answer: &Explanation, style: Style) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(held) = answer.pre_enqueue.as_ref().or(answer.pre_filter.as_ref()) {
        let by = if held.plugin.is_empty() { "PreFilter" } else { held.plugin };
        lines.push(format!("  {by}: {}", held.reasons.join(", ")));
    }
    if let Some(error) = &answer.error {
        lines.push(format!("  error: {error}"));
    }
    paragraph(&mut lines, elsewhere_today(answer));
    paragraph(&mut lines, scores(answer, style));
    if answer.pre_filter.is_none() {
        paragraph(&mut lines, rejections(answer, style));
    }
    paragraph(&mut lines, nearest(&answer.rejections));
    paragraph(&mut lines, on_node(answer));
    if style.wide {
        paragraph(&mut lines, every_node(&answer.per_node));
    }
    if lines.first().is_some_and(String::is_empty) {
        lines.remove(0);
    }
    lines
}

/// How many nodes each filter refused, and for what.
fn rejections(answer: &Explanation, style: Style) -> Vec<String> {
    if answer.rejections.is_empty() {
        return Vec::new();
    }
    let mut table = Table::new(["REFUSED BY", "NODES#", "REASON", "FOR EXAMPLE"]);
    for refused in &answer.refused_by {
        let of_plugin = answer.rejections.iter().filter(|rejection| rejection.plugin == refused.plugin);
        let shown = if refused.plugin.is_empty() { "PreFilter" } else { refused.plugin };
        let of_plugin: Vec<&Rejection> = of_plugin.collect();
        let single = of_plugin.len() == 1 && of_plugin[0].nodes == refused.nodes;
        if !single {
            table.row([shown.to_owned(), number(refused.nodes)]);
        }
        for rejection in of_plugin {
            let first = if single { shown } else { "" };
            let examples = rejection.examples.join(", ");
            table.row([first.to_owned(), number(rejection.nodes), rejection.reason.clone(), examples]);
        }
    }
    let mut lines = table.lines();
    lines[0] = style.dim(&lines[0]);
    lines
}

/// The nodes that lack least.
fn nearest(rejections: &[Rejection]) -> Vec<String> {
    let near = rejections.iter().filter_map(|rejection| rejection.nearest.as_ref());
    near.map(|near| format!("  nearest: {} {} short on {}", near.short, near.resource, near.node)).collect()
}

/// What every filter says of the node that was asked for.
fn on_node(answer: &Explanation) -> Vec<String> {
    let Some(on) = &answer.on_node else { return Vec::new() };
    let fits = if on.fits { "every filter lets it in" } else { "it does not fit" };
    let mut table = Table::new(["FILTER", "ANSWER", "REASONS"]);
    for filter in &on.filters {
        let said = match filter.code {
            "Success" => "ok",
            "Skip" => "does not apply",
            code => code,
        };
        table.row([filter.plugin.to_owned(), said.to_owned(), filter.reasons.join(", ")]);
    }
    let mut lines = vec![format!("  on {}: {fits}", on.node)];
    lines.extend(table.lines());
    lines
}

fn every_node(nodes: &[NodeAnswer]) -> Vec<String> {
    if nodes.is_empty() {
        return Vec::new();
    }
    let mut table = Table::new(["NODE", "ANSWER", "TOTAL#", "PLUGIN", "REASONS"]);
    for node in nodes {
        let total = node.total.map(|total| total.to_string()).unwrap_or_default();
        let code = node.code.unwrap_or("fits").to_owned();
        table.row([node.node.clone(), code, total, node.plugin.to_owned(), node.reasons.join(", ")]);
    }
    table.lines()
}

/// The chosen node and the runners-up, one column for each plugin that scores them differently.
fn scores(answer: &Explanation, style: Style) -> Vec<String> {
    let Some(first) = answer.ranking.first() else { return Vec::new() };
    let differs = |at: usize| answer.ranking.iter().any(|node| node.scores[at] != first.scores[at]);
    let (shown, equal): (Vec<usize>, Vec<usize>) = (0..first.scores.len()).partition(|at| style.wide || differs(*at));
    let headings = ["NODE", "TOTAL#"].into_iter().chain(shown.iter().map(|at| first.scores[*at].plugin));
    let mut table = Table::new(headings);
    for node in &answer.ranking {
        let cells = shown.iter().map(|at| score(&node.scores[*at]));
        let total = node.total.unwrap_or_default().to_string();
        table.row([node.node.clone(), total].into_iter().chain(cells));
    }
    let mut lines = table.lines();
    lines[0] = style.dim(&lines[0]);
    if !equal.is_empty() {
        let names: Vec<&str> = equal.iter().map(|at| first.scores[*at].plugin).collect();
        lines.push(format!("  equal on these nodes: {}", names.join(", ")));
    }
    if let Some(plugin) = answer.decided_by {
        lines.push(format!("  decided by {plugin}"));
    }
    if answer.best.len() > 1 {
        let ties = count(answer.best.len(), "node");
        lines.push(format!("  {ties} tied for the first place: {}", some(&answer.best, NAMES_MAX)));
    }
    lines
}

/// Where a bound pod would go today, if that is not where it is.
fn elsewhere_today(answer: &Explanation) -> Vec<String> {
    let is_best = answer.node.as_ref().is_some_and(|node| answer.best.contains(node));
    match answer.verdict {
        Verdict::Placed if answer.best.is_empty() => vec!["  today it would fit nowhere".to_owned()],
        Verdict::Placed if !is_best => vec![format!("  today it would go to {}", some(&answer.best, NAMES_MAX))],
        _ => Vec::new(),
    }
}

/// `raw → normalised × weight`, as far as it says something.
fn score(score: &PluginScore) -> String {
    match score.weight {
        0 | 1 => format!("{} → {}", score.raw, score.score),
        weight => format!("{} → {} × {weight}", score.raw, score.score / weight),
    }
}

/// What would let the pod in.
pub(super) fn let_in(changes: &[Change], style: Style) -> Vec<String> {
    if changes.is_empty() {
        return Vec::new();
    }
    let shown = if style.wide { changes.len() } else { CHANGES_SHOWN };
    let mut lines = vec![format!("  {}", style.heading("what would let it in, smallest change first:"))];
    for change in changes.iter().take(shown) {
        lines.push(format!("  - {} → {}", change.summary, change.node));
    }
    if changes.len() > shown {
        lines.push(format!("    and {} more with -o wide", changes.len() - shown));
    }
    lines
}

/// What else there is to know: preemption, what the pod waits for, and what the answer rests on.
fn footer(answer: &Explanation, style: Style) -> Vec<String> {
    let mut lines = Vec::new();
    if !answer.must_change.is_empty() {
        lines.push(format!("  has to change: {}", answer.must_change.join("; ")));
    }
    lines.extend(answer.preemption.as_ref().and_then(preemption));
    if !answer.wakes_on.is_empty() {
        lines.push(format!("  waits for: {}", events(&answer.wakes_on).join("; ")));
    }
    let pending = matches!(answer.verdict, Verdict::NotYet | Verdict::Never) && answer.message.is_some();
    match answer.retry_at {
        Some(at) => lines.push(format!("  tried again without any of these: at {at}")),
        None if pending => lines.push("  tried again without any of these: 5 minutes after the last attempt".into()),
        None => {}
    }
    if let Some(last) = &answer.last_attempt
        && let Some(since) = last.since
    {
        let reason = if last.reason.is_empty() { String::new() } else { format!(" ({})", last.reason) };
        lines.push(format!("  unscheduled since {since}{reason}"));
    }
    lines.extend(attempts(answer));
    lines.extend(missing(&answer.missing_here).map(|line| style.dim(&line)));
    lines.extend(answer.notes.iter().map(|note| style.dim(&format!("  note: {note}"))));
    lines
}

/// How often the pod was tried, and how that is known.
fn attempts(answer: &Explanation) -> Option<String> {
    let attempts = answer.attempts.as_ref()?;
    let times = match attempts.count {
        1 => "once".to_owned(),
        many => format!("{} times", number(usize::try_from(many).unwrap_or(usize::MAX))),
    };
    let at_least = if attempts.at_least { "at least " } else { "" };
    let last = answer.last_attempt.as_ref().and_then(|last| last.time);
    let last = last.map(|time| format!(", last at {time}")).unwrap_or_default();
    let from = match attempts.from {
        KnownFrom::Log => "from the decision log",
        KnownFrom::Events => "from events, which expire and lag behind",
        KnownFrom::Condition => "from its condition",
    };
    Some(format!("  tried {at_least}{times}{last} ({from})"))
}

/// What could not be read and may change the answer.
pub(super) fn missing(resources: &[&str]) -> Option<String> {
    let line = || format!("  not in the source, and may change the answer: {}", resources.join(", "));
    (!resources.is_empty()).then(line)
}

/// What preemption could do; none when no node was refused for a reason that it could resolve.
fn preemption(answer: &PreemptionAnswer) -> Option<String> {
    if let Some(reason) = &answer.reason {
        return Some(format!("  preemption: {reason}"));
    }
    let taken = answer.acceptable.first().and_then(|node| answer.candidates.iter().find(|at| at.node == *node));
    if let Some(candidate) = taken {
        return Some(format!("  preemption: {}", would_evict(candidate, answer.acceptable.len() - 1)));
    }
    // Other plugins may have said something before.
    let (_, why) = answer.message.as_ref()?.split_once("preemption: ")?;
    Some(format!("  preemption does not help: {why}"))
}

fn would_evict(candidate: &PreemptionCandidate, others: usize) -> String {
    let budgets = match candidate.pdb_violations {
        0 => String::new(),
        protected => format!(", {protected} of them protected by a PodDisruptionBudget"),
    };
    let elsewhere = if others > 0 { format!(" (or {} as good)", count(others, "other node")) } else { String::new() };
    format!("it gets {} by evicting {}{budgets}{elsewhere}", candidate.node, some(&candidate.victims, NAMES_MAX))
}
