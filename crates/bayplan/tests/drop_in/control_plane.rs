//! Upstream's etcd and kube-apiserver on loopback, and the ways to ask things of them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use bayplan_apiserver::certificates::{Names, Pki, kubeconfig};
use bayplan_client::Client;
use bayplan_model::api::{Api, DeleteOptions, ListOptions, PatchKind, Request, Resource, Verb};
use bayplan_model::status::{Status, reason};
use bayplan_testkit::{binary, free_ports};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};

use crate::assets::{Assets, Process};

/// How long anything may take; generous because shared machines stall.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The time between two looks at something that is awaited.
const GLANCE: Duration = Duration::from_millis(30);

/// One control plane at a time: two would only slow each other down.
static TURN: Mutex<()> = Mutex::const_new(());

/// An API server without nodes, schedulers or controllers. Admission leaves out what only its controllers could undo:
/// the taint of new nodes, and service accounts.
pub(crate) struct ControlPlane {
    _etcd: Process,
    /// None during an outage.
    apiserver: Option<Process>,
    /// Of kube-apiserver and of etcd.
    ports: [u16; 2],
    /// Of kube-apiserver, beyond those that it always has.
    flags: Vec<String>,
    assets: Assets,
    client: Client,
    folder: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl ControlPlane {
    /// Starts etcd and kube-apiserver; none, with a message, when there are no binaries.
    pub(crate) async fn start() -> Option<ControlPlane> {
        let without = "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition";
        ControlPlane::start_with(&["--authorization-mode=RBAC", without]).await
    }

    /// The same with the authorization and admission that these flags say. `PKI` in them is the folder of its
    /// certificates.
    pub(crate) async fn start_with(flags: &[&str]) -> Option<ControlPlane> {
        let assets = Assets::find()?;
        let turn = TURN.lock().await;
        let folder = tempfile::tempdir().unwrap();
        let [port, etcd_port, peer_port] = free_ports();
        let url = format!("https://127.0.0.1:{port}");
        let pki = Pki::open(&folder.path().join("pki"), &Names::standard(None, [10, 0, 0, 1].into()), Timestamp::now());
        let pki = pki.unwrap();
        let controller_manager = ("controller-manager", &pki.controller_manager);
        for (name, identity) in [("admin", &pki.admin), ("scheduler", &pki.scheduler), controller_manager] {
            let path = folder.path().join(format!("{name}.kubeconfig"));
            kubeconfig::write(&path, &url, &pki.authority.certificate, identity).unwrap();
        }
        let etcd = start_etcd(&assets, folder.path(), etcd_port, peer_port);
        let pki_folder = folder.path().join("pki").display().to_string();
        let flags: Vec<String> = flags.iter().map(|flag| flag.replace("PKI", &pki_folder)).collect();
        let apiserver = Some(start_apiserver(&assets, folder.path(), [port, etcd_port], &flags));
        let admin = folder.path().join("admin.kubeconfig");
        let client = Client::from_kubeconfig(Some(&admin), None).await.unwrap();
        eventually("kube-apiserver is ready", async || client.get("/readyz", "*/*").await.ok()).await;
        let ports = [port, etcd_port];
        Some(ControlPlane { _etcd: etcd, apiserver, ports, flags, assets, client, folder, _turn: turn })
    }

    /// Takes kube-apiserver away for so long; returns when it says that it is ready again.
    pub(crate) async fn outage(&mut self, away: Duration) {
        self.apiserver = None;
        tokio::time::sleep(away).await;
        self.apiserver = Some(start_apiserver(&self.assets, self.folder.path(), self.ports, &self.flags));
        eventually("kube-apiserver is ready again", async || self.client.get("/readyz", "*/*").await.ok()).await;
    }

    /// Where its etcd answers.
    pub(crate) fn etcd(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports[1])
    }

    /// The administrator at kube-apiserver.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Where its files are.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The kubeconfig of `admin`, or of `scheduler` with the rights that upstream gives kube-scheduler.
    pub(crate) fn kubeconfig(&self, user: &str) -> PathBuf {
        self.folder.path().join(format!("{user}.kubeconfig"))
    }

