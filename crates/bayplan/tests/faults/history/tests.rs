//! Planted violations, each of which must be found by its rule, beside histories that are in order.

use super::*;

const PREFIX: &str = "/registry/configmaps/a/";

fn change(revision: u64, name: &str, kind: ChangeKind, value: &str) -> Change {
    Change { revision, key: format!("{PREFIX}{name}"), kind, value: value.into() }
}

/// a is written at 11 and 13, b at 12 and deleted at 14; something else happens at 15.
fn truth() -> Truth {
    let mut truth = Truth::new(BTreeMap::from([(format!("{PREFIX}old"), 7)]), 10);
    truth.extend([
        change(11, "a", ChangeKind::Added, "one"),
        change(12, "b", ChangeKind::Added, "two"),
        change(13, "a", ChangeKind::Modified, "three"),
        change(14, "b", ChangeKind::Deleted, ""),
    ]);
    truth.extend([Change { revision: 15, key: "/registry/x".into(), kind: ChangeKind::Added, value: vec![] }]);
    truth
}

fn rules(violations: &[Violation]) -> Vec<Rule> {
    violations.iter().map(|violation| violation.rule).collect()
}

fn promise(name: &str, acknowledged: &[(u64, &str)]) -> Promise {
    let acknowledged = acknowledged.iter().map(|(revision, text)| (*revision, (*text).to_owned())).collect();
    Promise { key: format!("{PREFIX}{name}"), acknowledged, ..Promise::default() }
}

#[test]
fn an_acknowledged_write_that_is_not_there_is_found() {
    let lost = [Rule::NothingAcknowledgedIsLost];
    assert_eq!(promise("a", &[(11, "one"), (13, "three")]).check(&truth(), 15), []);
    // Nothing came after the deletion of b that nobody was told of.
    assert_eq!(rules(&promise("b", &[(12, "two")]).check(&truth(), 15)), lost);
    let deleted = Promise { deleted: true, ..promise("b", &[(12, "two")]) };
    assert_eq!(deleted.check(&truth(), 15), []);
    // A deletion that was acknowledged, of something that is still there.
    let deleted = Promise { deleted: true, ..promise("a", &[(13, "three")]) };
    assert_eq!(rules(&deleted.check(&truth(), 15)), lost);
    // A revision at which something else was written, or nothing, or later than all.
    for never in [(12, "one"), (13, "one"), (16, "four")] {
        assert!(rules(&promise("a", &[never]).check(&truth(), 16)).contains(&lost[0]), "{never:?}");
    }
}

#[test]
fn a_write_in_doubt_may_have_happened_or_not_and_nothing_else() {
    let doubted = |name, acknowledged, doubt| Promise { doubt: Some(doubt), ..promise(name, acknowledged) };
    let write = |text: &str| Doubt::Write(text.into());
    assert_eq!(doubted("a", &[(11, "one")], write("three")).check(&truth(), 15), []);
    assert_eq!(doubted("a", &[(13, "three")], write("four")).check(&truth(), 15), []);
    assert_eq!(doubted("c", &[], write("five")).check(&truth(), 15), []);
    assert_eq!(doubted("b", &[(12, "two")], Doubt::Delete).check(&truth(), 15), []);
    assert_eq!(doubted("a", &[(13, "three")], Doubt::Delete).check(&truth(), 15), []);
    let neither = doubted("a", &[(11, "one")], write("four")).check(&truth(), 15);
    assert_eq!(rules(&neither), [Rule::NothingAcknowledgedIsLost]);
    let lost = doubted("b", &[(12, "two")], write("four")).check(&truth(), 15);
    assert_eq!(rules(&lost), [Rule::NothingAcknowledgedIsLost]);
}

fn seen(kind: ChangeKind, name: &str, revision: u64) -> WatchEvent {
    WatchEvent::Seen(Seen { kind, key: format!("{PREFIX}{name}"), revision })
}

