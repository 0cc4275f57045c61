//! The flags of `bayplan controller-manager` about the endpoints of Services.

use bayplan_scheduler::config::GoDuration;
use clap::Args;

use super::go;

/// How endpoints are collected and packed.
#[derive(Clone, Debug, Args)]
pub(crate) struct Endpoints {
    /// Services whose Endpoints are made at once [default: 5].
    #[arg(long, value_name = "NUMBER", value_parser = up_to(1000))]
    pub(crate) concurrent_endpoint_syncs: Option<u32>,
    /// How long changes of pods are collected before Endpoints are written [default: 0s].
    #[arg(long, value_name = "DURATION", value_parser = go::duration)]
    pub(crate) endpoint_updates_batch_period: Option<GoDuration>,
    /// Services whose EndpointSlices are made at once [default: 5].
    #[arg(long, value_name = "NUMBER", value_parser = up_to(50))]
    pub(crate) concurrent_service_endpoint_syncs: Option<u32>,
    /// The most endpoints of an EndpointSlice [default: 100].
    #[arg(long, value_name = "NUMBER", value_parser = up_to(1000))]
    pub(crate) max_endpoints_per_slice: Option<u32>,
    /// How long changes of pods are collected before EndpointSlices are written [default: 0s].
    #[arg(long, value_name = "DURATION", value_parser = go::duration)]
    pub(crate) endpointslice_updates_batch_period: Option<GoDuration>,
    /// Endpoints mirrored into EndpointSlices at once [default: 5].
    #[arg(long, value_name = "NUMBER", value_parser = up_to(50))]
    pub(crate) mirroring_concurrent_service_endpoint_syncs: Option<u32>,
    /// The most addresses of a subset of Endpoints that are mirrored [default: 1000].
    #[arg(long, value_name = "NUMBER", value_parser = up_to(1000))]
    pub(crate) mirroring_max_endpoints_per_subset: Option<u32>,
    /// How long changes of mirrored EndpointSlices are collected [default: 0s].
    #[arg(long, value_name = "DURATION", value_parser = go::duration)]
    pub(crate) mirroring_endpointslice_updates_batch_period: Option<GoDuration>,
}

/// Numbers from 1 to upstream's bound.
fn up_to(most: i64) -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=most)
}
