//! How each member is started, and which binaries there are.

use std::path::{Path, PathBuf};

use bayplan_testkit::binary;

use crate::processes::Recipe;

/// The binaries that members are started from.
pub(crate) struct Binaries {
    etcd: PathBuf,
    /// Upstream's, in place of ours, to hold the test itself against.
    kube_apiserver: Option<PathBuf>,
    bayplan: PathBuf,
}

impl Binaries {
    /// Finds them; without an etcd, says so and answers none.
    ///
    /// `BAYPLAN_ETCD` names the etcd to run, or else `KUBEBUILDER_ASSETS` a folder with one. With
    /// `BAYPLAN_FAULTS_APISERVER=kube-apiserver`, the API servers are that folder's kube-apiserver.
    pub(crate) fn find() -> Option<Binaries> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let absolute = |path| std::path::absolute(path).unwrap();
        let assets = set("KUBEBUILDER_ASSETS").map(absolute);
        let etcd = set("BAYPLAN_ETCD").map(absolute).or_else(|| Some(assets.as_ref()?.join("etcd")));
        let Some(etcd) = etcd else {
            bayplan_testkit::skipped("neither BAYPLAN_ETCD nor KUBEBUILDER_ASSETS names an etcd");
            return None;
        };
        assert!(etcd.is_file(), "there is no etcd at {}", etcd.display());
        let kube_apiserver = match set("BAYPLAN_FAULTS_APISERVER") {
            None => None,
            Some(name) if name == "kube-apiserver" => {
                Some(assets.expect("KUBEBUILDER_ASSETS names the folder of kube-apiserver").join(name))
            }
            Some(name) => panic!("BAYPLAN_FAULTS_APISERVER: {name:?} is not `kube-apiserver`"),
        };
        let bayplan = PathBuf::from(binary(env!("CARGO_BIN_EXE_bayplan")));
        Some(Binaries { etcd, kube_apiserver, bayplan })
    }

    /// Whether the API servers are upstream's.
    pub(crate) fn is_upstream(&self) -> bool {
        self.kube_apiserver.is_some()
    }

    /// What the API servers are.
    pub(crate) fn api_server_name(&self) -> &'static str {
        if self.is_upstream() { "kube-apiserver" } else { "bayplan apiserver" }
    }
}

/// An etcd member, which is reached by its peers at another port than the one it listens on.
pub(crate) fn etcd(binaries: &Binaries, folder: &Path, number: usize, port: u16, listen: u16, peers: &[u16]) -> Recipe {
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let members: Vec<String> = peers.iter().enumerate().map(|(i, port)| format!("etcd-{i}={}", url(*port))).collect();
    let arguments = vec![
        format!("--name=etcd-{number}"),
        format!("--data-dir={}", folder.join(format!("etcd-{number}")).display()),
        format!("--listen-client-urls={}", url(port)),
        format!("--advertise-client-urls={}", url(port)),
        format!("--listen-peer-urls={}", url(listen)),
        format!("--initial-advertise-peer-urls={}", url(peers[number])),
        format!("--initial-cluster={}", members.join(",")),
        "--log-level=warn".into(),
        // A process that is killed loses nothing that it wrote: only a machine that dies would.
        "--unsafe-no-fsync".into(),
    ];
    Recipe { program: binaries.etcd.clone(), arguments }
}

/// An API server on etcd members, which it reaches at these ports.
pub(crate) fn api_server(binaries: &Binaries, folder: &Path, number: usize, port: u16, etcd: &[u16]) -> Recipe {
    let pki = |file: &str| folder.join("pki").join(file).display().to_string();
    let etcd: Vec<String> = etcd.iter().map(|port| format!("http://127.0.0.1:{port}")).collect();
    // Its certificate is also the public half of the key that signs tokens.
    let identity = pki("apiserver.pem");
    let flags = [
        format!("--etcd-servers={}", etcd.join(",")),
        format!("--secure-port={port}"),
        "--bind-address=127.0.0.1".into(),
        format!("--tls-cert-file={identity}"),
        format!("--tls-private-key-file={identity}"),
        format!("--client-ca-file={}", pki("ca.crt")),
        format!("--service-account-key-file={identity}"),
        format!("--service-account-signing-key-file={identity}"),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        "--service-cluster-ip-range=10.0.0.0/16".into(),
        "--authorization-mode=RBAC".into(),
    ];
    match &binaries.kube_apiserver {
        Some(program) => Recipe { program: program.clone(), arguments: flags.to_vec() },
        None => {
            let data = format!("--data-dir={}", folder.join(format!("apiserver-{number}")).display());
            let arguments = [&["apiserver".into(), data], &flags[..]].concat();
            Recipe { program: binaries.bayplan.clone(), arguments }
        }
    }
}

/// A scheduler or a controller manager, in half the time that leaders have by default: a fault should outlast it.
pub(crate) fn component(binaries: &Binaries, part: &str, kubeconfig: &Path) -> Recipe {
    let arguments = vec![
        part.to_owned(),
        format!("--kubeconfig={}", kubeconfig.display()),
        "--secure-port=0".into(),
        "--leader-elect=true".into(),
        "--leader-elect-lease-duration=7s".into(),
        "--leader-elect-renew-deadline=5s".into(),
        "--leader-elect-retry-period=1s".into(),
    ];
    Recipe { program: binaries.bayplan.clone(), arguments }
}
