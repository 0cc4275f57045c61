//! The lines of a decision log: what changed, what was decided, and when. Whoever writes a log and whoever reads one
//! has the lines from here.
//!
//! ```text
//!   {"kind":"DecisionLog","time":…,"configuration":…}   a file begins: forget all that came before
//!   {"changes":[{"put":object}]}                        the state at that time, one line for each part of it
//!   {"time":…,"changes":[…],"decision":…}               what changed since the line before, and the decision made then
//! ```
//!
//! Pods of one template have nearly everything in common, and a pod that was bound differs from the one that waited in
//! its node. So a pod may be written as what it has other than an earlier one of the same file:
//!
//! ```text
//!   {"number":3,"put":pod}                              a whole pod, to which later ones of this file may refer
//!   {"like":3,"put":{"metadata":{…},"spec":{…},"status":{…}}}
//!                                                       that pod with these fields of the three parts, each as a whole
//! ```
//!
//! Numbers are below [`NUMBERS_MAX`]; one that is given again refers to the later pod. Amounts count as equal however
//! they are written (`1` and `1000m` of cpu).
//!
//! `O` is an object: the scheduler's own where a log is written, text that nobody has looked into where one is read.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::resource_claim::AllocationResult;

/// The `apiVersion` of a log.
pub const API_VERSION: &str = "bayplan.dev/v1";
/// The `kind` of a log.
pub const KIND: &str = "DecisionLog";

/// How many pods can be referred to at a time. More templates than this are seldom at work at once, and a reader keeps
/// them all.
pub const NUMBERS_MAX: u32 = 1024;

/// One line.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "O: Deserialize<'de>"))]
pub struct Line<O> {
    /// [`API_VERSION`] in the line with which a file begins.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// [`KIND`] in the line with which a file begins.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// When the decision was made, or the file begun; absent for the state with which a file begins.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "crate::timestamp::serialize_exactly")]
    pub time: Option<Timestamp>,
    /// Changes and decisions that are missing before a beginning, because the log could not be written.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost: u64,
    /// The KubeSchedulerConfiguration that decisions were made with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<Box<RawValue>>,
    /// What changed since the line before, in order.
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change<O>>,
    /// The decision that was made then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
}

impl<O> Default for Line<O> {
    fn default() -> Self {
        Line {
            api_version: String::new(),
            kind: String::new(),
            time: None,
            lost: 0,
            configuration: None,
            changes: Vec::new(),
            decision: None,
        }
    }
}

impl<O> Line<O> {
    /// The line with which a file begins.
    pub fn beginning(time: Timestamp, lost: u64, configuration: Option<Box<RawValue>>) -> Self {
        let (api_version, kind) = (API_VERSION.to_owned(), KIND.to_owned());
        Line { api_version, kind, time: Some(time), lost, configuration, ..Line::default() }
    }

    /// Whether a file begins with this line.
    pub fn begins(&self) -> bool {
        self.kind == KIND
    }
}

