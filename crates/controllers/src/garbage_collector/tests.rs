//! What the collector asks of the API server for one object, in order.

use bayplan_model::api::Resource;
use bayplan_model::meta::ObjectMeta;
use bayplan_model::status::Status;
use serde_json::{Value, json};

use super::*;
use crate::script::{Script, Step, refused};

const DELETING: &str = "2026-01-01T00:00:00Z";

fn collector() -> GarbageCollector {
    let resource = |plural: &'static str, kind: &str, namespaced| ApiResource {
        resource: Resource::new("", "v1", plural),
        kind: kind.into(),
        namespaced,
        verbs: ["delete", "list", "watch"].map(String::from).into(),
    };
    let resources = Resources::default();
    resources.replace(vec![resource("things", "Thing", true), resource("worlds", "World", false)]);
    GarbageCollector::new(resources)
}

/// An object whose UID is its name, with owners `name` (blocking) or `name?` (not).
fn thing(name: &str, owners: &[&str]) -> Value {
    let owner = |owner: &&str| {
        let name = owner.trim_end_matches('?');
        let blocks = !owner.ends_with('?');
        json!({"apiVersion": "v1", "kind": "Thing", "name": name, "uid": name, "blockOwnerDeletion": blocks})
    };
    let owners: Vec<Value> = owners.iter().map(owner).collect();
    let metadata =
        json!({"name": name, "namespace": "ns", "uid": name, "resourceVersion": "7", "ownerReferences": owners});
    json!({"metadata": metadata})
}

/// The same object with a field of its metadata changed.
fn with(mut object: Value, field: &str, value: Value) -> Value {
    object["metadata"][field] = value;
    object
}

fn deleting(object: Value, finalizer: &str) -> Value {
    with(with(object, "deletionTimestamp", json!(DELETING)), "finalizers", json!([finalizer]))
}

fn added(metadata: ObjectMeta) -> Delta<Arc<PartialObjectMetadata>> {
    Delta::Added(Arc::new(PartialObjectMetadata { metadata }))
}

fn see(collector: &GarbageCollector, objects: impl IntoIterator<Item = Value>) {
    for object in objects {
        let meta: ObjectMeta = serde_json::from_value(object["metadata"].clone()).unwrap();
        collector.observe_object("v1", "Thing", &added(meta));
    }
}

fn get(line: &'static str, answer: Result<Value, Status>) -> Step {
    (line, Value::Null, answer)
}

fn child(answer: Value) -> Step {
    get("GET ns/things/child metadata", Ok(answer))
}

fn owner(answer: Result<Value, Status>) -> Step {
    get("GET ns/things/owner metadata", answer)
}

fn delete(policy: &str, version: Option<&str>, answer: Result<Value, Status>) -> Step {
    let preconditions = match version {
        Some(version) => json!({"uid": "child", "resourceVersion": version}),
        None => json!({"uid": "child"}),
    };
    let options = json!({"propagationPolicy": policy, "preconditions": preconditions});
    ("DELETE ns/things/child", options, answer)
}

fn drop_owners(gone: &[&str], answer: Result<Value, Status>) -> Step {
    let gone: Vec<Value> = gone.iter().map(|uid| json!({"$patch": "delete", "uid": uid})).collect();
    ("STRATEGIC-PATCH ns/things/child", json!({"metadata": {"uid": "child", "ownerReferences": gone}}), answer)
}

fn finalizers(version: &str, rest: &[&str], answer: Result<Value, Status>) -> Step {
    let patch = json!({"metadata": {"resourceVersion": version, "finalizers": rest}});
    ("MERGE-PATCH ns/things/owner", patch, answer)
}

/// Outcomes in words: what is woken, or that nothing is, or what failed.
fn shown(outcome: Result<Requeue, Error>) -> String {
    match outcome {
        Ok(Requeue::Keys { keys, again }) => {
            let keys: Vec<_> = keys.into_iter().map(|wakeup| wakeup.key).collect();
            format!("wake {}{}", keys.join(" "), if again { "again" } else { "" })
        }
        Ok(next) => format!("{next:?}"),
        Err(error) => error.to_string(),
    }
}

/// A case: what it is about, the dependent as the watches saw it, the exchanges, and the outcome.
type ChildCase = (&'static str, Value, Vec<Step>, &'static str);

/// Reconciles the dependent `child` beside its possible owners `owner` and `second`.
fn check_child(cases: Vec<ChildCase>) {
    for (case, seen, steps, outcome) in cases {
        let collector = collector();
        see(&collector, [thing("owner", &[]), thing("second", &[]), seen]);
        assert_eq!(shown(Script::new(case, steps).play(&collector, "delete/child")), outcome, "{case}");
    }
}

fn plain() -> Value {
    thing("child", &["owner"])
}

