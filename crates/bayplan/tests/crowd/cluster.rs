//! `bayplan up` in a process of its own, and connections to it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use bayplan_client::Client;
use bayplan_model::api::{Api, ListOptions, Request, Resource, Verb};
use bayplan_testkit::free_ports;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub(crate) const NODES: usize = 4;
/// The namespace whose user and administrator are hostile.
pub(crate) const NAMESPACE: &str = "crowd";

pub(crate) struct Cluster {
    process: Child,
    port: u16,
    tls: TlsConnector,
    /// May do everything.
    pub(crate) admin: Client,
    /// The token of a service account that may edit one namespace.
    pub(crate) user: String,
    /// The token of one that may do everything there.
    pub(crate) namespace_admin: String,
    _folder: TempDir,
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
        let mut process = Command::new(env!("CARGO_BIN_EXE_bayplan"))
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
        let tls = connector(&authority(folder.path()).expect("the folder holds the authority's certificate"));
        let mut cluster =
            Cluster { process, port, tls, admin, user: String::new(), namespace_admin: String::new(), _folder: folder };
        let namespace = json!({"metadata": {"name": NAMESPACE}});
        cluster.create(&Resource::new("", "v1", "namespaces"), "", namespace).await;
        cluster.user = cluster.service_account("user", "edit").await;
        cluster.namespace_admin = cluster.service_account("administrator", "admin").await;
        cluster
    }

    async fn create(&self, resource: &Resource, namespace: &str, object: Value) -> Value {
        let create = Request::collection(resource, namespace, Verb::Create(object.to_string().into()));
        serde_json::from_slice(&self.admin.call(create).await.unwrap()).unwrap()
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
        let body = json!({"spec": {"expirationSeconds": 3600}}).to_string();
        let ask = Request::object(&accounts, NAMESPACE, name, Verb::Create(body.into())).subresource("token");
        let token: Value = serde_json::from_slice(&self.admin.call(ask).await.unwrap()).unwrap();
        token["status"]["token"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn ready_nodes(&self) -> usize {
        let list = Verb::List(ListOptions::default());
        let nodes = Request::collection(&Resource::new("", "v1", "nodes"), "", list);
        let nodes: Value = serde_json::from_slice(&self.admin.call(nodes).await.unwrap()).unwrap();
        let ready = |node: &&Value| {
            let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
            conditions.into_iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
        };
        nodes["items"].as_array().unwrap().iter().filter(ready).count()
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
}

fn authority(folder: &Path) -> Option<Vec<u8>> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).ok()?.flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else if entry.file_name() == "ca.crt" {
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