/// Adds a line to a text whose changes are written already, with commas between them.
pub fn write_line(
    text: &mut Vec<u8>,
    time: Option<Timestamp>,
    changes: &[u8],
    decision: Option<&Decision>,
) -> serde_json::Result<()> {
    #[derive(Serialize)]
    struct Time(#[serde(serialize_with = "crate::timestamp::serialize_exactly")] Option<Timestamp>);
    text.push(b'{');
    let field = |text: &mut Vec<u8>, name: &[u8]| {
        if !text.ends_with(b"{") {
            text.push(b',');
        }
        text.extend_from_slice(name);
    };
    if time.is_some() {
        field(text, br#""time":"#);
        serde_json::to_writer(&mut *text, &Time(time))?;
    }
    if !changes.is_empty() {
        field(text, br#""changes":["#);
        text.extend_from_slice(changes);
        text.push(b']');
    }
    if let Some(decision) = decision {
        field(text, br#""decision":"#);
        serde_json::to_writer(&mut *text, decision)?;
    }
    text.extend_from_slice(b"}\n");
    Ok(())
}

/// A change as a line has it: one of its fields is there. serde cannot hand on text that nobody has looked into through
/// an enum, so [`Changed`] is written and read as this.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "O: Deserialize<'de>"))]
pub struct Change<O> {
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "crate::timestamp::serialize_exactly")]
    time: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    number: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    like: Option<u32>,
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    put: Option<O>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gone: Option<Box<Identity>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    assumed: Option<Place>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nominated: Option<Place>,
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    assumed_volume: Option<O>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    allocated: Option<Box<Allocated>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    image: Option<ImageSize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    undone: Option<Box<Undone>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    evicted: Option<Evicted>,
}

/// What can change of the state that decisions are made from.
#[derive(Clone, Debug, PartialEq)]
pub enum Changed<O> {
    /// An object is there in this version, as far as the scheduler reads it.
    Put(O),
    /// An object is gone.
    Gone(Box<Identity>),
    /// A pod is assumed on a node. Written where a file begins; later ones are decided.
    Assumed(Place),
    /// A pod is nominated to a node, or with an empty name to none, whatever its status says. Written where a file
    /// begins.
    Nominated(Place),
    /// A volume or a volume claim is assumed to become this. Written where a file begins.
    AssumedVolume(O),
    /// Devices are allocated, and their claim does not say so yet. Written where a file begins.
    Allocated(Box<Allocated>),
    /// The size that an image counts with, where nodes disagree. Written where a file begins.
    Image(ImageSize),
    /// An assumed pod does not go to its node: Permit or its binding cycle failed.
    Undone(Box<Undone>),
    /// The evictions for a preemptor ended.
    Evicted(Evicted),
}

/// Which object it is.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Identity {
    /// The object's `apiVersion`.
    pub api_version: Cow<'static, str>,
    /// The object's `kind`.
    pub kind: Cow<'static, str>,
    /// Empty for cluster-scoped objects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// The object's UID, if it had one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// A pod and a node.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The pod's UID.
    pub uid: String,
    /// The node's name.
    pub node: String,
}

/// For whom devices are allocated: a claim, or the extended resources of a pod.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceOwner {
    /// The namespace of the claim or of the pod.
    pub namespace: String,
    /// The claim's name; empty for extended resources.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The claim's UID.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The UID of the pod whose extended resources they are for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pod_uid: String,
}

/// Devices that are allocated.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Allocated {
    /// For whom.
    #[serde(flatten)]
    pub owner: DeviceOwner,
    /// The devices.
    pub allocation: AllocationResult,
}

/// An image and its size.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageSize {
    /// One of the image's names.
    pub name: String,
    /// Its size.
    pub size_bytes: i64,
}

/// A placement that was taken back, and what the pod gave back with it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(default)]
pub struct Undone {
    /// The pod's UID.
    pub uid: String,
    /// The names of volumes that are no longer assumed to be for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
    /// The volume claims that are no longer assumed to be for its node, as `namespace/name`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<String>,
    /// Whose devices are no longer allocated.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceOwner>,
}

/// The end of evictions.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(default)]
pub struct Evicted {
    /// The preemptor's UID.
    pub uid: String,
    /// True when a victim could not be evicted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
}

/// One attempt to place a pod, and its answer.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Decision {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// The pod's UID.
    pub uid: String,
    /// The number of attempts, this one included.
    pub attempt: u32,
    /// The node that was chosen; with a message, it was refused after that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Why the pod was not placed: the text of its FailedScheduling event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The node that preemption nominated the pod to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nominated: Option<String>,
    /// The victims of preemption, as `namespace/name`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub victims: Vec<String>,
    /// The nodes that had the highest score, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tied: Option<u32>,
    /// The nodes that fit, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feasible: Option<u32>,
    /// The random number with which preemption began its search; not there for a pod that was placed.
    #[serde(with = "decimal", skip_serializing_if = "Option::is_none")]
    pub random: Option<u64>,
    /// The node at which the search began; matters only when part of the nodes is scored.
    #[serde(skip_serializing_if = "is_zero")]
    pub start: u64,
    /// How long the decision took, if the scheduler had a clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nanoseconds: Option<u64>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn none<T>() -> Option<T> {
    None
}

