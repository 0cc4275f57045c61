//! The Job controller: indexes, back-off and policies.

use std::sync::Arc;

use bayplan_controllers::job::backoff::Record;
use bayplan_controllers::job::indexes::{Indexes, completion_index};
use bayplan_controllers::job::tally::Tally;
use bayplan_controllers::job::{Job, PodFailurePolicy, SuccessPolicy, failure_policy, success_policy, surplus};
use bayplan_controllers::pod::Pod;
use bayplan_model::keyed::KeyedSet;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Outcome, Types, equal, list, parse};

pub(super) const TYPES: Types = &[
    ("jobBackoff", backoff),
    ("jobIndexes", indexes),
    ("jobPodFailurePolicy", pod_failure_policy),
    ("jobSuccessPolicy", success_policy),
];

fn backoff(case: &Value) -> Outcome {
    let input = &case["input"];
    let now: Timestamp = parse(&input["now"])?;
    let record = Record {
        failures: parse::<Option<i32>>(&input["record"]["failures"])?.unwrap_or(0),
        last_failure: parse(&input["record"]["lastFailureTime"])?,
    };
    let record = record.with(&list(&input["succeededPods"])?, &list(&input["failedPods"])?);
    let answer = json!({
        "failures": record.failures,
        "lastFailureTime": record.last_failure,
        "remainingSeconds": record.remaining(now).as_secs(),
    });
    equal(&answer, &case["expect"])
}

fn indexes(case: &Value) -> Outcome {
    let (input, expect) = (&case["input"], &case["expect"]);
    let job: Job = parse(&input["job"])?;
    let pods: Vec<Arc<Pod>> = list(&input["pods"])?;
    let tally = Tally::new(&job, pods, &Record::default(), KeyedSet::default());
    let mut answer = json!({
        "previous": tally.succeeded_before.to_string(),
        "completedIndexes": tally.succeeded_indexes.to_string(),
        "total": tally.succeeded_indexes.total(),
        "failedIndexes": tally.failed_indexes.as_ref().map(ToString::to_string),
        "firstPendingIndexes": tally.pending_indexes(&job, parse(&input["count"])?),
    });
    // Two pods of one index: upstream does not say which of them stays.
    let places: Vec<i64> = tally.active.iter().filter_map(|pod| completion_index(pod)).collect();
    let shared = places.iter().collect::<KeyedSet<_>>().len() < places.len();
    if !shared || !expect["duplicatesToRemove"].is_null() {
        let (surplus, kept) = surplus::duplicates(job.index_count(), &tally.active);
        answer["duplicatesToRemove"] = names(&surplus);
        answer["remaining"] = names(&kept);
    }
    equal(&answer, expect)
}

fn names(pods: &[Arc<Pod>]) -> Value {
    let mut names: Vec<&str> = pods.iter().map(|pod| pod.metadata.name.as_str()).collect();
    names.sort_unstable();
    json!(names)
}

fn pod_failure_policy(case: &Value) -> Outcome {
    let policy: Option<PodFailurePolicy> = parse(&case["input"]["podFailurePolicy"])?;
    let pod: Pod = parse(&case["input"]["pod"])?;
    let judgement = failure_policy::judge(policy.as_ref(), &pod);
    let answer = json!({
        "action": judgement.action.map(failure_policy::Action::name),
        "countFailed": judgement.counts(),
        "failJobMessage": judgement.fail_job,
    });
    equal(&answer, &case["expect"])
}

fn success_policy(case: &Value) -> Outcome {
    let input = &case["input"];
    let policy: Option<SuccessPolicy> = parse(&input["successPolicy"])?;
    let completions: i64 = parse(&input["completions"])?;
    let succeeded = Indexes::parse(input["succeededIndexes"].as_str().unwrap_or_default(), completions);
    let message = success_policy::matches(policy.as_ref(), completions, &succeeded);
    let answer = json!({"matched": message.is_some(), "message": message.unwrap_or_default()});
    equal(&answer, &case["expect"])
}
