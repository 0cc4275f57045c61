//! Runs the scheduler: watches feed its one owner, its effects run concurrently and come back as events.
//!
//! ```text
//!   informers ──Delta──▶ owner task (scheduler core) ──Effect──▶ effects: one after the other per pod ──▶ API server
//!              bounded        ▲                                                  │
//!                             └──────────────────── Input ◀──────────────────────┘
//! ```

use std::sync::Arc;
use std::time::Duration;

use bayplan_client::leader_election::{self, Elector};
use bayplan_client::metrics::ElectionMetrics;
use bayplan_client::{Client, EventRecorder, clock};
use bayplan_model::trace::Tracer;
use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::extender::Extender;
use bayplan_scheduler::{Registry, Rng, Scheduler, TieBreak};
use futures::future::BoxFuture;
use jiff::SignedDuration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::decision_log::{self, DecisionLog, DecisionLogConfig};
use crate::effects::EffectRunner;
use crate::extender::{self, HttpExtender};
use crate::inputs::{self, Inputs};
use crate::metrics::{steady_nanos, steady_zero};
use crate::telemetry::{Scrape, Telemetry};

/// Scheduling attempts before inputs are handled again, so that a long queue does not hide changes of the cluster.
const POD_BATCH_MAX: usize = 16;
/// Inputs before pods are tried, so that a storm of changes does not stop scheduling: about a millisecond of work.
const INPUT_BATCH_MAX: usize = 1024;
/// The period of timers that no event announces: backoffs, flushes and timeouts.
const TICK: Duration = Duration::from_secs(1);

/// Why the scheduler cannot start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The profiles cannot be built.
    #[error(transparent)]
    Profiles(#[from] bayplan_scheduler::Error),
    /// An extender cannot be used.
    #[error(transparent)]
    Extender(#[from] extender::Error),
    /// The decision log cannot be begun.
    #[error(transparent)]
    DecisionLog(#[from] decision_log::Error),
    /// Another process leads, or the lease could not be renewed: this process must not go on.
    #[error("leader election lost")]
    LeaseLost,
}

/// The settings of a scheduler.
pub struct SchedulerConfig {
    /// Profiles, plugins and backoffs.
    pub configuration: Configuration,
    /// The plugins that profiles may name.
    pub registry: Registry,
    /// The name of this process in events: the host it runs on.
    pub instance: String,
    /// The seed of the generator that breaks ties between nodes of equal score.
    pub seed: u64,
    /// Leader election; the scheduler decides only while it leads. None to decide always.
    pub leader_election: Option<leader_election::Config>,
    /// After this long an unschedulable pod is tried again without an event; upstream's five minutes when absent.
    pub max_in_unschedulable: Option<SignedDuration>,
    /// Metrics and health, if they are served.
    pub telemetry: Option<Telemetry>,
    /// The decision log, if one is written.
    pub decision_log: Option<DecisionLogConfig>,
    /// Where spans of attempts go, if they are traced; it needs telemetry.
    pub tracer: Option<Arc<dyn Tracer>>,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        SchedulerConfig {
            configuration: Configuration::default(),
            registry: Registry::default(),
            instance: leader_election::hostname(),
            seed: rand::random(),
            leader_election: None,
            max_in_unschedulable: None,
            telemetry: None,
            decision_log: None,
            tracer: None,
        }
    }
}

impl SchedulerConfig {
    /// Takes leader election from the configuration.
    pub fn with_leader_election(mut self) -> Self {
        let rules = &self.configuration.leader_election;
        self.leader_election = rules.leader_elect.then(|| leader_election::Config {
            namespace: rules.resource_namespace.clone(),
            lease_duration: rules.lease_duration.unsigned(),
            renew_deadline: rules.renew_deadline.unsigned(),
            retry_period: rules.retry_period.unsigned(),
            ..leader_election::Config::new(&rules.resource_name)
        });
        self
    }
}

/// Runs the scheduler until `shutdown` is true.
///
/// The future is boxed so that it is compiled in this crate, and not once more in each crate that awaits it.
pub fn run_scheduler(
    client: Client,
    config: SchedulerConfig,
    shutdown: watch::Receiver<bool>,
) -> BoxFuture<'static, Result<(), Error>> {
    Box::pin(run(client, config, shutdown))
}