/// Numbers as text: not every reader of JSON has 64 bits.
mod decimal {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[allow(clippy::ref_option, reason = "serde calls it so")]
    pub(super) fn serialize<S: Serializer>(number: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
        number.map(|number| number.to_string()).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(serde::de::Error::custom)).transpose()
    }
}

impl<O> Change<O> {
    /// A change, and when it was seen; without a time for the state with which a file begins.
    pub fn new(time: Option<Timestamp>, what: Changed<O>) -> Self {
        let mut change = Change {
            time,
            number: None,
            like: None,
            put: None,
            gone: None,
            assumed: None,
            nominated: None,
            assumed_volume: None,
            allocated: None,
            image: None,
            undone: None,
            evicted: None,
        };
        match what {
            Changed::Put(object) => change.put = Some(object),
            Changed::Gone(identity) => change.gone = Some(identity),
            Changed::Assumed(place) => change.assumed = Some(place),
            Changed::Nominated(place) => change.nominated = Some(place),
            Changed::AssumedVolume(object) => change.assumed_volume = Some(object),
            Changed::Allocated(allocated) => change.allocated = Some(allocated),
            Changed::Image(image) => change.image = Some(image),
            Changed::Undone(undone) => change.undone = Some(undone),
            Changed::Evicted(evicted) => change.evicted = Some(evicted),
        }
        change
    }

    /// Later pods of the file may refer to the one that is put by this number.
    #[must_use]
    pub fn numbered(self, number: u32) -> Self {
        Change { number: Some(number), ..self }
    }

    /// What is put is what differs from the pod of this number.
    #[must_use]
    pub fn like(self, number: u32) -> Self {
        Change { like: Some(number), ..self }
    }

    /// The number by which later pods refer to the one that is put.
    pub fn number(&self) -> Option<u32> {
        self.number
    }

    /// The number of the pod that differs from what is put; none where that is whole.
    pub fn base(&self) -> Option<u32> {
        self.like
    }

    /// When it was seen.
    pub fn time(&self) -> Option<Timestamp> {
        self.time
    }

