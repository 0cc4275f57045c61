//! The flags of kube-apiserver that do something here; those that do not are in [`foreign`](super::foreign).

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use bayplan_apiserver::{AuthorizationMode, ServiceRange};
use bayplan_scheduler::config::GoDuration;
use clap::Args;

use super::Server;
use super::component::{Features, MetricsAndLogs, Tls};
use super::foreign::Foreign;
use super::go;

#[derive(Debug, Args)]
pub(crate) struct Apiserver {
    #[command(flatten)]
    pub(crate) server: Server,
    #[command(flatten)]
    pub(crate) serving: ApiServing,
    #[command(flatten)]
    pub(crate) authentication: Authentication,
    #[command(flatten)]
    pub(crate) etcd: Etcd,
    #[command(flatten)]
    pub(crate) cluster: ClusterFlags,
    #[command(flatten)]
    pub(crate) kubelet: Kubelet,
    #[command(flatten)]
    pub(crate) metrics_and_logs: MetricsAndLogs,
    #[command(flatten)]
    pub(crate) features: Features,
    /// Flags of kube-apiserver that are taken as they are, ignored or refused.
    #[command(flatten)]
    pub(crate) foreign: Foreign,
    /// Print the version and exit; `raw` for more.
    #[arg(long, value_name = "raw", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) version: Option<String>,
}

/// Where and with which certificate the API server listens.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Secure serving (kube-apiserver's flags)")]
pub(crate) struct ApiServing {
    /// The address to listen on [default: all, when --advertise-address is given; 127.0.0.1 otherwise].
    #[arg(long, value_name = "IP")]
    pub(crate) bind_address: Option<IpAddr>,
    /// The port to listen on; another name of --port.
    #[arg(long, value_name = "PORT", conflicts_with = "port", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) secure_port: Option<u16>,
    /// The address that the members of the cluster are told [default: the one the server listens on].
    #[arg(long, value_name = "IP")]
    pub(crate) advertise_address: Option<IpAddr>,
    /// The name of the server in URLs that it tells.
    #[arg(long, value_name = "HOST")]
    pub(crate) external_hostname: Option<String>,
    #[command(flatten)]
    pub(crate) tls: Tls,
}

/// Who is believed to be whom.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Authentication (kube-apiserver's flags)")]
pub(crate) struct Authentication {
    /// The authority whose client certificates name users; read again when it changes
    /// [default: the data folder's own, which also issues the administrator's kubeconfig].
    #[arg(long, value_name = "PATH")]
    pub(crate) client_ca_file: Option<PathBuf>,
    /// Tokens of fixed users: lines of `token,user,uid,"group1,group2"`.
    #[arg(long, value_name = "PATH")]
    pub(crate) token_auth_file: Option<PathBuf>,
    /// Serve requests without credentials as system:anonymous [default: true].
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = go::boolean
    )]
    pub(crate) anonymous_auth: Option<bool>,
    /// Accept the bootstrap tokens of kube-system.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        default_value = "false",
        value_parser = go::boolean
    )]
    pub(crate) enable_bootstrap_token_auth: bool,
    /// The authority of front proxies, who name users in headers; read again when it changes.
    #[arg(long, value_name = "PATH")]
    pub(crate) requestheader_client_ca_file: Option<PathBuf>,
    /// The common names of front proxies; all of that authority when empty.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) requestheader_allowed_names: Vec<String>,
    /// The headers with the name of the user.
    #[arg(long, value_name = "HEADERS", value_delimiter = ',')]
    pub(crate) requestheader_username_headers: Vec<String>,
    /// The headers with the uid of the user.
    #[arg(long, value_name = "HEADERS", value_delimiter = ',')]
    pub(crate) requestheader_uid_headers: Vec<String>,
    /// The headers with the groups of the user.
    #[arg(long, value_name = "HEADERS", value_delimiter = ',')]
    pub(crate) requestheader_group_headers: Vec<String>,
    /// What the headers with other information about the user begin with.
    #[arg(long, value_name = "PREFIXES", value_delimiter = ',')]
    pub(crate) requestheader_extra_headers_prefix: Vec<String>,
    /// The issuers of service account tokens that are accepted; the first issues. May be repeated
    /// [default: https://kubernetes.default.svc].
    #[arg(long, value_name = "URL")]
    pub(crate) service_account_issuer: Vec<String>,
    /// Keys that verify service account tokens, public or private, several in a file. May be repeated
    /// [default: the key that signs].
    #[arg(long, value_name = "PATH")]
    pub(crate) service_account_key_file: Vec<PathBuf>,
    /// The private key that signs service account tokens: RSA, or ECDSA on P-256 or P-384
    /// [default: one of the data folder].
    #[arg(long, value_name = "PATH")]
    pub(crate) service_account_signing_key_file: Option<PathBuf>,
    /// The audiences of the server, which its tokens must be for [default: the issuers].
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) api_audiences: Vec<String>,
    /// Where others find the public keys of tokens [default: at this server].
    #[arg(long, value_name = "URL")]
    pub(crate) service_account_jwks_uri: Option<String>,
    /// The longest lifetime of a service account token, an hour or more.
    #[arg(long, value_name = "DURATION", value_parser = go::duration)]
    pub(crate) service_account_max_token_expiration: Option<GoDuration>,
    /// Let the tokens of pods live for a year, for clients that never reload them.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        default_value = "true",
        value_parser = go::boolean
    )]
    pub(crate) service_account_extend_token_expiration: bool,
}

