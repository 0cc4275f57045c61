use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use bayplan_apiserver::certificates::{Identity as ClientCertificate, Names, Pki};
use bayplan_apiserver::{ApiServer, Config, User};
use bayplan_client::Client;
use bayplan_metrics::Counter;
use bayplan_model::api::{Api, Request as ApiRequest, Resource, Verb, encode};
use bayplan_store::LogStore;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use tokio::net::TcpStream;

use super::access::{Rules, published_client_authority};
use super::health::CheckedBy;
use super::*;

/// A server with everything on, in front of an API server of its own.
struct World {
    /// Its tasks end with it.
    _api: ApiServer,
    server: OpsServer,
    pki: Pki,
    admin: Client,
    healthy: Arc<AtomicBool>,
    /// How far the server's clock is ahead, in seconds.
    ahead: Arc<AtomicI64>,
}

async fn world() -> World {
    let pki = Pki::in_memory(&Names::standard(None, [10, 96, 0, 1].into()), jiff::Timestamp::now()).unwrap();
    let mut config = Config::new(&pki.service_account_key, "127.0.0.1:6443".parse().unwrap());
    config.bootstrap.client_authority = pki.authority.certificate.clone();
    let api = ApiServer::new(config, Arc::new(LogStore::in_memory().unwrap())).await.unwrap();
    let client =
        |user: &str, groups: &[&str]| Client::from_service(api.service(User::new(user, groups.iter().copied())));
    let own = client("system:kube-scheduler", &["system:authenticated"]);
    let authority = published_client_authority(&own).await.unwrap().unwrap();
    let options = tls::Options { name: "ops".into(), client_authorities: vec![authority], ..Default::default() };
    let healthy = Arc::new(AtomicBool::new(true));
    let test = healthy.clone();
    let health = Health::default().check("leaderElection", CheckedBy::HEALTHZ_AND_READYZ, move || {
        if test.load(Ordering::Relaxed) { Ok(()) } else { Err("stuck".into()) }
    });
    let metrics = Registry::default();
    metrics.one::<Counter>("things_total", "Things.", ()).inc();
    let ahead = Arc::new(AtomicI64::new(0));
    let seconds = ahead.clone();
    let clock = move || Timestamp::from_second(Timestamp::now().as_second() + seconds.load(Ordering::Relaxed)).unwrap();
    let pages = bayplan_metrics::ZPages { component: "kube-scheduler", ..Default::default() };
    let config = json!({"componentconfig": {}});
    let pod_resources = Some(PodResources::new(Arc::new(|| Box::pin(async { Some(vec![Arc::new(pod())]) }))));
    let endpoints = Endpoints { health, metrics, refresh: None, pod_resources, config, pages };
    let server = OpsServer::start(
        TcpListener::bind("127.0.0.1:0").await.unwrap(),
        tls::renewed(options).unwrap(),
        Http2::default(),
        Access::new(Rules::default(), Some(own.clone()), Some(own)).with_clock(Arc::new(clock)),
        endpoints,
    )
    .unwrap();
    let admin = client("kubernetes-admin", &["system:masters"]);
    World { _api: api, server, pki, admin, healthy, ahead }
}

fn pod() -> bayplan_model::pod::Pod {
    let requests = json!({"cpu": "250m"});
    serde_json::from_value(json!({
        "metadata": {"namespace": "d", "name": "p"}, "spec": {"containers": [{"resources": {"requests": requests}}]},
    }))
    .unwrap()
}

#[derive(Debug)]
struct TrustAnybody;

impl rustls::client::danger::ServerCertVerifier for TrustAnybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &rustls::pki_types::ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }
    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }
    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

type Connection = hyper::client::conn::http1::SendRequest<Full<Bytes>>;