    /// What changed; none for a change that this version does not know.
    pub fn what(self) -> Option<Changed<O>> {
        let Change { put, gone, assumed, nominated, assumed_volume, allocated, image, undone, evicted, .. } = self;
        put.map(Changed::Put)
            .or(gone.map(Changed::Gone))
            .or(assumed.map(Changed::Assumed))
            .or(nominated.map(Changed::Nominated))
            .or(assumed_volume.map(Changed::AssumedVolume))
            .or(allocated.map(Changed::Allocated))
            .or(image.map(Changed::Image))
            .or(undone.map(Changed::Undone))
            .or(evicted.map(Changed::Evicted))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn place() -> Place {
        Place { uid: "u".into(), node: "n".into() }
    }

    fn owner() -> DeviceOwner {
        DeviceOwner { namespace: "d".into(), name: "c".into(), uid: "u".into(), pod_uid: String::new() }
    }

    /// Every kind of change; a new one does not compile until it is here.
    fn every_change() -> Vec<Changed<Value>> {
        let all = vec![
            Changed::Put(json!({"kind": "Node"})),
            Changed::Gone(Box::new(Identity { kind: "Pod".into(), name: "p".into(), ..Identity::default() })),
            Changed::Assumed(place()),
            Changed::Nominated(place()),
            Changed::AssumedVolume(json!({"kind": "PersistentVolume"})),
            Changed::Allocated(Box::new(Allocated { owner: owner(), allocation: AllocationResult::default() })),
            Changed::Image(ImageSize { name: "i".into(), size_bytes: -1 }),
            Changed::Undone(Box::new(Undone {
                uid: "u".into(),
                volumes: vec!["v".into()],
                claims: vec!["d/c".into()],
                devices: vec![owner()],
            })),
            Changed::Evicted(Evicted { uid: "u".into(), failed: true }),
        ];
        for change in &all {
            match change {
                Changed::Put(_)
                | Changed::Gone(_)
                | Changed::Assumed(_)
                | Changed::Nominated(_)
                | Changed::AssumedVolume(_)
                | Changed::Allocated(_)
                | Changed::Image(_)
                | Changed::Undone(_)
                | Changed::Evicted(_) => {}
            }
        }
        all
    }

    fn decision() -> Decision {
        Decision {
            namespace: "d".into(),
            name: "p".into(),
            uid: "u".into(),
            attempt: 2,
            node: Some("n".into()),
            message: Some("0/1 nodes are available".into()),
            nominated: Some("m".into()),
            victims: vec!["d/v".into()],
            tied: Some(3),
            feasible: Some(4),
            random: Some(u64::MAX),
            start: 5,
            nanoseconds: Some(6),
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let time = Timestamp::from_second(1_700_000_000).unwrap();
        for what in every_change() {
            let line = Line {
                time: Some(time),
                changes: vec![Change::new(Some(time), what.clone())],
                decision: Some(decision()),
                ..Line::default()
            };
            let text = serde_json::to_string(&line).unwrap();
            let mut read: Line<Value> = serde_json::from_str(&text).unwrap();
            assert_eq!((read.time, read.decision.as_ref()), (Some(time), Some(&decision())), "{text}");
            assert_eq!(serde_json::to_string(&read).unwrap(), text);
            let change = read.changes.pop().unwrap();
            assert_eq!((change.time(), change.what()), (Some(time), Some(what)), "{text}");
        }
    }

    #[test]
    fn a_line_of_written_changes_is_the_line_itself() {
        let time = Timestamp::from_second(1_700_000_000).ok();
        for (time, count, decision) in [(time, 2, Some(decision())), (time, 1, None), (None, 1, None), (time, 0, None)]
        {
            let changes: Vec<Change<Value>> =
                every_change().into_iter().map(|what| Change::new(time, what)).take(count).collect();
            let written: Vec<String> = changes.iter().map(|change| serde_json::to_string(change).unwrap()).collect();
            let mut text = Vec::new();
            write_line(&mut text, time, written.join(",").as_bytes(), decision.as_ref()).unwrap();
            let line = Line { time, changes, decision, ..Line::default() };
            assert_eq!(String::from_utf8(text).unwrap(), serde_json::to_string(&line).unwrap() + "\n");
        }
    }

    #[test]
    fn a_pod_may_have_a_number_or_be_like_the_pod_of_one() {
        for (change, text) in [
            (Change::new(None, Changed::Put(json!({}))).numbered(3), r#"{"number":3,"put":{}}"#),
            (Change::new(None, Changed::Put(json!({}))).like(3), r#"{"like":3,"put":{}}"#),
        ] {
            assert_eq!(serde_json::to_string(&change).unwrap(), text);
            let read: Change<Value> = serde_json::from_str(text).unwrap();
            assert_eq!((read.number(), read.base()), (change.number(), change.base()));
        }
    }

    #[test]
    fn a_beginning_says_what_is_missing_and_has_the_configuration() {
        let time = Timestamp::from_second(1_700_000_000).unwrap();
        let configuration = RawValue::from_string(r#"{"a":1}"#.into()).unwrap();
        let text = serde_json::to_string(&Line::<Value>::beginning(time, 7, Some(configuration))).unwrap();
        let read: Line<Value> = serde_json::from_str(&text).unwrap();
        assert!(read.begins() && read.lost == 7 && read.time == Some(time));
        assert_eq!(read.configuration.unwrap().get(), r#"{"a":1}"#);
        assert!(!Line::<Value>::default().begins());
    }

    #[test]
    fn nothing_is_written_of_what_is_not_there() {
        let line = Line { changes: vec![Change::new(None, Changed::<Value>::Put(json!({})))], ..Line::default() };
        assert_eq!(serde_json::to_string(&line).unwrap(), r#"{"changes":[{"put":{}}]}"#);
        let decision = Decision { name: "p".into(), ..Decision::default() };
        let text = r#"{"namespace":"","name":"p","uid":"","attempt":0}"#;
        assert_eq!(serde_json::to_string(&decision).unwrap(), text);
    }
}
