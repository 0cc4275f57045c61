//! Extenders over real HTTP and TLS on the loopback, and a scheduler that asks one.

#![allow(clippy::unwrap_used)] // Helpers of tests, not the product.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bayplan_client::Body;
use bayplan_client::Client;
use bayplan_model::node::Node;
use bayplan_model::pod::Pod;
use bayplan_runner::extender::HttpExtender;
use bayplan_runner::scheduler::{SchedulerConfig, run_scheduler};
use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::extender::{Extender, HostPriority, MetaVictims, PassedNodes};
use bayplan_scheduler::{Candidate, NodeInfo, PodInfo};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// A certificate and its key, as PEM.
struct Identity {
    certificate: String,
    key: String,
}

/// A CA and what it signed.
struct Pki {
    ca: String,
    server: Identity,
    client: Identity,
}

impl Pki {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::from_ca_cert_pem(&ca, key).unwrap();
        let signed = |name: &str| {
            let key = KeyPair::generate().unwrap();
            let certificate = CertificateParams::new([name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
            Identity { certificate: certificate.pem(), key: key.serialize_pem() }
        };
        Pki { server: signed("extender.example"), client: signed("scheduler"), ca }
    }

    /// Shows the server's certificate and wants the client's.
    fn acceptor(&self) -> tokio_rustls::TlsAcceptor {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let certificate = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate(&self.ca)).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
        let key = PrivateKeyDer::from_pem_slice(self.server.key.as_bytes()).unwrap();
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate(&self.server.certificate)], key)
            .unwrap();
        Arc::new(config).into()
    }
}

/// What a service answers: a status and a text, or nothing ever.
type Answer = fn(&str) -> Option<(u16, String)>;

/// A service on the loopback, and what it was asked.
struct Service {
    address: String,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Service {
    async fn start(answer: Answer, tls: Option<tokio_rustls::TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked: Arc<Mutex<Vec<(String, Value)>>> = Arc::default();
        let seen = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (seen, tls) = (Arc::clone(&seen), tls.clone());
                tokio::spawn(async move {
                    let service = service_fn(move |request| reply(request, answer, Arc::clone(&seen)));
                    let server = hyper::server::conn::http1::Builder::new();
                    // A client that goes away, or is turned away, is no concern of the service.
                    match tls {
                        None => drop(server.serve_connection(TokioIo::new(stream), service).await),
                        Some(tls) => {
                            let Ok(stream) = tls.accept(stream).await else { return };
                            drop(server.serve_connection(TokioIo::new(stream), service).await);
                        }
                    }
                });
            }
        });
        Service { address, asked }
    }

    /// An extender under `/sched` of this service.
    fn extender(&self, more: Value) -> HttpExtender {
        extender(&format!("http://{}/sched/", self.address), more).unwrap()
    }

    fn asked(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

async fn reply(
    request: Request<Incoming>,
    answer: Answer,
    seen: Arc<Mutex<Vec<(String, Value)>>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    assert_eq!(
        (request.method().as_str(), &request.headers()["content-type"]),
        ("POST", &"application/json".parse().unwrap())
    );
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    seen.lock().unwrap().push((path.clone(), serde_json::from_slice(&body).unwrap()));
    match answer(&path) {
        Some((status, text)) => Ok(Response::builder().status(status).body(Full::from(text)).unwrap()),
        None => std::future::pending().await,
    }
}

fn extender(url: &str, more: Value) -> Result<HttpExtender, String> {
    let mut config = json!({
        "urlPrefix": url, "filterVerb": "filter", "prioritizeVerb": "prioritize", "weight": 1, "preemptVerb": "preempt",
        "bindVerb": "bind",
    });
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    HttpExtender::new(serde_json::from_value(config).unwrap()).map_err(|error| error.to_string())
}

fn whole_pod(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "d", "uid": format!("uid-{name}")},
        "spec": {"containers": [{"name": "c", "env": [{"name": "ONLY", "value": "in the manifest"}]}]},
    })
}

fn pod(name: &str) -> PodInfo {
    let manifest = whole_pod(name);
    let mut pod: Pod = serde_json::from_value(manifest.clone()).unwrap();
    pod.manifest = Some(manifest.to_string().into());
    PodInfo::new(Arc::new(pod))
}

fn whole_node(name: &str) -> Value {
    json!({"metadata": {"name": name}, "status": {"nodeInfo": {"kernelVersion": "6.1"}}})
}

fn nodes() -> Vec<NodeInfo> {
    let node = |name: &&str| {
        let manifest = whole_node(name);
        let mut node: Node = serde_json::from_value(manifest.clone()).unwrap();
        node.manifest = Some(manifest.to_string().into());
        NodeInfo::of(Arc::new(node))
    };
    ["a", "b"].iter().map(node).collect()
}

