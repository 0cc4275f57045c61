//! `bayplan up` in a process of its own, with a namespace, its user and its administrator; and connections to it.

#![allow(dead_code, reason = "each of the tests that share it uses a part")]

pub(crate) mod claims;
pub(crate) mod component;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use bayplan_client::Client;
use bayplan_model::api::{Api, ListOptions, Request, Resource, Verb};
use bayplan_testkit::{binary, free_ports};
use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use component::Component;

pub(crate) const NODES: usize = 4;
/// The namespace whose user and administrator are hostile.
pub(crate) const NAMESPACE: &str = "crowd";

pub(crate) struct Cluster {
    process: Child,
    port: u16,
    tls: TlsConnector,
    /// May do everything.
    pub(crate) admin: Client,
    /// The token of a service account that may do everything everywhere, by rights and not by its group.
    pub(crate) root: String,
    /// The token of a service account that may edit one namespace.
    pub(crate) user: String,
    /// The token of one that may do everything there.
    pub(crate) namespace_admin: String,
    /// A scheduler beside the cluster's own, once there is one.
    pub(crate) second_scheduler: OnceCell<Component>,
    folder: TempDir,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Cluster {
    pub(crate) async fn start() -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let [port] = free_ports();
        let mut process = Command::new(binary(env!("CARGO_BIN_EXE_bayplan")))
            .args(["up", "--nodes", &NODES.to_string(), "--port", &port.to_string(), "--data-dir"])
            .arg(folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        lines.by_ref().map(Result::unwrap).find(|line| line.contains("Try")).expect("bayplan up came up");
        std::thread::spawn(move || lines.for_each(drop));
        let kubeconfig = folder.path().join("kubeconfig");
        let admin = Client::from_kubeconfig(Some(&kubeconfig), None).await.unwrap();
        let tls = connector(&find(folder.path(), "ca.crt").expect("the folder holds the authority's certificate"));
        let second_scheduler = OnceCell::new();
        let [root, user, namespace_admin] = [String::new(), String::new(), String::new()];
        let mut cluster = Cluster { process, port, tls, admin, root, user, namespace_admin, second_scheduler, folder };
        let namespace = json!({"metadata": {"name": NAMESPACE}});
        cluster.create(&Resource::new("", "v1", "namespaces"), "", namespace).await;
        cluster.root = cluster.service_account("root", "view").await;
        let subject = json!({"kind": "ServiceAccount", "name": "root", "namespace": NAMESPACE});
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"});
        let binding = json!({"metadata": {"name": "root"}, "roleRef": role, "subjects": [subject]});
        let bindings = Resource::new("rbac.authorization.k8s.io", "v1", "clusterrolebindings");
        cluster.create(&bindings, "", binding).await;
        cluster.user = cluster.service_account("user", "edit").await;
        cluster.namespace_admin = cluster.service_account("administrator", "admin").await;
        cluster
    }

    /// Creates an object as the administrator of the cluster.
    pub(crate) async fn create(&self, resource: &Resource, namespace: &str, object: Value) -> Value {
        let create = Request::collection(resource, namespace, Verb::Create(object.to_string().into()));
        serde_json::from_slice(&self.admin.call(create).await.unwrap()).unwrap()
    }

    /// A service account with these rights in the whole cluster.
    pub(crate) async fn grant(&self, name: &str, rules: Value) {
        self.create(&Resource::new("", "v1", "serviceaccounts"), NAMESPACE, json!({"metadata": {"name": name}})).await;
        let of_rights = |plural| Resource::new("rbac.authorization.k8s.io", "v1", plural);
        let role = json!({"metadata": {"name": name}, "rules": rules});
        self.create(&of_rights("clusterroles"), "", role).await;
        let binding = json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
        });
        self.create(&of_rights("clusterrolebindings"), "", binding).await;
    }

    /// A token of a service account.
    pub(crate) async fn token(&self, name: &str) -> String {
        let accounts = Resource::new("", "v1", "serviceaccounts");
        let body = json!({"spec": {"expirationSeconds": 3600}}).to_string();
        let ask = Request::object(&accounts, NAMESPACE, name, Verb::Create(body.into())).subresource("token");
        let token: Value = serde_json::from_slice(&self.admin.call(ask).await.unwrap()).unwrap();
        token["status"]["token"].as_str().unwrap().to_owned()
    }

    /// A service account with a role in the namespace; answers its token.
    async fn service_account(&self, name: &str, role: &str) -> String {
        let accounts = Resource::new("", "v1", "serviceaccounts");
        self.create(&accounts, NAMESPACE, json!({"metadata": {"name": name}})).await;
        let binding = json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
        });
        self.create(&Resource::new("rbac.authorization.k8s.io", "v1", "rolebindings"), NAMESPACE, binding).await;
        self.token(name).await
    }

    /// The objects of a kind in a namespace, as the administrator of the cluster sees them.
    pub(crate) async fn list(&self, resource: &Resource, namespace: &str) -> Vec<Value> {
        let list = Request::collection(resource, namespace, Verb::List(ListOptions::default()));
        let mut list: Value = serde_json::from_slice(&self.admin.call(list).await.unwrap()).unwrap();
        list["items"].as_array_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(crate) async fn ready_nodes(&self) -> usize {
        let nodes = self.list(&Resource::new("", "v1", "nodes"), "").await;
        let ready = |node: &&Value| {
            let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
            conditions.into_iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
        };
        nodes.iter().filter(ready).count()
    }

    /// A connection without a handshake.
    pub(crate) async fn tcp(&self) -> std::io::Result<TcpStream> {
        TcpStream::connect(("127.0.0.1", self.port)).await
    }

    /// A connection after its handshake, without credentials.
    pub(crate) async fn connect(&self) -> std::io::Result<TlsStream<TcpStream>> {
        self.tls.connect(ServerName::try_from("localhost").unwrap(), self.tcp().await?).await
    }

    /// A connection with a request on it whose answer nobody has read. `head` is everything before the blank line.
    pub(crate) async fn send(&self, head: &str, token: &str, body: &[u8]) -> std::io::Result<TlsStream<TcpStream>> {
        let mut stream = self.connect().await?;
        let authorization = if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
        let head = format!("{head}\r\nHost: localhost\r\n{authorization}Content-Length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body).await?;
        stream.flush().await?;
        Ok(stream)
    }

    /// The code and the size of the answer to a request on a connection of its own. `line` is its method and path.
    pub(crate) async fn ask(
        &self,
        line: &str,
        headers: &[(&str, &str)],
        token: &str,
        body: &[u8],
    ) -> std::io::Result<(u16, usize)> {
        let headers: String = headers.iter().map(|(name, value)| format!("\r\n{name}: {value}")).collect();
        let head = format!("{line} HTTP/1.1\r\nConnection: close{headers}");
        let mut stream = self.send(&head, token, body).await?;
        let mut answer = Vec::new();
        // A connection that ends without a farewell has still said what it said.
        if let Err(error) = stream.read_to_end(&mut answer).await
            && answer.is_empty()
        {
            return Err(error);
        }
        let code = answer.get(9..12).and_then(|code| std::str::from_utf8(code).ok()?.parse().ok());
        let code = code.ok_or_else(|| std::io::Error::other(String::from_utf8_lossy(&answer).into_owned()))?;
        Ok((code, answer.len()))
    }

    /// The URL of the API server.
    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The certificate of the authority that the API server's is from.
    pub(crate) fn authority(&self) -> Vec<u8> {
        find(self.folder.path(), "ca.crt").expect("the folder holds the authority's certificate")
    }

    /// The certificate and the key of the API server.
    pub(crate) fn identity(&self) -> Vec<u8> {
        find(self.folder.path(), "apiserver.pem").expect("the folder holds the server's identity")
    }

    /// How to speak TLS to the API server.
    pub(crate) fn connector(&self) -> TlsConnector {
        self.tls.clone()
    }

    pub(crate) fn address(&self) -> (&'static str, u16) {
        ("127.0.0.1", self.port)
    }

    /// A connection for HTTP/2.
    pub(crate) async fn http2(&self, builder: &Builder<TokioExecutor>) -> std::io::Result<SendRequest<Full<Bytes>>> {
        let mut config = self.tls.config().as_ref().clone();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let connector = TlsConnector::from(Arc::new(config));
        let stream = connector.connect(ServerName::try_from("localhost").unwrap(), self.tcp().await?).await?;
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(std::io::Error::other)?;
        tokio::spawn(connection);
        Ok(sender)
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// The memory of the process, in MB.
    pub(crate) fn memory(&self) -> usize {
        let pages = std::fs::read_to_string(format!("/proc/{}/statm", self.process.id())).unwrap();
        pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096 / 1_000_000
    }

    /// Asks the process to end; answers when it has.
    pub(crate) async fn terminate(mut self) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        while self.process.try_wait().unwrap().is_none() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
}

/// A GET over HTTP/2.
pub(crate) fn get(path: &str, token: &str) -> http::Request<Full<Bytes>> {
    let request = http::Request::get(format!("https://localhost{path}"));
    request.header("Authorization", format!("Bearer {token}")).body(Full::default()).unwrap()
}

/// The content of the file of this name, wherever it is below the folder.
fn find(folder: &Path, name: &str) -> Option<Vec<u8>> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).ok()?.flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else if entry.file_name() == name {
                return std::fs::read(entry.path()).ok();
            }
        }
    }
    None
}

fn connector(authority: &[u8]) -> TlsConnector {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}
