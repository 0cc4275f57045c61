//! Whether an event may let a pod fit that a plugin rejected.

use bayplan_scheduler::{ClusterEvent, Cycle, EventResource, Object, ObjectChange, QueueingHint, action};
use serde_json::{Value, json};

use super::scheduler::{NOW, cluster, pod, profile};
use super::{Mismatch, Outcome};
use crate::difference::compare;

pub(super) fn check(case: &Value) -> Outcome {
    let profile = profile(&Value::Null)?;
    let (mut cluster, _) = cluster(&case["objects"])?;
    let pod = pod(&case["pod"])?;
    let event = &case["event"];
    let side = |name: &str| -> Result<Option<Object>, Mismatch> {
        event.get(name).and_then(Object::decode).transpose().map_err(Mismatch::from)
    };
    let (old, new) = (side("old")?, side("new")?);
    // The event's object is known when the hint runs, a deleted one no longer.
    new.iter().cloned().for_each(|object| cluster.store(object));
    let name = case["plugin"].as_str().unwrap_or_default();
    let plugin = profile.named(name).ok_or_else(|| Mismatch::Unreadable(format!("no plugin {name}")))?;
    let cluster_event = ClusterEvent::new(resource(event)?, kind(event)?);
    let cycle = Cycle { pod: &pod, cluster: &cluster, now: NOW };
    let changed = ObjectChange { old: old.as_ref(), new: new.as_ref() };
    let has_hint = plugin.events_to_register().into_iter().find(|r| r.event.covers(&cluster_event)).map(|r| r.has_hint);
    let hint = match has_hint {
        Some(true) => plugin.queueing_hint(&cycle, &cluster_event, &changed),
        Some(false) => Ok(QueueingHint::Queue),
        None => return Err(Mismatch::Unreadable(format!("{name} does not listen to {}", cluster_event.label()))),
    };
    let answer = match hint {
        Ok(QueueingHint::Queue) => json!({"hint": "Queue"}),
        Ok(QueueingHint::Skip) => json!({"hint": "QueueSkip"}),
        // A plugin whose hint fails does not keep the pod waiting.
        Err(error) => json!({"hint": "Queue", "error": error}),
    };
    Ok(compare(&case["expected"], &answer)?)
}

fn resource(event: &Value) -> Result<EventResource, Mismatch> {
    use EventResource::*;
    let name = event["resource"].as_str().unwrap_or_default();
    let all = [
        Pod,
        AssignedPod,
        UnschedulablePod,
        Node,
        PersistentVolume,
        PersistentVolumeClaim,
        CsiNode,
        CsiDriver,
        VolumeAttachment,
        CsiStorageCapacity,
        StorageClass,
        ResourceClaim,
        ResourceSlice,
        DeviceClass,
    ];
    let found = all.into_iter().find(|resource| resource.name() == name);
    found.ok_or_else(|| Mismatch::Unreadable(format!("unknown resource {name:?}")))
}

fn kind(event: &Value) -> Result<u32, Mismatch> {
    let name = event["actionType"].as_str().unwrap_or_default();
    let bits = (0..13).map(|bit| 1 << bit).chain([action::UPDATE, action::ALL]);
    let found = bits.into_iter().find(|bits| action::name(*bits) == name);
    found.ok_or_else(|| Mismatch::Unreadable(format!("unknown action {name:?}")))
}
