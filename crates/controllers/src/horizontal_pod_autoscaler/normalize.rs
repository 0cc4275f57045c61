//! From what the metrics ask for to what is written: stabilization over time, rates of change, bounds.

use std::time::Duration;

use jiff::Timestamp;

use super::object::{Behavior, Policy, ScalingRules};

/// What an autoscaler remembers. It is lost with the process, as upstream's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// What the metrics asked for, and when.
    pub recommendations: Vec<(i32, Timestamp)>,
    /// By how many replicas the target grew, and when.
    pub ups: Vec<(i32, Timestamp)>,
    /// By how many replicas the target shrank, and when.
    pub downs: Vec<(i32, Timestamp)>,
}

/// The number of replicas that the metrics ask for, and what limits it.
#[derive(Clone, Copy, Debug)]
pub struct Proposal<'a> {
    /// `scale.spec.replicas`.
    pub current: i32,
    /// What the metrics ask for.
    pub desired: i32,
    /// `spec.minReplicas`.
    pub min: i32,
    /// `spec.maxReplicas`.
    pub max: i32,
    /// `spec.behavior`.
    pub behavior: Option<&'a Behavior>,
    /// `--horizontal-pod-autoscaler-downscale-stabilization`.
    pub downscale_stabilization: Duration,
    /// The time.
    pub now: Timestamp,
}

/// A condition without its type: status, reason and message.
pub type Finding = (bool, &'static str, &'static str);

/// What remains of a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Normalized {
    /// The replicas.
    pub replicas: i32,
    /// Condition `AbleToScale`.
    pub able_to_scale: Finding,
    /// Condition `ScalingLimited`.
    pub limited: Finding,
}

/// A number that a limit allows, with why.
type Limited = (i32, &'static str, &'static str);

const HIGHER: (&str, &str) = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);
const LOWER: (&str, &str) = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);
const TOO_FAST_UP: (&str, &str) =
    ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const TOO_FAST_DOWN: (&str, &str) =
    ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate");
const TOO_MANY: (&str, &str) = ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
const TOO_FEW: (&str, &str) = ("TooFewReplicas", "the desired replica count is less than the minimum replica count");
const IN_RANGE: (&str, &str) = ("DesiredWithinRange", "the desired count is within the acceptable range");

impl History {
    /// Stabilizes and limits a proposal, and remembers it.
    pub fn normalize(&mut self, proposal: Proposal<'_>) -> Normalized {
        let (stabilized, why) = match proposal.behavior {
            Some(behavior) => self.stabilize_by(behavior, proposal),
            None => (self.stabilize(proposal), HIGHER),
        };
        let able_to_scale = if stabilized == proposal.desired {
            (true, "ReadyForNewScale", "recommended size matches current size")
        } else {
            (true, why.0, why.1)
        };
        let proposal = Proposal { desired: stabilized, ..proposal };
        let (replicas, reason, message) = match proposal.behavior {
            Some(behavior) => self.limit_by(behavior, proposal),
            None => limit(proposal),
        };
        Normalized { replicas, able_to_scale, limited: (replicas != stabilized, reason, message) }
    }

    /// The highest of the recent recommendations.
    fn stabilize(&mut self, proposal: Proposal<'_>) -> i32 {
        let cutoff = before(proposal.now, proposal.downscale_stabilization);
        let recent = self.recommendations.iter().filter(|(_, at)| *at >= cutoff).map(|(replicas, _)| *replicas);
        let highest = recent.fold(proposal.desired, i32::max);
        let old = self.recommendations.iter().rposition(|(_, at)| *at < cutoff);
        remember(&mut self.recommendations, old, (proposal.desired, proposal.now));
        highest
    }

    fn stabilize_by(&mut self, behavior: &Behavior, proposal: Proposal<'_>) -> (i32, (&'static str, &'static str)) {
        let seconds = |rules: &ScalingRules| {
            rules.stabilization_window_seconds.map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
        };
        // As upstream, the flag counts in whole seconds here.
        let flag = Duration::from_secs(proposal.downscale_stabilization.as_secs());
        let up = before(proposal.now, behavior.scale_up.as_ref().and_then(seconds).unwrap_or_default());
        let down = before(proposal.now, behavior.scale_down.as_ref().and_then(seconds).unwrap_or(flag));
        let since = |cutoff| {
            let recent = self.recommendations.iter().filter(move |(_, at)| *at > cutoff);
            recent.map(|(replicas, _)| *replicas)
        };
        let lowest = since(up).fold(proposal.desired, i32::min);
        let highest = since(down).fold(proposal.desired, i32::max);
        let old = self.recommendations.iter().rposition(|(_, at)| *at < up && *at < down);
        remember(&mut self.recommendations, old, (proposal.desired, proposal.now));
        let why = if proposal.desired >= proposal.current { LOWER } else { HIGHER };
        (proposal.current.max(lowest).min(highest), why)
    }

