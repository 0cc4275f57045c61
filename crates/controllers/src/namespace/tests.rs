//! What the controller asks of the API server for one namespace, in order.

use bayplan_model::api::Resource;

use super::*;
use crate::discovery::ApiResource;
use crate::script::{Script, Step, refused};

fn controller(verbs: &[&str]) -> NamespaceController {
    let resource = |plural: &'static str, namespaced| ApiResource {
        resource: Resource::new("", "v1", plural),
        kind: plural.into(),
        namespaced,
        verbs: verbs.iter().map(ToString::to_string).collect(),
    };
    let resources = Resources::default();
    resources.replace(vec![resource("things", true), resource("pods", true), resource("worlds", false)]);
    NamespaceController::new(Arc::new(Cache::default()), resources)
}

/// A closing namespace.
fn closing() -> Value {
    let metadata =
        json!({"name": "ns", "uid": "u", "resourceVersion": "7", "deletionTimestamp": "2026-01-01T00:00:00Z"});
    json!({"metadata": metadata, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Terminating"}})
}

fn with(mut namespace: Value, pointer: &str, value: Value) -> Value {
    *namespace.pointer_mut(pointer).unwrap() = value;
    namespace
}

/// The namespace after a round in which these resources remained, held by these finalizers, and this failed.
fn conditions(remaining: Option<&str>, finalizers: Option<&str>, failure: Option<&str>) -> Value {
    let row = |kind: &str, good: (&str, &str), bad: &str, trouble: Option<&str>| {
        let (status, reason, message) = trouble.map_or(("False", good.0, good.1), |message| ("True", bad, message));
        json!({
            "type": kind, "status": status, "lastTransitionTime": crate::script::now(),
            "reason": reason, "message": message,
        })
    };
    let conditions = json!([
        row(
            "NamespaceDeletionDiscoveryFailure",
            ("ResourcesDiscovered", "All resources successfully discovered"),
            "",
            None
        ),
        row(
            "NamespaceDeletionGroupVersionParsingFailure",
            ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
            "",
            None
        ),
        row(
            "NamespaceDeletionContentFailure",
            ("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
            "ContentDeletionFailed",
            failure
        ),
        row(
            "NamespaceContentRemaining",
            ("ContentRemoved", "All content successfully removed"),
            "SomeResourcesRemain",
            remaining
        ),
        row(
            "NamespaceFinalizersRemaining",
            ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
            "SomeFinalizersRemain",
            finalizers
        ),
    ]);
    let mut namespace = closing();
    namespace["status"]["conditions"] = conditions;
    namespace
}

fn get(answer: Result<Value, Status>) -> Step {
    ("GET namespaces/ns", Value::Null, answer)
}

fn clear(line: &'static str) -> Step {
    (line, json!({"propagationPolicy": "Background"}), Ok(json!({})))
}

fn list(line: &'static str, items: Value) -> Step {
    (line, Value::Null, Ok(json!({"items": items})))
}

fn emptied() -> Vec<Step> {
    vec![
        clear("DELETE-COLLECTION ns/pods"),
        list("LIST ns/pods metadata", Value::Null),
        clear("DELETE-COLLECTION ns/things"),
        list("LIST ns/things metadata", json!([])),
    ]
}

fn status(body: Value, answer: Result<Value, Status>) -> Step {
    ("PUT namespaces/ns/status", body, answer)
}

fn finalize(namespace: Value, answer: Result<Value, Status>) -> Step {
    ("PUT namespaces/ns/finalize", with(namespace, "/spec/finalizers", json!([])), answer)
}

/// One attempt: the live read, the deletions, and what follows.
fn round(steps: Vec<Step>, rest: Vec<Step>) -> Vec<Step> {
    [get(Ok(closing()))].into_iter().chain(steps).chain(rest).collect()
}

fn check(cases: Vec<(&'static str, Vec<Step>, &str)>) {
    for (case, steps, outcome) in cases {
        let controller = controller(&["delete", "deletecollection", "list"]);
        let requeue = Script::new(case, steps).play(&controller, "ns").map_err(|error| error.to_string());
        assert_eq!(format!("{requeue:?}"), outcome, "{case}");
    }
}

#[test]
fn a_terminating_namespace_is_emptied_pods_first_and_then_finalized() {
    let done = || conditions(None, None, None);
    let settled = || [get(Ok(closing())), status(done(), Ok(done())), get(Ok(done()))];
    let ended = |last: Step| round(emptied(), settled().into_iter().chain([last]).collect());
    let marked = || with(closing(), "/status/phase", json!("Active"));
    check(vec![
        ("it is gone", vec![get(refused(404))], "Ok(OnChange)"),
        (
            "it is not closing",
            vec![get(Ok(with(closing(), "/metadata/deletionTimestamp", Value::Null)))],
            "Ok(OnChange)",
        ),
        ("it was let go before", vec![get(Ok(with(closing(), "/spec/finalizers", json!([]))))], "Ok(OnChange)"),
        ("all well", ended(finalize(done(), Ok(done()))), "Ok(OnChange)"),
        ("it goes while it is let go", ended(finalize(done(), refused(404))), "Ok(OnChange)"),
        (
            "it does not say so yet",
            [get(Ok(marked())), get(Ok(marked())), status(closing(), Ok(closing()))]
                .into_iter()
                .chain(emptied())
                .chain(settled())
                .chain([finalize(done(), Ok(done()))])
                .collect(),
            "Ok(OnChange)",
        ),
        (
            "its status changes meanwhile",
            round(
                emptied(),
                vec![
                    get(Ok(closing())),
                    status(done(), refused(409)),
                    get(Ok(with(closing(), "/metadata/resourceVersion", json!("8")))),
                    status(with(done(), "/metadata/resourceVersion", json!("8")), Ok(done())),
                    get(Ok(done())),
                    finalize(done(), Ok(done())),
                ],
            ),
            "Ok(OnChange)",
        ),
        (
            "it is re-created meanwhile",
            round(emptied(), vec![get(Ok(with(closing(), "/metadata/uid", json!("new"))))]),
            r#"Err("namespace uid has changed across retries: ns")"#,
        ),
    ]);
}

#[test]
fn a_namespace_waits_for_finalizers_and_for_its_pods() {
    let object = |name: &str| json!({"metadata": {"name": name, "finalizers": ["x/hold"]}});
    let held = json!([object("a"), object("b")]);
    let held_words = (
        "Some resources are remaining: things. has 2 resource instances",
        "Some content in the namespace has finalizers remaining: x/hold in 2 resource instances",
    );
    let holding = conditions(Some(held_words.0), Some(held_words.1), None);
    let unexpected = "unexpected items still remain in namespace: ns for gvr: /v1, Resource=pods";
    let stuck = conditions(
        Some("Some resources are remaining: pods. has 1 resource instances"),
        None,
        Some(&format!("Failed to delete all resource types, 1 remaining: {unexpected}")),
    );
    check(vec![
        (
            "finalizers hold things",
            round(
                vec![
                    clear("DELETE-COLLECTION ns/pods"),
                    list("LIST ns/pods metadata", json!([])),
                    clear("DELETE-COLLECTION ns/things"),
                    list("LIST ns/things metadata", held),
                ],
                vec![get(Ok(closing())), status(holding.clone(), Ok(holding))],
            ),
            "Ok(After(8s))",
        ),
        (
            "a pod stays: nothing else is touched",
            round(
                vec![
                    clear("DELETE-COLLECTION ns/pods"),
                    list("LIST ns/pods metadata", json!([{"metadata": {"name": "p"}}])),
                ],
                vec![get(Ok(closing())), status(stuck.clone(), Ok(stuck))],
            ),
            r#"Err("unexpected items still remain in namespace: ns for gvr: /v1, Resource=pods")"#,
        ),
    ]);
}

#[test]
fn a_namespace_waits_while_the_resources_of_some_group_are_unknown() {
    let controller = controller(&["delete", "deletecollection", "list"]);
    let version = crate::discovery::GroupVersion { group: "metrics.k8s.io".into(), version: "v1beta1".into() };
    let why = "stale GroupVersion discovery: metrics.k8s.io/v1beta1".to_owned();
    let known = controller.resources.all().to_vec();
    controller.resources.replace_partly(known, vec![crate::discovery::Failure { version, why }]);
    let message = "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: \
                   metrics.k8s.io/v1beta1: stale GroupVersion discovery: metrics.k8s.io/v1beta1";
    let mut waiting = conditions(None, None, None);
    let condition = &mut waiting["status"]["conditions"][0];
    condition["status"] = json!("True");
    condition["reason"] = json!("DiscoveryFailed");
    condition["message"] = json!(message);
    let end = [get(Ok(closing())), status(waiting.clone(), Ok(waiting))];
    let steps = [get(Ok(closing()))].into_iter().chain(emptied()).chain(end);
    let outcome = Script::new("unknown", steps).play(&controller, "ns");
    assert_eq!(outcome.unwrap_err().to_string(), message);
}

#[test]
fn pods_are_given_the_time_they_ask_for() {
    let controller = controller(&["delete", "deletecollection", "list"]);
    let pod = json!({"metadata": {"name": "p", "namespace": "ns"}, "spec": {"terminationGracePeriodSeconds": 30}});
    controller.cache.set(Kind::Pod, pod.to_string().as_bytes()).unwrap();
    let since = crate::script::now() - Duration::from_secs(10);
    let closing = || with(closing(), "/metadata/deletionTimestamp", json!(since));
    let mut waiting = conditions(Some("Some resources are remaining: pods. has 1 resource instances"), None, None);
    waiting["metadata"] = closing()["metadata"].clone();
    let steps = [
        get(Ok(closing())),
        clear("DELETE-COLLECTION ns/pods"),
        list("LIST ns/pods metadata", json!([{"metadata": {"name": "p"}}])),
        get(Ok(closing())),
        status(waiting.clone(), Ok(waiting)),
    ];
    let next = Script::new("grace", steps).play(&controller, "ns").unwrap();
    assert_eq!(next, Requeue::After(Duration::from_secs(16)));
}

#[test]
fn what_cannot_be_deleted_together_is_deleted_one_by_one() {
    let one = || json!([{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]);
    let delete = |line, answer| (line, json!({"propagationPolicy": "Background"}), answer);
    let done = conditions(None, None, None);
    let steps = [
        get(Ok(closing())),
        list("LIST ns/pods metadata", json!([])),
        list("LIST ns/pods metadata", json!([])),
        list("LIST ns/things metadata", one()),
        delete("DELETE ns/things/a", refused(404)),
        delete("DELETE ns/things/b", Ok(json!({}))),
        list("LIST ns/things metadata", json!([])),
        get(Ok(closing())),
        status(done.clone(), Ok(done.clone())),
        get(Ok(done.clone())),
        finalize(done.clone(), Ok(done)),
    ];
    assert_eq!(
        Script::new("one by one", steps).play(&controller(&["delete", "list"]), "ns").unwrap(),
        Requeue::OnChange
    );
}

#[test]
fn the_last_pod_of_a_closing_namespace_wakes_it_at_once() {
    let controller = controller(&["delete"]);
    controller.cache.set(Kind::Namespace, closing().to_string().as_bytes()).unwrap();
    for name in ["p", "q"] {
        let pod = json!({"metadata": {"name": name, "namespace": "ns"}});
        controller.cache.set(Kind::Pod, pod.to_string().as_bytes()).unwrap();
    }
    let gone = |name| controller.observe(&controller.cache.remove(Kind::Pod, "ns", name, "9").unwrap());
    assert_eq!(gone("p"), []);
    assert_eq!(gone("q"), [Wakeup::now("ns")]);
}