async fn run(client: Client, mut config: SchedulerConfig, mut shutdown: watch::Receiver<bool>) -> Result<(), Error> {
    let mut extenders: Vec<Arc<dyn Extender>> = Vec::new();
    for extender in &config.configuration.extenders {
        extenders.push(Arc::new(HttpExtender::new(extender.clone())?));
    }
    let ties = TieBreak::Random(Rng::new(config.seed));
    let mut scheduler = Scheduler::with_extenders(&config.configuration, &config.registry, extenders, ties)?;
    if let Some(duration) = config.max_in_unschedulable {
        scheduler = scheduler.with_max_in_unschedulable(duration);
    }
    let log = config.decision_log.take().map(DecisionLog::start).transpose()?;
    if log.is_some() {
        scheduler = scheduler.with_records();
    }
    let telemetry = config.telemetry.take();
    if let Some(telemetry) = &telemetry {
        scheduler = scheduler.with_metrics(&telemetry.registry, steady_nanos);
    }
    if let Some(tracer) = config.tracer.take() {
        scheduler = scheduler.with_traces(tracer, steady_zero());
    }
    let mut elector = config.leader_election.clone().map(|rules| {
        let component = config.configuration.profiles.iter().find_map(|p| p.scheduler_name.as_deref());
        let recorder = EventRecorder::core(&client, component.unwrap_or_default());
        let elector = Elector::new(&client, rules, Some(Arc::new(recorder)));
        match &telemetry {
            Some(telemetry) => elector
                .with_leadership(Arc::clone(&telemetry.leadership))
                .with_metrics(ElectionMetrics::new(&telemetry.registry)),
            None => elector,
        }
    });
    let outcome = tokio::select! {
        biased;
        outcome = elect_and_work(&client, &config, Core { scheduler, telemetry, log }, elector.as_mut()) => outcome,
        _ = shutdown.wait_for(|stop| *stop) => Ok(()),
    };
    if let (Ok(()), Some(elector)) = (&outcome, &mut elector) {
        elector.release().await;
    }
    outcome
}

/// The scheduler and its telemetry.
struct Core {
    scheduler: Scheduler,
    telemetry: Option<Telemetry>,
    log: Option<DecisionLog>,
}

impl Core {
    /// Hands to the decision log what happened since the last call.
    fn write_log(&mut self) {
        if let Some(log) = &mut self.log {
            log.write(&mut self.scheduler);
        }
    }

    /// Brings the gauges up to date for scrapes that wait.
    fn publish(&mut self) {
        while let Some(scrape) = self.telemetry.as_mut().and_then(Telemetry::waiting) {
            answer(&mut self.scheduler, scrape);
        }
    }
}

/// Resolves with the next scrape; never without telemetry.
async fn scraped(telemetry: &mut Option<Telemetry>) -> Scrape {
    match telemetry {
        Some(telemetry) => telemetry.scraped().await,
        None => std::future::pending().await,
    }
}

fn answer(scheduler: &mut Scheduler, scrape: Scrape) {
    // The scraper may have disconnected.
    match scrape {
        Scrape::Gauges(answer) => {
            scheduler.publish();
            let _ = answer.send(());
        }
        Scrape::Pods(answer) => drop(answer.send(scheduler.pods())),
    }
}

