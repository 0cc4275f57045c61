//! What `jobs/status` may write. A job may have another controller (KEP-4368), which this keeps to what clients expect.

use std::collections::BTreeSet;

use serde_json::Value;

use super::indexes;
use crate::field::{ErrorList, GoValue, Path};
use crate::object::{given, list, number, text};
use crate::workload;

/// A job before or after a write.
#[derive(Clone, Copy)]
struct State<'v> {
    spec: &'v Value,
    status: &'v Value,
}

impl<'v> State<'v> {
    fn of(job: &'v Value) -> Self {
        State { spec: &job["spec"], status: &job["status"] }
    }

    fn holds(self, kind: &str) -> bool {
        list(self.status, "conditions")
            .iter()
            .any(|condition| text(condition, "type") == kind && text(condition, "status") == "True")
    }

    fn finished(self) -> bool {
        self.holds("Complete") || self.holds("Failed")
    }

    fn indexed(self) -> bool {
        text(self.spec, "completionMode") == "Indexed"
    }
}

pub(super) fn rules(errors: &mut ErrorList, new: &Value, old: &Value) {
    let (job, before) = (State::of(new), State::of(old));
    let path = Path::root("status");
    counts(errors, path, job.status);
    conditions(errors, path.child("conditions"), job, before);
    times(errors, path, job, before);
    finished(errors, path, job, before);
    index_rules(errors, path, job, before);
    if given(job.status, "ready")
        && number(job.status, "ready") > number(job.status, "active")
        && (changed(job, before, "ready") || changed(job, before, "active"))
    {
        errors.invalid(path.child("ready"), number(job.status, "ready"), "cannot set more ready pods than active");
    }
    let counters =
        [("failed", true), ("succeeded", !job.indexed() || job.spec["completions"] != job.spec["parallelism"])];
    for (field, kept) in counters {
        let count = number(job.status, field);
        if kept && count < number(before.status, field) {
            errors.invalid(path.child(field), count, &format!("cannot decrease the {field} counter"));
        }
    }
}

fn changed(job: State<'_>, before: State<'_>, field: &str) -> bool {
    job.status[field] != before.status[field]
}

fn counts(errors: &mut ErrorList, path: Path<'_>, status: &Value) {
    workload::non_negative(errors, path, status, &["active", "succeeded", "failed", "ready", "terminating"]);
    let path = path.child("uncountedTerminatedPods");
    let mut seen = BTreeSet::new();
    for kind in ["succeeded", "failed"] {
        let path = path.child(kind);
        for (index, uid) in list(&status["uncountedTerminatedPods"], kind).iter().enumerate() {
            let uid = uid.as_str().unwrap_or("");
            if uid.is_empty() {
                errors.invalid(path.index(index), uid, "must not be empty");
            } else if !seen.insert(uid) {
                errors.duplicate(path.index(index), uid);
            }
        }
    }
}

fn conditions(errors: &mut ErrorList, path: Path<'_>, job: State<'_>, before: State<'_>) {
    let turned = |kind: &str| job.holds(kind) != before.holds(kind);
    let mut refuse = |detail: &str| errors.invalid_without_value(path, detail);
    let (complete, failed) = (job.holds("Complete"), job.holds("Failed"));
    let (met, failing) = (job.holds("SuccessCriteriaMet"), job.holds("FailureTarget"));
    if (turned("Complete") || turned("Failed")) && complete && failed {
        refuse("cannot set Complete=True and Failed=true conditions");
    }
    if (turned("Complete") || turned("FailureTarget")) && complete && failing {
        refuse("cannot set Complete=True and FailureTarget=true conditions");
    }
    if (turned("Failed") || changed(job, before, "failedIndexes")) && failed && !failing {
        refuse("cannot set Failed=True condition without the FailureTarget=true condition");
    }
    if (turned("Complete") || turned("SuccessCriteriaMet")) && complete && !met {
        refuse("cannot set Complete=True condition without the SuccessCriteriaMet=true condition");
    }
    if met && failed {
        refuse("cannot set SuccessCriteriaMet=True and Failed=true conditions");
    }
    if met && failing {
        refuse("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions");
    }
    if given(job.spec, "successPolicy") && !met && complete {
        refuse("cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True");
    }
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if before.holds(kind) && !job.holds(kind) {
            refuse(&format!("cannot disable the terminal {kind}=True condition"));
        }
    }
    if before.holds("SuccessCriteriaMet") && !met {
        refuse("cannot disable the SuccessCriteriaMet=True condition");
    }
    if before.holds("Complete") && !before.holds("SuccessCriteriaMet") && met {
        refuse("cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions");
    }
}

