//! The link between a running component and the operations server: leadership, readiness and metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bayplan_client::leader_election::Leadership;
use bayplan_metrics::Registry;
use bayplan_model::pod::Pod;
use tokio::sync::{mpsc, oneshot};

use crate::ops_server::Refresh;
use crate::ops_server::health::{CheckedBy, Health};
use crate::ops_server::pod_resources::Pods;

/// Scrapes that wait for a busy component; more are answered with the last values.
const SCRAPES_MAX: usize = 16;
/// A leader that has not renewed this long after its lease expired counts as unhealthy.
const WATCHDOG_GRACE: Duration = Duration::from_secs(20);

/// What the operations server asks of a component.
pub(crate) enum Scrape {
    /// To bring its gauges up to date.
    Gauges(oneshot::Sender<()>),
    /// For the pods that it knows.
    Pods(oneshot::Sender<Vec<Arc<Pod>>>),
}

impl Scrape {
    /// Answers for a component whose gauges are up to date and that keeps no pods.
    pub(crate) fn acknowledge(self) {
        if let Scrape::Gauges(answer) = self {
            // The scraper may have disconnected.
            let _ = answer.send(());
        }
    }
}

/// The component's side.
pub struct Telemetry {
    /// Where the component registers its metrics.
    pub registry: Registry,
    /// Whether the component leads.
    pub leadership: Arc<Leadership>,
    synced: Arc<AtomicBool>,
    scrapes: mpsc::Receiver<Scrape>,
}

/// The operations server's side.
#[derive(Clone)]
pub struct Probe {
    registry: Registry,
    leadership: Arc<Leadership>,
    synced: Arc<AtomicBool>,
    scrapes: mpsc::Sender<Scrape>,
}

/// Both sides of a new link.
pub fn telemetry(registry: Registry) -> (Telemetry, Probe) {
    let (asks, scrapes) = mpsc::channel(SCRAPES_MAX);
    let (leadership, synced) = (Arc::<Leadership>::default(), Arc::<AtomicBool>::default());
    let probe =
        Probe { registry: registry.clone(), leadership: leadership.clone(), synced: synced.clone(), scrapes: asks };
    (Telemetry { registry, leadership, synced, scrapes }, probe)
}

impl Telemetry {
    /// Reports that all informers are synced.
    pub fn set_synced(&self) {
        self.synced.store(true, Ordering::Release);
    }

    /// Waits for a scrape; for ever when the other side is gone.
    pub(crate) async fn scraped(&mut self) -> Scrape {
        match self.scrapes.recv().await {
            Some(scrape) => scrape,
            None => std::future::pending().await,
        }
    }

    /// The next scrape that waits, if there is one.
    pub(crate) fn waiting(&mut self) -> Option<Scrape> {
        self.scrapes.try_recv().ok()
    }
}

impl Probe {
    /// Where the component registers its metrics.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Asks the component to bring its gauges up to date.
    pub fn refresh(&self) -> Refresh {
        let scrapes = self.scrapes.clone();
        Arc::new(move || {
            let (sender, answered) = oneshot::channel();
            let asked = scrapes.try_send(Scrape::Gauges(sender)).is_ok();
            Box::pin(async move {
                if asked {
                    // A component that is gone has no new values.
                    let _ = answered.await;
                }
            })
        })
    }

    /// Asks the component for its pods, while it leads or if nobody is elected.
    pub fn pods(&self, elects: bool) -> Pods {
        let (scrapes, leadership) = (self.scrapes.clone(), Arc::clone(&self.leadership));
        Arc::new(move || {
            let (scrapes, leads) = (scrapes.clone(), !elects || leadership.is_leading());
            Box::pin(async move {
                if !leads {
                    return None;
                }
                let (sender, answer) = oneshot::channel();
                scrapes.send(Scrape::Pods(sender)).await.ok()?;
                answer.await.ok()
            })
        })
    }

    /// Whether all informers are synced.
    pub fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    /// Adds upstream's check `leaderElection`, which fails when a leader does not renew.
    #[must_use]
    pub fn watch_election(&self, health: Health, lease: &str, lease_duration: Duration) -> Health {
        let (leadership, lease) = (Arc::clone(&self.leadership), lease.to_owned());
        health.check("leaderElection", CheckedBy::HEALTHZ_AND_READYZ, move || {
            match leadership.unrenewed_for().filter(|age| *age > lease_duration + WATCHDOG_GRACE) {
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
        let (telemetry, probe) = telemetry(Registry::default());
        let health = probe.watch_election(Health::default(), "kube-scheduler", Duration::from_secs(15));
        let code = || health.answer("/healthz", "").unwrap().0;
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(code(), 200, "not leading");
        telemetry.leadership.set_leading(true);
        tokio::time::advance(Duration::from_secs(34)).await;
        assert_eq!(code(), 200);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(code(), 500);
        let why = "internal server error: failed election to renew leadership on lease kube-scheduler\n";
        assert_eq!(health.answer("/readyz/leaderElection", ""), Some((500, why.into())));
        telemetry.leadership.set_leading(true);
        assert_eq!(code(), 200);
    }

    #[tokio::test]
    async fn a_scrape_waits_for_the_part_and_not_for_one_that_is_gone() {
        let (mut telemetry, probe) = telemetry(Registry::default());
        let scraping = tokio::spawn(probe.refresh()());
        telemetry.scraped().await.acknowledge();
        scraping.await.unwrap();
        drop(telemetry);
        probe.refresh()().await;
    }
}
