//! What a pod waits for that could not be placed: the events that would wake it, and the time of the next try.

use std::collections::BTreeSet;

use bayplan_scheduler::inspect::Profile;
use bayplan_scheduler::{PluginName, PodInfo, action};
use jiff::{SignedDuration, Timestamp};

use super::explanation::{Attempts, Explanation, KnownFrom, LastAttempt, WakesOn};
use crate::State;

/// Upstream's `podMaxInUnschedulablePodsDuration`: a pod that no event wakes is tried again after it.
const RETRY_AFTER: SignedDuration = SignedDuration::from_mins(5);

/// The events for which the plugins registered that rejected the pod.
pub(super) fn wakes_on(profile: &Profile, plugins: impl Iterator<Item = PluginName>) -> Vec<WakesOn> {
    let mut all = BTreeSet::new();
    for plugin in plugins {
        let Some((_, registrations)) = profile.registrations(plugin) else { continue };
        for event in registrations.iter().map(|registration| registration.event) {
            let resource = event.resource.name();
            all.extend(names(event.action).into_iter().map(|action| WakesOn { resource, action, plugin }));
        }
    }
    all.into_iter().collect()
}

/// Upstream's names of a registration's actions: `All` and `Update` where all of them are meant.
fn names(actions: u32) -> Vec<&'static str> {
    if actions == action::ALL {
        return vec![action::name(action::ALL)];
    }
    let mut left = actions;
    let mut names = Vec::new();
    if left & action::UPDATE == action::UPDATE {
        names.push(action::name(action::UPDATE));
        left &= !action::UPDATE;
    }
    names.extend((0..u32::BITS).map(|bit| left & (1 << bit)).filter(|bit| *bit != 0).map(action::name));
    names.retain(|name| !name.is_empty());
    names
}

/// What the pod's status says of the last attempt, and what events add to it.
pub(super) fn last_attempt(state: &State, pod: &PodInfo) -> (Option<Attempts>, Option<LastAttempt>) {
    let condition = pod.condition("PodScheduled").filter(|condition| condition.status == "False");
    let events = state.failed_attempts(&pod.metadata.namespace, &pod.metadata.name);
    let mut last = condition.map(|condition| LastAttempt {
        time: None,
        since: condition.last_transition_time,
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        from: vec![KnownFrom::Condition],
    });
    let Some(events) = events else { return (None, last) };
    let attempts = Attempts { count: events.count, at_least: true, from: KnownFrom::Events };
    let known = last.get_or_insert_default();
    known.time = events.last;
    known.since = known.since.or(events.first);
    if known.message.is_empty() {
        known.message.clone_from(&events.message);
    }
    known.from.push(KnownFrom::Events);
    (Some(attempts), last)
}

impl Explanation {
    /// Adds what a decision log says of the attempt that is explained: its number, its time, and what became of it.
    pub fn add_logged_attempt(&mut self, number: u64, time: Timestamp, message: Option<&str>) {
        self.attempts = Some(Attempts { count: number, at_least: false, from: KnownFrom::Log });
        let last = self.last_attempt.get_or_insert_default();
        last.time = Some(time);
        last.from = vec![KnownFrom::Log];
        if let Some(message) = message {
            message.clone_into(&mut last.message);
            self.retry_at = time.checked_add(RETRY_AFTER).ok();
        }
    }
}

/// When the pod is tried again without an event. Its status has the time of the first failure only: once the first
/// retry is due, the time of the next is unknown. Events do not have it either: their times lag behind.
pub(super) fn retry_at(last: Option<&LastAttempt>, now: Timestamp) -> Option<Timestamp> {
    let failed = last.filter(|last| last.reason == "Unschedulable")?.since?;
    let due = failed.checked_add(RETRY_AFTER).ok()?;
    (due > now).then_some(due)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_named_one_by_one_unless_all_of_them_are_meant() {
        for (actions, expected) in [
            (action::ALL, vec!["All"]),
            (action::ADD | action::UPDATE, vec!["Update", "Add"]),
            (action::ADD | action::UPDATE_NODE_LABEL, vec!["Add", "UpdateNodeLabel"]),
            (action::DELETE, vec!["Delete"]),
        ] {
            assert_eq!(names(actions), expected);
        }
    }

    #[test]
    fn the_next_try_is_known_only_until_the_first_one_is_due() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let last =
            |reason: &str| LastAttempt { since: Some(at(1000)), reason: reason.into(), ..LastAttempt::default() };
        assert_eq!(retry_at(Some(&last("Unschedulable")), at(1010)), Some(at(1300)));
        assert_eq!(retry_at(Some(&last("Unschedulable")), at(1300)), None);
        assert_eq!(retry_at(Some(&last("SchedulingGated")), at(1010)), None);
        assert_eq!(retry_at(None, at(1010)), None);
    }
}