/// A client with or without a certificate; it would resume its sessions.
fn tls_client(pair: Option<&ClientCertificate>) -> Arc<rustls::ClientConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(TrustAnybody));
    Arc::new(match pair {
        Some(pair) => {
            let certificate = CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![certificate], key).unwrap()
        }
        None => builder.with_no_client_auth(),
    })
}

async fn send(connection: &mut Connection, method: Method, path: &str, authorization: Option<&[u8]>) -> (u16, String) {
    let mut request = Request::builder().method(method).uri(path).header(header::HOST, "localhost");
    if let Some(value) = authorization {
        request = request.header(header::AUTHORIZATION, HeaderValue::from_bytes(value).unwrap());
    }
    let answer = connection.send_request(request.body(Full::new(Bytes::new())).unwrap()).await.unwrap();
    let code = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (code, String::from_utf8(body.to_vec()).unwrap())
}

impl World {
    /// Asks for a path, with a client certificate, a token, or nothing.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        pair: Option<&ClientCertificate>,
        token: Option<&str>,
    ) -> (u16, String) {
        let (mut connection, _) = self.connect(&tls_client(pair)).await;
        let authorization = token.map(|token| format!("Bearer {token}"));
        send(&mut connection, method, path, authorization.as_deref().map(str::as_bytes)).await
    }

    async fn connect(&self, client: &Arc<rustls::ClientConfig>) -> (Connection, rustls::HandshakeKind) {
        let stream = TcpStream::connect(self.server.address).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(client.clone());
        let stream = connector.connect("localhost".try_into().unwrap(), stream).await.unwrap();
        let kind = stream.get_ref().1.handshake_kind().unwrap();
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        (sender, kind)
    }

    async fn get(&self, path: &str) -> (u16, String) {
        self.ask(Method::GET, path, None, None).await
    }

    async fn create(&self, group: &'static str, plural: &'static str, namespace: &str, object: serde_json::Value) {
        let resource = Resource::new(group, "v1", plural);
        let request = ApiRequest::collection(&resource, namespace, Verb::Create(encode(&object)));
        self.admin.call(request).await.unwrap();
    }
}

#[tokio::test]
async fn anybody_may_ask_after_health_and_hears_when_it_is_bad() {
    let world = world().await;
    assert_eq!(world.get("/healthz").await, (200, "ok".into()));
    assert_eq!(world.get("/livez?verbose").await, (200, "[+]ping ok\nlivez check passed\n".into()));
    world.healthy.store(false, Ordering::Relaxed);
    let bad = "[-]leaderElection failed: reason withheld\nhealthz check failed\n";
    assert_eq!(world.get("/healthz").await, (500, bad.into()));
    assert_eq!(world.get("/livez").await, (200, "ok".into()));
    world.server.stop().await;
}

#[tokio::test]
async fn probes_are_answered_beside_more_silent_clients_than_there_are_connections() {
    let world = world().await;
    let mut silent = Vec::new();
    for number in 0..CONNECTIONS_MAX + 50 {
        silent.push(world.connect(&tls_client(None)).await);
        if number % 50 == 0 {
            assert_eq!(world.get("/healthz").await, (200, "ok".into()));
        }
    }
    assert_eq!(world.get("/healthz").await, (200, "ok".into()));
    drop(silent);
    world.server.stop().await;
}

