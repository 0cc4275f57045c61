//! What a shadow has seen: the ShadowReport of `bayplan.dev/v1`, as JSON and as text.

use std::collections::BTreeMap;
use std::fmt::Write;

use jiff::Timestamp;
use serde::Serialize;

use super::evaluation::NodeScores;

/// How a binding compares with our decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The only best node.
    Same,
    /// One of several best nodes.
    Tied,
    /// A worse node, while the better ones may be among those that upstream did not score.
    Sampled,
    /// A best node in a state shortly before or after.
    Raced,
    /// Not a best node in any state that can have been seen.
    Unexplained,
}

/// A binding that nothing explains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Case {
    /// The pod, as `namespace/name`.
    pub pod: String,
    /// The node that it was bound to.
    pub theirs: String,
    /// The node that we would have chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ours: Option<String>,
    /// The scores of both.
    pub scores: Vec<NodeScores>,
    /// The file with the state and the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
}

/// Quantiles of regret: our best score minus theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Regret {
    /// Half of the bindings have no more.
    pub p50: i64,
    /// 99 of 100 bindings have no more.
    pub p99: i64,
    /// No binding has more.
    pub max: i64,
}

/// What a shadow has seen.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShadowReport {
    api_version: &'static str,
    kind: &'static str,
    /// When it began to judge.
    pub from: Timestamp,
    /// When it ended.
    pub to: Timestamp,
    /// The bindings that were judged.
    pub seen: u64,
    /// Bound to the only best node.
    pub same: u64,
    /// Bound to one of several best nodes.
    pub tied: u64,
    /// Bound to a worse node, while upstream may not have scored the better ones.
    pub sampled: u64,
    /// Bound to the best node of a state shortly before or after.
    pub raced: u64,
    /// Bound to a node that was not the best in any state.
    pub unexplained: u64,
    /// Bindings that were not judged, by reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub not_judged: BTreeMap<&'static str, u64>,
    /// Our best score minus theirs.
    pub regret: Regret,
    /// The first bindings that nothing explains.
    pub cases: Vec<Case>,
    /// What could not be read and may change a judgement.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The counts behind a report.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    verdicts: BTreeMap<u8, u64>,
    pub(super) not_judged: BTreeMap<&'static str, u64>,
    /// Bindings by regret; scores are small numbers, so these are few.
    regrets: BTreeMap<i64, u64>,
    pub(super) cases: Vec<Case>,
}

impl Tally {
    pub(super) fn count(&mut self, verdict: Verdict, regret: i64) {
        *self.verdicts.entry(verdict as u8).or_default() += 1;
        *self.regrets.entry(regret).or_default() += 1;
    }

    pub(super) fn of(&self, verdict: Verdict) -> u64 {
        self.verdicts.get(&(verdict as u8)).copied().unwrap_or_default()
    }

    fn quantile(&self, share: f64) -> i64 {
        let total: u64 = self.regrets.values().sum();
        let rank = (total as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (regret, count) in &self.regrets {
            seen += count;
            if seen >= rank {
                return *regret;
            }
        }
        0
    }

    pub(super) fn report(&self, from: Timestamp, to: Timestamp, notes: Vec<String>) -> ShadowReport {
        ShadowReport {
            api_version: "bayplan.dev/v1",
            kind: "ShadowReport",
            from,
            to,
            seen: self.verdicts.values().sum(),
            same: self.of(Verdict::Same),
            tied: self.of(Verdict::Tied),
            sampled: self.of(Verdict::Sampled),
            raced: self.of(Verdict::Raced),
            unexplained: self.of(Verdict::Unexplained),
            not_judged: self.not_judged.clone(),
            regret: Regret { p50: self.quantile(0.5), p99: self.quantile(0.99), max: self.quantile(1.0) },
            cases: self.cases.clone(),
            notes,
        }
    }
}

impl ShadowReport {
    /// The share of bindings that are explained, in percent; all of none.
    pub fn explained(&self) -> f64 {
        if self.seen == 0 { 100.0 } else { 100.0 * (self.seen - self.unexplained) as f64 / self.seen as f64 }
    }

    /// The report for people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let seconds = self.to.duration_since(self.from).as_secs();
        let _ = writeln!(text, "{} bindings in {}: {:.2} % explained", self.seen, spoken(seconds), self.explained());
        let rows = [
            ("same", self.same, "the only best node"),
            ("tied", self.tied, "one of several best nodes"),
            ("sampled", self.sampled, "the better nodes may not have been scored"),
            ("raced", self.raced, "the best node of a state shortly before or after"),
            ("unexplained", self.unexplained, "not the best node of any state that was seen"),
        ];
        let width = rows.iter().map(|row| row.1.to_string().len()).max().unwrap_or(1);
        for (name, count, meaning) in rows {
            let _ = writeln!(text, "  {name:<11}  {count:>width$}  {meaning}");
        }
        for (reason, count) in &self.not_judged {
            let _ = writeln!(text, "  not judged: {count} {reason}");
        }
        let Regret { p50, p99, max } = self.regret;
        let _ = writeln!(text, "regret (our best score minus theirs): p50 {p50}, p99 {p99}, max {max}");
        for case in &self.cases {
            let ours = case.ours.as_deref().unwrap_or("nowhere");
            let _ = write!(text, "unexplained: {} went to {}, we would choose {ours}", case.pod, case.theirs);
            let total = |node: &str| case.scores.iter().find(|scores| scores.node == node).map(|scores| scores.total);
            if let (Some(theirs), Some(best)) = (total(&case.theirs), total(ours)) {
                let _ = write!(text, " ({theirs} against {best})");
            }
            let _ = match &case.snapshot {
                Some(file) => writeln!(text, "; bayplan why --from {file} pod/{}", name_and_namespace(&case.pod)),
                None => writeln!(text),
            };
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        text
    }
}

/// `name -n namespace`, as `why` takes it.
fn name_and_namespace(pod: &str) -> String {
    pod.split_once('/').map_or_else(|| pod.to_owned(), |(namespace, name)| format!("{name} -n {namespace}"))
}

fn spoken(seconds: i64) -> String {
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds}s"),
        (0, minutes, seconds) => format!("{minutes}m{seconds:02}s"),
        (hours, minutes, _) => format!("{hours}h{minutes:02}m"),
    }
}
