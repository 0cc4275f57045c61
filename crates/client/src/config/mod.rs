//! How to reach an API server, and as whom: client-go's `rest.Config`.
//!
//! ```text
//!   --kubeconfig, KUBECONFIG, ~/.kube/config ─▶ kubeconfig ─┐
//!   a pod's service account ─────────────────▶ in_cluster ──┴─▶ Config ─▶ transport (tls, credentials) ─▶ API server
//! ```

mod credentials;
mod exec;
mod in_cluster;
mod kubeconfig;
mod proxy;
mod tls;

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Uri;

pub use credentials::Credentials;
pub(crate) use credentials::{Authenticator, Current};
pub use exec::{EnvironmentVariable, ExecPlugin, InteractiveMode};
pub(crate) use proxy::Protocol;
pub use proxy::Proxy;
pub use tls::{Identity, Tls};

/// How long a connection may take to open, as client-go's dialer allows.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a configuration cannot be read or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {what} {}: {source}", path.display())]
    File {
        /// What the file is for.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The kubeconfig is not one.
    #[error("the kubeconfig {} cannot be used: {reason}", path.display())]
    Kubeconfig {
        /// The file, or the files that were merged.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Nothing says where an API server is.
    #[error(
        "no API server to talk to: --kubeconfig and KUBECONFIG name no file, {looked_at}, and this process does not \
         run in a pod; name a kubeconfig with --kubeconfig"
    )]
    Nothing {
        /// What became of the default kubeconfig.
        looked_at: String,
    },
    /// Certificates or keys cannot be used.
    #[error("{what} cannot be used: {reason}")]
    Certificate {
        /// Which of them.
        what: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The address is not one of a server.
    #[error("{0:?} is not the address of an API server: it needs a scheme and a host, such as https://10.0.0.1:6443")]
    Server(String),
    /// The server's certificate cannot be for this name.
    #[error("the kubeconfig's tls-server-name {0:?} is neither a DNS name nor an address")]
    ServerName(String),
    /// Requests would have to pass through a proxy that cannot be used.
    #[error("{origin} names the proxy {url}, which cannot be used: {reason}")]
    Proxy {
        /// Where the proxy is named.
        origin: &'static str,
        /// The proxy, without user and password.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A value cannot be sent as an HTTP header.
    #[error("{0} cannot be sent as an HTTP header")]
    Header(&'static str),
}

/// Where an API server is, whom to trust and who we are.
#[derive(Clone, Debug)]
pub struct Config {
    /// The server's address, perhaps with a path that requests begin with.
    pub server: Uri,
    /// Whom to trust, and which certificate to show.
    pub tls: Tls,
    /// What identifies us besides a certificate.
    pub credentials: Credentials,
    /// The user to act as instead.
    pub impersonate: Impersonate,
    /// The proxy that connections go through.
    pub proxy: Option<Proxy>,
    /// How long a connection may take to open; for ever when absent.
    pub connect_timeout: Option<Duration>,
    /// The namespace that the kubeconfig's context names; empty when it names none.
    pub namespace: String,
}

/// The user to act as: `as`, `as-uid`, `as-groups` and `as-user-extra` of a kubeconfig's user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Impersonate {
    /// The user's name; nobody is impersonated when it is empty.
    pub user: String,
    /// The user's UID.
    pub uid: String,
    /// The user's groups.
    pub groups: Vec<String>,
    /// Further facts about the user, by key.
    pub extra: Vec<(String, Vec<String>)>,
}

impl Config {
    /// The same server without anything that says who we are.
    #[must_use]
    pub fn anonymous(mut self) -> Self {
        self.tls.identity = None;
        self.credentials = Credentials::None;
        self.impersonate = Impersonate::default();
        self
    }

    /// A server to talk to without credentials.
    pub fn new(server: Uri) -> Self {
        Config {
            server,
            tls: Tls::default(),
            credentials: Credentials::None,
            impersonate: Impersonate::default(),
            proxy: None,
            connect_timeout: Some(CONNECT_TIMEOUT),
            namespace: String::new(),
        }
    }

    /// Reads the configuration of the environment: the kubeconfig `path`, else the files of `KUBECONFIG`, else
    /// `~/.kube/config`, else the pod's service account. `context` replaces the current context, `master` the server's
    /// address; a `master` without a kubeconfig is talked to without credentials.
    pub fn load(path: Option<&Path>, context: Option<&str>, master: Option<&str>) -> Result<Self, Error> {
        let environment = Environment::of_process();
        let mut config = environment.load(path, context, master)?;
        if let Some(master) = master {
            config.server = parse_server(master)?;
        }
        if config.proxy.is_none() {
            config.proxy = proxy::of_environment(&config.server, &|name| std::env::var(name).ok())?;
        }
        Ok(config)
    }
}

/// What the process's surroundings say about API servers.
struct Environment {
    /// The files of `KUBECONFIG`.
    kubeconfigs: Vec<PathBuf>,
    home: Option<PathBuf>,
    pod: in_cluster::Pod,
}

impl Environment {
    fn of_process() -> Self {
        let list = std::env::var_os("KUBECONFIG").unwrap_or_default();
        Environment {
            // client-go ignores empty entries of the list.
            kubeconfigs: std::env::split_paths(&list).filter(|path| !path.as_os_str().is_empty()).collect(),
            home: std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from),
            pod: in_cluster::Pod::of_process(),
        }
    }

    fn load(&self, path: Option<&Path>, context: Option<&str>, master: Option<&str>) -> Result<Config, Error> {
        if let Some(path) = path {
            return kubeconfig::read(path)?.config(context);
        }
        if context.is_none()
            && let Some(master) = master
        {
            return Ok(Config::new(parse_server(master)?));
        }
        let default = self.home.as_ref().map(|home| home.join(".kube/config"));
        let files: Vec<PathBuf> =
            if self.kubeconfigs.is_empty() { default.iter().cloned().collect() } else { self.kubeconfigs.clone() };
        if let Some(merged) = kubeconfig::read_all(&files)? {
            return merged.config(context);
        }
        match self.pod.config()? {
            Some(config) => Ok(config),
            None => Err(Error::Nothing { looked_at: missing(&files) }),
        }
    }
}

