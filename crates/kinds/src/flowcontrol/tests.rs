//! What both kinds refuse, and the objects of the first moments.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{bootstrap, flow_schema, priority_level_configuration};
use crate::kind::Kind;

fn object(kind: &Kind, name: &str, spec: &Value) -> Value {
    let mut object = json!({
        "kind": kind.kind, "apiVersion": kind.api_version(),
        "metadata": {"name": name, "resourceVersion": "1"}, "spec": spec, "status": {},
    });
    kind.default(&mut object);
    object
}

fn errors(kind: &Kind, name: &str, spec: &Value) -> Vec<String> {
    kind.validate_create(&object(kind, name, spec)).iter().map(ToString::to_string).collect()
}

#[test]
fn the_objects_of_the_first_moments_are_valid_and_complete() {
    for (kind, all) in [
        (&flow_schema::KIND, bootstrap::flow_schemas().collect::<Vec<_>>()),
        (&priority_level_configuration::KIND, bootstrap::priority_levels().collect()),
    ] {
        for one in all {
            assert_eq!(errors(kind, one.name, &one.spec), [""; 0], "{}", one.name);
            assert_eq!(object(kind, one.name, &one.spec)["spec"], one.spec, "{}: it is defaulted", one.name);
        }
    }
}

#[test]
fn mandatory_objects_stay_as_they_are() {
    let level = json!({"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}});
    assert_eq!(
        errors(&priority_level_configuration::KIND, "catch-all", &level),
        ["spec: Invalid value: {\"Type\":\"Limited\",\"Limited\":{\"NominalConcurrencyShares\":30,\
             \"LimitResponse\":{\"Type\":\"Reject\",\"Queuing\":null},\"LendablePercent\":0,\
             \"BorrowingLimitPercent\":null},\"Exempt\":null}: spec of 'catch-all' must equal the fixed value"]
    );
    let shares = json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 7}});
    assert_eq!(errors(&priority_level_configuration::KIND, "exempt", &shares), [""; 0]);
    let schema = json!({"priorityLevelConfiguration": {"name": "exempt"}, "matchingPrecedence": 1});
    assert_eq!(
        errors(&flow_schema::KIND, "exempt", &schema),
        ["spec: Invalid value: {\"PriorityLevelConfiguration\":{\"Name\":\"exempt\"},\"MatchingPrecedence\":1,\
             \"DistinguisherMethod\":null,\"Rules\":null}: spec of 'exempt' must equal the fixed value"]
    );
}

#[test]
fn levels_are_checked() {
    let limited = |limited: Value| json!({"type": "Limited", "limited": limited});
    let queues = |queuing: Value| limited(json!({"limitResponse": {"type": "Queue", "queuing": queuing}}));
    for (spec, expected) in [
        (json!({}), "spec.type: Required value"),
        (json!({"type": "Exempt"}), "spec.type: Invalid value: \"Exempt\": must be 'Exempt' if and only if"),
        (json!({"type": "Limited"}), "spec.limited: Required value: must not be empty when type is Limited"),
        (queues(json!({"queues": -1, "handSize": -1})), "spec.limited.limitResponse.queuing.queues: Invalid value: -1"),
        (queues(json!({"queues": 10_000_001, "handSize": 1})), "queues: Invalid value: 10000001: must not be greater"),
        (queues(json!({"queues": 2, "handSize": 3})), "handSize: Invalid value: 3: should not be greater than queues"),
        (queues(json!({"queues": 1024, "handSize": 7})), "deckSize 1024 and handSize 7 should not be greater than 60"),
        (limited(json!({"limitResponse": {"type": "Queue"}})), "limitResponse.queuing: Required value"),
        (limited(json!({"limitResponse": {}})), "spec.limited.limitResponse.type: Required value"),
    ] {
        let found = errors(&priority_level_configuration::KIND, "a", &spec);
        assert!(found.first().is_some_and(|first| first.contains(expected)), "{spec}: {found:?}");
    }
    assert_eq!(
        errors(&priority_level_configuration::KIND, "a", &queues(json!({"queues": 1024, "handSize": 6}))),
        [""; 0]
    );
}

#[test]
fn schemas_are_checked_and_shown_in_their_order() {
    let rule = |url: &str| {
        json!({
            "priorityLevelConfiguration": {"name": "exempt"},
            "rules": [{
                "subjects": [{"kind": "User", "user": {"name": "u"}}],
                "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": [url]}],
            }],
        })
    };
    for (url, expected) in [
        ("/", None),
        ("*", None),
        ("/a/*", None),
        ("", Some("must not be empty")),
        ("a", Some("must start with slash")),
        ("/a b", Some("must not contain white-space")),
        ("/a//b", Some("must not contain double slash")),
        ("/*/a", Some("wildcard can only do suffix matching")),
        ("/a*", Some("wildcard can only do suffix matching")),
    ] {
        let found = errors(&flow_schema::KIND, "a", &rule(url));
        assert_eq!(found.len(), usize::from(expected.is_some()), "{url}: {found:?}");
        assert!(expected.is_none_or(|expected| found[0].ends_with(expected)), "{url}: {found:?}");
    }
    let kind = &flow_schema::KIND;
    let [first, second] = [2, 1].map(|precedence| {
        let mut spec = rule("/");
        spec["matchingPrecedence"] = precedence.into();
        object(kind, "a", &spec)
    });
    assert_eq!(kind.table_order().map(|order| order(&first, &second)), Some(std::cmp::Ordering::Greater));
    let cells = kind.row(&first, Timestamp::UNIX_EPOCH).cells;
    assert_eq!(cells, [json!("a"), json!("exempt"), json!(2), json!("<none>"), json!("<unknown>"), json!("?")]);
}
