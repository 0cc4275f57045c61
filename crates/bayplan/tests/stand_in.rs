//! `bayplan apiserver` where a kube-apiserver stood: kubeadm's command line, with certificates and keys of its kind.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use bayplan_testkit::{binary, free_ports};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};

/// How long the server may take to do what it must; generous because shared machines stall.
const PATIENCE: Duration = Duration::from_secs(60);

/// An authority, as PEM and to issue with.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its key, as PEM.
struct Identity {
    certificate: String,
    key: String,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    fn issue(&self, name: &str, groups: &[&str], server: bool) -> Identity {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        for group in groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![match server {
            true => ExtendedKeyUsagePurpose::ServerAuth,
            false => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        if server {
            params.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
        }
        Identity { certificate: params.signed_by(&key, &self.issuer).unwrap().pem(), key: key.serialize_pem() }
    }
}

/// A server with kubeadm's files and flags; ended with the test.
struct ControlPlane {
    folder: tempfile::TempDir,
    users: Authority,
    proxies: Authority,
    port: u16,
    child: Child,
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn put(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// The flags of kubeadm's static pod of v1.36, but for those of etcd.
fn kubeadm_flags(pki: &Path, port: u16) -> Vec<String> {
    let file = |flag: &str, name: &str| format!("--{flag}={}", pki.join(name).display());
    let mut flags: Vec<String> = [
        "--advertise-address=127.0.0.1",
        "--allow-privileged=true",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--enable-bootstrap-token-auth=true",
        "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        "--service-cluster-ip-range=10.96.0.0/16",
    ]
    .map(str::to_owned)
    .into();
    flags.extend([
        format!("--secure-port={port}"),
        file("client-ca-file", "ca.crt"),
        file("kubelet-client-certificate", "apiserver-kubelet-client.crt"),
        file("kubelet-client-key", "apiserver-kubelet-client.key"),
        file("proxy-client-cert-file", "front-proxy-client.crt"),
        file("proxy-client-key-file", "front-proxy-client.key"),
        file("requestheader-client-ca-file", "front-proxy-ca.crt"),
        file("service-account-key-file", "sa.pub"),
        file("service-account-signing-key-file", "sa.key"),
        file("tls-cert-file", "apiserver.crt"),
        file("tls-private-key-file", "apiserver.key"),
    ]);
    flags
}

impl ControlPlane {
    fn start() -> ControlPlane {
        let folder = tempfile::tempdir().unwrap();
        let (users, proxies) = (Authority::new("kubernetes"), Authority::new("front-proxy-ca"));
        let pki = folder.path();
        put(pki, "ca.crt", &users.pem);
        put(pki, "front-proxy-ca.crt", &proxies.pem);
        put(pki, "sa.key", include_str!("../../apiserver/testdata/sa-rsa.key"));
        put(pki, "sa.pub", include_str!("../../apiserver/testdata/sa-rsa.pub"));
        for (name, identity) in [
            ("apiserver", users.issue("kube-apiserver", &[], true)),
            ("apiserver-kubelet-client", users.issue("kube-apiserver-kubelet-client", &["system:masters"], false)),
            ("front-proxy-client", proxies.issue("front-proxy-client", &[], false)),
        ] {
            put(pki, &format!("{name}.crt"), &identity.certificate);
            put(pki, &format!("{name}.key"), &identity.key);
        }
        let port = free_ports::<1>()[0];
        let mut command = Command::new(binary(env!("CARGO_BIN_EXE_bayplan")));
        // Loopback alone; kubeadm's flags would listen everywhere.
        command.args(["apiserver", "--bind-address=127.0.0.1", "--data-dir"]).arg(pki.join("data"));
        command.args(kubeadm_flags(pki, port)).stdout(Stdio::piped()).stderr(Stdio::piped()).env_remove("RUST_LOG");
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let ready = lines.by_ref().any(|line| line.contains("Ctrl-C"));
        if !ready {
            let mut why = String::new();
            child.stderr.take().unwrap().read_to_string(&mut why).unwrap();
            panic!("it did not start: {why}");
        }
        std::thread::spawn(move || lines.for_each(drop));
        ControlPlane { folder, users, proxies, port, child }
    }

    fn connect(
        &self,
        identity: Option<&Identity>,
    ) -> std::io::Result<rustls::StreamOwned<rustls::ClientConnection, TcpStream>> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.users.pem.as_bytes()).unwrap()).unwrap();
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match identity {
            Some(identity) => {
                let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap();
                let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
                builder.with_client_auth_cert(vec![certificate], key).unwrap()
            }
            None => builder.with_no_client_auth(),
        };
        let session = rustls::ClientConnection::new(Arc::new(config), "127.0.0.1".try_into().unwrap()).unwrap();
        Ok(rustls::StreamOwned::new(session, TcpStream::connect(("127.0.0.1", self.port))?))
    }

    /// One request on a connection of its own: the status and the body of the answer.
    fn ask(
        &self,
        identity: Option<&Identity>,
        request: &str,
        headers: &[&str],
        body: &Value,
    ) -> std::io::Result<(u16, Value)> {
        let mut stream = self.connect(identity)?;
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut head = format!("{request} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {}\r\n", body.len());
        head.push_str("Content-Type: application/json\r\nAccept: application/json\r\n");
        headers.iter().for_each(|header| head.push_str(&format!("{header}\r\n")));
        stream.write_all(format!("{head}\r\n{body}").as_bytes())?;
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            // Whoever closes a connection without saying goodbye has still answered.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {}
            other => drop(other?),
        }
        let answer = String::from_utf8(answer).unwrap();
        let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| std::io::Error::other("no answer"))?;
        let (_, content) = answer.split_once("\r\n\r\n").unwrap_or_default();
        Ok((status, serde_json::from_str(content).unwrap_or_else(|_| content.into())))
    }

    fn get(&self, identity: Option<&Identity>, path: &str, headers: &[&str]) -> (u16, String) {
        let (status, answer) = self.ask(identity, &format!("GET {path}"), headers, &Value::Null).unwrap();
        (status, answer.to_string())
    }

    fn create(&self, identity: &Identity, path: &str, object: &Value) -> (u16, Value) {
        self.ask(Some(identity), &format!("POST {path}"), &[], object).unwrap()
    }

    /// The certificate that new connections see.
    fn served(&self) -> Vec<u8> {
        let mut stream = self.connect(None).unwrap();
        stream.write_all(b"GET /livez HTTP/1.0\r\n\r\n").unwrap();
        stream.conn.peer_certificates().unwrap()[0].to_vec()
    }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

