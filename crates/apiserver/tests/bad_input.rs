//! Bad requests over a real socket: each gets upstream's code and reason, and the server keeps serving.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bayplan_apiserver::certificates::{Identity, Names, Pki, tls};
use bayplan_apiserver::{ApiServer, Config};
use bayplan_store::LogStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
/// The largest body, in bytes.
const BODY_MAX: usize = 3 * 1024 * 1024;

/// A listening server, its certificates, and its port.
struct Served {
    server: ApiServer,
    pki: Pki,
    port: u16,
}

async fn serve(pki: Pki, change: impl FnOnce(&mut Config)) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut config = Config::new(pki.service_account_key.clone(), address);
    config.plugins.service_account = false;
    change(&mut config);
    let server = ApiServer::new(config, Arc::new(LogStore::in_memory().unwrap())).await.unwrap();
    let (serving, tls) = (server.clone(), tls::server_config(&pki).unwrap());
    tokio::spawn(async move { serving.serve(listener, tls).await });
    Served { server, pki, port: address.port() }
}

fn pki() -> Pki {
    Pki::in_memory(&Names::standard(None, [10, 96, 0, 1].into()), jiff::Timestamp::now()).unwrap()
}

impl Served {
    async fn connect(&self, client: Option<&Identity>) -> std::io::Result<TlsStream<TcpStream>> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(tls::roots(&self.pki).unwrap());
        let config = match client {
            Some(identity) => {
                let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap();
                let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
                builder.with_client_auth_cert(vec![certificate], key).unwrap()
            }
            None => builder.with_no_client_auth(),
        };
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    /// Sends bytes as they are and reads until the server closes.
    async fn raw(&self, client: Option<&Identity>, bytes: &[u8]) -> std::io::Result<(u16, String, Value)> {
        let mut stream = self.connect(client).await?;
        // The server may answer and close before it has read everything.
        let _ = stream.write_all(bytes).await;
        let _ = stream.flush().await;
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer).await;
        let text = String::from_utf8_lossy(&answer);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            return Err(read.err().unwrap_or_else(|| std::io::ErrorKind::UnexpectedEof.into()));
        };
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        Ok((code, head.to_lowercase(), serde_json::from_str(body).unwrap_or_else(|_| json!(body))))
    }

    async fn send(&self, client: Option<&Identity>, headers: &str, case: &Case) -> (u16, String, Value) {
        let Case { method, path, content_type, body, .. } = case;
        let mut request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}Content-Length: {}\r\n",
            body.len()
        );
        if !content_type.is_empty() {
            request.push_str(&format!("Content-Type: {content_type}\r\n"));
        }
        let mut bytes = (request + "\r\n").into_bytes();
        bytes.extend_from_slice(body);
        self.raw(client, &bytes).await.unwrap_or_else(|error| panic!("{}: {error}", case.title))
    }

    async fn keeps_serving(&self, after: &str) {
        let good = case("a good request", "GET", "/api/v1/namespaces/default", "", "", 200, "");
        let (code, _, body) = self.send(Some(&self.pki.admin), "", &good).await;
        assert_eq!(code, 200, "after {after}: {body}");
    }
}

struct Case {
    title: &'static str,
    method: &'static str,
    path: String,
    content_type: &'static str,
    body: Vec<u8>,
    code: u16,
    reason: &'static str,
}

fn case(
    title: &'static str,
    method: &'static str,
    path: impl Into<String>,
    content_type: &'static str,
    body: impl Into<Vec<u8>>,
    code: u16,
    reason: &'static str,
) -> Case {
    Case { title, method, path: path.into(), content_type, body: body.into(), code, reason }
}

fn post(
    title: &'static str,
    content_type: &'static str,
    body: impl Into<Vec<u8>>,
    code: u16,
    why: &'static str,
) -> Case {
    case(title, "POST", MAPS, content_type, body, code, why)
}

fn get(title: &'static str, path: impl Into<String>, code: u16, reason: &'static str) -> Case {
    case(title, "GET", path, "", "", code, reason)
}

