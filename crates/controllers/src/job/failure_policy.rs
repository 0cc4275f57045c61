//! What the failure of a pod means to its Job.

use super::object::{OnExitCodes, PodFailurePolicy, PodFailureRule};
use crate::pod::{Pod, TerminatedContainer, Termination};

/// What a rule does about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The Job fails.
    FailJob,
    /// The pod's index fails.
    FailIndex,
    /// The failure does not count.
    Ignore,
    /// The failure counts.
    Count,
}

impl Action {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "FailJob" => Action::FailJob,
            "FailIndex" => Action::FailIndex,
            "Ignore" => Action::Ignore,
            "Count" => Action::Count,
            _ => return None,
        })
    }

    /// As the API spells it.
    pub fn name(self) -> &'static str {
        match self {
            Action::FailJob => "FailJob",
            Action::FailIndex => "FailIndex",
            Action::Ignore => "Ignore",
            Action::Count => "Count",
        }
    }
}

/// What a policy says about one failed pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// The action of the rule that matched, if one did.
    pub action: Option<Action>,
    /// Why the Job fails, if it does.
    pub fail_job: Option<String>,
}

impl Judgement {
    /// Whether the failure counts towards the back-off limit.
    pub fn counts(&self) -> bool {
        self.action != Some(Action::Ignore)
    }
}

/// Judges a failed pod: the first rule that matches decides.
pub fn judge(policy: Option<&PodFailurePolicy>, pod: &Pod) -> Judgement {
    let (Some(policy), Some(end)) = (policy, pod.termination.as_deref()) else { return Judgement::default() };
    for (at, rule) in policy.rules.iter().enumerate() {
        let (Some(action), Some(why)) = (Action::named(&rule.action), cause(rule, pod, end)) else { continue };
        let fail_job = (action == Action::FailJob).then(|| format!("{why} matching FailJob rule at index {at}"));
        return Judgement { action: Some(action), fail_job };
    }
    Judgement::default()
}

/// What of the pod matches a rule, in words.
fn cause(rule: &PodFailureRule, pod: &Pod, end: &Termination) -> Option<String> {
    let (namespace, name) = (&pod.metadata.namespace, &pod.metadata.name);
    if let Some(codes) = &rule.on_exit_codes {
        let container = end.containers.iter().find(|container| matches_exit_code(codes, container))?;
        let (container, code) = (&container.name, container.exit_code);
        return Some(format!("Container {container} for pod {namespace}/{name} failed with exit code {code}"));
    }
    let patterns = rule.on_pod_conditions.as_ref()?;
    let (condition, _) = end.conditions.iter().find(|(condition, status)| {
        patterns.iter().any(|pattern| pattern.condition_type == **condition && pattern.status == **status)
    })?;
    Some(format!("Pod {namespace}/{name} has condition {condition}"))
}

fn matches_exit_code(codes: &OnExitCodes, container: &TerminatedContainer) -> bool {
    let named = codes.container_name.as_deref().is_none_or(|name| name == container.name);
    let listed = codes.values.contains(&container.exit_code);
    named
        && container.exit_code != 0
        && match codes.operator.as_str() {
            "In" => listed,
            "NotIn" => !listed,
            _ => false,
        }
}
