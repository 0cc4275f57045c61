//! `policy`: how much may be disrupted.

pub(crate) mod pod_disruption_budget;
