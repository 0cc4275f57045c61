//! Names and data of revisions, their order, and the life of a history.

use bayplan_model::api::Verb;
use bayplan_model::meta::Map;
use bayplan_model::status::{Status, reason};
use bayplan_testkit::FakeApi;
use futures::FutureExt;
use serde_json::json;

use super::*;
use crate::script::exists;

fn template(image: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": "w8"}, "creationTimestamp": null},
        "spec": {"containers": [{"name": "c", "image": image, "args": ["a<b>&\u{2028}"]}]},
    })
}

fn revision(name: &str, number: i64, second: i64) -> Arc<ControllerRevision> {
    let creation_timestamp = jiff::Timestamp::from_second(second).ok();
    let metadata =
        ObjectMeta { name: name.into(), namespace: "ns".into(), creation_timestamp, ..ObjectMeta::default() };
    Arc::new(ControllerRevision { metadata, revision: number, ..ControllerRevision::default() })
}

#[test]
fn the_bytes_that_are_hashed_are_those_that_go_writes() {
    let raw = raw(&data(&template("i")));
    let expected = r#"{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"app":"w8"}},"#.to_owned()
        + r#""spec":{"containers":[{"args":["a\u003cb\u003e\u0026\u2028"],"image":"i","name":"c"}]}}}}"#;
    assert_eq!(raw, expected);
}

#[test]
fn a_revision_has_the_owners_annotations_and_the_templates_labels() {
    let mut owner = ObjectMeta { name: "web".into(), namespace: "ns".into(), ..ObjectMeta::default() };
    owner.annotations.insert("why".into(), "because".into());
    let made = new(&owner, OwnerReference::default(), &template("i"), (HASH_LABEL, "abc"), 3);
    assert_eq!((made.metadata.name.as_str(), made.revision), ("web-abc", 3));
    assert_eq!(made.metadata.annotations, owner.annotations);
    let labels: Map =
        [("app", "w8"), (HASH_LABEL, "abc")].map(|(k, v)| (k.to_owned(), v.to_owned())).into_iter().collect();
    assert_eq!(made.metadata.labels, labels);
    assert_eq!(made.template()["spec"], template("i")["spec"]);
    assert_eq!(made.template().get("$patch"), None);
}

#[test]
fn long_names_are_cut_before_the_hash() {
    assert_eq!(name(&"x".repeat(250), "abc"), format!("{}-abc", "x".repeat(223)));
}

#[test]
fn revisions_are_sorted_by_number_age_and_name() {
    let mut all = vec![revision("d", 2, 1), revision("c", 1, 2), revision("b", 1, 1), revision("a", 1, 1)];
    sort(&mut all);
    let names: Vec<&str> = all.iter().map(|r| r.metadata.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c", "d"]);
    assert_eq!(next_revision(&all), 3);
    assert_eq!(next_revision(&[]), 1);
}

#[test]
fn a_name_that_is_taken_by_other_data_counts_as_a_collision() {
    let owner = ObjectMeta { name: "web".into(), namespace: "ns".into(), ..ObjectMeta::default() };
    let first = hash(&data(&template("i")), 0);
    let wanted = new(&owner, OwnerReference::default(), &template("i"), (HASH_LABEL, &first), 1);
    let second = name("web", &hash(&wanted.data, 1));
    let foreign = json!({"metadata": {"name": wanted.metadata.name}, "data": {"x": 1}, "revision": 1});
    let taken = wanted.metadata.name.clone();
    let api = FakeApi::new(move |request| match &request.verb {
        Verb::Create(body) => match serde_json::from_slice::<Value>(body).unwrap() {
            revision if revision["metadata"]["name"] == taken => exists(),
            revision => Ok(revision),
        },
        _ => Ok(foreign.clone()),
    });
    let mut count = 0;
    let made = create(&api, "web", &wanted, &mut count).now_or_never().unwrap().unwrap();
    assert_eq!((made.metadata.name, count), (second, 1));
    assert_eq!(made.metadata.labels.get(HASH_LABEL), Some(&first), "the label keeps the first hash");
    assert_eq!(api.calls().len(), 3);
}

#[test]
fn live_revisions_outlive_the_limit() {
    let all = [revision("a", 1, 1), revision("b", 2, 1), revision("c", 3, 1), revision("d", 4, 1)];
    let api = FakeApi::default();
    truncate(&api, &all, |name| name == "a" || name == "d", 1).now_or_never().unwrap().unwrap();
    assert_eq!(api.lines(), ["DELETE ns/controllerrevisions/b"]);
}

#[test]
fn a_revision_that_somebody_wrote_is_numbered_on_its_newest_version() {
    let first = std::sync::atomic::AtomicBool::new(true);
    let api = FakeApi::new(move |request| match &request.verb {
        Verb::Update(_) if first.swap(false, std::sync::atomic::Ordering::Relaxed) => {
            Err(Status::failure(409, reason::CONFLICT, "changed"))
        }
        Verb::Update(body) => Ok(serde_json::from_slice(body).unwrap()),
        _ => Ok(json!({"metadata": {"name": "a", "namespace": "ns", "resourceVersion": "9"}, "revision": 1})),
    });
    let written = renumber(&api, &revision("a", 1, 1), 5).now_or_never().unwrap().unwrap();
    assert_eq!((written.revision, written.metadata.resource_version.as_str()), (5, "9"));
    assert_eq!(api.calls().len(), 3);
}
