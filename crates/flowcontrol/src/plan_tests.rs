//! Objects to levels and schemas: seats as upstream's, what is missing, what lingers, what is broken.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::borrowing::divide;
use crate::tests::objects;
use crate::{Answer, Estimate, Level, Request};

fn level(name: &str, limited: Value) -> Arc<PriorityLevel> {
    let object = json!({"metadata": {"name": name, "uid": "u"}, "spec": {"type": "Limited", "limited": limited}});
    Arc::new(PriorityLevel::read(&object).unwrap())
}

fn schema(name: &str, level: &str, precedence: i32) -> Arc<FlowSchema> {
    let object = json!({
        "metadata": {"name": name},
        "spec": {
            "priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence,
            "rules": [{
                "subjects": [{"kind": "User", "user": {"name": "alice"}}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            }],
        },
    });
    Arc::new(FlowSchema::read(&object).unwrap())
}

fn plan(objects: &Objects, former: &[Former]) -> Plan {
    Plan::new(objects, &super::super::tests::objects(true), former, 600)
}

fn schemas(plan: &Plan) -> Vec<&str> {
    plan.classifier.destinations.iter().map(|destination| destination.schema.name.as_str()).collect()
}

fn class(plan: &Plan, user: &str, groups: &[&str]) -> (String, String) {
    let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
    let request = Request { user, groups: &groups, verb: "get", path: "/version", ..Request::default() };
    let class = plan.classifier.classify(&request).unwrap();
    (class.schema.name.clone(), plan.levels[class.level].level.name.clone())
}

/// A line of `upstream_seats.txt`.
struct Line {
    level: PriorityLevel,
    bounds: Bounds,
    without_demand: usize,
    width: usize,
    peak: usize,
    demand: usize,
    seats: usize,
}

fn line(text: &str) -> Line {
    let words: Vec<&str> = text.split([' ', '|']).filter(|word| !word.is_empty()).collect();
    let [name, shares, lendable, borrowing, queues, numbers @ ..] = words.as_slice() else { panic!("{text}") };
    let number = |word: &str| word.parse::<i64>().unwrap();
    let response = match queues.split_once('x') {
        Some((queues, hand)) => {
            let queuing = json!({"queues": number(queues), "handSize": number(hand), "queueLengthLimit": 50});
            json!({"type": "Queue", "queuing": queuing})
        }
        None => json!({"type": "Reject"}),
    };
    let mut limits = json!({"nominalConcurrencyShares": number(shares), "lendablePercent": number(lendable)});
    let spec = if *name == EXEMPT {
        json!({"type": "Exempt", "exempt": limits})
    } else {
        limits["limitResponse"] = response;
        if *borrowing != "-" {
            limits["borrowingLimitPercent"] = number(borrowing).into();
        }
        json!({"type": "Limited", "limited": limits})
    };
    let level = PriorityLevel::read(&json!({"metadata": {"name": name}, "spec": spec})).unwrap();
    let numbers: Vec<usize> = numbers.iter().map(|word| word.parse().unwrap()).collect();
    let [nominal, min, max, without_demand, width, peak, demand, seats] = numbers[..] else { panic!("{text}") };
    Line { level, bounds: Bounds { nominal, min, max }, without_demand, width, peak, demand, seats }
}

#[test]
fn seats_are_those_that_upstream_computes() {
    let text = include_str!("upstream_seats.txt");
    let mut compared = 0;
    for scenario in text.split("seats ").skip(1) {
        let mut lines = scenario.lines();
        // The head of the file speaks of seats, too.
        let Some(seats) = lines.next().and_then(|first| first.parse().ok()) else { continue };
        let lines: Vec<Line> = lines.map(line).collect();
        let objects = Objects { levels: lines.iter().map(|l| Arc::new(l.level.clone())).collect(), schemas: vec![] };
        let plan = Plan::new(&objects, &Objects::default(), &[], seats);
        let mut levels: Vec<(Level<()>, &Line)> = plan
            .levels
            .iter()
            .map(|planned| {
                let line = lines.iter().find(|line| line.level.name == planned.level.name).unwrap();
                assert_eq!(planned.bounds, line.bounds, "{scenario}");
                (Level::new(&planned.level, planned.bounds, Duration::ZERO), line)
            })
            .collect();
        let mut divided = |levels: &mut Vec<(Level<()>, &Line)>, now: Duration| {
            let wishes: Vec<_> = levels.iter_mut().map(|(level, _)| level.wish(now)).collect();
            let seats = divide(&wishes).seats;
            levels.iter_mut().zip(&seats).for_each(|((level, _), seats)| level.set_seats(*seats, now));
            compared += seats.len();
            seats
        };
        for (seats, (_, line)) in divided(&mut levels, Duration::ZERO).into_iter().zip(&levels) {
            assert_eq!(seats, line.without_demand, "{} without demand in {scenario}", line.level.name);
        }
        for (level, line) in &mut levels {
            assert_eq!(level.width_max().unwrap_or(0), line.width, "{scenario}");
            level.want(line.peak, Duration::ZERO);
            level.want(line.demand, Duration::ZERO);
        }
        for (seats, (_, line)) in divided(&mut levels, Duration::from_secs(10)).into_iter().zip(&levels) {
            assert_eq!(seats, line.seats, "{} in {scenario}", line.level.name);
        }
    }
    assert!(compared > 300, "{compared}");
}

#[test]
fn what_is_mandatory_is_imagined_where_it_is_missing() {
    let plan = plan(&Objects::default(), &[]);
    let levels: Vec<_> =
        plan.levels.iter().map(|planned| (planned.level.name.as_str(), planned.bounds.nominal)).collect();
    assert_eq!(levels, [("catch-all", 600), ("exempt", 0)]);
    assert_eq!(schemas(&plan), ["exempt", "catch-all"]);
    let named = |schema: &str, level: &str| (schema.to_owned(), level.to_owned());
    assert_eq!(class(&plan, "admin", &["system:masters"]), named("exempt", "exempt"));
    assert_eq!(class(&plan, "alice", &["system:authenticated"]), named("catch-all", "catch-all"));
    // Whom no schema knows is caught all the same.
    assert_eq!(class(&plan, "nobody", &[]), named("catch-all", "catch-all"));
}

#[test]
fn schemas_are_asked_by_precedence_then_by_name() {
    let mut objects = objects(false);
    for (name, precedence) in [("b", 700), ("a", 700), ("zz", 2), ("late", 10_000)] {
        objects.schemas.insert(0, schema(name, "system", precedence));
    }
    let plan = plan(&objects, &[]);
    assert_eq!(
        schemas(&plan),
        [
            "exempt",
            "probes",
            "zz",
            "system-leader-election",
            "system-node-high",
            "system-nodes",
            "a",
            "b",
            "kube-controller-manager",
            "kube-scheduler",
            "kube-system-service-accounts",
            "service-accounts",
            "global-default",
            "catch-all",
            "late",
        ]
    );
    assert_eq!(class(&plan, "alice", &[]).0, "zz");
}

#[test]
fn a_schema_whose_level_is_missing_is_not_asked() {
    let mut objects = objects(false);
    objects.schemas.push(schema("mine", "my-level", 5));
    let before = plan(&objects, &[]);
    assert_eq!(before.dangling, ["mine"]);
    assert_eq!(class(&before, "alice", &["system:authenticated"]).0, "global-default");
    objects.levels.push(level("my-level", json!({"limitResponse": {"type": "Reject"}})));
    let after = plan(&objects, &[]);
    assert_eq!(after.dangling, [""; 0]);
    assert_eq!(class(&after, "alice", &["system:authenticated"]), ("mine".into(), "my-level".into()));
    // Without the level of a mandatory schema, both are imagined.
    objects.levels.retain(|level| level.name != CATCH_ALL);
    let without = plan(&objects, &[]);
    assert_eq!(without.dangling, [CATCH_ALL]);
    assert_eq!(class(&without, "nobody", &[]), (CATCH_ALL.into(), CATCH_ALL.into()));
}

#[test]
fn a_level_that_is_gone_lingers_with_its_share_until_its_requests_are_served() {
    let gone = level("gone", json!({"nominalConcurrencyShares": 255, "limitResponse": {"type": "Reject"}}));
    let objects = objects(false);
    let lingering = |idle| plan(&objects, &[Former { level: gone.clone(), idle }]);
    let busy = lingering(false);
    let found = busy.levels.iter().find(|planned| planned.level.name == "gone").unwrap();
    assert!(found.quiescing);
    assert_eq!(found.bounds.nominal, 306);
    assert!(lingering(true).levels.iter().all(|planned| planned.level.name != "gone" && !planned.quiescing));
    // Schemas that still name it lead nowhere.
    let mut named = objects.clone();
    named.schemas.push(schema("mine", "gone", 5));
    assert_eq!(plan(&named, &[Former { level: gone.clone(), idle: false }]).dangling, ["mine"]);
    // What is mandatory stays as it was, idle or not, until it is made again.
    let shares = json!({"nominalConcurrencyShares": 50});
    let exempt = json!({"metadata": {"name": "exempt", "uid": "u"}, "spec": {"type": "Exempt", "exempt": shares}});
    let exempt = Arc::new(PriorityLevel::read(&exempt).unwrap());
    let kept = plan(&Objects::default(), &[Former { level: exempt.clone(), idle: true }]);
    let found = kept.levels.iter().find(|planned| planned.level.name == "exempt").unwrap();
    assert_eq!((&found.level, found.quiescing), (&exempt, false));
}

#[test]
fn broken_objects_are_told_from_good_ones() {
    let queue = |queuing: Value| json!({"type": "Queue", "queuing": queuing});
    let limited = |response: Value| json!({"type": "Limited", "limited": {"limitResponse": response}});
    for (name, spec, expected) in [
        ("a", Value::Null, "it cannot be read"),
        ("a", json!({"type": 7}), "it cannot be read"),
        ("a", json!({"type": "Limited", "limited": {"nominalConcurrencyShares": 0.5}}), "it cannot be read"),
        ("a", json!({}), "its type and its limits do not fit together"),
        ("a", json!({"type": "Limited"}), "its type and its limits do not fit together"),
        ("exempt", json!({"type": "Exempt"}), "its type and its limits do not fit together"),
        ("a", json!({"type": "Exempt", "exempt": {}}), "its type and its name do not fit together"),
        ("exempt", limited(json!({"type": "Reject"})), "its type and its name do not fit together"),
        ("a", limited(json!({"type": "Reject", "queuing": {}})), "its type and its queuing do not fit together"),
        ("a", limited(json!({"type": "Queue"})), "its type and its queuing do not fit together"),
        (
            "a",
            limited(queue(json!({"queues": -1, "handSize": 1, "queueLengthLimit": 1}))),
            "its number of queues is out of range",
        ),
        (
            "a",
            limited(queue(json!({"queues": 100_000_000, "handSize": 1, "queueLengthLimit": 1}))),
            "hands of 1 cannot be dealt from 100000000 queues",
        ),
        (
            "a",
            json!({"type": "Limited", "limited": {"lendablePercent": 101, "limitResponse": {"type": "Reject"}}}),
            "its lendable percentage is out of range",
        ),
    ] {
        let object = json!({"metadata": {"name": name}, "spec": spec});
        assert_eq!(PriorityLevel::read(&object).unwrap_err().to_string(), expected, "{object}");
    }
    let method = json!({"metadata": {"name": "a"}, "spec": {"distinguisherMethod": {"type": "ByMoon"}}});
    assert_eq!(FlowSchema::read(&method).unwrap_err().to_string(), "its distinguisher method is unknown");
    let empty = json!({"metadata": {"name": "a"}, "spec": {"rules": null}});
    assert_eq!(FlowSchema::read(&empty).unwrap().rules, []);
}

#[test]
fn a_greedy_level_leaves_every_other_a_seat() {
    let mut objects = objects(false);
    for number in 0..100 {
        let queuing = json!({"queues": 10_000_000, "handSize": 2, "queueLengthLimit": i32::MAX});
        let response = json!({"type": "Queue", "queuing": queuing});
        let limited = json!({
            "nominalConcurrencyShares": i32::MAX, "borrowingLimitPercent": i32::MAX, "limitResponse": response,
        });
        objects.levels.push(level(&format!("greedy-{number}"), limited));
    }
    for planned in plan(&objects, &[]).levels {
        let mut level: Level<()> = Level::new(&planned.level, planned.bounds, Duration::ZERO);
        let work = level.work(Estimate::Seats(1));
        let answer = level.arrive(1, work, Duration::ZERO, || ());
        assert!(matches!(answer, Answer::Serve(_)), "{}: {answer:?}", planned.level.name);
    }
}