fn all() -> Vec<WatchEvent> {
    vec![
        seen(ChangeKind::Added, "a", 11),
        seen(ChangeKind::Added, "b", 12),
        WatchEvent::Bookmark(12),
        seen(ChangeKind::Modified, "a", 13),
        seen(ChangeKind::Deleted, "b", 14),
        WatchEvent::Bookmark(15),
    ]
}

#[track_caller]
fn check_watch(events: Vec<WatchEvent>, expected: &[Rule]) {
    let watched = Watched { name: "w".into(), prefix: PREFIX.into(), from: 10, events };
    let violations = watched.check(&truth(), 15);
    assert_eq!(rules(&violations), expected, "{violations:?}");
}

#[test]
fn a_watch_that_skips_doubles_or_goes_back_is_found() {
    check_watch(all(), &[]);
    for skipped in [0, 1, 3, 4] {
        let mut events = all();
        events.remove(skipped);
        check_watch(events, &[Rule::NoEventIsSkipped]);
    }
    // Without a bookmark, too.
    check_watch(all()[..4].to_vec(), &[Rule::NoEventIsSkipped]);
    let mut events = all();
    events.insert(1, events[0].clone());
    check_watch(events, &[Rule::NoEventIsDoubled]);
    let mut events = all();
    events.insert(4, events[0].clone());
    check_watch(events, &[Rule::VersionsNeverGoBack]);
    let mut events = all();
    events[3] = seen(ChangeKind::Added, "a", 13);
    check_watch(events, &[Rule::NoEventIsSkipped]);
}

#[test]
fn a_watcher_may_list_again_but_not_wrongly() {
    let list = |objects: &[(&str, u64)]| {
        WatchEvent::Listed(13, objects.iter().map(|(name, r)| (format!("{PREFIX}{name}"), *r)).collect())
    };
    let rest = [seen(ChangeKind::Deleted, "b", 14)];
    let with = |list| [&[list], &rest[..]].concat();
    check_watch(with(list(&[("a", 13), ("b", 12), ("old", 7)])), &[]);
    check_watch(with(list(&[("a", 11), ("b", 12), ("old", 7)])), &[Rule::ListsAreTrue]);
    check_watch(with(list(&[("a", 13), ("b", 12)])), &[Rule::ListsAreTrue]);
    check_watch(vec![list(&[("a", 13), ("b", 12), ("old", 7)])], &[Rule::NoEventIsSkipped]);
}

#[test]
fn a_list_that_is_stale_or_torn_is_found() {
    let list = |begun, revision, objects: &[(&str, u64)]| Listed {
        begun,
        ended: begun + 5,
        revision,
        objects: objects.iter().map(|(name, r)| (format!("{PREFIX}{name}"), *r)).collect(),
    };
    let good = list(0, 12, &[("a", 11), ("b", 12), ("old", 7)]);
    let newer = list(10, 14, &[("a", 13), ("old", 7)]);
    assert_eq!(check_lists(&[good.clone(), newer.clone()], &truth(), PREFIX), []);
    // At the same time, either may come first.
    let mut at_once = newer.clone();
    at_once.begun = 3;
    assert_eq!(check_lists(&[at_once, good.clone()], &truth(), PREFIX), []);
    let mut late = good;
    (late.begun, late.ended) = (20, 25);
    assert_eq!(rules(&check_lists(&[late, newer], &truth(), PREFIX)), [Rule::VersionsNeverGoBack]);
    let torn = list(0, 13, &[("a", 11), ("b", 12), ("old", 7)]);
    assert_eq!(rules(&check_lists(&[torn], &truth(), PREFIX)), [Rule::ListsAreTrue]);
}

#[test]
fn a_pod_that_changes_its_node_is_found() {
    let mut bindings = Bindings::default();
    assert_eq!(bindings.observe("p", "1", ""), None);
    assert_eq!(bindings.observe("p", "1", "n1"), None);
    assert_eq!(bindings.observe("p", "1", "n1"), None);
    assert_eq!(bindings.observe("p", "2", "n2"), None);
    assert_eq!(bindings.observe("p", "1", "n2").unwrap().rule, Rule::NoPodIsBoundTwice);
    assert_eq!(bindings.observe("p", "2", "").unwrap().rule, Rule::NoPodIsBoundTwice);
    assert_eq!(bindings.len(), 2);
}

