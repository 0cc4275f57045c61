//! No number, time or quantity of a client makes the server panic: every such field of every kind, and every parameter
//! of a query, with its extremes.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use bayplan_model::schema::Type;
use serde_json::{Value, json};
use support::places::{Place, places};
use support::{Client, cluster, objects};

const MERGE: &str = "application/merge-patch+json";
/// Objects as rows, so that their cells are made too.
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// The extremes of a type of which there is more or less.
fn extremes(ty: &Type) -> Vec<Value> {
    let digits = "9".repeat(1000);
    match ty {
        Type::Int32 => vec![json!(i32::MIN), json!(-1), json!(0), json!(i32::MAX), json!(1e9)],
        Type::Int64 => vec![json!(i64::MIN), json!(-1), json!(0), json!(i64::MAX), json!(u64::MAX), json!(1e18)],
        Type::Double => vec![json!(f64::MIN), json!(f64::MAX), json!(f64::MIN_POSITIVE)],
        Type::IntOrString => {
            vec![json!(i32::MIN), json!(i32::MAX), json!("2147483647%"), json!("99999999999999999999%"), json!("-1%")]
        }
        Type::Quantity => [
            "9223372036854775807",
            "-9223372036854775808",
            "9223372036854775807Ei",
            "-9223372036854775808Ei",
            "1e1024",
            "-1e1024",
            "1e-1024",
            "1e9223372036854775807",
            "1e-9223372036854775808",
            "0.0000000000000000001n",
            &digits,
        ]
        .map(|text| json!(text))
        .to_vec(),
        Type::Time => {
            ["0001-01-01T00:00:01Z", "9999-12-31T23:59:59Z", "9999-12-30T22:00:00Z", "0000-01-01T00:00:00+14:00"]
                .map(|text| json!(text))
                .to_vec()
        }
        Type::MicroTime => {
            ["0001-01-01T00:00:00.000001Z", "9999-12-30T22:00:00.999999Z", "0000-01-01T00:00:00.000000Z"]
                .map(|text| json!(text))
                .to_vec()
        }
        _ => Vec::new(),
    }
}

async fn ask(admin: &Client, method: &str, path: &str, content_type: &str, body: &Value, what: &str) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let mut request = http::Request::builder().method(method).uri(path).header("Accept", TABLE);
    if !content_type.is_empty() {
        request = request.header("Content-Type", content_type);
    }
    let request = request.body(http_body_util::Full::new(bytes::Bytes::from(body))).unwrap();
    let (code, answer) = support::read(admin.call(request).await).await;
    // Upstream answers some errors of clients with a 500, but then gives no reason.
    let panicked = answer["message"].as_str().is_some_and(|message| message.contains("caused apiserver to panic"));
    let fault = code >= 500 && answer.get("reason").is_some_and(|reason| reason != "Timeout");
    assert!(!panicked && !fault, "{what}: {method} {path}: {code} {answer}");
    (code, answer)
}

/// Creates, reads, changes and deletes an object with a value at a place.
async fn live(admin: &Client, place: &Place, value: &Value) {
    let collection = objects::collection(place.kind);
    let what = format!("{} = {value}", place.name());
    let name = "extreme";
    let one = format!("{collection}/{}", objects::name(place.kind, name));
    let (created, _) =
        ask(admin, "POST", &collection, "application/json", &place.object(name, value.clone()), &what).await;
    if created != 201 {
        ask(admin, "POST", &collection, "application/json", &objects::object(place.kind, name), &what).await;
    }
    for at in [&one, &format!("{one}/status")] {
        ask(admin, "PATCH", at, MERGE, &place.part(value.clone()), &what).await;
        let strategic = "application/strategic-merge-patch+json";
        ask(admin, "PATCH", at, strategic, &place.part(value.clone()), &what).await;
        ask(admin, "PUT", at, "application/json", &place.object(name, value.clone()), &what).await;
    }
    ask(admin, "GET", &one, "", &Value::Null, &what).await;
    ask(admin, "GET", &collection, "", &Value::Null, &what).await;
    ask(admin, "PATCH", &one, MERGE, &json!({"metadata": {"finalizers": null}}), &what).await;
    // Jobs and replication controllers orphan their dependents unless a delete says otherwise.
    let at_once = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
    for options in [Value::Null, json!({"gracePeriodSeconds": i64::MAX}), at_once] {
        ask(admin, "DELETE", &one, "application/json", &options, &what).await;
    }
    let (code, left) = ask(admin, "GET", &one, "", &Value::Null, &what).await;
    let namespace = place.kind.plural == "namespaces";
    assert!(code == 404 || namespace, "{what}: still there: {left}");
    if namespace {
        let emptied = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        ask(admin, "PUT", &format!("{one}/finalize"), "application/json", &emptied, &what).await;
    }
}

async fn live_all(every: usize) {
    let admin = cluster().await.admin;
    let all = places(false, |ty| !extremes(ty).is_empty());
    assert!(all.len() > 200, "only {} places", all.len());
    for (number, place) in all.iter().enumerate() {
        let values = extremes(place.ty);
        for (at, value) in values.iter().enumerate() {
            if (number + at).is_multiple_of(every) {
                live(&admin, place, value).await;
            }
        }
    }
}

