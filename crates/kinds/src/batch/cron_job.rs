//! CronJobs.

use jiff::Timestamp;
use serde_json::Value;

use super::job;
use crate::defaulting::{child, default};
use crate::kind::{Kind, STANDARD_VERBS, Scope, Subresource};
use crate::object::{Object, given, list, text};
use crate::printing::{
    AGE, NAME, Printer, age, age_of, boolean, containers, integer, name_of, shown_selector, string, wide,
};
use crate::strategy::{Generation, StatusRule, Strategy};

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
    strategy: Strategy { status: StatusRule::Owned, generation: Generation::Spec, ..Strategy::PLAIN },
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
