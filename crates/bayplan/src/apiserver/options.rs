//! From flags to the configuration of the server: reads the files, and names flag and file when one is wrong.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use anyhow::{Result, anyhow, bail};
use bayplan_apiserver::{
    AdmissionPlugins, AuthorizationMode, Config, RequestHeaders, ServiceAccountOptions, StaticTokens,
    check_signing_key, check_verification_keys,
};

use super::files::ServingFiles;
use super::plugins;
use crate::args::apiserver::{Apiserver, Authentication, ClusterFlags};
use crate::cluster::StandIn;

/// The shortest and the longest `--service-account-max-token-expiration`, as upstream.
const TOKEN_SECONDS: std::ops::RangeInclusive<i64> = 3600..=1 << 32;

/// What the flags ask for.
pub(crate) fn read(args: &Apiserver) -> Result<StandIn> {
    let serving = &args.serving;
    let everywhere: IpAddr = match serving.advertise_address {
        Some(IpAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
        _ => Ipv4Addr::UNSPECIFIED.into(),
    };
    let advertised = serving.advertise_address.filter(|address| !address.is_unspecified());
    let headers = request_headers(&args.authentication)?;
    let config = ConfigChanges {
        accounts: AccountFlags::read(&args.authentication)?,
        static_tokens: static_tokens(args.authentication.token_auth_file.as_deref())?,
        request_headers: headers.clone(),
        authentication: args.authentication.clone(),
        plugins: admission_plugins(&args.cluster)?,
        cluster: args.cluster.clone(),
        external_hostname: serving.external_hostname.clone(),
    };
    Ok(StandIn {
        bind: serving.bind_address.or(advertised.map(|_| everywhere)),
        port: serving.secure_port,
        advertise: advertised,
        files: ServingFiles::new(&serving.tls, &args.authentication),
        request_headers: headers,
        etcd: args.etcd.clone(),
        service_range: args.cluster.service_cluster_ip_range.unwrap_or_default(),
        joins: false,
        config: Some(config),
        metrics_and_logs: Some(args.metrics_and_logs.clone()),
        simulated_usage: false,
    })
}

/// What the flags change of a server's configuration.
pub(crate) struct ConfigChanges {
    accounts: AccountFlags,
    static_tokens: StaticTokens,
    request_headers: Option<RequestHeaders>,
    authentication: Authentication,
    plugins: AdmissionPlugins,
    cluster: ClusterFlags,
    external_hostname: Option<String>,
}

impl ConfigChanges {
    pub(crate) fn apply(self, config: &mut Config) {
        let ConfigChanges { authentication, cluster, .. } = self;
        self.accounts.apply(&authentication, &mut config.service_accounts);
        config.static_tokens = self.static_tokens;
        config.request_headers = self.request_headers;
        config.bootstrap_tokens = authentication.enable_bootstrap_token_auth;
        config.anonymous = authentication.anonymous_auth.unwrap_or(true);
        if !cluster.authorization_mode.is_empty() {
            config.authorization.clone_from(&cluster.authorization_mode);
        }
        // As upstream: where everybody may do everything, everybody should at least be somebody.
        if config.authorization.contains(&AuthorizationMode::AlwaysAllow) && config.anonymous {
            tracing::warn!(
                "--anonymous-auth is off: mode AlwaysAllow would let everybody in the network do everything"
            );
            config.anonymous = false;
        }
        config.plugins = self.plugins;
        config.service_range = cluster.service_cluster_ip_range.unwrap_or_default();
        if let Some(range) = cluster.service_node_port_range {
            config.node_ports = range;
        }
        if let Some(lifetime) = cluster.event_ttl {
            config.event_lifetime = lifetime.unsigned();
        }
        let readers = usize::from(cluster.max_requests_inflight.unwrap_or(400));
        let writers = usize::from(cluster.max_mutating_requests_inflight.unwrap_or(200));
        config.seats = readers.saturating_add(writers).max(1);
        if let Some(host) = self.external_hostname {
            config.address = match config.address.rsplit_once(':') {
                Some((_, port)) if !host.contains(':') => format!("{host}:{port}"),
                _ => host,
            };
        }
    }
}

/// The keys of service accounts; without a file, the data folder's own signs.
struct AccountFlags {
    signing_key: Option<String>,
    verification_keys: Vec<String>,
    lifetime_seconds_max: Option<i64>,
}

impl AccountFlags {
    fn read(flags: &Authentication) -> Result<Self> {
        let mut verification_keys = Vec::new();
        for path in &flags.service_account_key_file {
            let pem = text("--service-account-key-file", path)?;
            check_verification_keys(&pem)
                .map_err(|error| anyhow!("--service-account-key-file {}: {error}", path.display()))?;
            verification_keys.push(pem);
        }
        let mut signing_key = None;
        if let Some(path) = &flags.service_account_signing_key_file {
            let pem = text("--service-account-signing-key-file", path)?;
            check_signing_key(&pem)
                .map_err(|error| anyhow!("--service-account-signing-key-file {}: {error}", path.display()))?;
            signing_key = Some(pem);
        } else if !verification_keys.is_empty() {
            bail!("--service-account-key-file needs --service-account-signing-key-file, as kube-apiserver does");
        }
        for issuer in &flags.service_account_issuer {
            if issuer.is_empty() {
                bail!("--service-account-issuer must not be empty");
            }
        }
        let seconds = flags.service_account_max_token_expiration.map(|longest| longest.0 / 1_000_000_000);
        if seconds.is_some_and(|seconds| seconds != 0 && !TOKEN_SECONDS.contains(&seconds)) {
            bail!("--service-account-max-token-expiration must be between 1 hour and 2^32 seconds");
        }
        let lifetime_seconds_max = seconds.filter(|seconds| *seconds != 0);
        Ok(AccountFlags { signing_key, verification_keys, lifetime_seconds_max })
    }

    fn apply(self, flags: &Authentication, options: &mut ServiceAccountOptions) {
        if let Some(key) = self.signing_key {
            options.signing_key = key;
        }
        options.verification_keys = self.verification_keys;
        if !flags.service_account_issuer.is_empty() {
            options.issuers.clone_from(&flags.service_account_issuer);
        }
        options.audiences.clone_from(&flags.api_audiences);
        options.jwks_uri.clone_from(&flags.service_account_jwks_uri);
        options.lifetime_seconds_max = self.lifetime_seconds_max;
        options.extend_lifetimes = flags.service_account_extend_token_expiration;
    }
}

fn static_tokens(path: Option<&Path>) -> Result<StaticTokens> {
    let Some(path) = path else { return Ok(StaticTokens::default()) };
    let text = text("--token-auth-file", path)?;
    let tokens =
        StaticTokens::parse(&text).map_err(|error| anyhow!("--token-auth-file {}: {error}", path.display()))?;
    if tokens.is_empty() {
        bail!("--token-auth-file {}: it holds no token", path.display());
    }
    Ok(tokens)
}

/// The headers of front proxies; none without the authority that makes a client one.
fn request_headers(flags: &Authentication) -> Result<Option<RequestHeaders>> {
    let headers = RequestHeaders {
        allowed_names: flags.requestheader_allowed_names.clone(),
        username_headers: flags.requestheader_username_headers.clone(),
        uid_headers: flags.requestheader_uid_headers.clone(),
        group_headers: flags.requestheader_group_headers.clone(),
        extra_headers_prefix: flags.requestheader_extra_headers_prefix.clone(),
    };
    let named = headers.username_headers.iter().chain(&headers.uid_headers);
    for name in named.chain(&headers.group_headers).chain(&headers.extra_headers_prefix) {
        let is_header = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if name.is_empty() || !name.bytes().all(is_header) {
            bail!("--requestheader-*: {name:?} is not the name of a header");
        }
    }
    match &flags.requestheader_client_ca_file {
        Some(_) if headers.username_headers.is_empty() => {
            bail!("--requestheader-client-ca-file needs --requestheader-username-headers")
        }
        Some(_) => Ok(Some(headers)),
        None if headers != RequestHeaders::default() => {
            bail!("--requestheader-* flags need --requestheader-client-ca-file: nobody else is believed")
        }
        None => Ok(None),
    }
}

/// Nodes that are authorized as such are real, and start with the taint that their controller takes away.
fn admission_plugins(flags: &ClusterFlags) -> Result<AdmissionPlugins> {
    let default = AdmissionPlugins {
        taint_nodes_by_condition: flags.authorization_mode.contains(&AuthorizationMode::Node),
        ..AdmissionPlugins::default()
    };
    plugins::chosen(default, &flags.enable_admission_plugins, &flags.disable_admission_plugins)
}

/// The text of a file that a flag names.
pub(super) fn text(flag: &str, path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).map_err(|error| anyhow!("{flag} {}: {error}", path.display()))?;
    String::from_utf8(bytes).map_err(|_| anyhow!("{flag} {}: it is not text", path.display()))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn refusal(arguments: &[&str]) -> String {
        let cli = Cli::try_parse_from(["bayplan", "apiserver"].iter().chain(arguments)).unwrap();
        let Command::Apiserver(args) = cli.command else { panic!("another command") };
        read(&args).map(drop).unwrap_err().to_string()
    }

    #[test]
    fn each_wrong_file_is_named_with_its_flag() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let (empty, garbage, short) = (file("empty", ""), file("garbage", "garbage"), file("short", "token,user\n"));
        for (arguments, why) in [
            (vec![format!("--token-auth-file={empty}")], "it holds no token"),
            (vec![format!("--token-auth-file={short}")], "needs at least 3 fields"),
            (vec!["--token-auth-file=/missing/file".into()], "No such file"),
            (vec![format!("--service-account-signing-key-file={garbage}")], "it is not PEM"),
            (vec![format!("--service-account-key-file={garbage}")], "it is not PEM"),
            (vec![format!("--requestheader-client-ca-file={empty}")], "needs --requestheader-username-headers"),
            (vec!["--requestheader-username-headers=X-Remote-User".into()], "need --requestheader-client-ca-file"),
            (vec!["--service-account-max-token-expiration=1m".into()], "between 1 hour"),
            (vec!["--enable-admission-plugins=EventRateLimit".into()], "EventRateLimit is not implemented"),
        ] {
            let given: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let error = refusal(&given);
            let flag = arguments[0].split('=').next().unwrap();
            let named = error.contains(flag) || error.contains("--requestheader-*");
            assert!(error.contains(why) && named && error.lines().count() == 1, "{arguments:?}: {error}");
        }
    }
}
