//! `batch`: the kinds that run pods to completion.

pub(crate) mod cron_job;
pub(crate) mod job;
