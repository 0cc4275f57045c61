//! A pod's life in the events that a kubelet tells it in.

use bayplan_model::api::{Event, EventType, ObjectReference};

use crate::admission::Rejection;
use crate::pod::{ContainerView, PodView};

/// Something that happened to a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    event_type: EventType,
    reason: String,
    note: String,
}

impl Moment {
    fn normal(reason: &str, note: impl Into<String>) -> Self {
        Moment { event_type: EventType::Normal, reason: reason.into(), note: note.into() }
    }

    fn warning(reason: &str, note: impl Into<String>) -> Self {
        Moment { event_type: EventType::Warning, reason: reason.into(), note: note.into() }
    }

    /// A container starts. Images are always there.
    pub(crate) fn starts(container: &ContainerView) -> [Moment; 3] {
        let image = &container.image;
        let pulled = format!("Container image {image:?} already present on machine and can be accessed by the pod");
        [
            Moment::normal("Pulled", pulled),
            Moment::normal("Created", "Container created"),
            Moment::normal("Started", "Container started"),
        ]
    }

    /// A container is stopped.
    pub(crate) fn killing(container: &ContainerView) -> Moment {
        Moment::normal("Killing", format!("Stopping container {}", container.name))
    }

    /// A container that failed waits for its next start.
    pub(crate) fn backs_off(container: &ContainerView, pod: &PodView) -> Moment {
        let meta = &pod.metadata;
        let pod = format!("{}_{}({})", meta.name, meta.namespace, meta.uid);
        Moment::warning("BackOff", format!("Back-off restarting failed container {} in pod {pod}", container.name))
    }

    /// The node has no place for the pod.
    pub(crate) fn rejected(rejection: &Rejection) -> Moment {
        Moment::warning(&rejection.reason, rejection.message.clone())
    }

    /// Something of a resize went well.
    pub(crate) fn resize(reason: &str, note: String) -> Moment {
        Moment::normal(reason, note)
    }

    /// A resize has to wait.
    pub(crate) fn resize_deferred(note: String) -> Moment {
        Moment::warning("ResizeDeferred", note)
    }

    /// The event about a pod.
    pub(crate) fn event(self, pod: &PodView) -> Event {
        let meta = &pod.metadata;
        Event {
            regarding: ObjectReference {
                api_version: "v1".into(),
                kind: "Pod".into(),
                namespace: meta.namespace.clone(),
                name: meta.name.clone(),
                uid: meta.uid.clone(),
                resource_version: meta.resource_version.clone(),
            },
            event_type: self.event_type,
            reason: self.reason.into(),
            action: "".into(),
            note: self.note,
        }
    }
}
