use bayplan_model::schema::Schema;
use serde_json::json;

use super::*;

/// A kind of one version.
struct Alone;

impl Versions for Alone {
    fn knows(&self, _version: &str) -> bool {
        false
    }

    fn convert(&self, _object: &Value, _from: &str, _to: &str) -> Option<(Value, &'static Definition)> {
        None
    }
}

fn request(manager: &'static str, second: usize) -> Request<'static> {
    const TIMES: [&str; 4] =
        ["2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z", "2026-01-01T00:00:03Z"];
    Request {
        api_version: "v1",
        kind: "Pod",
        definition: Schema::get().definition("", "v1", "Pod").unwrap(),
        subresource: "",
        manager,
        now: TIMES[second],
        ownership: Ownership::AllBut(&[&["status"]]),
        versions: &Alone,
    }
}

fn empty() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {"containers": null}, "status": {}})
}

fn pod(labels: Value, containers: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": labels},
        "spec": {"containers": containers},
    })
}

/// Applies to a live pod and stores the result as a server would.
fn apply_to(live: &Value, applied: &Value, force: bool, request: &Request<'_>) -> Result<Value, Error> {
    let Applied { object, managed_fields } = apply(live, &empty(), applied, force, request)?;
    let mut object = object.unwrap_or_else(|| live.clone());
    object["metadata"]["uid"] = json!("u");
    put_managed_fields(&mut object, managed_fields);
    Ok(object)
}

/// Manager, operation and fields of each entry.
fn owners(object: &Value) -> Vec<(String, Value)> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let owner = |entry: &Value| {
        let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        (format!("{} {}", text("operation"), text("manager")), entry["fieldsV1"].clone())
    };
    entries.iter().map(owner).collect()
}

