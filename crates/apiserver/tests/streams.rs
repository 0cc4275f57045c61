//! Streams over a real connection with TLS: watches over WebSocket, and the logs and sessions of simulated pods.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod support;

use std::sync::Arc;

use bayplan_apiserver::certificates::{Names, Pki, tls};
use bayplan_apiserver::{AdmissionPlugins, ApiServer, Config, InProcess, StaticTokens, User};
use bayplan_store::LogStore;
use bytes::Bytes;
use futures::StreamExt;
use http::Request;
use http_body_util::Full;
use jiff::Timestamp;
use serde_json::{Value, json};
use support::{Client, config_map, pod};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
/// The example of RFC 6455.
const WEBSOCKET: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

struct World {
    server: ApiServer,
    pki: Pki,
    address: std::net::SocketAddr,
    admin: Client,
}

async fn world() -> World {
    let pki = Pki::in_memory(&Names::standard(None, [10, 96, 0, 1].into()), Timestamp::now()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut config = Config::new(&pki.service_account_key, address);
    config.static_tokens = StaticTokens::parse("t,tom,u,system:masters\nr,reader,v,readers\n").unwrap();
    config.plugins = AdmissionPlugins { service_account: false, ..AdmissionPlugins::default() };
    let server = ApiServer::new(config, Arc::new(LogStore::in_memory().unwrap())).await.unwrap();
    let (serving, tls) = (server.clone(), tls::server_config(&pki).unwrap());
    tokio::spawn(async move { serving.serve(listener, tls).await });
    let admin: InProcess = server.service(User::new("admin", ["system:masters"]));
    World { server, pki, address, admin: Client::of(admin) }
}

impl World {
    /// The head of the answer to a request, and the connection after it.
    async fn ask(&self, request: &str, headers: &str) -> (String, TlsStream<TcpStream>) {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = builder.unwrap().with_root_certificates(tls::roots(&self.pki).unwrap()).with_no_client_auth();
        let stream = TcpStream::connect(self.address).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let mut stream = connector.connect("localhost".try_into().unwrap(), stream).await.unwrap();
        let request = format!("{request} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        (String::from_utf8(head).unwrap(), stream)
    }

    async fn websocket(&self, path: &str, headers: &str) -> (String, WebSocketStream<TlsStream<TcpStream>>) {
        let headers = format!("Authorization: Bearer t\r\n{WEBSOCKET}{headers}");
        let (head, stream) = self.ask(&format!("GET {path}"), &headers).await;
        (head, WebSocketStream::from_raw_socket(stream, Role::Client, None).await)
    }

    /// A pod whose container runs on a node.
    async fn running(&self, name: &str, node: &str) {
        self.admin.create(PODS, pod(name, node)).await;
        let status = json!({"status": {
            "phase": "Running",
            "podIPs": [{"ip": "10.0.0.9"}],
            "podIP": "10.0.0.9",
            "containerStatuses": [{
                "name": "c", "containerID": "bayplan://u/c/0", "image": "nginx", "imageID": "", "ready": true,
                "restartCount": 0, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            }],
        }});
        let (code, answer) = self.admin.patch(&format!("{PODS}/{name}/status"), "merge", status).await;
        assert_eq!(code, 200, "{answer}");
    }

    async fn node(&self, name: &str, labels: Value) {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
        self.admin.create("/api/v1/nodes", node).await;
    }
}

#[tokio::test]
async fn a_watch_over_websocket_sends_each_event_as_a_message() {
    let world = world().await;
    world.admin.create(MAPS, config_map("a", json!({}))).await;
    world.admin.create(MAPS, config_map("b", json!({}))).await;
    let path = format!("{MAPS}?watch=1&fieldSelector=metadata.name!=kube-root-ca.crt");
    let (head, mut json) = world.websocket(&path, "Sec-WebSocket-Protocol: mine\r\n").await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    let head = head.to_ascii_lowercase();
    assert!(head.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n"), "{head}");
    assert!(head.contains("sec-websocket-protocol: mine\r\n"), "{head}");
    let (_, mut protobuf) = world.websocket(&path, "Accept: application/vnd.kubernetes.protobuf\r\n").await;
    for (index, name) in ["a", "b", "c"].into_iter().enumerate() {
        if index == 2 {
            world.admin.create(MAPS, config_map("c", json!({}))).await;
        }
        let Message::Text(text) = json.next().await.unwrap().unwrap() else { panic!("JSON is text") };
        let event: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("ADDED"), &json!(name)));
        let Message::Binary(bytes) = protobuf.next().await.unwrap().unwrap() else { panic!("protobuf is binary") };
        assert!(bytes.starts_with(b"\x0a\x05ADDED\x12"), "{bytes:?}");
    }
    json.close(None).await.unwrap();
    assert!(matches!(json.next().await, Some(Ok(Message::Close(_))) | None));
    world.server.shutdown().await;
    while let Some(Ok(_)) = protobuf.next().await {}
}

#[tokio::test]
async fn a_session_says_that_no_container_runs() {
    let world = world().await;
    world.node("n1", json!({"bayplan.dev/simulated": "true"})).await;
    world.running("web", "n1").await;
    let path = format!("{PODS}/web/exec?command=ls&stdout=true&stderr=true");
    let text = "pod web is on the simulated node n1: none of its containers runs, so no command can be executed in it";
    let offered = "Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n";
    let (head, mut session) = world.websocket(&path, offered).await;
    assert!(head.to_ascii_lowercase().contains("sec-websocket-protocol: v5.channel.k8s.io\r\n"), "{head}");
    assert_eq!(session.next().await.unwrap().unwrap(), Message::binary(vec![1]));
    let Message::Binary(error) = session.next().await.unwrap().unwrap() else { panic!("bytes") };
    let status: Value = serde_json::from_slice(&error[1..]).unwrap();
    assert_eq!((error[0], &status["status"], &status["message"]), (3, &json!("Failure"), &json!(text)));
    assert!(matches!(session.next().await, Some(Ok(Message::Close(_)))));

    let (head, mut session) = world.websocket(&path, "Sec-WebSocket-Protocol: base64.channel.k8s.io\r\n").await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    assert_eq!(session.next().await.unwrap().unwrap(), Message::text("1"));
    assert!(matches!(session.next().await, Some(Ok(Message::Text(text))) if text.starts_with('3')));

    let spdy = "Authorization: Bearer t\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\
        X-Stream-Protocol-Version: v4.channel.k8s.io\r\nX-Stream-Protocol-Version: v3.channel.k8s.io\r\n";
    let (head, _stream) = world.ask(&format!("POST {path}"), spdy).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    assert!(head.contains("x-stream-protocol-version: v4.channel.k8s.io\r\n"), "{head}");
    world.server.shutdown().await;
}

#[tokio::test]
async fn sessions_are_refused_in_upstreams_words() {
    let world = world().await;
    world.node("n1", json!({"bayplan.dev/simulated": "true"})).await;
    world.node("real", json!({})).await;
    world.running("web", "n1").await;
    world.running("elsewhere", "real").await;
    world.admin.create(PODS, pod("pending", "")).await;
    for (pod, query, headers, code, message) in [
        ("web", "exec", "", 400, "Upgrade request required"),
        ("web", "exec?container=x", WEBSOCKET, 400, "container x is not valid for pod web"),
        ("web", "portforward", WEBSOCKET, 501, "none of its containers runs, so there is no port to forward to"),
        ("pending", "attach", WEBSOCKET, 400, "pod pending does not have a host assigned"),
        ("elsewhere", "exec", WEBSOCKET, 501, "real is not simulated, and requests are not passed on to kubelets"),
        ("gone", "exec", WEBSOCKET, 404, "pods \\\"gone\\\" not found"),
    ] {
        let headers = format!("Authorization: Bearer t\r\nConnection: close\r\n{headers}");
        let (head, mut stream) = world.ask(&format!("GET {PODS}/{pod}/{query}"), &headers).await;
        let mut body = Vec::new();
        let _ = stream.read_to_end(&mut body).await;
        let body = String::from_utf8(body).unwrap();
        assert!(head.starts_with(&format!("HTTP/1.1 {code}")), "{pod} {query}: {head}{body}");
        assert!(body.contains(message), "{pod} {query}: {body}");
    }
    let offered = format!("{WEBSOCKET}Sec-WebSocket-Protocol: v9\r\n");
    let headers = format!("Authorization: Bearer t\r\n{offered}");
    let (head, _) = world.ask(&format!("GET {PODS}/web/exec"), &headers).await;
    assert!(head.starts_with("HTTP/1.1 403"), "{head}");
}

#[tokio::test]
async fn a_session_needs_the_right_to_create_it_whatever_the_method() {
    let world = world().await;
    world.node("n1", json!({"bayplan.dev/simulated": "true"})).await;
    world.running("web", "n1").await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let rule = |verb: &str| json!([{"apiGroups": [""], "resources": ["pods/exec"], "verbs": [verb]}]);
    world.admin.create(roles, json!({"metadata": {"name": "x"}, "rules": rule("get")})).await;
    let subject = json!([{"kind": "User", "name": "reader", "apiGroup": "rbac.authorization.k8s.io"}]);
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "x"});
    world.admin.create(bindings, json!({"metadata": {"name": "x"}, "subjects": subject, "roleRef": role})).await;
    let headers = format!("Authorization: Bearer r\r\n{WEBSOCKET}");
    let path = format!("GET {PODS}/web/exec");
    assert!(world.ask(&path, &headers).await.0.starts_with("HTTP/1.1 403"));
    let role = json!({"metadata": {"name": "x"}, "rules": rule("create")});
    assert_eq!(world.admin.json("PUT", &format!("{roles}/x"), role).await.0, 200);
    assert!(world.ask(&path, &headers).await.0.starts_with("HTTP/1.1 403"), "GET needs its own right, too");
    let role = json!({"metadata": {"name": "x"}, "rules": rule("*")});
    assert_eq!(world.admin.json("PUT", &format!("{roles}/x"), role).await.0, 200);
    assert!(world.ask(&path, &headers).await.0.starts_with("HTTP/1.1 101"));
}

