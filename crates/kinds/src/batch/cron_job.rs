//! CronJobs.

use bayplan_model::cron::{Schedule, Zone};
use jiff::Timestamp;
use serde_json::Value;

use super::job;
use crate::defaulting::{child, default};
use crate::field::{ErrorList, Path};
use crate::kind::{Kind, STANDARD_VERBS, Scope, Subresource};
use crate::object::{Object, given, list, text};
use crate::printing::{
    AGE, NAME, Printer, age, age_of, boolean, containers, integer, name_of, shown_selector, string, wide,
};
use crate::strategy::{Generation, StatusRule, Strategy};
use crate::validation::{MetadataRecheck, Validation};
use crate::{pod_spec, workload};

/// A Job of a CronJob has its name, a dash and the minute, and no name of a Job is longer than 63 characters.
const NAME_CHARS_MAX: usize = 52;

/// No part of the name of a zone is longer.
const ZONE_PART_CHARS_MAX: usize = 14;

pub(crate) static KIND: Kind = Kind {
    group: "batch",
    kind: "CronJob",
    plural: "cronjobs",
    singular: "cronjob",
    scope: Scope::Namespaced,
    short_names: &["cj"],
    categories: &["all"],
    verbs: STANDARD_VERBS,
    subresources: &[Subresource::status("CronJob")],
    storage_prefix: "cronjobs",
    defaults,
    strategy: Strategy { status: StatusRule::Owned, generation: Generation::Spec, warnings, ..Strategy::PLAIN },
    validation: Validation { status_metadata: MetadataRecheck::None, rules, create_rules, ..Validation::PLAIN },
    printer: Printer {
        columns: &[
            NAME,
            string("Schedule"),
            string("Timezone"),
            boolean("Suspend"),
            integer("Active"),
            string("Last Schedule"),
            AGE,
            wide("Containers"),
            wide("Images"),
            wide("Selector"),
        ],
        cells,
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

fn defaults(object: &mut Object) {
    let Some(spec) = child(object, "spec") else { return };
    default(spec, "concurrencyPolicy", "Allow");
    default(spec, "suspend", false);
    default(spec, "successfulJobsHistoryLimit", 3);
    default(spec, "failedJobsHistoryLimit", 1);
    if let Some(template) = child(spec, "jobTemplate").and_then(|template| child(template, "spec")) {
        job::template_spec_defaults(template);
    }
}

fn warnings(cron_job: &Value, old: Option<&Value>) -> Vec<String> {
    let mut warnings =
        if old.is_none() { workload::name_warnings(cron_job, "Pod names and hostnames") } else { Vec::new() };
    if workload::spec_changes(cron_job, old) {
        let template = &cron_job["spec"]["jobTemplate"]["spec"]["template"];
        warnings.extend(pod_spec::warnings("spec.jobTemplate.spec.template.", template));
    }
    warnings
}

fn create_rules(errors: &mut ErrorList, object: &Value) {
    let name = text(&object["metadata"], "name");
    if name.len() > NAME_CHARS_MAX {
        errors.invalid(Path::root("metadata").child("name"), name, "must be no more than 52 characters");
    }
}

fn rules(errors: &mut ErrorList, object: &Value, old: Option<&Value>) {
    let (path, spec, before) = (Path::root("spec"), &object["spec"], old.map(|old| &old["spec"]));
    schedule_rules(errors, path.child("schedule"), spec, before);
    workload::non_negative(errors, path, spec, &["startingDeadlineSeconds"]);
    if given(spec, "timeZone") && before.is_none_or(|before| before["timeZone"] != spec["timeZone"]) {
        zone_rules(errors, path.child("timeZone"), text(spec, "timeZone"));
    }
    let (policy, policies) = (text(spec, "concurrencyPolicy"), ["Allow", "Forbid", "Replace"]);
    match policy {
        "" => errors.required(path.child("concurrencyPolicy"), ""),
        _ if !policies.contains(&policy) => errors.not_supported(path.child("concurrencyPolicy"), policy, &policies),
        _ => {}
    }
    job::template_spec_rules(errors, path.child("jobTemplate").child("spec"), &spec["jobTemplate"]["spec"]);
    workload::non_negative(errors, path, spec, &["successfulJobsHistoryLimit", "failedJobsHistoryLimit"]);
}

/// A zone belongs into its own field; a CronJob that had one in its schedule before may keep it.
fn schedule_rules(errors: &mut ErrorList, path: Path<'_>, spec: &Value, before: Option<&Value>) {
    let schedule = text(spec, "schedule");
    if schedule.is_empty() {
        return errors.required(path, "");
    }
    if let Err(error) = Schedule::parse(schedule) {
        errors.invalid(path, schedule, &error);
    }
    if !schedule.contains("TZ") {
        return;
    }
    if !before.is_some_and(|before| text(before, "schedule").contains("TZ")) {
        errors.invalid(path, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead");
    } else if given(spec, "timeZone") {
        errors.invalid(path, schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule");
    }
}

fn zone_rules(errors: &mut ErrorList, path: Path<'_>, zone: &str) {
    if zone.is_empty() {
        return errors.invalid(path, zone, "timeZone must be nil or non-empty string");
    }
    let word = |part: &str| {
        let known = |c: char| c.is_ascii_alphanumeric() || "._-+".contains(c);
        let length = 1..=ZONE_PART_CHARS_MAX;
        length.contains(&part.len()) && !matches!(part, "." | "..") && !part.starts_with('-') && part.chars().all(known)
    };
    if !zone.split('/').all(word) {
        return errors.invalid(path, zone, &format!("unknown time zone {zone}"));
    }
    if zone.eq_ignore_ascii_case("Local") {
        let why = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        errors.invalid(path, zone, why);
    }
    if let Err(error) = Zone::load(zone) {
        errors.invalid(path, zone, &error);
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let job = &spec["jobTemplate"]["spec"];
    let last = if given(status, "lastScheduleTime") {
        age::since(&status["lastScheduleTime"], now)
    } else {
        "<none>".to_owned()
    };
    let suspend = match spec["suspend"].as_bool() {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    };
    let zone = if given(spec, "timeZone") { text(spec, "timeZone") } else { "<none>" };
    let (names, images) = containers(&job["template"]["spec"]);
    let active = list(status, "active").len();
    vec![
        name_of(object),
        text(spec, "schedule").into(),
        zone.into(),
        suspend.into(),
        active.into(),
        last.into(),
        age_of(object, now),
        names,
        images,
        shown_selector(&job["selector"]),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn errors(spec: &Value, old: Option<&Value>) -> Vec<String> {
        let object = |spec: &Value| {
            let mut object = json!({"metadata": {"name": "tick", "namespace": "default"}, "spec": {
                "schedule": "* * * * *", "concurrencyPolicy": "Allow",
                "jobTemplate": {"spec": {"completionMode": "NonIndexed", "template": {"spec": {
                    "restartPolicy": "Never", "dnsPolicy": "ClusterFirst", "terminationGracePeriodSeconds": 30,
                    "containers": [{"name": "c", "image": "i", "imagePullPolicy": "Always",
                        "terminationMessagePath": "/m", "terminationMessagePolicy": "File"}],
                }}}},
            }});
            for (field, value) in spec.as_object().unwrap() {
                object["spec"][field] = value.clone();
            }
            object
        };
        let mut errors = ErrorList::default();
        rules(&mut errors, &object(spec), old.map(object).as_ref());
        errors.into_vec().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn schedules_and_zones_are_refused_in_upstreams_words() {
        let none: [&str; 0] = [];
        assert_eq!(errors(&json!({"schedule": "*/5 * * * *", "timeZone": "Europe/Berlin"}), None), none);
        let zoned = json!({"schedule": "CRON_TZ=UTC * * * * *"});
        let refused = "spec.schedule: Invalid value: \"CRON_TZ=UTC * * * * *\": cannot use TZ or CRON_TZ in schedule, \
            use timeZone field instead";
        assert_eq!(errors(&zoned, None), [refused]);
        assert_eq!(errors(&zoned, Some(&zoned)), none);
        for (spec, why) in [
            (json!({"schedule": ""}), "spec.schedule: Required value"),
            (
                json!({"schedule": "* * * *"}),
                "spec.schedule: Invalid value: \"* * * *\": expected exactly 5 fields, found 4: [* * * *]",
            ),
            (json!({"timeZone": "Mars"}), "spec.timeZone: Invalid value: \"Mars\": unknown time zone Mars"),
            (
                json!({"concurrencyPolicy": "Later"}),
                "spec.concurrencyPolicy: Unsupported value: \"Later\": supported values: \"Allow\", \"Forbid\", \
                 \"Replace\"",
            ),
            (
                json!({"failedJobsHistoryLimit": -1}),
                "spec.failedJobsHistoryLimit: Invalid value: -1: must be greater than or equal to 0",
            ),
        ] {
            assert_eq!(errors(&spec, None), [why], "{spec}");
        }
    }
}
