//! The flags of `bayplan controller-manager` about its controllers.

use std::path::PathBuf;

use bayplan_scheduler::config::GoDuration;
use clap::Args;

use super::autoscaling::Autoscaling;
use super::endpoints::Endpoints;
use super::go;
use super::signing::Signing;

/// Which controllers run, and how many workers each has.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Controllers")]
pub(crate) struct Controllers {
    /// Controllers to run: `*` for all, `name` for one, `-name` for all but one; names as in kube-controller-manager.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "*", allow_hyphen_values = true)]
    pub(crate) controllers: Vec<String>,
    /// Deployments reconciled at once [default: 5].
    #[arg(long, value_name = "NUMBER", value_parser = workers())]
    pub(crate) concurrent_deployment_syncs: Option<u32>,
    /// ReplicaSets reconciled at once [default: 5].
    #[arg(long, value_name = "NUMBER", value_parser = workers())]
    pub(crate) concurrent_replicaset_syncs: Option<u32>,
    /// ReplicationControllers reconciled at once [default: 5].
    #[arg(long, value_name = "NUMBER", value_parser = workers())]
    pub(crate) concurrent_rc_syncs: Option<u32>,
    /// DaemonSets reconciled at once [default: 2].
    #[arg(long, value_name = "NUMBER", value_parser = workers())]
    pub(crate) concurrent_daemonset_syncs: Option<u32>,
    /// StatefulSets reconciled at once [default: 5].
    #[arg(long, value_name = "NUMBER", value_parser = workers())]
    pub(crate) concurrent_statefulset_syncs: Option<u32>,
    /// Jobs reconciled at once [default: 5].
    #[arg(long, value_name = "NUMBER", value_parser = workers())]
    pub(crate) concurrent_job_syncs: Option<u32>,
    /// CronJobs reconciled at once [default: 5].
    #[arg(long, value_name = "NUMBER", value_parser = workers())]
    pub(crate) concurrent_cron_job_syncs: Option<u32>,
    /// Finished Jobs looked at at once [default: 5].
    #[arg(long, value_name = "NUMBER", value_parser = workers())]
    pub(crate) concurrent_ttl_after_finished_syncs: Option<u32>,
    /// ResourceQuotas counted at once [default: 5].
    #[arg(long, value_name = "NUMBER", value_parser = workers())]
    pub(crate) concurrent_resource_quota_syncs: Option<u32>,
    /// How often every ResourceQuota is counted again [default: 5m0s].
    #[arg(long, value_name = "DURATION", value_parser = go::duration)]
    pub(crate) resource_quota_sync_period: Option<GoDuration>,
    /// Secrets with tokens of service accounts that are filled at once [default: 5].
    #[arg(long, value_name = "NUMBER", value_parser = workers())]
    pub(crate) concurrent_serviceaccount_token_syncs: Option<u32>,
    /// The private key that signs the tokens in such secrets; without it they are left alone.
    #[arg(long, value_name = "PATH")]
    pub(crate) service_account_private_key_file: Option<PathBuf>,
    /// Objects garbage-collected at once [default: 20].
    #[arg(long, value_name = "NUMBER", value_parser = workers())]
    pub(crate) concurrent_gc_syncs: Option<u32>,
    /// Namespaces emptied at once [default: 10].
    #[arg(long, value_name = "NUMBER", value_parser = workers())]
    pub(crate) concurrent_namespace_syncs: Option<u32>,
    /// Pods whose ResourceClaims are made at once.
    #[arg(long, value_name = "NUMBER", value_parser = workers())]
    pub(crate) concurrent_resource_claim_syncs: Option<u32>,
    /// Pods whose volume claims are made at once [default: 5].
    #[arg(long, value_name = "NUMBER", value_parser = workers())]
    pub(crate) concurrent_ephemeralvolume_syncs: Option<u32>,
    /// The least time between two resyncs of all objects; the most is twice as long [default: 12h0m0s].
    #[arg(long, value_name = "DURATION", value_parser = go::duration)]
    pub(crate) min_resync_period: Option<GoDuration>,
    /// Run the garbage collector.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        default_value = "true",
        value_parser = go::boolean
    )]
    pub(crate) enable_garbage_collector: bool,
    /// The API server's certificate authority; published in every namespace as kube-root-ca.crt.
    #[arg(long, value_name = "PATH")]
    pub(crate) root_ca_file: Option<PathBuf>,
    /// How often the health of nodes is checked [default: 5s].
    #[arg(long, value_name = "DURATION", value_parser = go::duration)]
    pub(crate) node_monitor_period: Option<GoDuration>,
    /// How long a node may be silent before it becomes unhealthy [default: 50s].
    #[arg(long, value_name = "DURATION", value_parser = go::duration)]
    pub(crate) node_monitor_grace_period: Option<GoDuration>,
    /// How long a new node may be silent [default: 1m0s].
    #[arg(long, value_name = "DURATION", value_parser = go::duration)]
    pub(crate) node_startup_grace_period: Option<GoDuration>,
    /// Unhealthy nodes whose pods are evicted per second [default: 0.1].
    #[arg(long, value_name = "NUMBER")]
    pub(crate) node_eviction_rate: Option<f64>,
    /// The same in a zone where many nodes are unhealthy [default: 0.01].
    #[arg(long, value_name = "NUMBER")]
    pub(crate) secondary_node_eviction_rate: Option<f64>,
    /// Zones of at most this many nodes evict nothing while many of their nodes are unhealthy [default: 50].
    #[arg(long, value_name = "NUMBER")]
    pub(crate) large_cluster_size_threshold: Option<usize>,
    /// The share of unhealthy nodes that counts as many [default: 0.55].
    #[arg(long, value_name = "NUMBER")]
    pub(crate) unhealthy_zone_threshold: Option<f64>,
    /// How many terminated pods are kept [default: 12500].
    #[arg(long, value_name = "NUMBER")]
    pub(crate) terminated_pod_gc_threshold: Option<usize>,
    /// Leave volumes on nodes that are not ready, however long nobody needs them there.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        default_value = "false",
        value_parser = go::boolean
    )]
    pub(crate) disable_force_detach_on_timeout: bool,
    #[command(flatten)]
    pub(crate) endpoints: Endpoints,
    /// Let each controller act as a service account of its own, in kube-system.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        default_value = "false",
        value_parser = go::boolean
    )]
    pub(crate) use_service_account_credentials: bool,
    #[command(flatten)]
    pub(crate) autoscaling: Autoscaling,
    #[command(flatten)]
    pub(crate) signing: Signing,
    #[command(flatten)]
    pub(crate) unsupported: UnsupportedFlags,
}