async fn log(client: &Client, path: &str) -> (u16, String) {
    let (code, body) = support::bytes(client.send("GET", path, "", Bytes::new()).await).await;
    (code, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn logs_are_printed_and_followed() {
    let world = world().await;
    world.node("n1", json!({"bayplan.dev/simulated": "true"})).await;
    world.running("web", "n1").await;
    world.admin.create(PODS, pod("pending", "")).await;
    world.admin.create(PODS, pod("creating", "n1")).await;
    let path = format!("{PODS}/web/log");
    let (code, text) = log(&world.admin, &format!("{path}?tailLines=2&timestamps=true")).await;
    assert_eq!(code, 200);
    assert!(text.starts_with("2026-01-01T00:00:00.000000000Z container c of pod default/web started on"), "{text}");
    assert_eq!(log(&world.admin, &format!("{PODS}/pending/log")).await, (204, String::new()));
    for (path, code, message) in [
        (format!("{PODS}/creating/log"), 400, "container \\\"c\\\" in pod \\\"creating\\\" is not available"),
        (format!("{path}?previous=true"), 400, "previous terminated container \\\"c\\\" in pod \\\"web\\\" not found"),
        (format!("{path}?tailLines=-1"), 422, "PodLogOptions \\\"web\\\" is invalid: tailLines: Invalid value: -1"),
        (format!("{PODS}/gone/log"), 404, "pods \\\"gone\\\" not found"),
        (format!("{path}/more"), 404, "the server could not find the requested resource"),
        (format!("{PODS}/web/proxy/a/b"), 503, "pod web is on the simulated node n1: nothing listens there"),
        (format!("{PODS}/creating/proxy"), 400, "address not allowed"),
        ("/api/v1/nodes/n1/proxy/pods".to_owned(), 503, "node n1 is simulated: nothing listens there"),
        ("/api/v1/namespaces/default/services/kubernetes:1/proxy".to_owned(), 503, "no service port 1 found"),
        ("/api/v1/nodes/none/proxy?dryRun=All".to_owned(), 400, "dryRun is not supported"),
        ("/api/v1/namespaces/default/services/none/proxy".to_owned(), 404, "services \\\"none\\\" not found"),
    ] {
        let (found, text) = log(&world.admin, &path).await;
        assert_eq!(found, code, "{path}: {text}");
        assert!(text.contains(message), "{path}: {text}");
    }
    assert_eq!(log(&world.admin, &format!("{path}?limitBytes=9")).await, (200, "container".to_owned()));

    let request = Request::get(format!("{path}?follow=true&tailLines=0")).body(Full::default()).unwrap();
    let response = world.admin.call(request).await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()["content-type"]),
        (200, &"text/plain".parse().unwrap())
    );
    let ended = json!({"status": {"containerStatuses": [{
        "name": "c", "containerID": "bayplan://u/c/0", "image": "nginx", "imageID": "", "ready": false,
        "restartCount": 0, "state": {"terminated": {
            "exitCode": 3, "reason": "Error", "startedAt": "2026-01-01T00:00:00Z",
            "finishedAt": "2026-01-01T00:01:00Z", "containerID": "bayplan://u/c/0",
        }},
    }]}});
    world.admin.patch(&format!("{PODS}/web/status"), "merge", ended).await;
    let (_, text) = support::bytes(response).await;
    assert_eq!(text, "container c ended with exit code 3 (Error)\n");
}