fn times(errors: &mut ErrorList, path: Path<'_>, job: State<'_>, before: State<'_>) {
    let (start, end) = (&job.status["startTime"], &job.status["completionTime"]);
    let complete = job.holds("Complete");
    let end_path = path.child("completionTime");
    let ended = complete != before.holds("Complete") || changed(job, before, "completionTime");
    if ended && !end.is_null() && !complete {
        errors.invalid(end_path, end, "cannot set completionTime when there is no Complete=True condition");
    }
    if ended && end.is_null() && complete {
        errors.required(end_path, "completionTime is required for Complete jobs");
    }
    // Times of whole seconds in UTC are in the order of their text.
    let moved = changed(job, before, "startTime") || changed(job, before, "completionTime");
    if let (true, Some(start), Some(end)) = (moved, start.as_str(), end.as_str())
        && end < start
    {
        errors.invalid(end_path, end, "must be equal to or after `startTime`");
    }
    if !end.is_null() && !before.status["completionTime"].is_null() && changed(job, before, "completionTime") {
        errors.invalid(end_path, end, "field is immutable");
    }
    if !before.status["startTime"].is_null() && changed(job, before, "startTime") && job.spec["suspend"] != true {
        errors.required(path.child("startTime"), "startTime cannot be removed for unsuspended job");
    }
}

/// A job that has ended has no pods left.
fn finished(errors: &mut ErrorList, path: Path<'_>, job: State<'_>, before: State<'_>) {
    if !job.finished() {
        return;
    }
    let turned = !before.finished();
    let status = job.status;
    if (turned || changed(job, before, "active")) && number(status, "active") > 0 {
        errors.invalid(path.child("active"), number(status, "active"), "active>0 is invalid for finished job");
    }
    if (turned || changed(job, before, "startTime")) && status["startTime"].is_null() {
        errors.required(path.child("startTime"), "startTime is required for finished job");
    }
    let uncounted = &status["uncountedTerminatedPods"];
    let some_uncounted = !list(uncounted, "failed").is_empty() || !list(uncounted, "succeeded").is_empty();
    if (turned || changed(job, before, "uncountedTerminatedPods")) && some_uncounted {
        let shown = GoValue("io.k8s.api.batch.v1.UncountedTerminatedPods", uncounted);
        errors.invalid(path.child("uncountedTerminatedPods"), shown, "must be empty for finished job");
    }
    if (turned || changed(job, before, "terminating")) && number(status, "terminating") > 0 {
        let terminating = number(status, "terminating");
        errors.invalid(path.child("terminating"), terminating, "terminating>0 is invalid for finished job");
    }
}

fn index_rules(errors: &mut ErrorList, path: Path<'_>, job: State<'_>, before: State<'_>) {
    let (done, failed) = (text(job.status, "completedIndexes"), text(job.status, "failedIndexes"));
    let (done_path, failed_path) = (path.child("completedIndexes"), path.child("failedIndexes"));
    let (done_changed, failed_changed) =
        (changed(job, before, "completedIndexes"), changed(job, before, "failedIndexes"));
    let has_failed = given(job.status, "failedIndexes");
    let per_index = given(job.spec, "backoffLimitPerIndex");
    let completions = job.spec["completions"].as_i64();
    if let (true, Some(Err(why))) = (done_changed, completions.map(|completions| indexes::count(done, completions))) {
        errors.invalid(done_path, done, &format!("error parsing completedIndexes: {why}"));
    }
    if let (true, Some(Err(why))) =
        (failed_changed && per_index && has_failed, completions.map(|completions| indexes::count(failed, completions)))
    {
        errors.invalid(failed_path, failed, &format!("error parsing failedIndexes: {why}"));
    }
    if done_changed && !done.is_empty() && !job.indexed() {
        let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
        errors.invalid(done_path, done, detail);
    }
    if failed_changed && !per_index && has_failed {
        let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        errors.invalid(failed_path, failed, detail);
    }
    if (done_changed || failed_changed)
        && has_failed
        && !done.is_empty()
        && !failed.is_empty()
        && let Some(index) = completions.and_then(|completions| indexes::common(done, failed, completions))
    {
        let detail = format!("failedIndexes and completedIndexes overlap at index: {index}");
        errors.invalid(failed_path, failed, &detail);
    }
}
