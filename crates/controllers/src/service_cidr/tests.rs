use super::*;
use crate::script::{ANY, Script, now, refused};

fn range(name: &str, cidrs: &[&str], deleted_before: Option<i64>, ready: Option<&str>) -> Value {
    let deleted = deleted_before.map(|seconds| (now() - jiff::SignedDuration::from_secs(seconds)).to_string());
    let conditions: Vec<Value> = ready.iter().map(|status| json!({"type": "Ready", "status": status})).collect();
    json!({
        "metadata": {"name": name, "deletionTimestamp": deleted, "finalizers": ready.map(|_| FINALIZER).as_slice()},
        "spec": {"cidrs": cidrs}, "status": {"conditions": conditions},
    })
}

fn address(name: &str, manager: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {MANAGED_BY: manager}}})
}

fn cluster(ranges: &[Value], addresses: &[Value]) -> ServiceCidrController {
    let cache = Arc::new(Cache::default());
    for (kind, objects) in [(Kind::ServiceCidr, ranges), (Kind::ServiceAddress, addresses)] {
        for object in objects {
            cache.set(kind, object.to_string().as_bytes()).unwrap();
        }
    }
    ServiceCidrController::new(cache)
}

#[test]
fn a_network_contains_what_has_its_first_bits() {
    let parse = |text| Network::parse(text).unwrap();
    for (outer, inner, contains) in [
        ("10.0.0.0/16", "10.0.0.0/24", true),
        ("10.0.0.0/24", "10.0.0.0/16", false),
        ("10.0.0.0/16", "10.1.0.0/24", false),
        ("0.0.0.0/0", "10.1.0.0/24", true),
        ("::/0", "10.1.0.0/24", false),
        ("::/0", "fd00::/64", true),
        ("fd00::/112", "fd00::1:0/112", false),
        ("10.0.0.1/32", "10.0.0.1/32", true),
    ] {
        assert_eq!(parse(outer).contains(parse(inner)), contains, "{outer} {inner}");
    }
    assert_eq!(["10.0.0.0", "10.0.0.0/33", "x/8", "10.0.0.0/-1"].map(Network::parse), [None; 4]);
}

#[test]
fn a_new_range_gets_its_finalizer_and_is_ready() {
    let finalizer = json!({"metadata": {"finalizers": [FINALIZER]}});
    let ready = json!({"status": {"conditions": [{
        "type": "Ready", "status": "True", "reason": "", "message": READY, "lastTransitionTime": now(),
    }]}});
    let steps = [
        ("STRATEGIC-PATCH servicecidrs/new", finalizer.clone(), Ok(json!({"metadata": {}}))),
        ("MERGE-PATCH servicecidrs/new/status", ready, Ok(json!({"metadata": {}}))),
    ];
    let new = cluster(&[range("new", &["10.1.0.0/24"], None, None)], &[]);
    Script::new("new", steps).play(&new, "new").unwrap();
    Script::new("gone", [("STRATEGIC-PATCH servicecidrs/new", finalizer, refused(404))]).play(&new, "new").unwrap();
    let old = cluster(&[range("old", &["10.1.0.0/24"], None, Some("True"))], &[]);
    Script::new("old", []).play(&old, "old").unwrap();
}

#[test]
fn a_range_stays_while_an_address_depends_on_it_alone() {
    let terminating = |other: &[&str], addresses: &[Value]| {
        let mut ranges = vec![range("one", &["10.1.0.0/24"], Some(4), Some("True"))];
        ranges.extend((!other.is_empty()).then(|| range("other", other, None, Some("True"))));
        cluster(&ranges, addresses)
    };
    let used = [address("10.1.0.7", ALLOCATOR)];
    let says = || vec![("MERGE-PATCH servicecidrs/one/status", ANY, Ok(json!({"metadata": {}})))];
    let later = Requeue::After(Duration::from_secs(6));
    for (case, controller, steps, outcome) in [
        ("used", terminating(&[], &used), says(), Requeue::OnChange),
        ("another has it", terminating(&["10.1.0.0/28"], &used), vec![], later.clone()),
        ("another has another", terminating(&["10.1.0.0/30"], &used), says(), Requeue::OnChange),
        ("a larger one", terminating(&["10.0.0.0/8"], &used), vec![], later.clone()),
        ("somebody's own address", terminating(&[], &[address("10.1.0.7", "me")]), vec![], later.clone()),
        ("an address elsewhere", terminating(&[], &[address("10.2.0.7", ALLOCATOR)]), vec![], later),
    ] {
        assert_eq!(Script::new(case, steps).play(&controller, "one").unwrap(), outcome, "{case}");
    }
    let remove = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}});
    let step = ("STRATEGIC-PATCH servicecidrs/one", remove, Ok(json!({"metadata": {}})));
    Script::new("after a while", [step]).play_at(6, &terminating(&[], &[]), "one").unwrap();
}

#[test]
fn an_address_wakes_the_ranges_that_contain_it() {
    let ranges = ["10.1.0.0/24", "10.2.0.0/24"].map(|cidr| range(&cidr[..4], &[cidr], None, Some("True")));
    let controller = cluster(&ranges, &[]);
    let woken = |object: Value| {
        controller.observe(&controller.cache.set(Kind::ServiceAddress, object.to_string().as_bytes()).unwrap())
    };
    assert_eq!(woken(address("10.2.0.1", ALLOCATOR)), [Wakeup::now("10.2")]);
    assert_eq!(woken(address("10.2.0.2", "me")), []);
}
