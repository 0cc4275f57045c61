//! `bayplan apiserver`: the API server alone, with kube-apiserver's flags, so that it can stand where one stood.

pub(crate) mod files;
pub(crate) mod options;
mod plugins;

use anyhow::{Result, bail};

use crate::args::apiserver::Apiserver;
use crate::args::component::MetricsAndLogs;
use crate::cluster::Cluster;
use crate::shutdown::StopSignals;
use crate::{component, feature_gates, greeting};

/// Serves the API alone until a signal stops it.
pub(crate) async fn run(args: Apiserver) -> Result<()> {
    if let Some(form) = &args.version {
        return component::print_version(form);
    }
    check(&args)?;
    let stop_requested = StopSignals::listen()?.requested();
    tokio::pin!(stop_requested);
    let standing_in = options::read(&args)?;
    let cluster = tokio::select! {
        // While it waits for etcd, nothing has begun.
        () = &mut stop_requested => return Ok(()),
        cluster = Cluster::start(&args.server, standing_in) => cluster?,
    };
    greeting::write_apiserver(&mut std::io::stdout().lock(), &cluster)?;
    stop_requested.await;
    cluster.stop().await;
    Ok(())
}

/// Refuses flags that cannot be honoured, and warns of those that are ignored.
fn check(args: &Apiserver) -> Result<()> {
    let warnings = args.foreign.check()?;
    check_logs(&args.metrics_and_logs)?;
    if args.server.write_kubeconfig.is_some() && args.authentication.client_ca_file.is_some() {
        bail!("--write-kubeconfig: with --client-ca-file an administrator's certificate is that authority's to issue");
    }
    let gates = feature_gates::check(&args.features)?;
    let apis = runtime_config(&args.cluster.runtime_config)?;
    let kubelet = args.kubelet.kubelet_client_certificate.is_some().then(|| {
        "--kubelet-* is ignored: logs, exec, attach, port-forward and proxies of pods and nodes are answered with 404"
            .to_owned()
    });
    for warning in warnings.into_iter().chain(gates).chain(apis).chain(kubelet) {
        tracing::warn!("{warning}");
    }
    Ok(())
}

fn check_logs(flags: &MetricsAndLogs) -> Result<()> {
    if !flags.allow_metric_labels.is_empty() || flags.allow_metric_labels_manifest.is_some() {
        bail!("--allow-metric-labels: labels of metrics cannot be restricted");
    }
    if flags.log_json_split_stream || flags.log_text_split_stream {
        bail!("--log-json-split-stream, --log-text-split-stream: all of the log goes to standard error");
    }
    if flags.vmodule.is_some() {
        tracing::warn!("--vmodule names upstream's files and is ignored: use --log");
    }
    Ok(())
}

/// Refuses to switch off what is served; answers warnings about what cannot be switched on.
fn runtime_config(settings: &[String]) -> Result<Vec<String>> {
    let mut warnings = Vec::new();
    for setting in settings.iter().map(|setting| setting.trim()).filter(|setting| !setting.is_empty()) {
        let (api, value) = setting.split_once('=').unwrap_or((setting, "true"));
        let Ok(on) = crate::args::go::boolean(value) else {
            bail!("--runtime-config {setting}: {value} is neither true nor false");
        };
        let served = bayplan_apiserver::serves(api);
        match (api, on, served) {
            ("api/all" | "api/ga", true, _) => {}
            ("api/alpha" | "api/beta" | "api/legacy", false, _) => {}
            (_, true, true) | (_, false, false) if !api.starts_with("api/") => {}
            (_, true, _) => warnings.push(format!(
                "--runtime-config {setting} is ignored: what is not served cannot be switched on, and discovery tells \
                 clients what is served"
            )),
            (_, false, _) => bail!("--runtime-config {setting}: what is served cannot be switched off"),
        }
    }
    Ok(warnings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apis_that_are_served_stay_and_others_are_warned_of() {
        for (setting, expected) in [
            ("", Ok(0)),
            ("v1=true", Ok(0)),
            ("apps/v1", Ok(0)),
            ("api/all=true", Ok(0)),
            ("api/alpha=false", Ok(0)),
            ("storage.k8s.io/v1alpha1=false", Ok(0)),
            ("api/alpha=true", Ok(1)),
            ("storage.k8s.io/v1alpha1=true", Ok(1)),
            ("apps/v1=false", Err("cannot be switched off")),
            ("api/all=false", Err("cannot be switched off")),
            ("apps/v1=maybe", Err("neither true nor false")),
        ] {
            match (runtime_config(&[setting.to_owned()]), expected) {
                (Ok(warnings), Ok(count)) => assert_eq!(warnings.len(), count, "{setting}"),
                (Err(error), Err(why)) => assert!(error.to_string().contains(why), "{setting}: {error}"),
                (found, _) => panic!("{setting}: {:?}", found.map_err(|error| error.to_string())),
            }
        }
    }
}