fn with_two_owners() -> Value {
    thing("child", &["owner", "second"])
}

/// The owner in a foreground deletion.
fn waiting_owner() -> Value {
    deleting(thing("owner", &[]), graph::FOREGROUND)
}

/// The live read before a write is retried.
fn read_again(answer: Value) -> Step {
    get("GET ns/things/child", Ok(answer))
}

#[test]
fn a_dependent_is_deleted_exactly_when_no_owner_is_left() {
    check_child(vec![
        ("the owner stays", plain(), vec![child(plain()), owner(Ok(thing("owner", &[])))], "OnChange"),
        (
            "the owner is gone",
            plain(),
            vec![child(plain()), owner(refused(404)), delete("Background", Some("7"), Ok(json!({})))],
            "OnChange",
        ),
        (
            "the owner is another one of the same name",
            plain(),
            vec![
                child(plain()),
                owner(Ok(with(thing("owner", &[]), "uid", json!("new")))),
                delete("Background", Some("7"), Ok(json!({}))),
            ],
            "OnChange",
        ),
        ("the dependent is gone", plain(), vec![get("GET ns/things/child metadata", refused(404))], "OnChange"),
        ("the dependent is another one", plain(), vec![child(with(plain(), "uid", json!("new")))], "OnChange"),
        ("it has no owners any more", plain(), vec![child(thing("child", &[]))], "OnChange"),
        ("the server fails", plain(), vec![child(plain()), owner(refused(500))], "refused with 500"),
        (
            "its only owner waits for it",
            plain(),
            vec![child(plain()), owner(Ok(waiting_owner())), delete("Background", Some("7"), Ok(json!({})))],
            "OnChange",
        ),
        (
            "it is to leave its own dependents alone",
            plain(),
            vec![
                child(with(plain(), "finalizers", json!([graph::ORPHAN]))),
                owner(refused(404)),
                delete("Orphan", Some("7"), Ok(json!({}))),
            ],
            "OnChange",
        ),
    ]);
}

#[test]
fn a_dependent_with_another_owner_loses_only_its_references() {
    let second = |answer| get("GET ns/things/second metadata", answer);
    check_child(vec![
        (
            "one of two owners is gone",
            with_two_owners(),
            vec![
                child(with_two_owners()),
                owner(refused(404)),
                second(Ok(thing("second", &[]))),
                drop_owners(&["owner"], Ok(with_two_owners())),
            ],
            "OnChange",
        ),
        (
            "one of two owners waits for it",
            with_two_owners(),
            vec![
                child(with_two_owners()),
                owner(Ok(waiting_owner())),
                second(Ok(thing("second", &[]))),
                drop_owners(&["owner"], Ok(with_two_owners())),
            ],
            "OnChange",
        ),
        (
            "a custom resource knows no strategic patch",
            with_two_owners(),
            vec![
                child(with_two_owners()),
                owner(refused(404)),
                second(Ok(thing("second", &[]))),
                drop_owners(&["owner"], refused(415)),
                read_again(with(with_two_owners(), "resourceVersion", json!("8"))),
                (
                    "MERGE-PATCH ns/things/child",
                    json!({"metadata": {
                        "resourceVersion": "8", "uid": "child",
                        "ownerReferences": thing("child", &["second"])["metadata"]["ownerReferences"],
                    }}),
                    Ok(with_two_owners()),
                ),
            ],
            "OnChange",
        ),
        (
            "the patch meets another object of the name",
            with_two_owners(),
            vec![
                child(with_two_owners()),
                owner(refused(404)),
                second(Ok(thing("second", &[]))),
                drop_owners(&["owner"], refused(422)),
            ],
            "refused with 422",
        ),
    ]);
}

#[test]
fn a_deletion_that_meets_a_change_is_retried_only_when_the_owners_are_the_same() {
    check_child(vec![
        (
            "it changed meanwhile, its owners did not",
            plain(),
            vec![
                child(plain()),
                owner(refused(404)),
                delete("Background", Some("7"), refused(409)),
                read_again(with(plain(), "resourceVersion", json!("8"))),
                delete("Background", None, Ok(json!({}))),
            ],
            "OnChange",
        ),
        (
            "its owners changed meanwhile",
            plain(),
            vec![
                child(plain()),
                owner(refused(404)),
                delete("Background", Some("7"), refused(409)),
                read_again(with(with_two_owners(), "resourceVersion", json!("8"))),
            ],
            "refused with 409",
        ),
        (
            "it was re-created meanwhile",
            plain(),
            vec![
                child(plain()),
                owner(refused(404)),
                delete("Background", Some("7"), refused(409)),
                read_again(with(with(plain(), "resourceVersion", json!("8")), "uid", json!("new"))),
            ],
            "refused with 409",
        ),
        (
            "somebody else deleted it",
            plain(),
            vec![child(plain()), owner(refused(404)), delete("Background", Some("7"), refused(404))],
            "OnChange",
        ),
    ]);
}

