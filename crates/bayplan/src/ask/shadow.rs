//! `bayplan shadow`: judges the bindings of a live cluster's scheduler.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use bayplan_explain::Profiles;
use bayplan_explain::shadow::{BindingReview, Verdict};
use bayplan_metrics::{Counter, Family, Registry as Metrics};
use bayplan_model::delta::Delta;
use bayplan_runner::ops_server;
use bayplan_runner::watch::ClusterWatch;
use bayplan_scheduler::{Object, Registry};
use jiff::Timestamp;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{self, Receiver};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

use super::{Outcome, live, load};
use crate::args::shadow::Shadow;
use crate::output;
use crate::progress::Progress;
use crate::shutdown::StopSignals;

/// How often bindings that need a search are looked at.
const SETTLE_INTERVAL: Duration = Duration::from_millis(500);
/// Changes that are taken before bindings are looked at again.
const BATCH_MAX: usize = 1000;

/// Changes that wait for the judge: as many as it remembers. More wait in the watches, and are stamped late.
const WAITING_MAX: usize = 50_000;

/// Watches until the time is over or a signal comes, and prints the report.
pub(crate) async fn run(args: Shadow) -> Result<ExitCode> {
    let source = args.source();
    let configuration = load::configuration(&source)?;
    let profiles = Profiles::build(&configuration, &Registry::default())?;
    if let Some(folder) = &args.cases {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    let signals = StopSignals::listen()?;
    let client = live::connect(&source).await?;
    let metrics = serve_metrics(&args).await?;
    let mut cluster = ClusterWatch::start(&client).await?;
    let mut notes = cluster.notes.clone();
    if !configuration.extenders.is_empty() {
        notes.push("the extenders of the configuration are not called; what they refuse is not known".to_owned());
    }
    let judge = BindingReview::new(profiles, configuration.percentage_of_nodes_to_score);
    let mut shadow = Watching { judge, cases: args.cases.clone(), metrics, progress: Progress::new() };
    let stop = signals.requested();
    tokio::pin!(stop);
    tokio::select! {
        () = cluster.read_state(|delta| shadow.judge.handle(delta, Timestamp::now())) => {}
        () = &mut stop => return Ok(Outcome::Unknown.into()),
    }
    shadow.judge.begin(Timestamp::now());
    let deltas = stamped(cluster);
    shadow.progress.show(&format!("watching {}; Ctrl-C prints the report", client.host()));
    let end = args.duration.map(|duration| Instant::now() + duration.unsigned());
    shadow.follow(deltas, end, stop).await?;
    let report = shadow.judge.report(Timestamp::now(), notes);
    output::print(args.output, &report, || report.text())?;
    let failed = args.fail_under.is_some_and(|least| report.explained() < least);
    let outcome = if failed { Outcome::ConditionHeld } else { Outcome::Fits };
    Ok(outcome.into())
}

struct Watching {
    judge: BindingReview,
    cases: Option<PathBuf>,
    metrics: Family<Counter>,
    progress: Progress,
}

impl Watching {
    async fn follow(
        &mut self,
        mut deltas: Receiver<(Timestamp, Delta<Object>)>,
        end: Option<Instant>,
        stop: impl Future<Output = ()>,
    ) -> Result<()> {
        let mut stop = std::pin::pin!(stop);
        let mut settle = tokio::time::interval(SETTLE_INTERVAL);
        settle.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let over = async || match end {
            Some(end) => tokio::time::sleep_until(end).await,
            None => std::future::pending().await,
        };
        let mut over = std::pin::pin!(over());
        loop {
            tokio::select! {
                () = &mut stop => break,
                () = &mut over => break,
                _ = settle.tick() => {}
                next = deltas.recv() => {
                    let rest = std::iter::from_fn(|| deltas.try_recv().ok()).take(BATCH_MAX);
                    let batch: Vec<_> = next.into_iter().chain(rest).collect();
                    // A judgement asks every plugin about every node: not on the thread that reads watches.
                    tokio::task::block_in_place(|| {
                        batch.into_iter().for_each(|(seen, delta)| self.judge.handle(delta, seen));
                    });
                }
            }
            tokio::task::block_in_place(|| self.judge.settle(Timestamp::now()));
            self.report_judgements()?;
        }
        self.judge.finish();
        self.report_judgements()?;
        self.progress.clear();
        Ok(())
    }

    /// Counts what was judged, and saves the states of cases.
    fn report_judgements(&mut self) -> Result<()> {
        for judged in self.judge.take_judgements() {
            self.metrics.get(&[label(judged.verdict)]).inc();
            if let Some(distance) = judged.distance {
                tracing::debug!(pod = judged.pod, node = judged.node, ?distance, "raced");
            }
            if judged.verdict == Verdict::Unexplained {
                tracing::warn!(pod = judged.pod, node = judged.node, "nothing explains this binding");
            }
            if let (Some((number, objects)), Some(folder)) = (judged.case, &self.cases) {
                let path = folder.join(format!("{}.json", judged.pod.replace('/', "_")));
                save(&path, &objects).with_context(|| format!("cannot write {}", path.display()))?;
                self.judge.case_is_saved(number, path.display().to_string());
            }
        }
        Ok(())
    }
}

/// Changes with the moment at which they were seen, however long the judge is busy with earlier ones.
fn stamped(mut cluster: ClusterWatch) -> Receiver<(Timestamp, Delta<Object>)> {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    tokio::spawn(async move {
        while !sender.is_closed() {
            if let Some(delta) = cluster.next().await
                && sender.send((Timestamp::now(), delta)).await.is_err()
            {
                break;
            }
        }
    });
    receiver
}

/// Writes a state as a List, which `why --from` reads.
fn save(path: &Path, objects: &[Object]) -> Result<()> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    serde_json::to_writer(&mut file, &list)?;
    Ok(file.flush()?)
}

fn label(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Same => "same",
        Verdict::Tied => "tied",
        Verdict::Sampled => "sampled",
        Verdict::Raced => "raced",
        Verdict::Unexplained => "unexplained",
    }
}

/// Makes the counters, and serves them if asked to.
async fn serve_metrics(args: &Shadow) -> Result<Family<Counter>> {
    let registry = Metrics::default();
    let bindings = registry.family(
        "bayplan_shadow_bindings_total",
        "Bindings of the watched scheduler, by how they compare with our decision.",
        &["verdict"],
        (),
    );
    for verdict in [Verdict::Same, Verdict::Tied, Verdict::Sampled, Verdict::Raced, Verdict::Unexplained] {
        bindings.get(&[label(verdict)]);
    }
    if let Some(address) = args.metrics_bind_address {
        let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
        let (keep, stopping) = watch::channel(false);
        let serving = ops_server::serve_metrics(listener, Arc::new(registry), stopping);
        tokio::spawn(async move {
            serving.await;
            drop(keep);
        });
    }
    Ok(bindings)
}
