//! The flags of `bayplan controller-manager` about autoscalers.

use bayplan_runner::controllers::AutoscalerConfig;
use bayplan_scheduler::config::GoDuration;
use clap::Args;

use super::go;

/// How autoscalers follow their metrics.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Autoscaling")]
pub(crate) struct Autoscaling {
    /// HorizontalPodAutoscalers reconciled at once [default: 5].
    #[arg(long, value_name = "NUMBER", value_parser = super::controllers::workers())]
    pub(crate) concurrent_horizontal_pod_autoscaler_syncs: Option<u32>,
    /// How often each autoscaler looks at its metrics [default: 15s].
    #[arg(long, value_name = "DURATION", value_parser = go::duration)]
    horizontal_pod_autoscaler_sync_period: Option<GoDuration>,
    /// For how long an autoscaler goes below none of its recommendations [default: 5m0s].
    #[arg(long, value_name = "DURATION", value_parser = go::duration)]
    horizontal_pod_autoscaler_downscale_stabilization: Option<GoDuration>,
    /// For how long after its start the cpu of a pod may be left out [default: 5m0s].
    #[arg(long, value_name = "DURATION", value_parser = go::duration)]
    horizontal_pod_autoscaler_cpu_initialization_period: Option<GoDuration>,
    /// For how long after its start an unready pod counts as one that was never ready [default: 30s].
    #[arg(long, value_name = "DURATION", value_parser = go::duration)]
    horizontal_pod_autoscaler_initial_readiness_delay: Option<GoDuration>,
    /// How far from its target a metric may be before anything changes [default: 0.1].
    #[arg(long, value_name = "NUMBER")]
    horizontal_pod_autoscaler_tolerance: Option<f64>,
}

impl Autoscaling {
    /// The settings that the flags make of the defaults.
    pub(crate) fn config(&self) -> AutoscalerConfig {
        let default = AutoscalerConfig::default();
        let or = |flag: Option<GoDuration>, otherwise| flag.map_or(otherwise, GoDuration::unsigned);
        AutoscalerConfig {
            sync_period: or(self.horizontal_pod_autoscaler_sync_period, default.sync_period),
            downscale_stabilization: or(
                self.horizontal_pod_autoscaler_downscale_stabilization,
                default.downscale_stabilization,
            ),
            cpu_initialization_period: or(
                self.horizontal_pod_autoscaler_cpu_initialization_period,
                default.cpu_initialization_period,
            ),
            initial_readiness_delay: or(
                self.horizontal_pod_autoscaler_initial_readiness_delay,
                default.initial_readiness_delay,
            ),
            tolerance: self.horizontal_pod_autoscaler_tolerance.unwrap_or(default.tolerance),
        }
    }
}