fn ok(answer: Value) -> Option<(u16, String)> {
    Some((200, answer.to_string()))
}

#[tokio::test(flavor = "multi_thread")]
async fn whole_nodes_are_sent_and_come_back_to_be_filtered() {
    let service = Service::start(
        |_| {
            ok(json!({
                "Nodes": {"items": [{"metadata": {"name": "b", "labels": {"new": "label"}}, "spec": {"x": 1}}]},
                "FailedNodes": {"a": "full"}, "FailedAndUnresolvableNodes": {"c": "broken"}, "Error": "",
            }))
        },
        None,
    )
    .await;
    let (nodes, extender) = (nodes(), service.extender(json!({})));
    let answer = extender.filter(&pod("p"), &nodes.iter().collect::<Vec<_>>()).unwrap();
    let PassedNodes::Nodes(passed) = answer.passed else { panic!("whole nodes") };
    assert_eq!(passed[0].metadata.labels.get("new").map(String::as_str), Some("label"));
    let kept: Value = serde_json::from_str(passed[0].manifest.as_deref().unwrap()).unwrap();
    assert_eq!(kept["spec"]["x"], 1, "the next extender sees what this one answered");
    assert_eq!((&answer.failed["a"], &answer.failed_and_unresolvable["c"]), (&"full".into(), &"broken".into()));
    let list = json!({"metadata": {}, "items": [whole_node("a"), whole_node("b")]});
    let sent = json!({"Pod": whole_pod("p"), "Nodes": list, "NodeNames": null});
    assert_eq!(service.asked(), [("/sched/filter".to_owned(), sent)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_enough_for_one_that_knows_the_nodes() {
    // In Go's lax reading the case of names is free and null is nothing.
    let service = Service::start(|_| ok(json!({"nodenames": ["b"], "nodes": null, "failedNodes": null})), None).await;
    let (nodes, nodes_known) = (nodes(), json!({"nodeCacheCapable": true}));
    let shown: Vec<&NodeInfo> = nodes.iter().collect();
    let answer = service.extender(nodes_known).filter(&pod("p"), &shown).unwrap();
    assert!(matches!(answer.passed, PassedNodes::Names(names) if names == ["b"]));
    let sent = json!({"Pod": whole_pod("p"), "Nodes": null, "NodeNames": ["a", "b"]});
    assert_eq!(service.asked(), [("/sched/filter".to_owned(), sent)]);
    // One that does not know them answers with nodes, and names alone let nothing pass.
    let answer = service.extender(json!({})).filter(&pod("p"), &shown).unwrap();
    assert!(matches!(answer.passed, PassedNodes::Names(names) if names.is_empty()));
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_scored_and_pods_bound() {
    let service = Service::start(
        |path| match path {
            "/sched/prioritize" => ok(json!([{"Host": "a", "Score": 3}, {"host": "b", "score": 10}])),
            _ => ok(json!({"Error": "the API server said no"})),
        },
        None,
    )
    .await;
    let (nodes, extender) = (nodes(), service.extender(json!({"nodeCacheCapable": true})));
    let scores = extender.prioritize(&pod("p"), &nodes.iter().collect::<Vec<_>>()).unwrap();
    let priority = |host: &str, score| HostPriority { host: host.into(), score };
    assert_eq!(scores, [priority("a", 3), priority("b", 10)]);
    let failed = extender.bind(&pod("p"), "a").await.unwrap_err();
    assert_eq!(failed.to_string(), "the API server said no");
    let sent = json!({"PodName": "p", "PodNamespace": "d", "PodUID": "uid-p", "Node": "a"});
    assert_eq!(service.asked()[1], ("/sched/bind".to_owned(), sent));
    let good = Service::start(|_| ok(json!({})), None).await;
    good.extender(json!({})).bind(&pod("p"), "a").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn victims_are_shown_in_full_or_by_uid_and_named_by_uid() {
    let service = Service::start(
        |_| ok(json!({"NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "uid-v"}], "NumPDBViolations": 1}, "b": null}})),
        None,
    )
    .await;
    // Not confirmed by the API server yet, so its manifest does not name the node.
    let victim = Arc::new(PodInfo::new(pod("v").pod_on("a")));
    let candidates = [Candidate { node: "a".into(), victims: vec![victim], pdb_violations: 1 }];
    let mut on_node = whole_pod("v");
    on_node["spec"]["nodeName"] = "a".into();
    for (cached, whole, meta) in [
        (false, json!({"a": {"Pods": [on_node], "NumPDBViolations": 1}}), Value::Null),
        (true, Value::Null, json!({"a": {"Pods": [{"UID": "uid-v"}], "NumPDBViolations": 1}})),
    ] {
        let extender = service.extender(json!({"nodeCacheCapable": cached}));
        let answer = extender.process_preemption(&pod("p"), &candidates).unwrap();
        let named = MetaVictims { uids: vec!["uid-v".into()], pdb_violations: 1 };
        assert_eq!(answer, BTreeMap::from([("a".to_owned(), named), ("b".to_owned(), MetaVictims::default())]));
        let sent = json!({"Pod": whole_pod("p"), "NodeNameToVictims": whole, "NodeNameToMetaVictims": meta});
        assert_eq!(service.asked(), [("/sched/preempt".to_owned(), sent)]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_are_told_in_upstreams_words() {
    let cases: [(Answer, &str); 6] = [
        (|_| Some((500, "oops".into())), "failed filter with extender at URL {url}, code 500"),
        (|_| Some((204, String::new())), "failed filter with extender at URL {url}, code 204"),
        (|_| Some((200, "<html>".into())), "decoding the extender's answer: expected value at line 1 column 1"),
        (
            |_| Some((200, String::new())),
            "decoding the extender's answer: EOF while parsing a value at line 1 column 0",
        ),
        (|_| ok(json!({"Error": "no such pod"})), "no such pod"),
        (|_| None, "Post \"{url}\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)"),
    ];
    let nodes = nodes();
    let shown: Vec<&NodeInfo> = nodes.iter().collect();
    for (answer, expected) in cases {
        let service = Service::start(answer, None).await;
        let extender = service.extender(json!({"httpTimeout": "150ms"}));
        let error = extender.filter(&pod("p"), &shown).unwrap_err().to_string();
        assert_eq!(error, expected.replace("{url}", &format!("http://{}/sched/filter", service.address)));
    }
    // Nobody listens there any more.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = extender(&url, json!({})).unwrap().filter(&pod("p"), &shown).unwrap_err().to_string();
    assert!(error.starts_with(&format!("Post \"{url}/filter\": ")) && error.contains("refused"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_of_the_wrong_shape_are_errors_and_strange_ones_are_read_as_go_reads_them() {
    let nodes = nodes();
    let shown: Vec<&NodeInfo> = nodes.iter().collect();
    let cases: [(Answer, bool); 7] = [
        (|_| ok(json!({"Nodes": 1})), false),
        (|_| ok(json!({"FailedNodes": []})), false),
        (|_| ok(json!({"Error": 1})), false),
        (|_| ok(json!([1])), false),
        (|_| ok(json!({"Nodes": {"items": [7]}})), false),
        (|_| Some((200, "null".into())), true),
        (|_| Some((200, "{} and then some".into())), true),
    ];
    for (at, (answer, fine)) in cases.into_iter().enumerate() {
        let service = Service::start(answer, None).await;
        let result = service.extender(json!({})).filter(&pod("p"), &shown);
        assert_eq!(result.is_ok(), fine, "case {at}: {result:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn both_sides_prove_who_they_are_over_tls() {
    let pki = Pki::new();
    let service = Service::start(|_| ok(json!({})), Some(pki.acceptor())).await;
    let url = format!("https://{}/sched", service.address);
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let data = |content: &str| BASE64_STANDARD.encode(content);
    let known = json!({"certData": data(&pki.client.certificate), "keyData": data(&pki.client.key)});
    let with = |more: Value| {
        let mut tls = known.clone();
        tls.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"enableHTTPS": true, "tlsConfig": tls})
    };
    let by_file = json!({
        "caFile": file("ca", &pki.ca), "serverName": "extender.example",
        "certFile": file("cert", &pki.client.certificate), "keyFile": file("key", &pki.client.key),
    });
    for (what, more, fine) in [
        ("certificates in files", json!({"tlsConfig": by_file}), true),
        ("and as data", with(json!({"caData": data(&pki.ca), "serverName": "extender.example"})), true),
        (
            "data beats files",
            with(json!({"caData": data(&pki.ca), "caFile": "/none", "serverName": "extender.example"})),
            true,
        ),
        ("no CA with enableHTTPS trusts anybody", with(json!({})), true),
        ("insecure trusts anybody", json!({"tlsConfig": with(json!({"insecure": true}))["tlsConfig"]}), true),
        ("the name must be right", with(json!({"caData": data(&pki.ca), "serverName": "other.example"})), false),
        ("so must the CA", with(json!({"caData": data(&Pki::new().ca), "serverName": "extender.example"})), false),
        ("the service wants to know us", json!({"enableHTTPS": true}), false),
    ] {
        let result = extender(&url, more).unwrap().bind(&pod("p"), "a").await;
        assert_eq!(result.is_ok(), fine, "{what}: {result:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn configurations_that_cannot_work_are_refused() {
    let url = "https://e.example";
    let ca = BASE64_STANDARD.encode(Pki::new().ca);
    for (url, more, expected) in [
        ("localhost:8080", json!({}), "not a URL with scheme http or https"),
        ("", json!({}), "not a URL with scheme http or https"),
        (
            url,
            json!({"tlsConfig": {"insecure": true, "caData": ca}}),
            "specifying a root certificates file with the insecure flag is not allowed",
        ),
        (url, json!({"tlsConfig": {"caData": "%"}}), "tlsConfig.caData: "),
        (url, json!({"tlsConfig": {"caData": "AAAA"}}), "unable to load root certificates"),
        (url, json!({"tlsConfig": {"caFile": "/does/not/exist"}}), "/does/not/exist: "),
        (url, json!({"tlsConfig": {"certData": "AAAA", "keyData": "AAAA"}}), ""),
    ] {
        let error = extender(url, more).err().unwrap();
        assert!(error.starts_with(&format!("couldn't build extenders: {url}: {expected}")), "{error}");
    }
}

#[tokio::test]
async fn a_runtime_of_one_thread_is_refused_rather_than_stopped() {
    assert!(extender("http://e", json!({})).err().unwrap().ends_with("extenders need a runtime of several threads"));
}

/// An API server with two nodes and one pod, which never change.
async fn api(request: Request<Body>) -> Result<Response<Body>, Infallible> {
    let uri = request.uri().clone();
    let asks_for = |what: &str| uri.query().is_some_and(|query| query.contains(what));
    if asks_for("watch=") && !asks_for("sendInitialEvents") {
        std::future::pending::<()>().await;
    }
    let list = |items: Vec<Value>| (200, json!({"metadata": {"resourceVersion": "5"}, "items": items}));
    let (status, answer): (u16, Value) = match uri.path() {
        // Objects are listed, not streamed.
        _ if asks_for("sendInitialEvents") => {
            (422, json!({"kind": "Status", "status": "Failure", "reason": "Invalid", "code": 422}))
        }
        "/api/v1/nodes" => list(
            ["a", "b"]
                .map(|name| {
                    let mut node = whole_node(name);
                    node["status"]["allocatable"] = json!({"cpu": "4", "pods": "9"});
                    node
                })
                .into(),
        ),
        "/api/v1/pods" => {
            let mut pod = whole_pod("p");
            pod["spec"]["schedulerName"] = "default-scheduler".into();
            pod["metadata"]["managedFields"] = json!([{"manager": "kubectl"}]);
            list(vec![pod])
        }
        _ => list(Vec::new()),
    };
    Ok(Response::builder().status(status).body(Body::from(answer.to_string().into_bytes())).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scheduler_asks_its_extender_where_a_pod_goes_and_lets_it_bind() {
    let service = Service::start(
        |path| match path {
            "/filter" => ok(json!({"Nodes": {"items": [{"metadata": {"name": "b"}}]}})),
            _ => ok(json!({})),
        },
        None,
    )
    .await;
    let text = format!(
        "
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
extenders:
- urlPrefix: http://{}
  filterVerb: filter
  bindVerb: bind
",
        service.address
    );
    let configuration = Configuration::from_yaml(&text).unwrap();
    let (stop, stopped) = watch::channel(false);
    let client = Client::from_service(tower::service_fn(api));
    let config = SchedulerConfig { configuration, ..SchedulerConfig::default() };
    let running = tokio::spawn(run_scheduler(client, config, stopped));
    let asked = tokio::time::timeout(Duration::from_secs(30), async {
        while service.asked.lock().unwrap().len() < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        service.asked()
    });
    let asked = asked.await.unwrap_or_else(|_| panic!("the extender was asked only: {:?}", service.asked()));
    let pod = &asked[0].1["Pod"];
    assert_eq!(pod["spec"]["containers"][0]["env"][0]["value"], "in the manifest");
    assert_eq!(pod["metadata"].get("managedFields"), None);
    assert_eq!(asked[0].1["Nodes"]["items"][0]["status"]["nodeInfo"]["kernelVersion"], "6.1");
    let bound = json!({"PodName": "p", "PodNamespace": "d", "PodUID": "uid-p", "Node": "b"});
    assert_eq!(asked[1], ("/bind".to_owned(), bound));
    stop.send(true).unwrap();
    running.await.unwrap().unwrap();
}
