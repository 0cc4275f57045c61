//! The annotations that control simulated nodes and pods, and the events about what cannot be read or run.

use std::time::Duration;

use bayplan_model::api::{Event, EventType, ObjectReference};
use bayplan_model::meta::{Map, ObjectMeta};

use crate::node_view::NodeView;
use crate::pod::PodView;

/// Makes a node fail while its value is `true`; an annotation or a label of the Node.
pub(crate) const FAIL: &str = "bayplan.dev/fail";
/// How long a pod takes from bound to running, instead of what the fleet's pods take.
pub(crate) const START_DELAY: &str = "bayplan.dev/start-delay";
/// Ends the containers of a pod after a time such as `5s`, `500ms` or `2m`; `forever` keeps those of a Job running.
pub(crate) const RUN_FOR: &str = "bayplan.dev/run-for";
/// The exit code containers end with.
pub(crate) const EXIT_CODE: &str = "bayplan.dev/exit-code";

/// Turns the annotations of one object that cannot be read into Events: each value once.
#[derive(Debug, Default)]
pub(crate) struct UnreadableAnnotations {
    reported: Vec<String>,
}

impl UnreadableAnnotations {
    /// Looks at the annotations of a pod.
    pub(crate) fn check_pod(&mut self, pod: &PodView, events: &mut Vec<Event>) {
        let annotations = &pod.metadata.annotations;
        let notes = [
            unreadable(annotations, START_DELAY, |text| parse_duration(text).is_some())
                .map(|found| format!("{found} is not a duration such as 5s, 500ms or 2m: the pod starts as others do")),
            unreadable(annotations, RUN_FOR, |text| parse_run_for(text).is_some()).map(|found| {
                format!("{found} is not a duration such as 5s, 500ms or 2m: the pod runs until it is deleted")
            }),
            unreadable(annotations, EXIT_CODE, |text| parse_exit_code(text).is_some())
                .map(|found| format!("{found} is not a whole number: containers end with exit code 0")),
        ];
        self.report(notes.into_iter().flatten().collect(), "Pod", &pod.metadata, events);
    }

    /// Looks at the annotations and labels of a node.
    pub(crate) fn check_node(&mut self, node: &NodeView, events: &mut Vec<Event>) {
        let maps = [&node.metadata.annotations, &node.metadata.labels];
        let found = maps.into_iter().find_map(|map| unreadable(map, FAIL, |text| matches!(text, "true" | "false")));
        let note = found.map(|found| format!("{found} is neither true nor false: the node does not fail"));
        self.report(note.into_iter().collect(), "Node", &node.metadata, events);
    }

    fn report(&mut self, notes: Vec<String>, kind: &str, meta: &ObjectMeta, events: &mut Vec<Event>) {
        for note in notes.iter().filter(|note| !self.reported.contains(note)) {
            events.push(Event {
                regarding: ObjectReference {
                    api_version: "v1".into(),
                    kind: kind.into(),
                    namespace: meta.namespace.clone(),
                    name: meta.name.clone(),
                    uid: meta.uid.clone(),
                    resource_version: meta.resource_version.clone(),
                },
                event_type: EventType::Warning,
                reason: "InvalidAnnotation".into(),
                action: "".into(),
                note: note.clone(),
            });
        }
        self.reported = notes;
    }
}

/// Says why a node that is selected is not run.
pub(crate) fn not_simulated(node: &str, uid: &str, note: String) -> Event {
    Event {
        regarding: ObjectReference {
            api_version: "v1".into(),
            kind: "Node".into(),
            name: node.into(),
            uid: uid.into(),
            ..ObjectReference::default()
        },
        event_type: EventType::Warning,
        reason: "NotSimulated".into(),
        action: "".into(),
        note,
    }
}

/// `key: "value"` of an annotation that is there and cannot be read.
fn unreadable(annotations: &Map, key: &str, reads: impl Fn(&str) -> bool) -> Option<String> {
    let value = annotations.get(key).filter(|value| !reads(value))?;
    Some(format!("{key}: {value:?}"))
}

/// `5s`, `500ms`, `2m`, `1h`, or plain seconds.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let (number, factor) =
        units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor))).unwrap_or((text, 1.0));
    Duration::try_from_secs_f64(number.trim().parse::<f64>().ok()? * factor).ok()
}

/// How long containers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunFor {
    /// This long.
    Time(Duration),
    /// Until their pod is deleted.
    Ever,
}

/// A duration, or `forever`.
pub(crate) fn parse_run_for(text: &str) -> Option<RunFor> {
    if text.trim() == "forever" { Some(RunFor::Ever) } else { parse_duration(text).map(RunFor::Time) }
}

pub(crate) fn parse_exit_code(text: &str) -> Option<i32> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn durations_are_read_in_the_usual_units_and_nonsense_is_none() {
        for (text, expected) in [
            ("5s", Some(5_000)),
            ("500ms", Some(500)),
            ("1.5m", Some(90_000)),
            ("1h", Some(3_600_000)),
            ("7", Some(7_000)),
            ("", None),
            ("soon", None),
            ("-5s", None),
            ("1e400s", None),
        ] {
            assert_eq!(parse_duration(text).map(|d| d.as_millis()), expected, "{text}");
        }
    }

    #[test]
    fn a_value_that_cannot_be_read_is_reported_once() {
        let mut annotations = UnreadableAnnotations::default();
        let mut notes = |run_for: &str, code: &str| {
            let pod = json!({ "metadata": { "name": "web", "annotations": { RUN_FOR: run_for, EXIT_CODE: code } } });
            let mut events = Vec::new();
            annotations.check_pod(&serde_json::from_value(pod).unwrap(), &mut events);
            events.into_iter().map(|event| event.note).collect::<Vec<_>>()
        };
        let soon =
            "bayplan.dev/run-for: \"soon\" is not a duration such as 5s, 500ms or 2m: the pod runs until it is deleted";
        let code = "bayplan.dev/exit-code: \"bad\" is not a whole number: containers end with exit code 0";
        assert_eq!(notes("soon", "bad"), [soon, code]);
        assert_eq!(notes("soon", "bad"), [""; 0]);
        assert_eq!(notes("5s", "1"), [""; 0]);
        assert_eq!(notes("soon", "1"), [soon]);
    }

    #[test]
    fn a_node_fails_only_when_its_annotation_or_label_says_true() {
        for (value, reported) in [("true", 0), ("false", 0), ("yes", 1)] {
            for map in ["annotations", "labels"] {
                let node = json!({ "metadata": { "name": "node-0001", map: { FAIL: value } } });
                let mut events = Vec::new();
                UnreadableAnnotations::default().check_node(&serde_json::from_value(node).unwrap(), &mut events);
                assert_eq!(events.len(), reported, "{map} {value}");
            }
        }
    }
}