#[tokio::test]
async fn other_paths_need_a_right_that_the_api_server_vouches_for() {
    let world = world().await;
    let (code, body) = world.get("/metrics").await;
    assert_eq!(code, 403);
    assert!(body.contains(r#"User \"system:anonymous\" cannot get path \"/metrics\""#), "{body}");
    let (code, _) = world.ask(Method::GET, "/metrics", None, Some("nobody's")).await;
    assert_eq!(code, 401);

    let masters = Some(&world.pki.admin);
    let (code, body) = world.ask(Method::GET, "/metrics", masters, None).await;
    assert_eq!((code, body.contains("\nthings_total 1\n")), (200, true), "{body}");
    let (code, body) = world.ask(Method::GET, "/configz", masters, None).await;
    assert_eq!((code, body.as_str()), (200, r#"{"componentconfig":{}}"#));
    let (code, _) = world.ask(Method::DELETE, "/metrics", masters, None).await;
    assert_eq!(code, 200);
    let (_, body) = world.ask(Method::GET, "/metrics", masters, None).await;
    assert!(body.contains("\nthings_total 0\n"), "{body}");
    assert_eq!(world.ask(Method::GET, "/nothing", masters, None).await.0, 404);
    assert_eq!(world.get("/debug/pprof/profile?seconds=5").await.0, 403);
    let (code, why) = world.ask(Method::GET, "/debug/pprof/profile?seconds=5", masters, None).await;
    assert_eq!((code, why.contains("perf record")), (501, true), "{why}");
    assert_eq!(world.get("/metrics/resources").await.0, 403);
    let (code, body) = world.ask(Method::GET, "/metrics/resources", masters, None).await;
    let cpu =
        "{namespace=\"d\",node=\"\",pod=\"p\",priority=\"\",resource=\"cpu\",scheduler=\"\",unit=\"cores\"} 0.25\n";
    assert_eq!((code, body.ends_with(&format!("\nkube_pod_resource_request{cpu}"))), (200, true), "{body}");
    assert_eq!(world.ask(Method::DELETE, "/metrics/resources", masters, None).await.0, 200);
    let (code, body) = world.ask(Method::GET, "/metrics", Some(&world.pki.scheduler), None).await;
    assert_eq!(code, 403, "{body}");
    world.server.stop().await;
}

#[tokio::test]
async fn an_expired_certificate_is_refused_on_an_open_connection_and_is_not_resumed() {
    let world = world().await;
    let client = tls_client(Some(&world.pki.admin));
    let (mut open, _) = world.connect(&client).await;
    let ask = async |connection: &mut Connection, path: &str| send(connection, Method::GET, path, None).await.0;
    assert_eq!(ask(&mut open, "/metrics").await, 200);
    world.ahead.store(366 * 24 * 60 * 60, Ordering::Relaxed);
    assert_eq!(ask(&mut open, "/metrics").await, 401);
    assert_eq!(ask(&mut open, "/healthz").await, 401);
    let (mut again, kind) = world.connect(&client).await;
    assert_eq!(kind, rustls::HandshakeKind::Full);
    assert_eq!(ask(&mut again, "/metrics").await, 401);
    // A token that is no text is an unknown one, not a missing one.
    let (mut nobody, _) = world.connect(&tls_client(None)).await;
    assert_eq!(send(&mut nobody, Method::GET, "/healthz", Some(b"Bearer \xff")).await.0, 401);
    assert_eq!(send(&mut nobody, Method::GET, "/healthz", None).await.0, 200);
    world.server.stop().await;
}

#[tokio::test]
async fn a_service_account_with_the_right_may_scrape() {
    let world = world().await;
    world.create("", "serviceaccounts", "default", json!({"metadata": {"name": "prometheus"}})).await;
    let rule = json!({"nonResourceURLs": ["/metrics"], "verbs": ["get"]});
    let role = json!({"metadata": {"name": "scraper"}, "rules": [rule]});
    world.create("rbac.authorization.k8s.io", "clusterroles", "", role).await;
    let binding = json!({
        "metadata": {"name": "scraper"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "scraper"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "prometheus"}],
    });
    world.create("rbac.authorization.k8s.io", "clusterrolebindings", "", binding).await;
    let accounts = Resource::new("", "v1", "serviceaccounts");
    let ask = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let request = ApiRequest::object(&accounts, "default", "prometheus", Verb::Create(encode(&ask)));
    let answer = world.admin.call(request.subresource("token")).await.unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
    let token = answer["status"]["token"].as_str().unwrap();
    // The rights index follows the store: it may take a moment, and a refusal is remembered for longer.
    let reviews = Resource::new("authorization.k8s.io", "v1", "subjectaccessreviews");
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {
            "user": "system:serviceaccount:default:prometheus",
            "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
        },
    });
    for _ in 0..500 {
        let request = ApiRequest::collection(&reviews, "", Verb::Create(encode(&review)));
        let answer: serde_json::Value = serde_json::from_slice(&world.admin.call(request).await.unwrap()).unwrap();
        if answer["status"]["allowed"] == true {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (code, body) = world.ask(Method::GET, "/metrics", None, Some(token)).await;
    assert_eq!(code, 200, "{body}");
    let (code, body) = world.ask(Method::GET, "/configz", None, Some(token)).await;
    assert_eq!(code, 403);
    assert!(body.contains("system:serviceaccount:default:prometheus"), "{body}");
    world.server.stop().await;
}

#[test]
fn self_signed_certificates_are_kept_where_asked_and_bad_choices_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let options =
        tls::Options { name: "kube-scheduler".into(), folder: Some(folder.path().into()), ..Default::default() };
    tls::server_config(&options).unwrap();
    let kept = std::fs::read(folder.path().join("kube-scheduler.crt")).unwrap();
    tls::server_config(&options).unwrap();
    assert_eq!(std::fs::read(folder.path().join("kube-scheduler.crt")).unwrap(), kept);
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(folder.path().join("kube-scheduler.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0);

    // A link in the place of the key is replaced, and what it leads to is left alone.
    let victim = folder.path().join("victim");
    std::fs::write(&victim, "untouched").unwrap();
    std::fs::remove_file(folder.path().join("kube-scheduler.crt")).unwrap();
    std::fs::remove_file(folder.path().join("kube-scheduler.key")).unwrap();
    std::os::unix::fs::symlink(&victim, folder.path().join("kube-scheduler.key")).unwrap();
    tls::server_config(&options).unwrap();
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "untouched");
    let mode = std::fs::symlink_metadata(folder.path().join("kube-scheduler.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o177_777, 0o100_600);

    let with = |suites: &[&str], curves: &[u16]| {
        let cipher_suites = suites.iter().map(ToString::to_string).collect();
        let options = tls::Options { cipher_suites, curves: curves.into(), ..options.clone() };
        tls::server_config(&options).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(with(&["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"], &[29, 23]), Ok(()));
    assert_eq!(
        with(&["TLS_RSA_WITH_RC4_128_SHA"], &[]).unwrap_err(),
        "cipher suite TLS_RSA_WITH_RC4_128_SHA is not supported"
    );
    assert_eq!(with(&[], &[25]).unwrap_err(), "curve 25 is not supported");
    let missing = tls::Options { files: Some(("/nonexistent/a.crt".into(), "/nonexistent/a.key".into())), ..options };
    let error = tls::server_config(&missing).unwrap_err().to_string();
    assert!(error.starts_with("cannot read /nonexistent/a.crt: "), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_replaced_certificate_is_served_and_half_of_a_new_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("a.crt"), folder.path().join("a.key"));
    let pair = || {
        let pair = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        (pair.cert.pem(), pair.signing_key.serialize_pem())
    };
    let put = |pair: &(String, String)| {
        std::fs::write(&certificate, &pair.0).unwrap();
        std::fs::write(&key, &pair.1).unwrap();
    };
    put(&pair());
    let files = Some((certificate.clone(), key.clone()));
    let mut served = tls::renewed(tls::Options { name: "ops".into(), files, ..Default::default() }).unwrap();
    let new = pair();
    std::fs::write(&certificate, &new.0).unwrap();
    let look = || tokio::time::sleep(std::time::Duration::from_millis(1500));
    look().await;
    assert!(!served.has_changed().unwrap());
    put(&new);
    look().await;
    assert!(served.has_changed().unwrap());
    served.mark_unchanged();
    look().await;
    assert!(!served.has_changed().unwrap());
}