#[test]
fn a_create_owns_what_it_says_and_an_update_what_it_changes() {
    let mut created = pod(json!({"a": "1"}), json!([{"name": "c", "image": "x"}]));
    update(&empty(), &mut created, &request("creator", 0));
    let container = json!({".": {}, "f:image": {}, "f:name": {}});
    assert_eq!(
        owners(&created),
        [(
            "Update creator".to_owned(),
            json!({
                "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
                "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": container}},
            })
        )]
    );
    created["metadata"]["uid"] = json!("u");
    let mut changed = created.clone();
    changed["spec"]["containers"][0]["image"] = json!("y");
    changed["status"] = json!({"phase": "Running"});
    update(&created, &mut changed, &request("other", 1));
    assert_eq!(
        owners(&changed)[1],
        ("Update other".to_owned(), json!({"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {"f:image": {}}}}}))
    );
    let first = &owners(&changed)[0].1;
    assert_eq!(
        first["f:spec"]["f:containers"]["k:{\"name\":\"c\"}"],
        json!({".": {}, "f:name": {}}),
        "what another changes is lost"
    );
}

#[test]
fn a_write_that_changes_nothing_keeps_owners_and_times() {
    let mut created = pod(json!({"a": "1"}), json!([{"name": "c"}]));
    update(&empty(), &mut created, &request("creator", 0));
    let mut again = created.clone();
    update(&created, &mut again, &request("other", 1));
    assert_eq!(again, created);
    let mut without = created.clone();
    put_managed_fields(&mut without, json!([]));
    update(&created, &mut without, &request("other", 1));
    assert_eq!(without, created, "clients that drop the entries do not remove them");
}

#[test]
fn entries_can_be_forgotten_and_stay_so() {
    let mut created = pod(json!({"a": "1"}), json!([{"name": "c"}]));
    update(&empty(), &mut created, &request("creator", 0));
    created["metadata"]["uid"] = json!("u");
    for reset in [json!([]), json!([{}])] {
        let mut cleared = created.clone();
        cleared["metadata"]["managedFields"] = reset;
        update(&created, &mut cleared, &request("creator", 1));
        assert_eq!(cleared["metadata"].get("managedFields"), None);
        let mut later = cleared.clone();
        later["metadata"]["labels"]["b"] = json!("2");
        update(&cleared, &mut later, &request("creator", 2));
        assert_eq!(later["metadata"].get("managedFields"), None);
        let applied =
            apply_to(&later, &pod(json!({"c": "3"}), json!([{"name": "c"}])), false, &request("m", 3)).unwrap();
        let names: Vec<String> = owners(&applied).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["Apply m", "Update before-first-apply"]);
    }
}

#[test]
fn what_others_own_is_a_conflict_unless_it_is_taken_by_force() {
    let live =
        apply_to(&empty(), &pod(json!({"a": "1"}), json!([{"name": "c", "image": "x"}])), false, &request("m1", 0));
    let live = live.unwrap();
    let wanted = pod(json!({"a": "1"}), json!([{"name": "c", "image": "y"}]));
    let refused = apply_to(&live, &wanted, false, &request("m2", 1)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "Apply failed with 1 conflict: conflict with \"m1\": .spec.containers[name=\"c\"].image"
    );
    let taken = apply_to(&live, &wanted, true, &request("m2", 1)).unwrap();
    assert_eq!(taken["spec"]["containers"][0]["image"], "y");
    let of = |name: &str| owners(&taken).into_iter().find(|(owner, _)| owner == name).map(|(_, fields)| fields);
    let containers = |fields: Value| fields["f:spec"]["f:containers"]["k:{\"name\":\"c\"}"].clone();
    assert_eq!(of("Apply m1").map(containers), Some(json!({".": {}, "f:name": {}})));
    assert_eq!(of("Apply m2").map(containers), Some(json!({".": {}, "f:image": {}, "f:name": {}})));
}

#[test]
fn what_a_manager_gives_up_is_removed_unless_somebody_else_owns_it() {
    let both = json!([{"name": "c", "image": "x"}, {"name": "d", "image": "y"}]);
    let live = apply_to(&empty(), &pod(json!({"a": "1", "b": "2"}), both), false, &request("m1", 0)).unwrap();
    let shared = pod(json!({"b": "2"}), json!([{"name": "c"}]));
    let live = apply_to(&live, &shared, false, &request("m2", 1)).unwrap();
    let less = pod(json!({}), json!([{"name": "c", "image": "x"}]));
    let left = apply_to(&live, &less, false, &request("m1", 2)).unwrap();
    assert_eq!(left["metadata"]["labels"], json!({"b": "2"}));
    assert_eq!(left["spec"]["containers"], json!([{"name": "c", "image": "x"}]));
}

#[test]
fn applying_what_is_there_changes_owners_but_no_times() {
    let config = pod(json!({"a": "1"}), json!([{"name": "c"}]));
    let live = apply_to(&empty(), &config, false, &request("m1", 0)).unwrap();
    let again = apply_to(&live, &config, false, &request("m1", 1)).unwrap();
    assert_eq!(again, live);
    let second = apply_to(&live, &config, false, &request("m2", 1)).unwrap();
    let entry = &second["metadata"]["managedFields"][0];
    assert_eq!((entry["manager"].as_str(), entry.get("time")), (Some("m2"), None), "entries without time come first");
}

#[test]
fn kubectl_takes_over_what_it_applied_on_the_clients_side() {
    const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
    let config = pod(json!({"a": "1"}), json!([{"name": "c", "image": "x"}]));
    let mut live = config.clone();
    live["metadata"]["annotations"] = json!({ANNOTATION: config.to_string()});
    update(&empty(), &mut live, &request("kubectl-client-side-apply", 0));
    let mut next = config.clone();
    next["spec"]["containers"][0]["image"] = json!("y");
    assert!(matches!(apply_to(&live, &next, false, &request("other", 1)), Err(Error::Conflicts(_))));
    let moved = apply_to(&live, &next, false, &request("kubectl", 1)).unwrap();
    assert_eq!(moved["spec"]["containers"][0]["image"], "y");
    let renewed: Value = serde_json::from_str(moved["metadata"]["annotations"][ANNOTATION].as_str().unwrap()).unwrap();
    assert_eq!(renewed, next);
    // What somebody else changed since is theirs.
    live["spec"]["containers"][0]["image"] = json!("z");
    assert!(matches!(apply_to(&live, &next, false, &request("kubectl", 1)), Err(Error::Conflicts(_))));
}

#[test]
fn what_cannot_be_applied_is_refused_in_upstreams_words() {
    let live = pod(json!({}), json!([{"name": "c"}]));
    for (applied, error) in [
        (json!({"apiVersion": "v1", "kind": "Nope"}), "invalid object type: /v1, Kind=Nope"),
        (json!({"apiVersion": "apps/v1", "kind": "Pod"}), "invalid object type: apps/v1, Kind=Pod"),
        (
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"managedFields": []}}),
            "metadata.managedFields must be nil",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "bogus": 1}),
            "failed to create typed patch object (/a; /v1, Kind=Pod): .bogus: field not declared in schema",
        ),
    ] {
        assert_eq!(apply_to(&live, &applied, false, &request("m", 0)).unwrap_err().to_string(), error);
    }
}

#[test]
fn the_owners_of_replicas_move_through_the_scale() {
    let entry = |manager: &str, fields: Value| {
        json!({
            "manager": manager, "operation": "Apply", "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
            "time": "2026-01-01T00:00:00Z", "fieldsV1": fields,
        })
    };
    let both = entry("m", json!({"f:spec": {"f:paused": {}, "f:replicas": {}}}));
    let other = entry("n", json!({"f:spec": {"f:paused": {}}}));
    let entries = json!([both, other]);
    let of_scale = to_scale(&entries, "apps/v1");
    assert_eq!(of_scale.as_array().map(Vec::len), Some(1));
    assert_eq!(of_scale[0]["apiVersion"], "autoscaling/v1");
    assert_eq!(from_scale(&entries, &of_scale, "apps/v1"), entries, "nobody else has them");
    let stolen = from_scale(&entries, &json!([]), "apps/v1");
    assert_eq!(stolen[0]["fieldsV1"], json!({"f:spec": {"f:paused": {}}}));
}