#[test]
fn a_missing_owner_is_asked_for_once() {
    let collector = collector();
    see(&collector, [thing("owner", &[]), thing("child", &["owner"]), thing("twin", &["owner"])]);
    let first =
        [child(thing("child", &["owner"])), owner(refused(404)), delete("Background", Some("7"), Ok(json!({})))];
    assert_eq!(shown(Script::new("first", first).play(&collector, "delete/child")), "OnChange");
    let options = json!({"propagationPolicy": "Background", "preconditions": {"uid": "twin", "resourceVersion": "7"}});
    let twin = get("GET ns/things/twin metadata", Ok(thing("twin", &["owner"])));
    let second = [twin, ("DELETE ns/things/twin", options, Ok(json!({})))];
    assert_eq!(shown(Script::new("second", second).play(&collector, "delete/twin")), "OnChange");
}

#[test]
fn an_owner_nobody_has_seen_wakes_its_dependents_when_it_is_not_there() {
    let collector = collector();
    see(&collector, [thing("child", &["owner"])]);
    assert_eq!(
        shown(Script::new("absent", [owner(refused(404))]).play(&collector, "delete/owner")),
        "wake delete/child"
    );
    see(&collector, [thing("late", &["other"])]);
    let present = get("GET ns/things/other metadata", Ok(thing("other", &[])));
    let outcome = Script::new("present", [present]).play(&collector, "delete/other");
    assert_eq!(shown(outcome), "wake again", "its watch has not reported it yet");
}