/// A third of them: each place, with other values from place to place.
#[tokio::test]
async fn extreme_numbers_times_and_quantities_are_survived() {
    live_all(3).await;
}

#[tokio::test]
#[ignore = "all of them: cargo test --release -p bayplan-apiserver --test extremes -- --ignored"]
async fn every_extreme_number_time_and_quantity_is_survived() {
    live_all(1).await;
}

/// The numbers of a running pod, each of which must let it be deleted, evicted, and its namespace emptied.
#[tokio::test]
async fn a_pod_with_any_grace_period_can_be_deleted_and_evicted() {
    let admin = cluster().await.admin;
    let pods = "/api/v1/namespaces/default/pods";
    for grace in [0, 1, 30, i64::from(i32::MAX), i64::MAX / 1_000_000_000, i64::MAX - 1, i64::MAX] {
        for (method, path, body) in [
            ("DELETE", "", Value::Null),
            ("DELETE", "?gracePeriodSeconds=9223372036854775807", Value::Null),
            ("POST", "/eviction", json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}})),
        ] {
            let mut pod = support::pod("p", "node");
            pod["spec"]["terminationGracePeriodSeconds"] = json!(grace);
            admin.create(pods, pod).await;
            let (code, answer) = admin.json(method, &format!("{pods}/p{path}"), body).await;
            assert!(matches!(code, 200 | 201), "{grace} {method} {path}: {code} {answer}");
            let (code, left) = admin.get(&format!("{pods}/p")).await;
            if code == 200 {
                let ends: jiff::Timestamp = left["metadata"]["deletionTimestamp"].as_str().unwrap().parse().unwrap();
                assert!(ends >= jiff::Timestamp::now() - jiff::SignedDuration::from_secs(60), "{grace}: {ends}");
            }
            for seconds in [i64::MAX - 2, 5, 0] {
                let path = format!("{pods}/p?gracePeriodSeconds={seconds}");
                let (code, answer) = admin.json("DELETE", &path, Value::Null).await;
                assert!(matches!(code, 200 | 404), "{grace} then {seconds}: {code} {answer}");
            }
            assert_eq!(admin.get(&format!("{pods}/p")).await.0, 404, "{grace} {method}");
        }
    }
}

/// What a parameter of a query may say.
const TEXTS: [&str; 16] = [
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "18446744073709551615",
    "99999999999999999999999999999999",
    "-1",
    "0",
    "1e400",
    "NaN",
    "",
    "%00",
    "%FF%FE",
    "9999999999999999999s9999999999999999999s",
    "18446744073709551615h",
    "-1s",
    "0.0000000000000000000000000001ns",
];

#[tokio::test]
async fn every_parameter_of_a_query_may_be_extreme() {
    const PARAMETERS: [&str; 18] = [
        "timeout",
        "timeoutSeconds",
        "limit",
        "continue",
        "resourceVersion",
        "resourceVersionMatch",
        "gracePeriodSeconds",
        "labelSelector",
        "fieldSelector",
        "watch",
        "allowWatchBookmarks",
        "sendInitialEvents",
        "dryRun",
        "fieldManager",
        "fieldValidation",
        "propagationPolicy",
        "orphanDependents",
        "includeObject",
    ];
    let admin = cluster().await.admin;
    // At once: some of them wait three seconds for a resource version that never comes.
    let queries = PARAMETERS.iter().flat_map(|parameter| TEXTS.iter().map(move |text| (*parameter, *text)));
    let asked = queries.enumerate().map(|(number, (parameter, text))| {
        let admin = admin.clone();
        async move { ask_with(&admin, parameter, text, &format!("m{number}")).await }
    });
    futures::future::join_all(asked).await;
}

async fn ask_with(admin: &Client, parameter: &str, text: &str, name: &str) {
    let maps = "/api/v1/namespaces/default/configmaps";
    let query = format!("{parameter}={text}");
    let map = support::config_map(name, json!({}));
    for (method, path, body) in [
        ("POST", maps.to_owned(), map.clone()),
        ("PUT", format!("{maps}/{name}"), map.clone()),
        ("GET", format!("{maps}/{name}"), Value::Null),
        ("GET", "/version".to_owned(), Value::Null),
        ("GET", "/readyz".to_owned(), Value::Null),
        ("DELETE", format!("{maps}/{name}"), Value::Null),
    ] {
        ask(admin, method, &format!("{path}?{query}"), "application/json", &body, &query).await;
    }
    if parameter != "watch" {
        ask(admin, "GET", &format!("{maps}?{query}"), "", &Value::Null, &query).await;
        ask(admin, "DELETE", &format!("{maps}?{query}"), "", &Value::Null, &query).await;
    }
    // A watch has a body without end: that it begins is enough.
    let watch = admin.send("GET", &format!("{maps}?watch=true&{query}"), "", "").await;
    let code = watch.status().as_u16();
    assert!(code < 500 || code == 504, "{query}: {code}");
}