/// Where objects are stored, when not in the data folder.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Storage (kube-apiserver's flags)")]
pub(crate) struct Etcd {
    /// The members of an etcd cluster, http or https, in place of the embedded store.
    #[arg(long, value_name = "URLS", value_delimiter = ',', conflicts_with_all = ["in_memory", "accept_lost_writes"])]
    pub(crate) etcd_servers: Vec<String>,
    /// The authority of etcd's certificates.
    #[arg(long, value_name = "PATH", requires = "etcd_servers")]
    pub(crate) etcd_cafile: Option<PathBuf>,
    /// The client certificate for etcd.
    #[arg(long, value_name = "PATH", requires_all = ["etcd_servers", "etcd_keyfile"])]
    pub(crate) etcd_certfile: Option<PathBuf>,
    /// The key of that certificate.
    #[arg(long, value_name = "PATH", requires_all = ["etcd_servers", "etcd_certfile"])]
    pub(crate) etcd_keyfile: Option<PathBuf>,
    /// What all keys in etcd begin with.
    #[arg(long, value_name = "PATH", default_value = "/registry")]
    pub(crate) etcd_prefix: String,
    /// How secrets and other objects are encrypted in etcd.
    #[arg(long, value_name = "PATH")]
    pub(crate) encryption_provider_config: Option<PathBuf>,
}

/// What the cluster allows, and the ranges it gives from.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Cluster (kube-apiserver's flags)")]
pub(crate) struct ClusterFlags {
    /// Who decides about rights, in this order: Node, RBAC, AlwaysAllow, AlwaysDeny [default: RBAC].
    #[arg(long, value_name = "MODES", value_delimiter = ',', value_parser = authorization_mode)]
    pub(crate) authorization_mode: Vec<AuthorizationMode>,
    /// Admission plugins to switch on beside the default ones.
    #[arg(long, value_name = "PLUGINS", value_delimiter = ',')]
    pub(crate) enable_admission_plugins: Vec<String>,
    /// Default admission plugins to switch off.
    #[arg(long, value_name = "PLUGINS", value_delimiter = ',')]
    pub(crate) disable_admission_plugins: Vec<String>,
    /// The range of cluster IPs, IPv4, and after a comma one of IPv6 [default: 10.96.0.0/12].
    #[arg(long, value_name = "CIDR", value_parser = service_range)]
    pub(crate) service_cluster_ip_range: Option<ServiceRange>,
    /// The range of node ports [default: 30000-32767].
    #[arg(long, value_name = "RANGE", value_parser = port_range)]
    pub(crate) service_node_port_range: Option<RangeInclusive<u16>>,
    /// How long an event is kept after it was last written [default: 1h].
    #[arg(long, value_name = "DURATION", value_parser = go::duration)]
    pub(crate) event_ttl: Option<GoDuration>,
    /// With --max-mutating-requests-inflight, how many requests are served at once [default: 400].
    #[arg(long, value_name = "NUMBER")]
    pub(crate) max_requests_inflight: Option<u16>,
    /// With --max-requests-inflight, how many requests are served at once [default: 200].
    #[arg(long, value_name = "NUMBER")]
    pub(crate) max_mutating_requests_inflight: Option<u16>,
    /// APIs to switch on or off, as GROUP/VERSION=true|false; none that is served can be switched off.
    #[arg(long, value_name = "APIS", value_delimiter = ',')]
    pub(crate) runtime_config: Vec<String>,
}