/// At most 1,000 workers: each has a request in flight, and no API server likes more from one controller.
pub(super) fn workers() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=1000)
}

macro_rules! unsupported_flags {
    ($($flag:ident),* $(,)?) => {
        /// Flags of controllers that Bayplan does not have; manifests of kube-controller-manager give some of them.
        #[derive(Clone, Debug, Default, Args)]
        pub(crate) struct UnsupportedFlags {
            $(#[arg(long, hide = true, num_args = 0..=1, default_missing_value = "true")]
            $flag: Option<String>,)*
        }

        impl UnsupportedFlags {
            /// The ones the command line has.
            pub(crate) fn given(&self) -> Vec<String> {
                let all = [$((stringify!($flag), &self.$flag)),*];
                let given = all.into_iter().filter(|(_, value)| value.is_some());
                given.map(|(flag, _)| format!("--{}", flag.replace('_', "-"))).collect()
            }
        }
    };
}

unsupported_flags! {
    allocate_node_cidrs,
    attach_detach_reconcile_sync_period,
    cidr_allocator_type,
    cloud_config,
    cloud_provider,
    cluster_cidr,
    cluster_name,
    concurrent_service_syncs,
    concurrent_validating_admission_policy_status_syncs,
    configure_cloud_routes,
    controller_start_interval,
    disable_attach_detach_reconcile_sync,
    enable_dynamic_provisioning,
    flex_volume_plugin_dir,
    namespace_sync_period,
    node_cidr_mask_size,
    pvclaimbinder_sync_period,
    service_cluster_ip_range,
}