async fn elect_and_work(
    client: &Client,
    config: &SchedulerConfig,
    mut core: Core,
    mut elector: Option<&mut Elector>,
) -> Result<(), Error> {
    if config.configuration.delay_cache_until_active
        && let Some(elector) = &mut elector
    {
        elector.acquire().await;
    }
    let (senders, mut inputs) = inputs::channels();
    let effects = Arc::new(EffectRunner::new(client, config, senders.results));
    let extended = !config.configuration.extenders.is_empty();
    let informers = inputs::start_informers(client, senders.deltas, extended).await;
    fill(&mut core, &mut inputs, informers.synced()).await;
    if let Some(telemetry) = &core.telemetry {
        telemetry.set_synced();
    }
    let Some(elector) = elector else {
        run_owner(core, inputs, effects).await;
        return Ok(());
    };
    if !config.configuration.delay_cache_until_active {
        fill(&mut core, &mut inputs, elector.acquire()).await;
    }
    // On a task of its own: an extender may block it for longer than a lease lasts.
    let mut owner = JoinSet::new();
    owner.spawn(run_owner(core, inputs, effects));
    tokio::select! {
        biased;
        ended = owner.join_next() => match ended {
            Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            _ => Ok(()),
        },
        () = elector.hold() => Err(Error::LeaseLost),
    }
}

/// Keeps the cluster state up to date without deciding, until something has happened: informers wait while nobody
/// takes their deltas.
async fn fill(core: &mut Core, inputs: &mut Inputs, until: impl Future<Output = ()>) {
    let mut until = std::pin::pin!(until);
    let mut is_over = false;
    while !is_over {
        let Core { scheduler, telemetry, .. } = &mut *core;
        tokio::select! {
            biased;
            () = &mut until => is_over = true,
            Some(input) = inputs.next() => scheduler.handle(input, clock::now()),
            scrape = scraped(telemetry) => answer(scheduler, scrape),
        }
        // What the informers sent before it happened belongs to the state.
        while let Some(input) = inputs.try_next() {
            scheduler.handle(input, clock::now());
        }
        // Effects are the leader's to run.
        scheduler.take_effects();
        core.write_log();
    }
}

/// Runs the task that owns the queue and the cluster state.
async fn run_owner(mut core: Core, mut inputs: Inputs, effects: Arc<EffectRunner>) {
    let (mut next_tick, mut rounds) = (Instant::now(), RetryRounds::default());
    loop {
        core.publish();
        let Core { scheduler, .. } = &mut core;
        let mut handled = 0;
        while handled < INPUT_BATCH_MAX
            && let Some(input) = inputs.try_next()
        {
            scheduler.handle(input, clock::now());
            handled += 1;
        }
        if Instant::now() >= next_tick {
            scheduler.tick(clock::now());
            next_tick = Instant::now() + TICK;
        }
        let mut tried = 0;
        while tried < POD_BATCH_MAX && rounds.schedule(scheduler) {
            tried += 1;
        }
        for effect in scheduler.take_effects() {
            effects.start(effect);
        }
        core.write_log();
        let Core { scheduler, telemetry, .. } = &mut core;
        if tried == POD_BATCH_MAX || handled == INPUT_BATCH_MAX {
            tokio::task::yield_now().await;
            continue;
        }
        // Scrapes and ticks have had their turn above.
        tokio::select! {
            biased;
            input = inputs.next() => match input {
                Some(input) => scheduler.handle(input, clock::now()),
                None => return,
            },
            () = tokio::time::sleep_until(rounds.due.map_or(next_tick, |due| due.min(next_tick))) => {}
            scrape = scraped(telemetry) => answer(scheduler, scrape),
        }
    }
}

/// Changes within this time of the first one are tried together: nine patches, one after the other, take 20 ms.
const RETRY_SETTLES_AFTER: Duration = Duration::from_millis(30);
/// The least time between two rounds. A pod's FailedScheduling events and status patches are no more often than that.
const RETRY_ROUND_EVERY: Duration = Duration::from_millis(100);

/// When pods are tried again: in rounds, so that a burst of changes does not try each waiting pod at every change.
///
/// Upstream writes the status of a pod before it tries the next one, which has the same effect the more pods wait.
/// First attempts wait for nothing.
#[derive(Default)]
struct RetryRounds {
    /// When the next round begins, once pods wait for it.
    due: Option<Instant>,
    /// When the last one ended.
    ended: Option<Instant>,
    /// The pods left in the round that runs: those that were ready when it began.
    left: usize,
}

