//! `--tracing-config-file`: spans to an OpenTelemetry collector, if somebody asks for them.

use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use bayplan_metrics::Registry;
use bayplan_model::trace::Tracer;
use bayplan_otlp::{Export, Service, TracingConfig};

use crate::args::component::MetricsAndLogs;

/// Where spans go, and the task that sends them; neither without the flag.
#[derive(Default)]
pub(crate) struct Traces {
    pub(crate) tracer: Option<Arc<dyn Tracer>>,
    export: Option<Export>,
}

impl Traces {
    /// Starts what the flag asks for. A file that cannot be used ends the start; a collector that is away does not.
    pub(crate) fn start(flags: &MetricsAndLogs, name: &str, instance: &str, registry: &Registry) -> Result<Self> {
        let Some(path) = flags.tracing_config_file.as_ref().filter(|path| !path.as_os_str().is_empty()) else {
            return Ok(Traces::default());
        };
        let shown = path.display();
        let text = std::fs::read_to_string(path).with_context(|| format!("--tracing-config-file {shown}"))?;
        let usable = |error| anyhow!("--tracing-config-file {shown}: {error}");
        let config = TracingConfig::parse(&text).map_err(usable)?;
        let service = Service { name: name.to_owned(), instance: instance.to_owned() };
        let (tracer, export) = bayplan_otlp::start(&config, service, registry).map_err(usable)?;
        let rate = config.sampling_rate_per_million;
        tracing::info!(collector = config.endpoint, sampling_rate_per_million = rate, "traces are sent");
        Ok(Traces { tracer: Some(tracer), export: Some(export) })
    }

    /// Sends the last spans.
    pub(crate) async fn stop(self) {
        if let Some(export) = self.export {
            export.stop().await;
        }
    }
}