const NAMESPACES: &str = "/api/v1/namespaces";

#[test]
fn kubeadms_command_line_is_taken_whole_and_its_users_are_known() {
    let cluster = ControlPlane::start();
    let admin = cluster.users.issue("kubernetes-admin", &["system:masters"], false);
    assert_eq!(cluster.get(Some(&admin), NAMESPACES, &[]).0, 200);
    assert_eq!(cluster.get(None, "/livez", &[]), (200, "\"ok\"".to_owned()));
    let (status, why) = cluster.get(None, NAMESPACES, &[]);
    assert!(status == 403 && why.contains("system:anonymous"), "{why}");
    front_proxies(&cluster);
    bootstrap_tokens(&cluster, &admin);
    account_tokens(&cluster, &admin);
    kubelets(&cluster, &admin);
    with_kubectl(&cluster, &admin);
    rotation(&cluster, &admin);
}

/// Only a front proxy's own certificate lets it name users, and it is nobody itself.
fn front_proxies(cluster: &ControlPlane) {
    let proxy = cluster.proxies.issue("front-proxy-client", &[], false);
    let masters = ["X-Remote-User: alice", "X-Remote-Group: system:masters"];
    assert_eq!(cluster.get(Some(&proxy), NAMESPACES, &masters).0, 200);
    let (status, why) = cluster.get(Some(&proxy), NAMESPACES, &["X-Remote-User: alice"]);
    assert!(status == 403 && why.contains("alice"), "{why}");
    assert_eq!(cluster.get(Some(&proxy), NAMESPACES, &[]).0, 401);
    let other = cluster.proxies.issue("somebody", &[], false);
    assert_eq!(cluster.get(Some(&other), NAMESPACES, &masters).0, 401);
    let bob = cluster.users.issue("bob", &[], false);
    let (status, why) = cluster.get(Some(&bob), NAMESPACES, &masters);
    assert!(status == 403 && why.contains("bob"), "{why}");
    let admin = cluster.users.issue("root", &["system:masters"], false);
    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let (_, published) = cluster.ask(Some(&admin), &format!("GET {path}"), &[], &Value::Null).unwrap();
    assert_eq!(published["data"]["requestheader-allowed-names"], "[\"front-proxy-client\"]");
    assert_eq!(published["data"]["requestheader-client-ca-file"], cluster.proxies.pem);
    assert_eq!(published["data"]["client-ca-file"], cluster.users.pem);
}

