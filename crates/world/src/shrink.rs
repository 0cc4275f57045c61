//! Makes a run that fails smaller: fewer faults and fewer actions, as long as it fails.

use crate::plan::Plan;
use crate::run::{Outcome, run};

/// Runs that may be tried.
const RUNS_MAX: usize = 80;

/// The smallest run that was found to fail, and what came of it. None: the run does not fail.
pub fn shrink(plan: &Plan) -> Option<(Plan, Outcome)> {
    let outcome = run(plan);
    if outcome.violations.is_empty() {
        return None;
    }
    let mut best = (plan.clone(), outcome);
    let mut runs = 0;
    shrink_list(&mut best, &mut runs, |plan| &mut plan.faults);
    shrink_list(&mut best, &mut runs, |plan| &mut plan.actions);
    shrink_list(&mut best, &mut runs, |plan| &mut plan.faults);
    Some(best)
}

/// Leaves out halves, then quarters and so on, of a list.
fn shrink_list<T: Clone>(best: &mut (Plan, Outcome), runs: &mut usize, list: impl Fn(&mut Plan) -> &mut Vec<T>) {
    let mut chunk = list(&mut best.0).len().div_ceil(2);
    while chunk > 0 {
        let mut from = 0;
        while from < list(&mut best.0).len() && *runs < RUNS_MAX {
            let mut tried = best.0.clone();
            let kept = list(&mut tried);
            let end = (from + chunk).min(kept.len());
            kept.drain(from..end);
            *runs += 1;
            let outcome = run(&tried);
            if outcome.violations.is_empty() {
                from = end;
            } else {
                *best = (tried, outcome);
            }
        }
        chunk = if chunk == 1 { 0 } else { chunk.div_ceil(2) };
    }
}

/// What a person reads of a run that fails, after it was made smaller.
pub fn story(plan: &Plan, outcome: &Outcome) -> String {
    let mut text = format!("seed {} in the form {:?}, with", plan.seed, plan.form);
    for (at, action) in &plan.actions {
        text += &format!("\n  {:>7.3} s  {action:?}", at.as_secs_f64());
    }
    for fault in &plan.faults {
        let (at, name) = (fault.at.as_secs_f64(), fault.point.name());
        text += &format!("\n  {at:>7.3} s  {name} ({}, {})", fault.part.name(), fault.amount);
    }
    text += "\nbroke:";
    for violation in &outcome.violations {
        text += &format!("\n  {violation}");
    }
    text + "\n\n" + &outcome.story
}