fn patch(
    title: &'static str,
    content_type: &'static str,
    body: impl Into<Vec<u8>>,
    code: u16,
    why: &'static str,
) -> Case {
    case(title, "PATCH", format!("{DEPLOYMENTS}/d"), content_type, body, code, why)
}

fn delete(title: &'static str, content_type: &'static str, body: &str, code: u16, reason: &'static str) -> Case {
    case(title, "DELETE", format!("{MAPS}/m"), content_type, body, code, reason)
}

fn map(metadata: Value) -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}).to_string()
}

fn nested(levels: usize) -> String {
    format!("{{\"data\":{}1{}}}", "{\"a\":".repeat(levels), "}".repeat(levels))
}

/// A document of a few hundred bytes that expands to 10^12 elements.
fn growing_yaml() -> String {
    let line = |level: usize| format!("l{level}: &l{level} [{}]\n", vec![format!("*l{}", level - 1); 10].join(","));
    (1..=12).fold("l0: &l0 x\n".to_owned(), |text, level| text + &line(level))
}

/// Bodies that cannot be decoded.
fn unreadable_bodies() -> Vec<Case> {
    let mut too_large = br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"big"},"data":{"a":""#.to_vec();
    too_large.resize(BODY_MAX + 1, b'a');
    let mut envelope = b"k8s\0".to_vec();
    envelope.extend_from_slice(&[0x0a, 0xff, 0xff, 0xff]);
    let mut endless = b"k8s\0".to_vec();
    endless.extend_from_slice(&[0xff; 40]);
    let mut not_utf8 = br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"#.to_vec();
    not_utf8.extend_from_slice(b"\xff\xfe\"}}");
    vec![
        post("cut off JSON", JSON, r#"{"apiVersion":"#, 400, "BadRequest"),
        post("malformed JSON", JSON, r#"{"apiVersion":"v1",,}"#, 400, "BadRequest"),
        post("a list for an object", JSON, "[]", 400, "BadRequest"),
        post("a number for an object", JSON, "7", 400, "BadRequest"),
        post("nothing", JSON, "", 400, "BadRequest"),
        post("text behind the object", JSON, map(json!({"name": "a"})) + "x", 400, "BadRequest"),
        post("malformed YAML", YAML, "a: [b", 400, "BadRequest"),
        post("YAML that grows", YAML, growing_yaml(), 400, "BadRequest"),
        post("another content type", "text/plain", "a: b", 415, "UnsupportedMediaType"),
        post("a content type that is none", ";;;", "{}", 415, "UnsupportedMediaType"),
        post("protobuf without its first bytes", PROTOBUF, "zzz", 400, "BadRequest"),
        post("protobuf that ends early", PROTOBUF, envelope, 400, "BadRequest"),
        post("protobuf with endless numbers", PROTOBUF, endless, 400, "BadRequest"),
        post("protobuf of nothing", PROTOBUF, "k8s\0", 400, "BadRequest"),
        // Go's decoder turns broken text into replacement characters, which no name may have.
        post("JSON that is not UTF-8", JSON, not_utf8, 422, "Invalid"),
        post("a body above the limit", JSON, too_large, 413, "RequestEntityTooLarge"),
        post("100,000 levels", JSON, nested(100_000), 400, "BadRequest"),
        post("100,000 levels of lists", JSON, "[".repeat(100_000), 400, "BadRequest"),
        post("100,000 levels of YAML", YAML, "[".repeat(100_000), 400, "BadRequest"),
    ]
}

/// Bodies that are decoded and then refused.
fn wrong_objects() -> Vec<Case> {
    vec![
        post("wrong types", JSON, r#"{"metadata":{"name":7}}"#, 400, "BadRequest"),
        post("another namespace", JSON, map(json!({"name": "a", "namespace": "other"})), 400, "BadRequest"),
        post("another kind", JSON, r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}"#, 400, "BadRequest"),
        post("an unknown kind", JSON, r#"{"apiVersion":"v1","kind":"Bogus"}"#, 400, "BadRequest"),
        post("another version", JSON, r#"{"apiVersion":"v9","kind":"ConfigMap"}"#, 400, "BadRequest"),
        post("an invalid name", JSON, map(json!({"name": "No_Name"})), 422, "Invalid"),
        post("no name", JSON, map(json!({})), 422, "Invalid"),
        post("a name too long", JSON, map(json!({"name": "a".repeat(254)})), 422, "Invalid"),
        post("invalid labels", JSON, map(json!({"name": "a", "labels": {"-": "?"}})), 422, "Invalid"),
        case("a resource version", "POST", MAPS, JSON, map(json!({"name": "a", "resourceVersion": "5"})), 500, ""),
        case(
            "an absent namespace",
            "POST",
            "/api/v1/namespaces/none/configmaps",
            JSON,
            map(json!({"name": "a"})),
            404,
            "NotFound",
        ),
        case("a pod of nothing", "POST", PODS, JSON, r#"{"metadata":{"name":"p"}}"#, 422, "Invalid"),
        case("another name", "PUT", format!("{MAPS}/m"), JSON, map(json!({"name": "n"})), 400, "BadRequest"),
        case("no name", "PUT", format!("{MAPS}/m"), JSON, map(json!({})), 400, "BadRequest"),
        case(
            "a stale version",
            "PUT",
            format!("{MAPS}/m"),
            JSON,
            map(json!({"name": "m", "resourceVersion": "1"})),
            409,
            "Conflict",
        ),
        case(
            "a strange version",
            "PUT",
            format!("{MAPS}/m"),
            JSON,
            map(json!({"name": "m", "resourceVersion": "x"})),
            500,
            "",
        ),
        case(
            "unknown fields",
            "POST",
            format!("{MAPS}?fieldValidation=Strict"),
            JSON,
            r#"{"bogus":1}"#,
            400,
            "BadRequest",
        ),
        case(
            "unknown validation",
            "POST",
            format!("{MAPS}?fieldValidation=Some"),
            JSON,
            map(json!({"name": "a"})),
            422,
            "Invalid",
        ),
        case("unknown dry run", "POST", format!("{MAPS}?dryRun=Some"), JSON, map(json!({"name": "a"})), 422, "Invalid"),
    ]
}

fn paths() -> Vec<Case> {
    vec![
        get("an unknown group", "/apis/nope.k8s.io/v1/things", 404, ""),
        get("an unknown version", "/apis/apps/v9", 404, "NotFound"),
        get("an unknown resource", "/api/v1/namespaces/default/nope", 404, "NotFound"),
        get("an unknown subresource", format!("{PODS}/x/nope"), 404, "NotFound"),
        get("a subresource the kind lacks", format!("{MAPS}/m/status"), 404, "NotFound"),
        get("an unknown path", "/nope", 404, ""),
        get("an empty segment", "/api/v1//pods", 404, "NotFound"),
        get("a cluster-scoped kind in a namespace", "/api/v1/namespaces/default/nodes", 404, "NotFound"),
        get("too many segments", "/api/v1/nodes/a/b/c", 404, "NotFound"),
        get("a name that is a path", format!("{PODS}/%2e%2e"), 400, "BadRequest"),
        get("a name with a slash", format!("{PODS}/a%2fb"), 400, "BadRequest"),
        get("an impossible name", format!("{PODS}/Bad_Name"), 404, "NotFound"),
        get("an absent object", format!("{PODS}/none"), 404, "NotFound"),
        case("POST to an object", "POST", format!("{MAPS}/m"), JSON, "{}", 405, "MethodNotAllowed"),
        case("PUT to a collection", "PUT", MAPS, JSON, "{}", 405, "MethodNotAllowed"),
        case("PATCH of a collection", "PATCH", MAPS, MERGE_PATCH, "{}", 405, "MethodNotAllowed"),
        case("DELETE everywhere", "DELETE", "/api/v1/pods", "", "", 405, "MethodNotAllowed"),
        case("a made-up method", "FOO", format!("{MAPS}/m"), "", "", 405, "MethodNotAllowed"),
        case("OPTIONS", "OPTIONS", "/api/v1/namespaces/default", "", "", 405, "MethodNotAllowed"),
        case("POST to the version", "POST", "/version", "", "", 405, "MethodNotAllowed"),
        case("GET of a binding", "GET", format!("{PODS}/x/binding"), "", "", 405, "MethodNotAllowed"),
        get("a selector without operator", format!("{PODS}?labelSelector=a%20b"), 400, "BadRequest"),
        get("an open set", format!("{PODS}?labelSelector=a%20in%20(b"), 400, "BadRequest"),
        get("an unknown field", format!("{PODS}?fieldSelector=spec.bogus%3D1"), 400, "BadRequest"),
        get("a field selector with two values", format!("{PODS}?fieldSelector=a%3Db%3Dc,,"), 400, "BadRequest"),
        get("a version that is no number", format!("{PODS}?resourceVersion=abc"), 400, "BadRequest"),
        get("an object's version that is no number", format!("{MAPS}/m?resourceVersion=abc"), 500, ""),
        get("a match without version", format!("{PODS}?resourceVersionMatch=Exact"), 422, "Invalid"),
        get("a match unknown", format!("{PODS}?resourceVersion=1&resourceVersionMatch=Sometimes"), 422, "Invalid"),
        get("a limit that is no number", format!("{PODS}?limit=x"), 400, "BadRequest"),
        get("a limit above every number", format!("{PODS}?limit=99999999999999999999"), 400, "BadRequest"),
        get("a continue token that is none", format!("{PODS}?limit=1&continue=bogus"), 400, "BadRequest"),
        get("a timeout that is no number", format!("{PODS}?watch=1&timeoutSeconds=x"), 400, "BadRequest"),
        get("a watch from a strange version", format!("{PODS}?watch=1&resourceVersion=x"), 400, "BadRequest"),
        get("initial events without match", format!("{PODS}?watch=1&sendInitialEvents=true"), 422, "Invalid"),
        get("a duration that is none", format!("{PODS}?timeout=soon"), 400, "BadRequest"),
    ]
}

fn patches() -> Vec<Case> {
    let many: Vec<Value> = vec![json!({"op": "test", "path": "/kind", "value": "Deployment"}); 10_001];
    vec![
        patch("a patch of JSON", JSON, r#"{"a":1}"#, 415, "UnsupportedMediaType"),
        patch("a cut off patch", MERGE_PATCH, "{", 400, "BadRequest"),
        patch("a list as merge patch", MERGE_PATCH, "[]", 400, "BadRequest"),
        patch("an object as JSON patch", JSON_PATCH, "{}", 400, "BadRequest"),
        patch("a number as strategic patch", STRATEGIC_PATCH, "1", 400, "BadRequest"),
        patch("an unknown operation", JSON_PATCH, r#"[{"op":"bogus","path":"/x"}]"#, 422, "Invalid"),
        patch("a path that is not there", JSON_PATCH, r#"[{"op":"remove","path":"/spec/nope/x"}]"#, 422, "Invalid"),
        patch(
            "an index behind the end",
            JSON_PATCH,
            r#"[{"op":"add","path":"/spec/template/spec/containers/9","value":{}}]"#,
            422,
            "Invalid",
        ),
        patch("a failed test", JSON_PATCH, r#"[{"op":"test","path":"/kind","value":"Pod"}]"#, 422, "Invalid"),
        patch("wrong types in a merge patch", MERGE_PATCH, r#"{"spec":{"replicas":"seven"}}"#, 422, "Invalid"),
        patch(
            "wrong types in a JSON patch",
            JSON_PATCH,
            r#"[{"op":"replace","path":"/spec/replicas","value":"seven"}]"#,
            422,
            "Invalid",
        ),
        patch("wrong types in a strategic patch", STRATEGIC_PATCH, r#"{"spec":{"replicas":"seven"}}"#, 422, "Invalid"),
        patch(
            "an element without key",
            STRATEGIC_PATCH,
            r#"{"spec":{"template":{"spec":{"containers":[{"image":"i"}]}}}}"#,
            500,
            "",
        ),
        patch(
            "another name",
            JSON_PATCH,
            r#"[{"op":"replace","path":"/metadata/name","value":"e"}]"#,
            400,
            "BadRequest",
        ),
        patch(
            "a stale version",
            MERGE_PATCH,
            r#"{"metadata":{"resourceVersion":"1"},"spec":{"replicas":3}}"#,
            409,
            "Conflict",
        ),
        patch("another kind", MERGE_PATCH, r#"{"kind":"ReplicaSet"}"#, 422, "Invalid"),
        patch("an invalid result", MERGE_PATCH, r#"{"spec":{"replicas":-4}}"#, 422, "Invalid"),
        patch("too many operations", JSON_PATCH, json!(many).to_string(), 413, "RequestEntityTooLarge"),
        patch("100,000 levels", MERGE_PATCH, nested(100_000), 400, "BadRequest"),
    ]
}

fn deletions() -> Vec<Case> {
    vec![
        delete("cut off options", JSON, "{", 400, "BadRequest"),
        delete("options of wrong types", JSON, r#"{"gracePeriodSeconds":"x"}"#, 400, "BadRequest"),
        delete("options of another kind", JSON, r#"{"apiVersion":"v1","kind":"Pod"}"#, 400, "BadRequest"),
        delete("options as text", "text/plain", "x", 415, "UnsupportedMediaType"),
        delete("an unknown policy", JSON, r#"{"propagationPolicy":"Sideways"}"#, 422, "Invalid"),
        delete("two policies", JSON, r#"{"propagationPolicy":"Orphan","orphanDependents":true}"#, 422, "Invalid"),
        delete("an unknown dry run", JSON, r#"{"dryRun":["Bad"]}"#, 422, "Invalid"),
        delete("another uid", JSON, r#"{"preconditions":{"uid":"1"}}"#, 409, "Conflict"),
        case(
            "a grace that is no number",
            "DELETE",
            format!("{MAPS}/m?gracePeriodSeconds=x"),
            "",
            "",
            400,
            "BadRequest",
        ),
    ]
}

#[tokio::test]
async fn bad_requests_get_upstreams_answers_and_the_server_keeps_serving() {
    let served = serve(pki(), |_| {}).await;
    let admin = Some(&served.pki.admin);
    let deployment = json!({"metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }});
    for (path, object) in [(MAPS, map(json!({"name": "m"}))), (DEPLOYMENTS, deployment.to_string())] {
        let (code, _, body) = served.send(admin, "", &case("set up", "POST", path, JSON, object, 201, "")).await;
        assert_eq!(code, 201, "{body}");
    }
    let mut wrong = Vec::new();
    for case in [unreadable_bodies(), wrong_objects(), paths(), patches(), deletions()].into_iter().flatten() {
        let (code, _, body) = served.send(admin, "", &case).await;
        let reason = body["reason"].as_str().unwrap_or_default();
        if (code, reason) != (case.code, case.reason) {
            let text: String = body.to_string().chars().take(300).collect();
            wrong.push(format!("{}: expected {} {:?}, got {code} {text}", case.title, case.code, case.reason));
        }
        served.keeps_serving(case.title).await;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    served.server.shutdown().await;
}

#[tokio::test]
async fn broken_http_does_not_affect_other_clients() {
    let served = serve(pki(), |_| {}).await;
    let admin = Some(&served.pki.admin);
    let head = format!("POST {MAPS} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: {JSON}\r\n");
    // Chunks above the limit.
    let mut chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
    for size in [BODY_MAX / 2, BODY_MAX / 2, 1] {
        chunked.extend_from_slice(format!("{size:x}\r\n").as_bytes());
        chunked.resize(chunked.len() + size, b' ');
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    let (code, _, body) = served.raw(admin, &chunked).await.unwrap();
    assert_eq!((code, &body["reason"]), (413, &json!("RequestEntityTooLarge")));
    served.keeps_serving("too many chunks").await;

    let refused: [(&str, Vec<u8>); 4] = [
        ("no HTTP", b"\x00\x01\x02\r\n\r\n".to_vec()),
        ("a strange chunk", format!("{head}Transfer-Encoding: chunked\r\n\r\nzz\r\n").into_bytes()),
        ("a header without end", [head.as_bytes(), b"X: ", &vec![b'a'; 1 << 20][..], b"\r\n\r\n"].concat()),
        ("two lengths", format!("{head}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{{}}").into_bytes()),
    ];
    for (title, bytes) in refused {
        if let Ok((code, ..)) = served.raw(admin, &bytes).await {
            assert!((400..500).contains(&code), "{title}: {code}");
        }
        served.keeps_serving(title).await;
    }

    // A client that leaves in the middle of its body creates nothing.
    let object = map(json!({"name": "half"}));
    let mut stream = served.connect(admin).await.unwrap();
    stream.write_all(format!("{head}Content-Length: {}\r\n\r\n{object}", object.len() + 1).as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    let half = get("half", format!("{MAPS}/half"), 404, "NotFound");
    assert_eq!(served.send(admin, "", &half).await.0, 404);
    served.server.shutdown().await;
}

#[tokio::test]
async fn unknown_clients_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let names = Names::standard(None, [10, 96, 0, 1].into());
    let now = jiff::Timestamp::now();
    let long_ago = now - jiff::SignedDuration::from_hours(24 * 800);
    let old = Pki::open(folder.path(), &names, long_ago).unwrap();
    let served = serve(Pki::open(folder.path(), &names, now).unwrap(), |_| {}).await;
    assert_ne!(old.admin.certificate, served.pki.admin.certificate, "old certificates are renewed");

    let list = get("pods", PODS, 403, "Forbidden");
    let (code, _, body) = served.send(None, "", &list).await;
    assert_eq!((code, &body["reason"]), (403, &json!("Forbidden")));
    let message = "pods is forbidden: User \"system:anonymous\" cannot list resource \"pods\" in API group \"\" in the \
                   namespace \"default\"";
    assert_eq!(body["message"], message);
    for token in ["Bearer wrong", "Bearer a.b.c", "Bearer eyJhbGciOiJub25lIn0.e30."] {
        let (code, _, body) = served.send(None, &format!("Authorization: {token}\r\n"), &list).await;
        assert_eq!((code, &body["reason"]), (401, &json!("Unauthorized")), "{token}");
        served.keeps_serving(token).await;
    }
    // The user comes from the certificate, not from the request.
    let scheduler = Some(&served.pki.scheduler);
    let secrets = get("secrets", "/api/v1/secrets", 403, "Forbidden");
    assert_eq!(served.send(scheduler, "", &secrets).await.0, 403);
    let (code, _, body) = served.send(scheduler, "Impersonate-User: kubernetes-admin\r\n", &secrets).await;
    assert_eq!((code, &body["reason"]), (403, &json!("Forbidden")));
    assert_eq!(served.send(Some(&served.pki.admin), "", &secrets).await.0, 200);
    // Certificates of another authority, or of another time, do not pass the handshake.
    for (title, identity) in [("foreign", &pki().admin), ("expired", &old.admin)] {
        let bytes = format!("GET {PODS} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let answered = served.raw(Some(identity), bytes.as_bytes()).await;
        assert!(answered.is_err(), "a certificate that is {title}: {answered:?}");
        served.keeps_serving(title).await;
    }
    let closed = serve(pki(), |config| config.anonymous = false).await;
    assert_eq!(closed.send(None, "", &list).await.0, 401);
    for served in [served, closed] {
        served.server.shutdown().await;
    }
}

#[tokio::test]
async fn a_handler_that_panics_answers_500_and_the_server_keeps_serving() {
    let broken = Arc::new(AtomicBool::new(false));
    let clock = {
        let broken = broken.clone();
        move || {
            assert!(!broken.load(Ordering::SeqCst), "the clock is broken");
            jiff::Timestamp::now()
        }
    };
    let served = serve(pki(), |config| config.clock = Arc::new(clock)).await;
    let admin = Some(&served.pki.admin);
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}).to_string();
    let create = case("a service", "POST", "/api/v1/namespaces/default/services", JSON, service, 500, "");
    broken.store(true, Ordering::SeqCst);
    let (code, _, body) = served.send(admin, "", &create).await;
    assert_eq!((code, &body["kind"]), (500, &json!("Status")), "{body}");
    broken.store(false, Ordering::SeqCst);
    // The panic left nothing locked.
    let (code, _, body) = served.send(admin, "", &create).await;
    assert_eq!(code, 201, "{body}");
    served.server.shutdown().await;
}