/// How the kubelets are reached, for logs and sessions of containers.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Kubelets (kube-apiserver's flags)")]
pub(crate) struct Kubelet {
    /// The client certificate for kubelets.
    #[arg(long, value_name = "PATH", requires = "kubelet_client_key")]
    pub(crate) kubelet_client_certificate: Option<PathBuf>,
    /// The key of that certificate.
    #[arg(long, value_name = "PATH", requires = "kubelet_client_certificate")]
    pub(crate) kubelet_client_key: Option<PathBuf>,
    /// The authority of the kubelets' certificates; not verified when absent, as upstream.
    #[arg(long, value_name = "PATH")]
    pub(crate) kubelet_certificate_authority: Option<PathBuf>,
    /// The types of node addresses to use, preferred first
    /// [default: Hostname,InternalDNS,InternalIP,ExternalDNS,ExternalIP].
    #[arg(
        long,
        value_name = "TYPES",
        value_delimiter = ',',
        value_parser = ["Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP"]
    )]
    pub(crate) kubelet_preferred_address_types: Vec<String>,
}

fn authorization_mode(text: &str) -> Result<AuthorizationMode, String> {
    match text {
        "RBAC" => Ok(AuthorizationMode::Rbac),
        "Node" => Ok(AuthorizationMode::Node),
        "AlwaysAllow" => Ok(AuthorizationMode::AlwaysAllow),
        "AlwaysDeny" => Ok(AuthorizationMode::AlwaysDeny),
        "ABAC" | "Webhook" => Err(format!("mode {text} is not supported: Node, RBAC, AlwaysAllow and AlwaysDeny are")),
        _ => Err("neither Node, RBAC, AlwaysAllow nor AlwaysDeny".to_owned()),
    }
}

fn service_range(text: &str) -> Result<ServiceRange, String> {
    text.parse::<ServiceRange>().map_err(|error| error.to_string())
}

/// `30000-32767`, or `30000+2767`, as upstream's `PortRange`.
fn port_range(text: &str) -> Result<RangeInclusive<u16>, String> {
    let wrong = || "not a range of ports such as 30000-32767".to_owned();
    let number = |text: &str| text.trim().parse::<u16>().ok();
    let range = match (text.split_once('-'), text.split_once('+')) {
        (Some((first, last)), _) => number(first).zip(number(last)),
        (_, Some((first, more))) => {
            number(first).zip(number(more)).and_then(|(first, more)| Some((first, first.checked_add(more)?)))
        }
        (None, None) => number(text).map(|port| (port, port)),
    };
    let (first, last) = range.ok_or_else(wrong)?;
    if first == 0 || first > last { Err(wrong()) } else { Ok(first..=last) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_ports_are_read_as_upstream_writes_them() {
        for (text, expected) in [
            ("30000-32767", Some(30000..=32767)),
            ("30000+2767", Some(30000..=32767)),
            ("30000", Some(30000..=30000)),
            ("32767-30000", None),
            ("0-10", None),
            ("60000+9999", None),
            ("many", None),
        ] {
            assert_eq!(port_range(text).ok(), expected, "{text}");
        }
    }
}
