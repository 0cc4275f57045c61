//! SchedulingGates: holds a pod back while `spec.schedulingGates` is not empty.

use crate::framework::*;

pub(super) struct SchedulingGates;

impl Plugin for SchedulingGates {
    type State = ();

    fn name(&self) -> PluginName {
        "SchedulingGates"
    }

    fn extension_points(&self) -> ExtensionPoints {
        ExtensionPoints::PRE_ENQUEUE
    }

    fn events_to_register(&self) -> Vec<EventRegistration> {
        vec![EventRegistration::with_hint(EventResource::Pod, action::UPDATE_POD_SCHEDULING_GATES_ELIMINATED)]
    }

    fn hint_reads_signature(&self, _event: &ClusterEvent) -> bool {
        true
    }

    fn queueing_hint(
        &self,
        cx: &Cycle<'_>,
        _event: &ClusterEvent,
        changed: &ObjectChange<'_>,
    ) -> Result<QueueingHint, String> {
        let own = changed.pods().1.is_some_and(|pod| pod.metadata.uid == cx.pod.metadata.uid);
        Ok(if own { QueueingHint::Queue } else { QueueingHint::Skip })
    }

    fn pre_enqueue(&self, cx: &Cycle<'_>) -> Status {
        let gates: Vec<&str> = cx.pod.spec.scheduling_gates.iter().map(|gate| gate.name.as_str()).collect();
        match gates.is_empty() {
            true => Status::SUCCESS,
            false => Status::unresolvable(format!("waiting for scheduling gates: [{}]", gates.join(" "))),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::plugins::testing::plugin;

    const GATED: &str = "{schedulingGates: [{name: quota}, {name: budget}]}";

    #[test]
    fn a_pod_waits_until_its_last_gate_is_gone() {
        plugin("SchedulingGates").pre_enqueues(&[
            ("a pod without gates enters the queue", "{}", "", &["Success"]),
            ("an empty list is no gate", "{schedulingGates: []}", "", &["Success"]),
            (
                "all gates are named, in the order of the spec",
                GATED,
                "",
                &["UnschedulableAndUnresolvable: waiting for scheduling gates: [quota budget]"],
            ),
        ]);
    }

    #[test]
    fn only_the_removal_of_its_own_last_gate_wakes_a_pod() {
        plugin("SchedulingGates").hints(&[
            ("the last gate goes", GATED, "update Pod pod {schedulingGates: [{name: budget}]} => {}", "Queue"),
            (
                "one of two gates goes",
                GATED,
                "update Pod pod {schedulingGates: [{name: a}, {name: b}]} => {schedulingGates: [{name: a}]}",
                "Skip",
            ),
            ("the gate of another pod goes", GATED, "update Pod x {schedulingGates: [{name: quota}]} => {}", "Skip"),
            ("a new node opens no gate", GATED, "add Node a", "Skip"),
        ]);
    }
}
