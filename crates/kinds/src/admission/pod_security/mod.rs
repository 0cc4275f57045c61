//! The Pod Security Standards: what a pod may do at the levels `baseline` and `restricted`, version by version, and the
//! policy that the labels of a namespace ask for. Upstream: `k8s.io/pod-security-admission`.

mod baseline;
mod containers;
mod policy;
mod restricted;
#[cfg(test)]
mod tests;

use serde_json::Value;

pub use policy::{Level, LevelVersion, Policy, Version};

/// The newest version with rules of its own; later ones have the same.
const NEWEST: u32 = 35;

/// A pod, or the template of one, as the checks see it.
#[derive(Clone, Copy)]
struct Pod<'a> {
    metadata: &'a Value,
    spec: &'a Value,
    /// The minor version whose rules apply.
    minor: u32,
}

impl Pod<'_> {
    fn is_windows(&self) -> bool {
        self.spec["os"]["name"] == "windows"
    }

    /// Whether the users of the pod are nobody on its host, which lets it be root inside.
    fn has_own_users(&self) -> bool {
        self.minor >= 35 && self.spec["hostUsers"] == false
    }

    fn security(&self) -> &Value {
        &self.spec["securityContext"]
    }
}

/// Why a pod breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// In a few words, for many pods at once.
    pub reason: String,
    /// Which parts of the pod break it.
    pub detail: String,
}

impl Violation {
    fn new(reason: &str, detail: String) -> Option<Violation> {
        Some(Violation { reason: reason.to_owned(), detail })
    }
}

type Check = fn(&Pod<'_>) -> Option<Violation>;

/// A rule: the first minor version that has it, the one that replaces it at the restricted level, and the check.
struct Rule {
    since: u32,
    /// From which minor version on a restricted rule takes its place at that level.
    replaced: u32,
    check: Check,
}

const NEVER: u32 = u32::MAX;

/// What a pod breaks, in upstream's order; nothing at the level `privileged`.
pub fn violations(policy: LevelVersion, metadata: &Value, spec: &Value) -> Vec<Violation> {
    if policy.level == Level::Privileged {
        return Vec::new();
    }
    let minor = match policy.version {
        Version::Latest => NEWEST,
        Version::Minor(minor) => minor.min(NEWEST),
    };
    let pod = Pod { metadata, spec, minor };
    let restricted = policy.level == Level::Restricted;
    let baseline = baseline::RULES.iter().filter(|rule| rule.since <= minor && !(restricted && rule.replaced <= minor));
    let further = restricted::RULES.iter().filter(|rule| restricted && rule.since <= minor);
    baseline.chain(further).filter_map(|rule| (rule.check)(&pod)).collect()
}

/// Violations with their details: `hostPort (container "a" uses hostPort 80), privileged (…)`.
pub fn in_full(violations: &[Violation]) -> String {
    let texts: Vec<String> = violations
        .iter()
        .map(
            |Violation { reason, detail }| {
                if detail.is_empty() { reason.clone() } else { format!("{reason} ({detail})") }
            },
        )
        .collect();
    texts.join(", ")
}

/// Violations in short: `hostPort, privileged`.
pub fn in_short(violations: &[Violation]) -> String {
    let reasons: Vec<&str> = violations.iter().map(|violation| violation.reason.as_str()).collect();
    reasons.join(", ")
}