fn bootstrap_tokens(cluster: &ControlPlane, admin: &Identity) {
    let token = ["Authorization: Bearer abcdef.0123456789abcdef"];
    assert_eq!(cluster.get(None, NAMESPACES, &token).0, 401);
    let secret = json!({
        "metadata": {"name": "bootstrap-token-abcdef"},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {"token-id": "abcdef", "token-secret": "0123456789abcdef",
                       "usage-bootstrap-authentication": "true"},
    });
    assert_eq!(cluster.create(admin, "/api/v1/namespaces/kube-system/secrets", &secret).0, 201);
    let (status, why) = cluster.get(None, NAMESPACES, &token);
    assert!(status == 403 && why.contains("system:bootstrap:abcdef"), "{why}");
    let path = "/api/v1/namespaces/kube-system/secrets/bootstrap-token-abcdef";
    assert_eq!(cluster.ask(Some(admin), &format!("DELETE {path}"), &[], &Value::Null).unwrap().0, 200);
    assert_eq!(cluster.get(None, NAMESPACES, &token).0, 401);
}

/// Tokens are signed by kubeadm's RSA key.
fn account_tokens(cluster: &ControlPlane, admin: &Identity) {
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    for name in ["default", "robot"] {
        assert_eq!(cluster.create(admin, accounts, &json!({"metadata": {"name": name}})).0, 201);
    }
    let (status, answer) = cluster.create(admin, &format!("{accounts}/robot/token"), &json!({"spec": {}}));
    assert_eq!(status, 201, "{answer}");
    let token = answer["status"]["token"].as_str().unwrap();
    let part = |at: usize| -> Value {
        let text = token.split('.').nth(at).unwrap();
        serde_json::from_slice(&base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(text).unwrap()).unwrap()
    };
    assert_eq!(part(0)["alg"], "RS256");
    assert_eq!(part(1)["iss"], "https://kubernetes.default.svc.cluster.local");
    let (status, why) = cluster.get(None, NAMESPACES, &[&format!("Authorization: Bearer {token}")]);
    assert!(status == 403 && why.contains("system:serviceaccount:default:robot"), "{why}");
    let (_, keys) = cluster.ask(Some(admin), "GET /openid/v1/jwks", &[], &Value::Null).unwrap();
    assert_eq!((&keys["keys"][0]["alg"], &keys["keys"][0]["kid"]), (&json!("RS256"), &part(0)["kid"]));
    // As upstream's, a verified token is believed for ten seconds, and a new account of the same name is another.
    let robot = format!("DELETE {accounts}/robot");
    assert_eq!(cluster.ask(Some(admin), &robot, &[], &Value::Null).unwrap().0, 200);
    assert_eq!(cluster.create(admin, accounts, &json!({"metadata": {"name": "robot"}})).0, 201);
    eventually("the token of a deleted account is refused", || {
        cluster.get(None, NAMESPACES, &[&format!("Authorization: Bearer {token}")]).0 == 401
    });
}

/// A kubelet registers its own node, and reads the secrets of its pods.
fn kubelets(cluster: &ControlPlane, admin: &Identity) {
    let kubelet = cluster.users.issue("system:node:n1", &["system:nodes"], false);
    let node = |name: &str, labels: Value| json!({"metadata": {"name": name, "labels": labels}});
    let (status, why) = cluster.create(&kubelet, "/api/v1/nodes", &node("n2", json!({})));
    assert!(status == 403 && why.to_string().contains("is not allowed to modify node"), "{why}");
    let restricted = json!({"node-restriction.kubernetes.io/team": "red"});
    assert_eq!(cluster.create(&kubelet, "/api/v1/nodes", &node("n1", restricted)).0, 403);
    assert_eq!(cluster.create(&kubelet, "/api/v1/nodes", &node("n1", json!({"kubernetes.io/os": "linux"}))).0, 201);
    let secrets = "/api/v1/namespaces/default/secrets";
    assert_eq!(cluster.create(admin, secrets, &json!({"metadata": {"name": "s"}, "stringData": {"a": "b"}})).0, 201);
    let (status, why) = cluster.get(Some(&kubelet), &format!("{secrets}/s"), &[]);
    assert!(status == 403 && why.contains("no relationship found between node 'n1' and this object"), "{why}");
    let pod = json!({
        "metadata": {"name": "web"},
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "c", "image": "i", "envFrom": [{"secretRef": {"name": "s"}}]}],
        },
    });
    let (status, answer) = cluster.create(admin, "/api/v1/namespaces/default/pods", &pod);
    assert_eq!(status, 201, "{answer}");
    eventually("the kubelet may read its pod's secret", || {
        cluster.get(Some(&kubelet), &format!("{secrets}/s"), &[]).0 == 200
    });
    let (status, why) = cluster.get(Some(admin), "/api/v1/namespaces/default/pods/web/log", &[]);
    assert!(status == 501 && why.contains("requests are not passed on to kubelets"), "{why}");
    assert_eq!(cluster.get(Some(&kubelet), "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1", &[]).0, 200);
    assert_eq!(cluster.get(Some(&kubelet), "/api/v1/pods", &[]).0, 403);
}