fn missing(files: &[PathBuf]) -> String {
    let names: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
    match names.len() {
        0 => "HOME is not set".to_owned(),
        1 => format!("{} does not exist", names[0]),
        _ => format!("none of {} exists", names.join(", ")),
    }
}

/// A server's address; a scheme is assumed as client-go's `DefaultServerURL` does.
pub(crate) fn parse_server(text: &str) -> Result<Uri, Error> {
    let wrong = || Error::Server(text.to_owned());
    let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let uri: Uri = whole.parse().map_err(|_| wrong())?;
    match (uri.scheme_str(), uri.host()) {
        (Some("http" | "https"), Some(host)) if !host.is_empty() => Ok(uri),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "{clusters: [{name: a, cluster: {server: https://a.example}}], users: [], \
                        contexts: [{name: a, context: {cluster: a}}], current-context: a}";

    fn environment(folder: &Path) -> Environment {
        Environment { kubeconfigs: Vec::new(), home: Some(folder.to_owned()), pod: in_cluster::Pod::nowhere() }
    }

    #[test]
    fn a_kubeconfig_is_looked_for_where_client_go_looks() {
        let folder = tempfile::tempdir().unwrap();
        let mut environment = environment(folder.path());
        let nothing = environment.load(None, None, None).unwrap_err().to_string();
        let default = folder.path().join(".kube/config");
        assert_eq!(
            nothing,
            format!(
                "no API server to talk to: --kubeconfig and KUBECONFIG name no file, {} does not exist, and this \
                 process does not run in a pod; name a kubeconfig with --kubeconfig",
                default.display()
            )
        );
        // A master alone is talked to without credentials.
        let config = environment.load(None, None, Some("10.0.0.1:8080")).unwrap();
        assert_eq!(config.server, "http://10.0.0.1:8080/");

        std::fs::create_dir(folder.path().join(".kube")).unwrap();
        std::fs::write(&default, FILE).unwrap();
        assert_eq!(environment.load(None, None, None).unwrap().server, "https://a.example/");

        let other = folder.path().join("other");
        std::fs::write(&other, FILE.replace("a.example", "other.example")).unwrap();
        environment.kubeconfigs = vec![folder.path().join("missing"), other];
        assert_eq!(environment.load(None, None, None).unwrap().server, "https://other.example/");
        assert_eq!(environment.load(Some(&default), None, None).unwrap().server, "https://a.example/");
        let missing = environment.load(Some(&folder.path().join("missing")), None, None).unwrap_err().to_string();
        assert!(missing.starts_with("cannot read the kubeconfig "), "{missing}");
    }

    #[test]
    fn a_server_has_a_scheme_and_a_host() {
        for (text, expected) in [
            ("https://10.0.0.1:6443", Some("https://10.0.0.1:6443/")),
            ("https://example/k8s/clusters/c", Some("https://example/k8s/clusters/c")),
            ("localhost:8080", Some("http://localhost:8080/")),
            ("ftp://example", None),
            ("https://", None),
            ("not an address", None),
        ] {
            assert_eq!(parse_server(text).ok().map(|uri| uri.to_string()).as_deref(), expected, "{text}");
        }
    }
}