    /// Limits the rate of change by the policies.
    fn limit_by(&self, behavior: &Behavior, proposal: Proposal<'_>) -> Limited {
        let Proposal { current, desired, min, max, .. } = proposal;
        let (most, least) = match (&behavior.scale_up, &behavior.scale_down) {
            (Some(up), _) if desired > current => (self.highest(up, proposal).max(current), i32::MIN),
            (_, Some(down)) if desired < current => (i32::MAX, self.lowest(down, proposal).min(current)),
            _ => (i32::MAX, i32::MIN),
        };
        if desired > current && desired > most.min(max) {
            let (reason, message) = if max > most { TOO_FAST_UP } else { TOO_MANY };
            return (most.min(max), reason, message);
        }
        if desired < current && desired < least.max(min) {
            let (reason, message) = if min < least { TOO_FAST_DOWN } else { TOO_FEW };
            return (least.max(min), reason, message);
        }
        (desired, IN_RANGE.0, IN_RANGE.1)
    }

    /// The replicas at the beginning of a policy's period.
    fn at_period_start(&self, policy: &Policy, proposal: Proposal<'_>) -> i64 {
        let period = Duration::from_secs(u64::try_from(policy.period_seconds).unwrap_or(0));
        let cutoff = before(proposal.now, period);
        let changed = |events: &[(i32, Timestamp)]| -> i64 {
            events.iter().filter(|(_, at)| *at > cutoff).map(|(change, _)| i64::from(*change)).sum()
        };
        i64::from(proposal.current) - changed(&self.ups) + changed(&self.downs)
    }

    /// The most replicas that the policies allow.
    fn highest(&self, rules: &ScalingRules, proposal: Proposal<'_>) -> i32 {
        let proposed = rules.policies.iter().map(|policy| {
            let start = self.at_period_start(policy, proposal);
            match policy.kind.as_str() {
                "Pods" => clamp(start.saturating_add(i64::from(policy.value))),
                _ => (start as f64 * (1.0 + f64::from(policy.value) / 100.0)).ceil() as i32,
            }
        });
        match rules.select_policy.as_deref() {
            Some("Disabled") => proposal.current,
            Some("Min") => proposed.min().unwrap_or(i32::MAX),
            _ => proposed.max().unwrap_or(i32::MIN),
        }
    }

    /// The fewest replicas that the policies allow.
    fn lowest(&self, rules: &ScalingRules, proposal: Proposal<'_>) -> i32 {
        let proposed = rules.policies.iter().map(|policy| {
            let start = self.at_period_start(policy, proposal);
            match policy.kind.as_str() {
                "Pods" => clamp(start.saturating_sub(i64::from(policy.value))),
                _ => (start as f64 * (1.0 - f64::from(policy.value) / 100.0)) as i32,
            }
        });
        match rules.select_policy.as_deref() {
            Some("Disabled") => proposal.current,
            Some("Min") => proposed.max().unwrap_or(i32::MIN),
            _ => proposed.min().unwrap_or(i32::MAX),
        }
    }

    /// Remembers that the target was rescaled; only policies ask.
    pub fn rescaled(&mut self, behavior: Option<&Behavior>, from: i32, to: i32, now: Timestamp) {
        let Some(behavior) = behavior else { return };
        let (events, rules) =
            if to > from { (&mut self.ups, &behavior.scale_up) } else { (&mut self.downs, &behavior.scale_down) };
        let periods = rules.iter().flat_map(|rules| &rules.policies).map(|policy| policy.period_seconds);
        let longest = u64::try_from(periods.max().unwrap_or(0)).unwrap_or(0);
        let cutoff = before(now, Duration::from_secs(longest));
        let old = events.iter().rposition(|(_, at)| *at < cutoff);
        remember(events, old, (to.saturating_sub(from).saturating_abs(), now));
    }
}

/// Puts an entry over one that is too old to count, or adds it.
fn remember(entries: &mut Vec<(i32, Timestamp)>, old: Option<usize>, entry: (i32, Timestamp)) {
    match old {
        Some(index) => entries[index] = entry,
        None => entries.push(entry),
    }
}

fn before(now: Timestamp, duration: Duration) -> Timestamp {
    now.checked_sub(duration).unwrap_or(Timestamp::MIN)
}

fn clamp(replicas: i64) -> i32 {
    i32::try_from(replicas).unwrap_or(if replicas < 0 { i32::MIN } else { i32::MAX })
}

/// The bounds of an autoscaler without behavior: it doubles at most, or goes to four.
fn limit(proposal: Proposal<'_>) -> Limited {
    let Proposal { current, desired, min, max, .. } = proposal;
    let rate = current.saturating_mul(2).max(4);
    let (most, why) = if max > rate { (rate, TOO_FAST_UP) } else { (max, TOO_MANY) };
    if desired < min {
        return (min, TOO_FEW.0, TOO_FEW.1);
    }
    if desired > most {
        return (most, why.0, why.1);
    }
    (desired, IN_RANGE.0, IN_RANGE.1)
}
