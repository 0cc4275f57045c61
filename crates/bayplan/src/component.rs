//! What `bayplan scheduler` and `bayplan controller-manager` share: connection, operations server, orderly end.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use bayplan_apiserver::LegacyTokenKey;
use bayplan_client::metrics::RequestMetrics;
use bayplan_client::{Client, Config, leader_election};
use bayplan_metrics::{Registry, ZPages};
use bayplan_runner::controllers::TokenSigner;
use bayplan_runner::ops_server::access::{self, Access, Rules};
use bayplan_runner::ops_server::{Endpoints, Http2, Listen, OpsServer, tls};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::args::Connection;
use crate::args::component::{Component, LeaderElection};
use crate::args::given;
use crate::shutdown::StopSignals;
use crate::{feature_gates, version};

/// A leader needs time for more than one attempt to renew: client-go's `JitterFactor`.
pub(crate) const RENEW_JITTER: f64 = 1.2;

/// How long a component waits to learn which client certificates to trust before it starts without them.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// Signs the tokens of service accounts that are kept in secrets, with the first private key of a PEM file.
pub(crate) fn token_signer(pem: &str) -> Result<TokenSigner> {
    let key = LegacyTokenKey::read(pem)?;
    Ok(TokenSigner::new(move |claims| key.sign(claims).map_err(|error| error.to_string())))
}

/// A component of Kubernetes that Bayplan stands in for.
#[derive(Clone, Copy)]
pub(crate) struct Identity {
    pub(crate) name: &'static str,
    pub(crate) secure_port: u16,
}

/// Refuses flags that cannot be honoured, and warns of those that are ignored.
pub(crate) fn check(args: &Component, connection: &Connection) -> Result<()> {
    let Component { serving, delegation, metrics_and_logs, features, .. } = args;
    let refused = [
        (!serving.tls_sni_cert_key.is_empty(), "--tls-sni-cert-key: certificates by host name are not supported"),
        (
            !metrics_and_logs.allow_metric_labels.is_empty() || metrics_and_logs.allow_metric_labels_manifest.is_some(),
            "--allow-metric-labels: labels of metrics cannot be restricted",
        ),
        (
            metrics_and_logs.log_json_split_stream || metrics_and_logs.log_text_split_stream,
            "--log-json-split-stream, --log-text-split-stream: all of the log goes to standard error",
        ),
    ];
    if let Some((_, why)) = refused.iter().find(|(given, _)| *given) {
        bail!("{why}");
    }
    let harmless = [
        (
            delegation.requestheader_client_ca_file.is_some(),
            "--requestheader-client-ca-file is ignored: the secure port knows no front proxies",
        ),
        (metrics_and_logs.vmodule.is_some(), "--vmodule names upstream's files and is ignored: use --log"),
        (
            connection.profiling == Some(true) || connection.contention_profiling == Some(true),
            "--profiling is ignored: no profile is served at /debug/pprof, which says why",
        ),
        (
            connection.kube_api_content_type.as_ref().is_some_and(|kind| kind != "application/json"),
            "--kube-api-content-type is ignored: requests are JSON",
        ),
    ];
    for (_, warning) in harmless.iter().filter(|(given, _)| *given) {
        tracing::warn!("{warning}");
    }
    for warning in feature_gates::check(features)? {
        tracing::warn!("{warning}");
    }
    Ok(())
}

/// The version as upstream's components print theirs.
pub(crate) fn print_version(form: &str) -> Result<()> {
    use std::io::Write;
    let version = format!("{}+bayplan-{}", version::KUBERNETES, env!("CARGO_PKG_VERSION"));
    let mut out = std::io::stdout().lock();
    match form {
        "true" => writeln!(out, "Kubernetes {version}")?,
        "raw" => writeln!(out, "version.Info{{Major:\"1\", Minor:\"36\", GitVersion:\"{version}\"}}")?,
        "false" => {}
        other => bail!("--version={other}: neither true, false nor raw"),
    }
    Ok(())
}

/// What `/statusz` and `/flagz` say of a component.
pub(crate) fn pages(component: &'static str) -> ZPages {
    ZPages {
        component,
        started: jiff::Timestamp::now().strftime("%a %b %e %H:%M:%S UTC %Y").to_string(),
        version: format!("{}+bayplan-{}", version::KUBERNETES, env!("CARGO_PKG_VERSION")),
        emulates: "1.36",
        paths: &["/configz", "/flagz", "/healthz", "/livez", "/metrics", "/metrics/slis", "/readyz", "/statusz"],
        flags: given::flags().to_vec(),
    }
}

/// Connects under the component's name and counts its requests.
pub(crate) async fn connect(
    kubeconfig: Option<&Path>,
    master: Option<&str>,
    identity: Identity,
    registry: &Registry,
) -> Result<Client> {
    let client = Client::connect(kubeconfig, None, master).await?;
    let client = client.with_user_agent(&format!("{}/v{}", identity.name, env!("CARGO_PKG_VERSION")))?;
    Ok(client.with_metrics(&RequestMetrics::new(registry)))
}

/// The same connection without anything that says who we are.
pub(crate) fn connect_anonymously(kubeconfig: Option<&Path>, master: Option<&str>) -> Result<Client> {
    Ok(Client::from_config(&Config::load(kubeconfig, None, master)?.anonymous())?)
}

