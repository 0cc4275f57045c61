//! Whether an Indexed Job has succeeded enough although not all of its indexes have.

use super::indexes::Indexes;
use super::object::{SuccessPolicy, SuccessRule};

/// The message of the first rule that the succeeded indexes meet.
pub fn matches(policy: Option<&SuccessPolicy>, completions: i64, succeeded: &Indexes) -> Option<String> {
    if succeeded.is_empty() {
        return None;
    }
    let at = policy?.rules.iter().position(|rule| is_met(rule, completions, succeeded))?;
    Some(format!("Matched rules at index {at}"))
}

fn is_met(rule: &SuccessRule, completions: i64, succeeded: &Indexes) -> bool {
    let enough = |count: i64| rule.succeeded_count.is_some_and(|wanted| count >= i64::from(wanted));
    let Some(text) = &rule.succeeded_indexes else { return enough(succeeded.total()) };
    let required = Indexes::parse(text, completions);
    let met = required.overlap(succeeded);
    // A rule whose indexes cannot be read asks for nothing, and is met by nothing.
    !required.is_empty() && (met == required.total() || enough(met))
}
