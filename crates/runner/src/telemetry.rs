//! How a running part can be looked at from outside: whether it leads, whether it is ready, and what it counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bayplan_client::leader_election::Standing;
use bayplan_metrics::Registry;
use tokio::sync::{mpsc, oneshot};

use crate::ops_server::Refresh;
use crate::ops_server::health::{Asked, Health};

/// Scrapes that wait for a busy part; more are answered with the state last told.
const SCRAPES_MAX: usize = 16;
/// A leader that could not renew for this much longer than its lease lasts is stuck, and had better be restarted.
const WATCHDOG_GRACE: Duration = Duration::from_secs(20);

type Scrape = oneshot::Sender<()>;

/// The side of the part that is looked at.
pub struct Telemetry {
    /// Where it registers what it counts.
    pub registry: Registry,
    /// How it stands in its election.
    pub standing: Arc<Standing>,
    synced: Arc<AtomicBool>,
    scrapes: mpsc::Receiver<Scrape>,
}

/// The side of who looks.
#[derive(Clone)]
pub struct Probe {
    registry: Registry,
    standing: Arc<Standing>,
    synced: Arc<AtomicBool>,
    scrapes: mpsc::Sender<Scrape>,
}

/// Both sides.
pub fn telemetry(registry: Registry) -> (Telemetry, Probe) {
    let (asks, scrapes) = mpsc::channel(SCRAPES_MAX);
    let (standing, synced) = (Arc::<Standing>::default(), Arc::<AtomicBool>::default());
    let probe = Probe { registry: registry.clone(), standing: standing.clone(), synced: synced.clone(), scrapes: asks };
    (Telemetry { registry, standing, synced, scrapes }, probe)
}

impl Telemetry {
    /// Everything that is watched has been seen once.
    pub fn set_synced(&self) {
        self.synced.store(true, Ordering::Release);
    }

    /// Waits for a scrape; for ever when nobody looks any more.
    pub(crate) async fn scraped(&mut self) -> Scrape {
        match self.scrapes.recv().await {
            Some(scrape) => scrape,
            None => std::future::pending().await,
        }
    }

    /// The next scrape that waits already.
    pub(crate) fn waiting(&mut self) -> Option<Scrape> {
        self.scrapes.try_recv().ok()
    }
}

impl Probe {
    /// Where the part registers what it counts.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Has the part bring what it tells as a state up to date.
    pub fn refresh(&self) -> Refresh {
        let scrapes = self.scrapes.clone();
        Arc::new(move || {
            let (tell, told) = oneshot::channel();
            let asked = scrapes.try_send(tell).is_ok();
            Box::pin(async move {
                if asked {
                    // A part that is gone tells no more.
                    let _ = told.await;
                }
            })
        })
    }

    /// Whether everything that is watched has been seen once.
    pub fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    /// Adds the check upstream calls `leaderElection`: a leader renews, or it is stuck.
    #[must_use]
    pub fn watch_election(&self, health: Health, lease: &str, lease_duration: Duration) -> Health {
        let (standing, lease) = (Arc::clone(&self.standing), lease.to_owned());
        health.check("leaderElection", Asked::HEALTHZ_AND_READYZ, move || {
            match standing.unrenewed_for().filter(|age| *age > lease_duration + WATCHDOG_GRACE) {
                Some(_) => Err(format!("failed election to renew leadership on lease {lease}")),
                None => Ok(()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_does_not_renew_is_unhealthy_and_one_that_waits_is_not() {
        let (told, probe) = telemetry(Registry::default());
        let health = probe.watch_election(Health::default(), "kube-scheduler", Duration::from_secs(15));
        let code = || health.answer("/healthz", "").unwrap().0;
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(code(), 200, "not leading");
        told.standing.set_leading(true);
        tokio::time::advance(Duration::from_secs(34)).await;
        assert_eq!(code(), 200);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(code(), 500);
        let why = "internal server error: failed election to renew leadership on lease kube-scheduler\n";
        assert_eq!(health.answer("/readyz/leaderElection", ""), Some((500, why.into())));
        told.standing.set_leading(true);
        assert_eq!(code(), 200);
    }

    #[tokio::test]
    async fn a_scrape_waits_for_the_part_and_not_for_one_that_is_gone() {
        let (mut told, probe) = telemetry(Registry::default());
        let scraping = tokio::spawn(probe.refresh()());
        told.scraped().await.send(()).unwrap();
        scraping.await.unwrap();
        drop(told);
        probe.refresh()().await;
    }
}