    /// Starts this `bayplan`.
    pub(crate) fn bayplan(&self, name: &str, arguments: &[&str]) -> Process {
        let mut command = Command::new(binary(env!("CARGO_BIN_EXE_bayplan")));
        Process::start(name, self.folder(), command.args(arguments).env("HOSTNAME", name))
    }

    /// Starts one of upstream's binaries, if it is there.
    pub(crate) fn upstream(&self, binary: &str, arguments: &[&str]) -> Option<Process> {
        self.upstream_as(binary, binary, arguments)
    }

    /// The same with a log of this name.
    pub(crate) fn upstream_as(&self, name: &str, binary: &str, arguments: &[impl AsRef<OsStr>]) -> Option<Process> {
        let path = self.assets.binary(binary)?;
        Some(Process::start(name, self.folder(), Command::new(path).args(arguments)))
    }

    /// A command for a shell that finds upstream's kubectl, and kubectl this cluster.
    pub(crate) fn shell(&self, command: &str) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = Command::new("timeout");
        // A command that hangs fails its step instead of the whole run.
        shell.args([&PATIENCE.as_secs().to_string(), "bash", "-c", command]);
        shell.env("PATH", format!("{}:{path}", self.assets.folder().display()));
        shell.env("KUBECONFIG", self.kubeconfig("admin")).env("HOME", self.folder()).current_dir(self.folder());
        shell
    }

    /// Writes a scheduler's configuration file and answers its path.
    pub(crate) fn scheduler_config(&self, name: &str, more: Value) -> String {
        let mut config = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": self.kubeconfig("scheduler"), "qps": 1000.0, "burst": 1000},
            "leaderElection": {"leaderElect": false},
            "percentageOfNodesToScore": 100,
        });
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let path = self.folder().join(format!("{name}.yaml"));
        std::fs::write(&path, config.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// A client of another server on this machine, whose certificate nobody knows.
    pub(crate) async fn unverified_client(&self, port: u16) -> Client {
        let server = format!("https://127.0.0.1:{port}");
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server, "insecure-skip-tls-verify": true}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        let path = self.folder().join(format!("{port}.kubeconfig"));
        std::fs::write(&path, kubeconfig.to_string()).unwrap();
        Client::from_kubeconfig(Some(&path), None).await.unwrap()
    }

    async fn ask(&self, request: Request) -> Result<Value, Status> {
        self.client.call(request).await.map(|answer| serde_json::from_slice(&answer).unwrap())
    }

    /// Creates an object in the namespace it names.
    pub(crate) async fn create(&self, object: Value) -> Value {
        let resource = resource(object["kind"].as_str().unwrap());
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let request = Request::collection(&resource, namespace, Verb::Create(object.to_string().into()));
        self.ask(request).await.unwrap_or_else(|status| panic!("{}: {object}", status.message))
    }

    /// Reads an object, if it is there.
    pub(crate) async fn find(&self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        match self.ask(Request::object(&resource(kind), namespace, name, Verb::Get)).await {
            Ok(object) => Some(object),
            Err(status) if status.is(reason::NOT_FOUND) => None,
            Err(status) => panic!("{kind} {namespace}/{name}: {}", status.message),
        }
    }

    /// Reads all objects of a kind in a namespace.
    pub(crate) async fn list(&self, kind: &str, namespace: &str) -> Vec<Value> {
        let request = Request::collection(&resource(kind), namespace, Verb::List(ListOptions::default()));
        let mut list = self.ask(request).await.unwrap();
        list["items"].as_array_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Changes an object by a merge patch.
    pub(crate) async fn patch(&self, (kind, namespace, name): (&str, &str, &str), patch: Value) {
        let verb = Verb::Patch(PatchKind::Merge, patch.to_string().into());
        self.ask(Request::object(&resource(kind), namespace, name, verb)).await.unwrap();
    }

    /// Deletes a pod without waiting for a kubelet that is not there.
    pub(crate) async fn remove_pod(&self, namespace: &str, name: &str) {
        self.remove("Pod", namespace, name).await;
    }

    /// Deletes an object at once, if it is there.
    pub(crate) async fn remove(&self, kind: &str, namespace: &str, name: &str) {
        let at_once = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
        let request = Request::object(&resource(kind), namespace, name, Verb::Delete(at_once));
        match self.ask(request).await {
            Err(status) if !status.is(reason::NOT_FOUND) => panic!("{kind} {namespace}/{name}: {}", status.message),
            _ => {}
        }
    }
}

