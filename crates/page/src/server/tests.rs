use bayplan_explain::{Profiles, State};
use bayplan_scheduler::Registry;
use bayplan_scheduler::config::Configuration;
use bayplan_sources::RESOURCES;
use bayplan_testkit::{node, pod};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::cluster_view::Change;

const TOKEN: &str = "00112233445566778899aabbccddeeff";

struct World {
    view: Arc<ClusterView>,
    server: PageServer,
}

fn written(json: Value) -> Change {
    let kind = json["kind"].as_str().unwrap().to_owned();
    Change::Written(RESOURCES.iter().find(|resource| resource.kind == kind).unwrap(), json)
}

async fn world() -> World {
    let profiles = Profiles::build(&Configuration::default(), &Registry::default()).unwrap();
    let view = Arc::new(ClusterView::new(State::default(), profiles, "test", true, "run"));
    let notes =
        view.apply([written(node("n").json()), written(pod("big").request("cpu", "5").json())], Timestamp::now());
    assert_eq!(notes, [] as [String; 0]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    World { server: PageServer::start(listener, TOKEN, view.clone()).unwrap(), view }
}

impl World {
    /// The answer to a request of the page: its head and its body.
    async fn ask(&self, request: &str, body: &str) -> (String, String) {
        let address = self.server.address;
        let cookie = format!("Cookie: bayplan-page-{}={TOKEN}", address.port());
        self.raw(&format!(
            "{request} HTTP/1.1\r\nHost: {address}\r\n{cookie}\r\nOrigin: http://{address}\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        ))
        .await
    }

    async fn raw(&self, request: &str) -> (String, String) {
        let mut stream = TcpStream::connect(self.server.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    async fn json(&self, path: &str) -> Value {
        let (head, body) = self.ask(&format!("GET {path}"), "").await;
        assert!(head.starts_with("HTTP/1.1 200"), "{path}: {head}\n{body}");
        serde_json::from_str(&body).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_has_the_policy_and_answers_are_kept_by_nobody() {
    let world = world().await;
    for path in ["/", "/main.js", "/api/summary", "/api/nothing", "/nothing"] {
        let (head, _) = world.ask(&format!("GET {path}"), "").await;
        assert!(head.contains(&format!("content-security-policy: {}", respond::POLICY)), "{path}: {head}");
        assert!(head.contains("x-content-type-options: nosniff"), "{path}");
        assert_eq!(
            head.contains("cache-control: no-store"),
            path.contains("nothing") || path.contains("api"),
            "{path}"
        );
    }
    let (head, _) = world.ask("GET /main.js", "").await;
    let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    let (head, body) = world.ask(&format!("GET /main.js HTTP/1.1\r\nIf-None-Match: {tag}\r\nX: "), "").await;
    assert!(head.starts_with("HTTP/1.1 304") && body.is_empty(), "{head}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_lets_in_once_and_is_a_cookie_from_then_on() {
    let world = world().await;
    let host = format!("Host: {}\r\nConnection: close", world.server.address);
    let url = world.server.url();
    let path = url.split_once(&world.server.address.to_string()).unwrap().1;
    let (head, _) = world.raw(&format!("GET {path} HTTP/1.1\r\n{host}\r\n\r\n")).await;
    assert!(head.starts_with("HTTP/1.1 303") && head.contains("location: /\r\n"), "{head}");
    assert!(head.contains(&format!("={TOKEN}; Path=/; HttpOnly; SameSite=Strict")), "{head}");
    let (head, body) = world.raw(&format!("GET /api/summary HTTP/1.1\r\n{host}\r\n\r\n")).await;
    assert!(head.starts_with("HTTP/1.1 403") && body.contains("the URL that bayplan printed"), "{head} {body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_is_answered_from_the_state() {
    let world = world().await;
    let summary = world.json("/api/summary").await;
    assert_eq!((&summary["nodes"], &summary["pods"], &summary["pending"]), (&json!(1), &json!(1), &json!(1)));
    let groups = world.json("/api/pending").await;
    assert_eq!(groups["groups"][0]["pods"], json!(["default/big"]));
    let why = world.json("/api/why?pod=default%2Fbig").await;
    assert_eq!((&why["explanation"]["verdict"], &why["tiles"]["filter"]), (&json!("Never"), &json!([0])));
    let node = world.json("/api/node?name=n&pod=default%2Fbig").await;
    assert_eq!(node["filters"][0]["reasons"], json!(["Insufficient cpu"]));
    assert_eq!(world.json("/api/find?text=BI").await, json!({"pods": ["default/big"]}));
    for (path, code) in
        [("/api/why?pod=default%2Fx", 404), ("/api/node?name=x", 404), ("/api/why", 400), ("/api/try", 405)]
    {
        let (head, _) = world.ask(&format!("GET {path}"), "").await;
        assert!(head.starts_with(&format!("HTTP/1.1 {code}")), "{path}: {head}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_tried_and_a_bad_one_refused() {
    let world = world().await;
    let mut large = node("large").json();
    large["status"]["allocatable"]["cpu"] = "8".into();
    let (_, body) = world.ask("POST /api/try", &json!({"pod": "default/big", "adds": [large]}).to_string()).await;
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (&answer["explanation"]["verdict"], &answer["explanation"]["node"]),
        (&json!("WillPlace"), &json!("large"))
    );
    assert_eq!(world.json("/api/summary").await["nodes"], 1, "nothing stays");
    let long = "x".repeat(BODY_MAX + 1);
    for (body, code) in [("{", 400), ("{\"unknown\": 1}", 400), (&*long, 400), ("{\"deletes\": [\"a/b\"]}", 404)] {
        let (head, _) = world.ask("POST /api/try", body).await;
        assert!(head.starts_with(&format!("HTTP/1.1 {code}")), "{body:.20}: {head}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_is_told_of_the_next_change() {
    let world = world().await;
    let seen = world.json("/api/events").await["seen"].as_str().unwrap().to_owned();
    assert_eq!(seen, "run-2");
    let (view, path) = (world.view.clone(), format!("/api/events?seen={seen}"));
    let (answer, _) = tokio::join!(world.json(&path), async move {
        let gone = Change::Gone { resource: &RESOURCES[1], namespace: "default".into(), name: "big".into() };
        tokio::task::spawn_blocking(move || view.apply([gone], Timestamp::now())).await.unwrap()
    });
    assert_eq!(answer["seen"], "run-3");
    assert_eq!(world.json("/api/summary").await["pods"], 0);
    // Another process's version is no reason to wait.
    assert_eq!(world.json("/api/events?seen=other-3").await["seen"], "run-3");
    world.server.stop().await;
}
