//! Removes requests that nobody needs any more.

use std::sync::Arc;
use std::time::Duration;

use bayplan_model::api::DeleteOptions;
use bayplan_model::certificate_request::not_after;
use futures::future::BoxFuture;
use jiff::Timestamp;

use super::CertificateSigningRequest;
use crate::cache::{AnyDelta, Cache, Kind};
use crate::controller::{Context, Controller, Requeue, Wakeup};
use crate::error::{Error, not_found};
use crate::requests::{self, CERTIFICATE_SIGNING_REQUESTS};

/// How often all requests are looked at.
const PERIOD: Duration = Duration::from_secs(3600);
/// How long a request stays that was answered.
const ANSWERED: Duration = Duration::from_secs(3600);
/// How long a request stays that waits for something.
const WAITING: Duration = Duration::from_secs(24 * 3600);

/// The key of the one thing to do.
const ALL: &str = "all";

/// The cleaning controller.
pub struct CertificateCleanerController {
    cache: Arc<Cache>,
}

impl CertificateCleanerController {
    /// A controller over this cache.
    pub fn new(cache: Arc<Cache>) -> Self {
        CertificateCleanerController { cache }
    }

    async fn clean(&self, context: Context<'_>) -> Result<Requeue, Error> {
        let all: Vec<Arc<CertificateSigningRequest>> =
            self.cache.certificate_signing_requests().all().cloned().collect();
        let mut errors = Vec::new();
        for csr in all.iter().filter(|csr| is_over(csr, context.now)) {
            let options = DeleteOptions::default();
            match requests::delete(context.api, &CERTIFICATE_SIGNING_REQUESTS, &csr.metadata, options).await {
                Err(status) if !not_found(&status) => errors.push(Error::from(status)),
                _ => {}
            }
        }
        Error::collect(errors)?;
        Ok(Requeue::After(PERIOD))
    }
}

fn is_over(csr: &CertificateSigningRequest, now: Timestamp) -> bool {
    let older = |time: Option<Timestamp>, age: Duration| {
        let age = jiff::SignedDuration::try_from(age).unwrap_or(jiff::SignedDuration::MAX);
        time.is_some_and(|time| now.duration_since(time) > age)
    };
    let has_old = |kind: &str, age| csr.conditions_of(kind).any(|condition| older(condition.last_update_time, age));
    let is_issued = !csr.status.certificate.is_empty();
    let is_expired = || not_after(&csr.certificate()).is_some_and(|end| now.as_second() > end);
    has_old("Denied", ANSWERED)
        || has_old("Failed", ANSWERED)
        || (is_issued && has_old("Approved", ANSWERED))
        || (!is_issued && has_old("Approved", WAITING))
        || (csr.status.conditions.is_empty() && older(csr.metadata.creation_timestamp, WAITING))
        || (is_issued && csr.has("Approved") && is_expired())
}

impl Controller for CertificateCleanerController {
    fn name(&self) -> &'static str {
        "certificatesigningrequest-cleaner-controller"
    }

    fn watches(&self) -> &'static [Kind] {
        &[Kind::CertificateSigningRequest]
    }

    fn workers(&self) -> usize {
        1
    }

    fn start(&self) -> Vec<Wakeup> {
        vec![Wakeup::now(ALL)]
    }

    fn observe(&self, _delta: &AnyDelta) -> Vec<Wakeup> {
        Vec::new()
    }

    fn sync<'a>(&'a self, _key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Requeue, Error>> {
        Box::pin(self.clean(context))
    }
}
