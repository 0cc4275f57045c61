use bayplan_kinds::flow_control::{flow_schemas, priority_levels};
use serde_json::Value;

use super::*;
use crate::request::Query;

/// All objects that every cluster starts with.
fn objects() -> Objects {
    let object = |name: &str, spec: Value| json!({"metadata": {"name": name}, "spec": spec});
    Objects {
        levels: priority_levels()
            .map(|level| Arc::new(PriorityLevel::read(&object(level.name, level.spec)).unwrap()))
            .collect(),
        schemas: flow_schemas()
            .map(|schema| Arc::new(FlowSchema::read(&object(schema.name, schema.spec)).unwrap()))
            .collect(),
    }
}

fn control(seats: usize) -> Arc<FlowControl> {
    let control = FlowControl::new(seats, FlowMetrics::new(&bayplan_metrics::Registry::default()), true);
    control.configure(&objects());
    control
}

async fn enter(
    control: &Arc<FlowControl>,
    user: &User,
    info: &RequestInfo,
    limit: Duration,
) -> Result<Admitted, Refused> {
    let mut matched = control.classify(user, info).unwrap();
    control.enter(&mut matched, (user, info), Estimate::Seats(1), limit).await
}

/// For each level, the seats in use and the requests that wait.
fn load(control: &FlowControl) -> Vec<(usize, usize)> {
    let load = |served: &Served| {
        let (queues, _) = control.lock(&served.live);
        (queues.seats().0, queues.requests().0)
    };
    control.current().levels.iter().map(load).collect()
}

fn info(path: &str) -> RequestInfo {
    RequestInfo::parse(&http::Method::GET, path, &Query::parse(""))
}

fn user(name: &str, group: &str) -> User {
    User::new(name, [group])
}

const LIMIT: Duration = Duration::from_secs(15);

/// Takes all seats of a user's level.
async fn fill(control: &Arc<FlowControl>, user: &User, info: &RequestInfo) -> Vec<Admitted> {
    let mut seats = Vec::new();
    while let Ok(seat) = enter(control, user, info, Duration::ZERO).await {
        seats.push(seat);
    }
    seats
}