/// Looks again and again until there is something to see.
pub(crate) async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(Instant::now() < deadline, "in vain: {what}");
        tokio::time::sleep(GLANCE).await;
    }
}

fn start_etcd(assets: &Assets, folder: &Path, port: u16, peer_port: u16) -> Process {
    let (clients, peers) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer_port}"));
    let mut etcd = Command::new(assets.binary("etcd").unwrap());
    etcd.arg("--data-dir").arg(folder.join("etcd")).args(["--unsafe-no-fsync", "--log-level", "warn"]);
    etcd.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
    etcd.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
    etcd.args(["--initial-cluster", &format!("default={peers}")]);
    Process::start("etcd", folder, &mut etcd)
}

fn start_apiserver(assets: &Assets, folder: &Path, [port, etcd_port]: [u16; 2], flags: &[String]) -> Process {
    let mut apiserver = Command::new(assets.binary("kube-apiserver").unwrap());
    apiserver.arg(format!("--etcd-servers=http://127.0.0.1:{etcd_port}"));
    apiserver.args(apiserver_flags(folder, port)).args(flags);
    Process::start("kube-apiserver", folder, &mut apiserver)
}

/// What an API server is given, kube-apiserver or ours, to know the users of this folder.
pub(crate) fn apiserver_flags(folder: &Path, port: u16) -> Vec<String> {
    let pki = |file: &str| folder.join("pki").join(file).display().to_string();
    // Its certificate is also the public half of the key that signs tokens.
    let identity = pki("apiserver.pem");
    vec![
        format!("--secure-port={port}"),
        "--bind-address=127.0.0.1".into(),
        format!("--tls-cert-file={identity}"),
        format!("--tls-private-key-file={identity}"),
        format!("--client-ca-file={}", pki("ca.crt")),
        format!("--service-account-key-file={identity}"),
        format!("--service-account-signing-key-file={identity}"),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        "--service-cluster-ip-range=10.0.0.0/16".into(),
    ]
}

fn resource(kind: &str) -> Resource {
    match kind {
        "Pod" => Resource::new("", "v1", "pods"),
        "Node" => Resource::new("", "v1", "nodes"),
        "Namespace" => Resource::new("", "v1", "namespaces"),
        "Event" => Resource::new("events.k8s.io", "v1", "events"),
        "Deployment" => Resource::new("apps", "v1", "deployments"),
        "ReplicaSet" => Resource::new("apps", "v1", "replicasets"),
        "StatefulSet" => Resource::new("apps", "v1", "statefulsets"),
        "DaemonSet" => Resource::new("apps", "v1", "daemonsets"),
        "ControllerRevision" => Resource::new("apps", "v1", "controllerrevisions"),
        "PodDisruptionBudget" => Resource::new("policy", "v1", "poddisruptionbudgets"),
        "PriorityClass" => Resource::new("scheduling.k8s.io", "v1", "priorityclasses"),
        "PersistentVolume" => Resource::new("", "v1", "persistentvolumes"),
        "PersistentVolumeClaim" => Resource::new("", "v1", "persistentvolumeclaims"),
        "StorageClass" => Resource::new("storage.k8s.io", "v1", "storageclasses"),
        "Service" => Resource::new("", "v1", "services"),
        "Endpoints" => Resource::new("", "v1", "endpoints"),
        "EndpointSlice" => Resource::new("discovery.k8s.io", "v1", "endpointslices"),
        "Lease" => Resource::new("coordination.k8s.io", "v1", "leases"),
        _ => panic!("{kind}: add it to the table"),
    }
}