/// Opens the secure port before anything else, so that a port in use ends the start at once.
pub(crate) fn listen(args: &Component, identity: Identity) -> Result<Option<TcpListener>> {
    let serving = &args.serving;
    let listen = Listen {
        address: serving.bind_address,
        port: serving.secure_port.unwrap_or(identity.secure_port),
        share_port: serving.permit_port_sharing,
    };
    listen.open().map_err(|error| anyhow!("{error}: choose another port with --secure-port, or 0 for none"))
}

/// Serves health, metrics and configuration on an open port.
pub(crate) async fn serve(
    args: &Component,
    identity: Identity,
    listener: TcpListener,
    own: &Client,
    endpoints: Endpoints,
) -> Result<OpsServer> {
    let Component { serving, delegation, metrics_and_logs, .. } = args;
    endpoints.metrics.disable(metrics_and_logs.disabled_metrics.iter().cloned());
    let authenticator = client_of(delegation.authentication_kubeconfig.as_deref(), own).await?;
    let authorizer = client_of(delegation.authorization_kubeconfig.as_deref(), own).await?;
    let options = tls::Options {
        name: identity.name.into(),
        files: serving.tls.files(),
        folder: serving.cert_dir.clone(),
        client_authorities: client_authorities(args, &authenticator).await?,
        tls13_only: serving.tls.is_tls13_only(),
        cipher_suites: serving.tls.tls_cipher_suites.clone(),
        curves: serving.tls.tls_curve_preferences.clone(),
        without_http2: serving.tls.disable_http2_serving,
    };
    let rules = Rules {
        always_allow_paths: delegation.authorization_always_allow_paths.clone(),
        token_lifetime: delegation.authentication_token_webhook_cache_ttl.unsigned(),
        allowed_lifetime: delegation.authorization_webhook_cache_authorized_ttl.unsigned(),
        denied_lifetime: delegation.authorization_webhook_cache_unauthorized_ttl.unsigned(),
    };
    let http2 =
        Http2 { disabled: serving.tls.disable_http2_serving, streams_max: serving.http2_max_streams_per_connection };
    let access = Access::new(rules, Some(authenticator), Some(authorizer));
    let server = OpsServer::start(listener, tls::renewed(options)?, http2, access, endpoints)?;
    tracing::info!(address = %server.address, "serving health and metrics");
    Ok(server)
}

async fn client_of(kubeconfig: Option<&Path>, own: &Client) -> Result<Client> {
    match kubeconfig {
        Some(path) => Ok(Client::from_kubeconfig(Some(path), None).await?),
        None => Ok(own.clone()),
    }
}

/// The trusted client certificate authorities: the one of the file and the one the API server publishes.
async fn client_authorities(args: &Component, api: &Client) -> Result<Vec<String>> {
    let delegation = &args.delegation;
    let mut authorities = Vec::new();
    if let Some(path) = &delegation.client_ca_file {
        let read = std::fs::read_to_string(path);
        authorities.push(read.with_context(|| format!("cannot read {}", path.display()))?);
    }
    if !delegation.authentication_skip_lookup {
        match access::published_client_authority(&api.clone().with_timeout(LOOKUP_TIMEOUT)).await {
            Ok(published) => authorities.extend(published),
            Err(status) if delegation.authentication_tolerate_lookup_failure => {
                tracing::warn!("the secure port accepts no client certificates: {status}");
            }
            Err(status) => bail!("cannot read which client certificates to trust: {status}"),
        }
    }
    Ok(authorities)
}

/// Runs a component until it ends by itself or a signal stops it; returns its outcome.
pub(crate) async fn until_stopped<F: Future>(
    signals: StopSignals,
    stop: &watch::Sender<bool>,
    component: F,
) -> F::Output {
    let mut component = std::pin::pin!(component);
    tokio::select! {
        end = &mut component => return end,
        () = signals.requested() => {}
    }
    stop.send_replace(true);
    component.await
}

/// The lease that decides which replica acts, as the log names it.
pub(crate) fn lease_name(election: Option<&leader_election::Config>) -> String {
    match election {
        Some(config) => format!("{}/{}", config.namespace, config.name),
        None => "none".to_owned(),
    }
}

/// Overrides a configuration's `leaderElection` with the flags that were given.
pub(crate) fn apply_election(args: &LeaderElection, election: &mut serde_json::Value) {
    let durations = [
        ("leaseDuration", args.leader_elect_lease_duration),
        ("renewDeadline", args.leader_elect_renew_deadline),
        ("retryPeriod", args.leader_elect_retry_period),
    ];
    for (field, duration) in durations {
        if let Some(duration) = duration {
            election[field] = duration.to_string().into();
        }
    }
    let texts = [
        ("resourceLock", &args.leader_elect_resource_lock),
        ("resourceName", &args.leader_elect_resource_name),
        ("resourceNamespace", &args.leader_elect_resource_namespace),
    ];
    for (field, text) in texts {
        if let Some(text) = text {
            election[field] = text.as_str().into();
        }
    }
    if let Some(leader_elect) = args.leader_elect {
        election["leaderElect"] = leader_elect.into();
    }
}