#[test]
fn what_can_never_be_looked_up_is_not_tried_again() {
    let collector = collector();
    let owner = json!({"apiVersion": "v1", "kind": "Thing", "name": "t", "uid": "t"});
    let world = json!({"metadata": {"name": "w", "uid": "w", "ownerReferences": [owner]}});
    let meta: ObjectMeta = serde_json::from_value(world["metadata"].clone()).unwrap();
    collector.observe_object("v1", "World", &added(meta));
    let look = get("GET worlds/w metadata", Ok(world));
    assert_eq!(shown(Script::new("namespaced owner", [look]).play(&collector, "delete/w")), "OnChange");

    collector.observe_object("v1", "Unserved", &added(ObjectMeta { uid: "u".into(), ..ObjectMeta::default() }));
    let outcome = shown(Script::new("unknown kind", []).play(&collector, "delete/u"));
    assert_eq!(outcome, r#"no matches for kind "Unserved" in version "v1""#, "may be served later: tried again");
}

#[test]
fn an_owner_in_another_namespace_is_no_owner_and_an_event_says_so() {
    let collector = collector();
    see(&collector, [with(thing("owner", &[]), "namespace", json!("elsewhere")), thing("child", &["owner"])]);
    let steps =
        [child(thing("child", &["owner"])), owner(refused(404)), delete("Background", Some("7"), Ok(json!({})))];
    let script = Script::new("elsewhere", steps);
    assert_eq!(shown(script.play(&collector, "delete/child")), "OnChange");
    assert_eq!(script.events(), ["OwnerRefInvalidNamespace"]);

    // The owner is known to be absent, so it is not read again; the event is recorded for the next dependent as well.
    see(&collector, [with(thing("child", &["owner"]), "uid", json!("second"))]);
    let second = with(thing("child", &["owner"]), "uid", json!("second"));
    let gone = json!({"propagationPolicy": "Background", "preconditions": {"uid": "second", "resourceVersion": "7"}});
    let steps = [child(second), ("DELETE ns/things/child", gone, Ok(json!({})))];
    let script = Script::new("elsewhere, too", steps);
    assert_eq!(shown(script.play(&collector, "delete/second")), "OnChange");
    assert_eq!(script.events(), ["OwnerRefInvalidNamespace"]);
}

#[test]
fn a_foreground_deletion_ends_when_nothing_blocks_it() {
    let waiting = || deleting(thing("owner", &[]), graph::FOREGROUND);
    let again = |answer| get("GET ns/things/owner", answer);
    let newer = |object: Value| with(object, "resourceVersion", json!("8"));
    let cases: Vec<(&str, &[&str], Vec<Step>, &str)> = vec![
        ("a dependent blocks", &["owner"], vec![owner(Ok(waiting()))], "wake delete/child"),
        (
            "a dependent does not block",
            &["owner?"],
            vec![owner(Ok(waiting())), finalizers("7", &[], Ok(waiting()))],
            "OnChange",
        ),
        ("the owner went meanwhile", &[], vec![owner(Ok(waiting())), finalizers("7", &[], refused(404))], "OnChange"),
        (
            "the owner changed meanwhile",
            &[],
            vec![
                owner(Ok(waiting())),
                finalizers("7", &[], refused(409)),
                again(Ok(newer(with(waiting(), "finalizers", json!(["keep", graph::FOREGROUND]))))),
                finalizers("8", &["keep"], Ok(waiting())),
            ],
            "OnChange",
        ),
        (
            "the owner was re-created meanwhile",
            &[],
            vec![
                owner(Ok(waiting())),
                finalizers("7", &[], refused(409)),
                again(Ok(with(newer(waiting()), "uid", json!("new")))),
            ],
            "OnChange",
        ),
        (
            "somebody else took the finalizer off",
            &[],
            vec![owner(Ok(waiting())), finalizers("7", &[], refused(409)), again(Ok(newer(thing("owner", &[]))))],
            "OnChange",
        ),
    ];
    for (case, owners, steps, outcome) in cases {
        let collector = collector();
        see(&collector, [waiting(), thing("child", owners)]);
        assert_eq!(shown(Script::new(case, steps).play(&collector, "delete/owner")), outcome, "{case}");
    }
}

#[test]
fn an_object_of_another_namespace_has_no_say_in_a_deletion() {
    let foreign = || with(thing("child", &["owner"]), "namespace", json!("elsewhere"));
    let waiting = || deleting(thing("owner", &[]), graph::FOREGROUND);
    let foreground = collector();
    see(&foreground, [waiting(), foreign()]);
    let steps = [owner(Ok(waiting())), finalizers("7", &[], Ok(waiting()))];
    assert_eq!(shown(Script::new("foreground", steps).play(&foreground, "delete/owner")), "OnChange");

    let leaving = || deleting(thing("owner", &[]), graph::ORPHAN);
    let orphaning = collector();
    see(&orphaning, [leaving(), foreign()]);
    let steps = [owner(Ok(leaving())), finalizers("7", &[], Ok(leaving()))];
    assert_eq!(shown(Script::new("orphaning", steps).play(&orphaning, "orphan/owner")), "OnChange");
}

#[test]
fn a_dependent_with_dependents_goes_in_the_foreground_too_and_a_circle_is_broken_first() {
    let waiting = || deleting(thing("owner", &[]), graph::FOREGROUND);
    let steps =
        [child(thing("child", &["owner"])), owner(Ok(waiting())), delete("Foreground", Some("7"), Ok(json!({})))];
    let tree = collector();
    see(&tree, [waiting(), thing("child", &["owner"]), thing("leaf", &["child"])]);
    assert_eq!(shown(Script::new("tree", steps).play(&tree, "delete/child")), "OnChange");

    let unblocked = thing("child", &["owner?"])["metadata"]["ownerReferences"].clone();
    let unblock = json!({"metadata": {"uid": "child", "ownerReferences": unblocked}});
    let steps = [
        child(thing("child", &["owner"])),
        owner(Ok(waiting())),
        ("STRATEGIC-PATCH ns/things/child", unblock, Ok(thing("child", &["owner?"]))),
        delete("Foreground", None, Ok(json!({}))),
    ];
    let circle = collector();
    see(&circle, [deleting(thing("owner", &["child"]), graph::FOREGROUND), thing("child", &["owner"])]);
    assert_eq!(shown(Script::new("circle", steps).play(&circle, "delete/child")), "OnChange");
}

#[test]
fn an_owner_lets_go_of_its_dependents_before_it_goes() {
    let leaving = || deleting(thing("owner", &[]), graph::ORPHAN);
    let cases: Vec<(&str, Vec<Step>, &str)> = vec![
        (
            "all well",
            vec![
                drop_owners(&["owner"], Ok(thing("child", &[]))),
                owner(Ok(leaving())),
                finalizers("7", &[], Ok(leaving())),
            ],
            "OnChange",
        ),
        (
            "the dependent is gone",
            vec![drop_owners(&["owner"], refused(404)), owner(Ok(leaving())), finalizers("7", &[], Ok(leaving()))],
            "OnChange",
        ),
        ("the dependent is refused", vec![drop_owners(&["owner"], refused(500))], "refused with 500"),
        ("the owner is gone", vec![drop_owners(&["owner"], Ok(thing("child", &[]))), owner(refused(404))], "OnChange"),
        (
            "the owner is another one",
            vec![drop_owners(&["owner"], Ok(thing("child", &[]))), owner(Ok(with(leaving(), "uid", json!("new"))))],
            "OnChange",
        ),
    ];
    for (case, steps, outcome) in cases {
        let collector = collector();
        see(&collector, [thing("child", &["owner"]), leaving()]);
        assert_eq!(shown(Script::new(case, steps).play(&collector, "orphan/owner")), outcome, "{case}");
    }
}
