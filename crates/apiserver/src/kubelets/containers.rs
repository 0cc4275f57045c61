//! Which container of a pod is asked about, and which of its runs.

use bayplan_model::status::Status;
use serde_json::Value;

use super::{list, text};
use crate::status_errors::bad_request;

/// The lists of containers of a spec, in the order in which upstream visits them.
const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
const STATUSES: [&str; 3] = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];

/// The container that a request means; upstream's `validateContainer`.
pub(super) fn chosen<'a>(pod: &'a Value, asked: &'a str) -> Result<&'a Value, Status> {
    let name = text(&pod["metadata"], "name");
    let containers = || LISTS.iter().flat_map(|field| list(&pod["spec"], field));
    if !asked.is_empty() {
        let found = containers().find(|container| text(container, "name") == asked);
        return found.ok_or_else(|| bad_request(format!("container {asked} is not valid for pod {name}")));
    }
    match list(&pod["spec"], "containers") {
        [only] => Ok(only),
        [] => Err(bad_request(format!("a container name must be specified for pod {name}"))),
        _ => {
            let names: Vec<&str> = containers().map(|container| text(container, "name")).collect();
            let names = names.join(" ");
            Err(bad_request(format!("a container name must be specified for pod {name}, choose one of: [{names}]")))
        }
    }
}

/// One run of a container.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Run<'a> {
    /// Tells this run from the next.
    pub(super) id: &'a str,
    pub(super) started: &'a str,
    pub(super) ended: Option<Ended<'a>>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ended<'a> {
    pub(super) at: &'a str,
    pub(super) exit_code: i64,
    pub(super) reason: &'a str,
}

/// The run whose log is shown; upstream's `validateContainerLogStatus`.
pub(super) fn run<'a>(pod: &'a Value, container: &str, previous: bool) -> Result<Run<'a>, Status> {
    let name = text(&pod["metadata"], "name");
    let quoted = format!("container {container:?} in pod {name:?}");
    let mut statuses = STATUSES.iter().flat_map(|field| list(&pod["status"], field));
    let Some(status) = statuses.find(|status| text(status, "name") == container) else {
        return Err(bad_request(format!("{quoted} is not available")));
    };
    let (state, last) = (&status["state"], &status["lastState"]["terminated"]);
    let last_run = || Some(terminated(last)).filter(|run| !run.id.is_empty());
    if previous {
        return last_run().ok_or_else(|| bad_request(format!("previous terminated {quoted} not found")));
    }
    if state["running"].is_object() {
        let started = text(&state["running"], "startedAt");
        return Ok(Run { id: text(status, "containerID"), started, ended: None });
    }
    let now = &state["terminated"];
    if now.is_object() && !text(now, "containerID").is_empty() {
        return Ok(terminated(now));
    }
    if now.is_object() || last.is_object() {
        return last_run().ok_or_else(|| bad_request(format!("{quoted} is terminated")));
    }
    let why = match state["waiting"].as_object().map(|_| text(&state["waiting"], "reason")) {
        None => " - no logs yet".to_owned(),
        Some("ErrImagePull") => ": image can't be pulled".to_owned(),
        Some("ImagePullBackOff") => ": trying and failing to pull image".to_owned(),
        Some(reason) => format!(": {reason}"),
    };
    Err(bad_request(format!("{quoted} is waiting to start{why}")))
}

fn terminated(state: &Value) -> Run<'_> {
    let exit_code = state["exitCode"].as_i64().unwrap_or_default();
    let ended = Ended { at: text(state, "finishedAt"), exit_code, reason: text(state, "reason") };
    Run { id: text(state, "containerID"), started: text(state, "startedAt"), ended: Some(ended) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_container_is_chosen_in_upstreams_words() {
        let pod = |containers: Value| json!({"metadata": {"name": "p"}, "spec": containers});
        let one = json!({"containers": [{"name": "a"}], "initContainers": [{"name": "i"}]});
        let two = json!({
            "containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}],
            "ephemeralContainers": [{"name": "e"}],
        });
        for (containers, asked, expected) in [
            (&one, "", Ok("a")),
            (&one, "i", Ok("i")),
            (&one, "x", Err("container x is not valid for pod p")),
            (&two, "", Err("a container name must be specified for pod p, choose one of: [i a b e]")),
            (&two, "e", Ok("e")),
            (&json!({}), "", Err("a container name must be specified for pod p")),
        ] {
            let pod = pod(containers.clone());
            let got = chosen(&pod, asked).map(|container| text(container, "name").to_owned());
            assert_eq!(got.as_deref().map_err(|status| &*status.message), expected, "{asked}");
        }
    }

    #[test]
    fn a_log_is_that_of_the_last_run_there_was() {
        let ended = |id: &str, code: i64| {
            json!({"terminated": {
                "containerID": id, "exitCode": code, "reason": "Error", "startedAt": "1", "finishedAt": "2",
            }})
        };
        let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
        let none = json!({});
        for (state, last, previous, expected) in [
            (json!({"running": {"startedAt": "1"}}), &none, false, Ok("now")),
            (json!({"running": {"startedAt": "1"}}), &none, true, Err("previous terminated % not found")),
            (json!({"running": {"startedAt": "1"}}), &ended("last", 1), true, Ok("last")),
            (ended("over", 0), &none, false, Ok("over")),
            (ended("", 0), &ended("last", 1), false, Ok("last")),
            (ended("", 0), &none, false, Err("% is terminated")),
            (waiting("CrashLoopBackOff"), &ended("last", 1), false, Ok("last")),
            (waiting("ContainerCreating"), &none, false, Err("% is waiting to start: ContainerCreating")),
            (waiting("ErrImagePull"), &none, false, Err("% is waiting to start: image can't be pulled")),
            (none.clone(), &none, false, Err("% is waiting to start - no logs yet")),
        ] {
            let status = json!({"name": "c", "containerID": "now", "state": state, "lastState": last});
            let pod = json!({"metadata": {"name": "p"}, "status": {"initContainerStatuses": [status]}});
            let got = run(&pod, "c", previous).map(|run| run.id.to_owned()).map_err(|status| status.message);
            let expected = expected.map(str::to_owned);
            assert_eq!(got, expected.map_err(|text| text.replace('%', "container \"c\" in pod \"p\"")), "{state}");
        }
        let status = run(&json!({"metadata": {"name": "p"}}), "c", false).unwrap_err();
        assert_eq!((status.code, &*status.message), (400, "container \"c\" in pod \"p\" is not available"));
    }
}