#[tokio::test(start_paused = true)]
async fn requests_wait_for_a_seat_until_the_limit() {
    let control = control(60);
    let (alice, pods) = (user("alice", "users"), info("/api/v1/pods"));
    let mut seats = fill(&control, &alice, &pods).await;
    assert!(!seats.is_empty());
    let started = Instant::now();
    assert_eq!(enter(&control, &alice, &pods, LIMIT).await.err(), Some(Refused(1)));
    assert_eq!(started.elapsed().as_secs(), LIMIT.as_secs());
    let (waited, ()) = tokio::join!(enter(&control, &alice, &pods, LIMIT), async { drop(seats.pop()) });
    seats.push(waited.unwrap());
    // Whoever goes away while waiting leaves nothing behind.
    let gone = tokio::time::timeout(Duration::from_secs(1), enter(&control, &alice, &pods, LIMIT)).await;
    assert!(gone.is_err());
    drop(seats);
    let load = load(&control);
    assert!(load.iter().all(|load| *load == (0, 0)), "{load:?}");
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_one_user_keeps_neither_administrators_nor_the_system_waiting() {
    let control = control(CONCURRENCY);
    let (mallory, pods) = (user("mallory", "users"), info("/api/v1/namespaces/a/pods"));
    let _seats = fill(&control, &mallory, &pods).await;
    let flood: Vec<_> = (0..5_700)
        .map(|_| {
            let (control, mallory, pods) = (control.clone(), mallory.clone(), pods.clone());
            tokio::spawn(async move { enter(&control, &mallory, &pods, LIMIT).await.err() })
        })
        .collect();
    // Time only passes once everybody waits, or was refused.
    tokio::time::sleep(Duration::from_millis(1)).await;
    let lease = info("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n");
    for (user, info) in [
        (user("admin", "system:masters"), &pods),
        (user("system:kube-scheduler", "x"), &pods),
        (user("system:kube-controller-manager", "x"), &lease),
        (user("system:node:n", "system:nodes"), &lease),
        (user("system:serviceaccount:kube-system:c", "system:serviceaccounts"), &pods),
        (crate::authn::anonymous(), &info("/readyz")),
    ] {
        let entered = enter(&control, &user, info, Duration::ZERO).await;
        assert!(entered.is_ok(), "{} {}", user.name, info.path);
    }
    let mut refused = 0;
    for request in flood {
        refused += usize::from(request.await.unwrap().is_some());
    }
    assert_eq!(refused, 5_700);
}

#[tokio::test(start_paused = true)]
async fn a_busy_level_borrows_seats_after_a_while() {
    let control = control(CONCURRENCY);
    tokio::spawn(control.clone().run());
    let (alice, pods) = (user("alice", "users"), info("/api/v1/pods"));
    let seats = fill(&control, &alice, &pods).await;
    let before = seats.len();
    for number in 0..600 {
        let (control, pods) = (control.clone(), pods.clone());
        let user = user(&format!("user-{}", number % 100), "users");
        tokio::spawn(async move {
            let _seat = enter(&control, &user, &pods, 3 * LIMIT).await;
            std::future::pending::<()>().await;
        });
    }
    tokio::time::sleep(3 * BORROWING_PERIOD / 2).await;
    let level = load(&control).into_iter().map(|(seats, _)| seats).max().unwrap();
    assert!(level > 2 * before, "{level} seats, {before} before");
}

/// One more level, and one more schema which leads alice to it.
fn with_level(name: &str, limited: &Value) -> Objects {
    let mut objects = objects();
    let level = json!({"metadata": {"name": name}, "spec": {"type": "Limited", "limited": limited}});
    objects.levels.push(Arc::new(PriorityLevel::read(&level).unwrap()));
    let rule = json!({
        "subjects": [{"kind": "User", "user": {"name": "alice"}}],
        "resourceRules": [{
            "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true,
        }],
    });
    let spec = json!({"priorityLevelConfiguration": {"name": name}, "matchingPrecedence": 200, "rules": [rule]});
    let schema = json!({"metadata": {"name": "of-alice"}, "spec": spec});
    objects.schemas.push(Arc::new(FlowSchema::read(&schema).unwrap()));
    objects
}

#[tokio::test(start_paused = true)]
async fn a_level_that_is_deleted_serves_its_requests_and_gets_no_new_ones() {
    let control = control(100);
    let queue = json!({"type": "Queue", "queuing": {"queues": 1, "handSize": 1, "queueLengthLimit": 10}});
    let limited = json!({"nominalConcurrencyShares": 5, "borrowingLimitPercent": 0, "limitResponse": queue});
    assert_eq!(control.configure(&with_level("mine", &limited)), [""; 0]);
    let (alice, pods) = (user("alice", "users"), info("/api/v1/pods"));
    let mut seats = fill(&control, &alice, &pods).await;
    let most = seats.len();
    assert!((1..5).contains(&most), "{most} seats");
    // It comes before the level is gone, and is served by it after.
    let waits = tokio::spawn({
        let (control, alice, pods) = (control.clone(), alice.clone(), pods.clone());
        async move { enter(&control, &alice, &pods, LIMIT).await }
    });
    tokio::time::sleep(Duration::from_millis(1)).await;
    let mut without = with_level("mine", &limited);
    without.levels.retain(|level| level.name != "mine");
    let before = control.classify(&alice, &pods).unwrap();
    assert_eq!(control.configure(&without), ["of-alice"]);
    let names = || control.current().levels.iter().map(|served| served.config.name.clone()).collect::<Vec<_>>();
    assert!(names().contains(&"mine".to_owned()));
    // Even a request that was classified before comes to another level by now.
    let mut matched = before;
    let elsewhere = control.enter(&mut matched, (&alice, &pods), Estimate::Seats(1), LIMIT).await.unwrap();
    assert_eq!(elsewhere.level.name, "global-default");
    drop(seats.pop());
    let last = waits.await.unwrap().unwrap();
    assert_eq!(last.level.name, "mine");
    drop((seats, last));
    tokio::time::timeout(LIMIT, control.reconsider.notified()).await.expect("the level is over");
    control.configure(&without);
    assert!(!names().contains(&"mine".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_level_that_grows_serves_who_waits_at_once() {
    let control = control(100);
    let limited = |shares: u32| {
        let queue = json!({"type": "Queue", "queuing": {"queues": 8, "handSize": 2, "queueLengthLimit": 10}});
        json!({"nominalConcurrencyShares": shares, "borrowingLimitPercent": 0, "limitResponse": queue})
    };
    control.configure(&with_level("jail", &limited(0)));
    let (alice, pods) = (user("alice", "users"), info("/api/v1/pods"));
    let waits = tokio::spawn({
        let (control, alice, pods) = (control.clone(), alice.clone(), pods.clone());
        async move { enter(&control, &alice, &pods, LIMIT).await.is_ok() }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!waits.is_finished());
    control.configure(&with_level("jail", &limited(100)));
    let started = Instant::now();
    assert!(waits.await.unwrap());
    assert!(started.elapsed() < Duration::from_millis(10));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_many_watch_keeps_its_seats_for_a_while() {
    let control = control(CONCURRENCY);
    let watch = {
        let path = "/api/v1/namespaces/a/configmaps";
        RequestInfo::parse(&http::Method::GET, path, &Query::parse("watch=1"))
    };
    let watches: Vec<_> = (0..25).filter_map(|_| control.count_watch(&watch, "")).collect();
    let write = RequestInfo::parse(&http::Method::PUT, "/api/v1/namespaces/a/configmaps/c", &Query::parse(""));
    let alice = user("alice", "users");
    let mut matched = control.classify(&alice, &write).unwrap();
    let seat = control.enter(&mut matched, (&alice, &write), control.write(&write), LIMIT).await.unwrap();
    let in_use = || load(&control).into_iter().map(|(seats, _)| seats).sum::<usize>();
    assert_eq!((seat.ticket.seats(), in_use()), (3, 3));
    drop(seat);
    assert_eq!(in_use(), 3);
    tokio::time::sleep(Duration::from_millis(6)).await;
    assert_eq!(in_use(), 0);
    drop(watches);
    assert_eq!(control.write(&write), Estimate::Write { watches: 0 });
}

#[tokio::test(start_paused = true)]
async fn a_level_that_has_lent_all_its_seats_gets_its_own_back_at_once() {
    let control = control(100);
    tokio::spawn(control.clone().run());
    let greedy = json!({"nominalConcurrencyShares": i32::MAX, "limitResponse": {"type": "Reject"}});
    control.configure(&with_level("greedy", &greedy));
    let (bob, pods) = (user("bob", "users"), info("/api/v1/pods"));
    let of_bob = control.classify(&bob, &pods).unwrap();
    assert_eq!(control.lock(&of_bob.level.live).0.seats(), (0, 0));
    tokio::time::sleep(2 * DIVISION_PAUSE).await;
    let seat = enter(&control, &bob, &pods, Duration::from_millis(10)).await;
    assert!(seat.is_ok());
}