/// kubectl, where there is one, by a kubeconfig of the cluster's own authority.
fn with_kubectl(cluster: &ControlPlane, admin: &Identity) {
    let folder = cluster.folder.path();
    let file = |name: &str, text: &str| put(folder, name, text).display().to_string();
    let (ca, certificate, key) = (
        file("kubectl-ca.crt", &cluster.users.pem),
        file("admin.crt", &admin.certificate),
        file("admin.key", &admin.key),
    );
    let kubectl = std::env::var_os("KUBEBUILDER_ASSETS").map(|folder| PathBuf::from(folder).join("kubectl"));
    let kubectl = kubectl.filter(|path| path.exists()).unwrap_or_else(|| "kubectl".into());
    let output = Command::new(kubectl)
        .args(["--server", &format!("https://127.0.0.1:{}", cluster.port), "--certificate-authority", &ca])
        .args(["--client-certificate", &certificate, "--client-key", &key, "get", "namespaces", "-o", "name"])
        .env("HOME", folder)
        .env_remove("KUBECONFIG")
        .output();
    let Ok(output) = output else { return bayplan_testkit::skipped("kubectl is not installed") };
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("namespace/kube-system"), "{text} {}", String::from_utf8_lossy(&output.stderr));
}

/// A new serving certificate is served to new connections; users of an authority that was replaced are gone.
fn rotation(cluster: &ControlPlane, admin: &Identity) {
    let (pki, before) = (cluster.folder.path(), cluster.served());
    let renewed = cluster.users.issue("kube-apiserver", &[], true);
    put(pki, "apiserver.key", &renewed.key);
    put(pki, "apiserver.crt", &renewed.certificate);
    let wanted = CertificateDer::from_pem_slice(renewed.certificate.as_bytes()).unwrap();
    assert_ne!(before, wanted.to_vec());
    eventually("the new certificate is served", || cluster.served() == wanted.to_vec());
    assert_eq!(cluster.get(Some(admin), NAMESPACES, &[]).0, 200);

    let successor = Authority::new("successor");
    put(pki, "ca.crt", &successor.pem);
    let heir = successor.issue("heir", &["system:masters"], false);
    let asks = |identity: &Identity| cluster.ask(Some(identity), &format!("GET {NAMESPACES}"), &[], &Value::Null);
    eventually("users of the new authority are known", || asks(&heir).is_ok_and(|(status, _)| status == 200));
    let (status, answer) = asks(admin).unwrap();
    assert_eq!(status, 401, "a certificate of the old authority still works: {answer}");
    let (_, warnings) = cluster.ask(None, "GET /livez", &[], &Value::Null).unwrap();
    assert_eq!(warnings, "ok");
}

#[test]
fn each_wrong_file_ends_the_start_with_one_line_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let users = Authority::new("kubernetes");
    let (one, other) = (users.issue("a", &[], true), users.issue("b", &[], true));
    let file = |name: &str, text: &str| put(folder.path(), name, text).display().to_string();
    let (certificate, key) = (file("tls.crt", &one.certificate), file("tls.key", &one.key));
    let (wrong_key, garbage) = (file("wrong.key", &other.key), file("garbage", "garbage"));
    let data = folder.path().join("data").display().to_string();
    for (flags, expected) in [
        (
            vec![format!("--tls-cert-file={garbage}"), format!("--tls-private-key-file={key}")],
            format!("--tls-cert-file {garbage} cannot be used: it holds no certificate in PEM"),
        ),
        (
            vec![format!("--tls-cert-file={certificate}"), format!("--tls-private-key-file={wrong_key}")],
            format!(
                "--tls-private-key-file {wrong_key} cannot be used: it is not the key of --tls-cert-file {certificate}"
            ),
        ),
        (
            vec!["--client-ca-file=/missing/ca.crt".to_owned()],
            "--client-ca-file /missing/ca.crt: No such file or directory (os error 2)".to_owned(),
        ),
        (
            vec![format!("--service-account-signing-key-file={garbage}")],
            format!(
                "--service-account-signing-key-file {garbage}: the service account key is not usable: it is not PEM"
            ),
        ),
        (
            vec!["--audit-log-path=/var/log/audit.log".to_owned()],
            "--audit-log-path is not supported: no audit log is written".to_owned(),
        ),
    ] {
        let mut command = Command::new(binary(env!("CARGO_BIN_EXE_bayplan")));
        let output = command.args(["apiserver", "--port=0", "--data-dir", &data]).args(&flags).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(stderr.trim_end(), format!("bayplan: {expected}"), "{flags:?}");
        assert_eq!(output.status.code(), Some(1));
    }
}