fn operation(begun: u64, ended: impl Into<Option<u64>>, action: Action) -> Operation {
    Operation { begun, ended: ended.into(), action, version: None }
}

/// Checks operations on a register in which etcd has written these values.
#[track_caller]
fn check_register(operations: &[Operation], written: &[u32], expected: &[Rule]) {
    let mut truth = Truth::new(BTreeMap::new(), 0);
    let changes = written.iter().zip(1..).map(|(value, revision)| {
        change(revision, "r", if revision == 1 { ChangeKind::Added } else { ChangeKind::Modified }, &text_of(*value))
    });
    truth.extend(changes);
    let register = Register { key: format!("{PREFIX}r"), operations: operations.to_vec() };
    assert_eq!(rules(&register.check(&truth)), expected);
}

#[test]
fn reads_and_writes_that_no_order_explains_are_found() {
    use Action::{Conflict, Read, Write};
    let broken = [Rule::ObjectsAreLinearizable];
    let written = operation(0, 10, Write { from: 0, to: 1 });
    check_register(&[written.clone(), operation(20, 30, Read(1))], &[1], &[]);
    // Both values may be read while the write is under way, but never the old one after the new one.
    check_register(&[written.clone(), operation(1, 5, Read(0)), operation(6, 9, Read(1))], &[1], &[]);
    check_register(&[written.clone(), operation(1, 5, Read(1)), operation(6, 9, Read(0))], &[1], &broken);
    // A stale read, a lost update, a conflict without a reason.
    check_register(&[written.clone(), operation(20, 30, Read(0))], &[1], &broken);
    let again = operation(20, 30, Write { from: 0, to: 2 });
    check_register(&[written.clone(), again], &[1, 2], &broken);
    check_register(&[written.clone(), operation(20, 30, Conflict { from: 1 })], &[1], &broken);
    check_register(&[written, operation(20, 30, Conflict { from: 0 })], &[1], &[]);
}

#[test]
fn a_write_without_an_answer_may_take_effect_late_or_never() {
    use Action::{Read, Write};
    let unanswered = operation(0, None, Write { from: 0, to: 1 });
    let reads = |values: &[u32]| {
        let reads = values.iter().zip((100..).step_by(10)).map(|(value, at)| operation(at, at + 5, Read(*value)));
        [vec![unanswered.clone()], reads.collect()].concat()
    };
    check_register(&reads(&[0, 0, 1, 1]), &[1], &[]);
    check_register(&reads(&[1, 1]), &[1], &[]);
    check_register(&reads(&[0, 0]), &[1], &[]);
    check_register(&reads(&[0, 0]), &[], &[]);
    check_register(&reads(&[0, 1, 0]), &[1], &[Rule::ObjectsAreLinearizable]);
    // Etcd never wrote it: who has read it?
    check_register(&reads(&[0, 1]), &[], &[Rule::ObjectsAreLinearizable]);
}

#[test]
fn a_version_that_goes_back_is_found() {
    let read = |begun, version| Operation { version: Some(version), ..operation(begun, begun + 5, Action::Read(0)) };
    check_register(&[read(0, 3), read(10, 3), read(20, 4)], &[], &[]);
    check_register(&[read(0, 4), read(2, 3)], &[], &[]);
    check_register(&[read(0, 4), read(10, 3)], &[], &[Rule::VersionsNeverGoBack]);
}

#[test]
fn the_state_of_a_truth_survives_what_it_forgets() {
    let mut truth = truth();
    let before = truth.state_at(14, PREFIX);
    truth.forget(13);
    assert_eq!((truth.state_at(14, PREFIX), truth.len(), truth.revision()), (before, 2, 15));
}