impl RetryRounds {
    /// Tries the next pod; false when none may be tried now.
    fn schedule(&mut self, scheduler: &mut Scheduler) -> bool {
        let retries = scheduler.retries();
        if retries == 0 {
            (self.due, self.left) = (None, 0);
            return scheduler.schedule_one(clock::now());
        }
        if self.left == 0 && !self.begins(retries) {
            return scheduler.schedule_new_one(clock::now());
        }
        let tried = scheduler.schedule_one(clock::now());
        if scheduler.retries() < retries || !tried {
            self.left -= 1;
        }
        if self.left == 0 {
            (self.due, self.ended) = (None, Some(Instant::now()));
        }
        tried
    }

    fn begins(&mut self, retries: usize) -> bool {
        let now = Instant::now();
        let due = *self.due.get_or_insert_with(|| {
            let spaced = self.ended.map(|ended| ended + RETRY_ROUND_EVERY);
            spaced.map_or(now + RETRY_SETTLES_AFTER, |spaced| spaced.max(now + RETRY_SETTLES_AFTER))
        });
        let begins = now >= due;
        if begins {
            self.left = retries;
        }
        begins
    }
}

#[cfg(test)]
mod tests {
    use bayplan_scheduler::{Effect, Input, Object};
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::*;

    fn node(name: usize, taints: Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("n{name}")}, "spec": {"taints": taints},
            "status": {"allocatable": {"cpu": "4", "pods": "10"}},
        })
    }

    fn pod(name: &str, cpu: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "d", "uid": name},
            "spec": {
                "schedulerName": "default-scheduler",
                "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
            },
        })
    }

    fn show(scheduler: &mut Scheduler, object: &Value) {
        scheduler.handle(Input::upsert(Object::decode(object).unwrap().unwrap()), Timestamp::now());
    }

    /// Tries what may be tried now; the number of FailedScheduling events is returned.
    fn failures(scheduler: &mut Scheduler, rounds: &mut RetryRounds) -> usize {
        while rounds.schedule(scheduler) {}
        let effects = scheduler.take_effects();
        effects.iter().filter(|effect| matches!(effect, Effect::Record { .. })).count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_of_changes_tries_waiting_pods_together_and_lets_new_ones_pass() {
        let configuration = Configuration::default();
        let mut scheduler = Scheduler::new(&configuration, &Registry::default(), TieBreak::SmallestName).unwrap();
        let mut rounds = RetryRounds::default();
        (0..9).for_each(|name| show(&mut scheduler, &node(name, json!([]))));
        (0..5).for_each(|name| show(&mut scheduler, &pod(&format!("huge-{name}"), "100")));
        assert_eq!(failures(&mut scheduler, &mut rounds), 5, "first attempts wait for nothing");
        let mut again = 0;
        for name in 0..9 {
            show(&mut scheduler, &node(name, json!([{"key": "k", "effect": "NoSchedule"}])));
            again += failures(&mut scheduler, &mut rounds);
            if name == 4 {
                show(&mut scheduler, &pod("new", "1"));
                again += failures(&mut scheduler, &mut rounds);
                assert!(scheduler.is_binding("new"));
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        assert_eq!(again, 0, "the burst is not over");
        tokio::time::sleep(RETRY_SETTLES_AFTER).await;
        assert_eq!(failures(&mut scheduler, &mut rounds), 5);
        show(&mut scheduler, &node(0, json!([])));
        assert_eq!(failures(&mut scheduler, &mut rounds), 0);
        tokio::time::sleep(RETRY_SETTLES_AFTER).await;
        assert_eq!(failures(&mut scheduler, &mut rounds), 0, "the next round is not due");
        tokio::time::sleep(RETRY_ROUND_EVERY).await;
        assert_eq!(failures(&mut scheduler, &mut rounds), 5);
        assert_eq!(rounds.due, None);
    }
}
