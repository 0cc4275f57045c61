//! The flags that kube-scheduler and kube-controller-manager share.

use std::net::IpAddr;
use std::path::PathBuf;

use bayplan_scheduler::config::GoDuration;
use clap::Args;

use super::go;

/// How replicas agree on the one that acts.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Leader election")]
pub(crate) struct LeaderElection {
    /// Act only while holding the Lease [default: true].
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = go::boolean
    )]
    pub(crate) leader_elect: Option<bool>,
    /// How long other replicas wait before they take over [default: 15s].
    #[arg(long, value_name = "DURATION", value_parser = go::duration)]
    pub(crate) leader_elect_lease_duration: Option<GoDuration>,
    /// How long a leader tries to renew before it stops [default: 10s].
    #[arg(long, value_name = "DURATION", value_parser = go::duration)]
    pub(crate) leader_elect_renew_deadline: Option<GoDuration>,
    /// The time between two attempts [default: 2s].
    #[arg(long, value_name = "DURATION", value_parser = go::duration)]
    pub(crate) leader_elect_retry_period: Option<GoDuration>,
    /// The kind of lock; only `leases` exists.
    #[arg(long, value_name = "KIND", value_parser = ["leases"])]
    pub(crate) leader_elect_resource_lock: Option<String>,
    /// The name of the Lease [default: the component's].
    #[arg(long, value_name = "NAME")]
    pub(crate) leader_elect_resource_name: Option<String>,
    /// The namespace of the Lease [default: kube-system].
    #[arg(long, value_name = "NAMESPACE")]
    pub(crate) leader_elect_resource_namespace: Option<String>,
}

/// With which certificate and how HTTPS is served.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Tls {
    /// The certificate to serve, followed by those of its issuers; read again when it changes
    /// [default: a self-signed one; of the API server one of the data folder's own authority, renewed while running].
    #[arg(long, value_name = "PATH", requires = "tls_private_key_file")]
    pub(crate) tls_cert_file: Option<PathBuf>,
    /// The key of that certificate.
    #[arg(long, value_name = "PATH", requires = "tls_cert_file")]
    pub(crate) tls_private_key_file: Option<PathBuf>,
    /// TLS 1.2 cipher suites to offer.
    #[arg(long, value_name = "SUITES", value_delimiter = ',')]
    pub(crate) tls_cipher_suites: Vec<String>,
    /// The lowest version of TLS: VersionTLS12 or VersionTLS13.
    #[arg(
        long,
        value_name = "VERSION",
        value_parser = ["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"]
    )]
    pub(crate) tls_min_version: Option<String>,
    /// Key exchanges to offer, by number.
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    pub(crate) tls_curve_preferences: Vec<u16>,
    /// Speak HTTP/1.1 only.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        default_value = "false",
        value_parser = go::boolean
    )]
    pub(crate) disable_http2_serving: bool,
}

impl Tls {
    /// The files of the certificate and of its key.
    pub(crate) fn files(&self) -> Option<(PathBuf, PathBuf)> {
        self.tls_cert_file.clone().zip(self.tls_private_key_file.clone())
    }

    /// Whether nothing below TLS 1.3 is spoken.
    pub(crate) fn is_tls13_only(&self) -> bool {
        self.tls_min_version.as_deref() == Some("VersionTLS13")
    }
}

/// The HTTPS server for health, metrics and configuration.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Secure serving")]
pub(crate) struct Serving {
    /// The address to serve health, metrics and configuration on.
    #[arg(long, value_name = "IP", default_value = "0.0.0.0")]
    pub(crate) bind_address: IpAddr,
    /// The port to serve them on; 0 serves nothing [default: 10259 of the scheduler, 10257 of the controller manager].
    #[arg(long, value_name = "PORT")]
    pub(crate) secure_port: Option<u16>,
    /// Where self-signed certificates are kept; in memory when absent.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) cert_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) tls: Tls,
    /// Certificates by host name; not supported.
    #[arg(long, value_name = "PAIR", hide = true)]
    pub(crate) tls_sni_cert_key: Vec<String>,
    /// Streams of one HTTP/2 connection at once; 0 for the server's own limit.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub(crate) http2_max_streams_per_connection: u32,
    /// Listen while connections to the address are still closing; always on.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        default_value = "false",
        value_parser = go::boolean
    )]
    pub(crate) permit_address_sharing: bool,
    /// Listen on a port that another process listens on too.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        default_value = "false",
        value_parser = go::boolean
    )]
    pub(crate) permit_port_sharing: bool,
}

/// Who may read the secure port.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Authentication and authorization of the secure port")]
pub(crate) struct Delegation {
    /// The kubeconfig of the API server that reviews tokens [default: the component's own].
    #[arg(long, value_name = "PATH")]
    pub(crate) authentication_kubeconfig: Option<PathBuf>,
    /// Do not read from the API server which client certificates to trust.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        default_value = "false",
        value_parser = go::boolean
    )]
    pub(crate) authentication_skip_lookup: bool,
    /// Start without client certificates when that cannot be read.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        default_value = "true",
        value_parser = go::boolean
    )]
    pub(crate) authentication_tolerate_lookup_failure: bool,
    /// How long the review of a token is cached.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = go::duration)]
    pub(crate) authentication_token_webhook_cache_ttl: GoDuration,
    /// A file with the certificate authority of trusted client certificates.
    #[arg(long, value_name = "PATH")]
    pub(crate) client_ca_file: Option<PathBuf>,
    /// The authority of front proxies; ignored.
    #[arg(long, value_name = "PATH", hide = true)]
    pub(crate) requestheader_client_ca_file: Option<PathBuf>,
    #[arg(long, hide = true)]
    pub(crate) requestheader_allowed_names: Vec<String>,
    #[arg(long, hide = true)]
    pub(crate) requestheader_extra_headers_prefix: Vec<String>,
    #[arg(long, hide = true)]
    pub(crate) requestheader_group_headers: Vec<String>,
    #[arg(long, hide = true)]
    pub(crate) requestheader_uid_headers: Vec<String>,
    #[arg(long, hide = true)]
    pub(crate) requestheader_username_headers: Vec<String>,
    /// Paths that need no authorization; a trailing * stands for anything.
    #[arg(long, value_name = "PATHS", value_delimiter = ',', default_value = "/healthz,/readyz,/livez")]
    pub(crate) authorization_always_allow_paths: Vec<String>,
    /// The kubeconfig of the API server that reviews access [default: the component's own].
    #[arg(long, value_name = "PATH")]
    pub(crate) authorization_kubeconfig: Option<PathBuf>,
    /// How long a granted access is cached.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = go::duration)]
    pub(crate) authorization_webhook_cache_authorized_ttl: GoDuration,
    /// How long a denied access is cached.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = go::duration)]
    pub(crate) authorization_webhook_cache_unauthorized_ttl: GoDuration,
}

/// Which metrics are served, and what is logged.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Metrics and logs")]
pub(crate) struct MetricsAndLogs {
    /// Metrics that are not served.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) disabled_metrics: Vec<String>,
    /// Serve metrics hidden since this version; there are none.
    #[arg(long, value_name = "VERSION", value_parser = ["1.35", ""])]
    pub(crate) show_hidden_metrics_for_version: Option<String>,
    #[arg(long, hide = true)]
    pub(crate) allow_metric_labels: Vec<String>,
    #[arg(long, hide = true)]
    pub(crate) allow_metric_labels_manifest: Option<PathBuf>,
    /// The format of the log.
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    pub(crate) logging_format: String,
    #[arg(long, hide = true, value_parser = go::duration)]
    pub(crate) log_flush_frequency: Option<GoDuration>,
    #[arg(long, hide = true)]
    pub(crate) log_json_info_buffer_size: Option<String>,
    #[arg(
        long,
        hide = true,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        default_value = "false",
        value_parser = go::boolean
    )]
    pub(crate) log_json_split_stream: bool,
    #[arg(long, hide = true)]
    pub(crate) log_text_info_buffer_size: Option<String>,
    #[arg(
        long,
        hide = true,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        default_value = "false",
        value_parser = go::boolean
    )]
    pub(crate) log_text_split_stream: bool,
    /// A TracingConfiguration of apiserver.config.k8s.io: the OpenTelemetry collector that spans are sent to, and how
    /// many traces are sampled. Nothing is traced without it.
    #[arg(long, value_name = "PATH")]
    pub(crate) tracing_config_file: Option<PathBuf>,
    /// How much is logged, if --log does not say: 0 for warnings, 1 for info, 3 for requests and attempts, 4 for debug,
    /// 6 for trace.
    #[arg(short = 'v', long = "v", value_name = "LEVEL")]
    pub(crate) verbosity: Option<i32>,
    #[arg(long, hide = true)]
    pub(crate) vmodule: Option<String>,
}

/// Which features are on.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Features")]
pub(crate) struct Features {
    /// Feature gates as Name=true|false; a value that would change the behaviour of v1.36 is refused.
    #[arg(long, value_name = "GATES", value_delimiter = ',')]
    pub(crate) feature_gates: Vec<String>,
    #[arg(long, hide = true, value_delimiter = ',')]
    pub(crate) emulated_version: Vec<String>,
    #[arg(long, hide = true, value_delimiter = ',')]
    pub(crate) min_compatibility_version: Vec<String>,
}

/// The flags of a component.
#[derive(Clone, Debug, Args)]
pub(crate) struct Component {
    #[command(flatten)]
    pub(crate) serving: Serving,
    #[command(flatten)]
    pub(crate) delegation: Delegation,
    #[command(flatten)]
    pub(crate) metrics_and_logs: MetricsAndLogs,
    #[command(flatten)]
    pub(crate) features: Features,
    /// Print the version and exit; `raw` for more.
    #[arg(long, value_name = "raw", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) version: Option<String>,
}
