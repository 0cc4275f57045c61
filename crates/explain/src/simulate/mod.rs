//! A history under one or several configurations: the real scheduler in virtual time, and what each makes of it.
//!
//! ```text
//!   History ─▶ World of configuration A ─┬─▶ Metrics
//!          └─▶ World of configuration B ─┤
//!                                        └─▶ divergences: pods that A and B put on different nodes
//! ```

mod arrivals;
mod divergence;
mod history;
mod html;
mod log;
mod measures;
mod openb;
mod pending;
#[cfg(test)]
mod retries_tests;
#[cfg(test)]
mod tests;
mod text;
mod world;

use std::sync::Arc;

use bayplan_model::resources::PodUsage;
use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::{Object, TieBreak};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

pub use arrivals::{Arrivals, ArrivalsError};
pub use divergence::Divergence;
pub use history::{Change, Event, History};
pub use html::report;
pub use log::LoggedHistory;
pub use measures::{Metrics, Sample, Waits};
pub use openb::{Openb, OpenbError, OpenbEvent};
pub use text::table;
pub use world::Placement;

use crate::capacity::Mix;
use crate::why::API_VERSION;
use divergence::Comparison;
use measures::Measures;
use world::{Retries, World, without_preemption};

/// How many samples a simulation takes over its time: enough for a plot, and few enough to cost little.
const SAMPLES: i32 = 288;

/// How a simulation decides.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which of equally good nodes is taken.
    pub ties: TieBreak,
    /// Whether pods may displace less important ones.
    pub preempt: bool,
}

/// A configuration and its figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Simulated {
    /// What it is called.
    pub name: String,
    /// Its figures.
    pub metrics: Metrics,
}

/// The answer of a simulation; `Simulation` of `bayplan.dev/v1`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Simulation {
    /// `bayplan.dev/v1`.
    pub api_version: &'static str,
    /// `Simulation`.
    pub kind: &'static str,
    /// When the history begins.
    pub from: Timestamp,
    /// When it ends.
    pub to: Timestamp,
    /// The number of nodes at the end.
    pub nodes: usize,
    /// The number of events.
    pub events: usize,
    /// The configurations, in the order in which they were given.
    pub configs: Vec<Simulated>,
    /// The first pods that were put on different nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub divergences: Vec<Divergence>,
    /// How many pods were put on different nodes, those above included.
    pub divergent_pods: usize,
    /// One line for each thing that could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Reports how many events are done, of how many.
pub type Progress<'a> = dyn FnMut(usize, usize) + 'a;

/// How many events pass between two reports of progress.
const PROGRESS_EVERY: usize = 10_000;

/// Runs a history under configurations, each with its name.
pub fn simulate(
    history: &History,
    configurations: &[(String, Configuration)],
    options: &Options,
    progress: &mut Progress<'_>,
) -> Result<Simulation, bayplan_scheduler::Error> {
    let (from, to) = history.span().unwrap_or((Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH));
    let mix = Arc::new(mix_of(history));
    let every = sample_every(from, to);
    let mut worlds = Vec::with_capacity(configurations.len());
    for (name, configuration) in configurations {
        let changed = (!options.preempt).then(|| without_preemption(configuration));
        let measures = Measures::new(from, every, Arc::clone(&mix));
        let configuration = changed.as_ref().unwrap_or(configuration);
        worlds.push(World::new(name, configuration, options.ties.clone(), Retries::Hopeful, measures, from)?);
    }
    let mut comparison = Comparison::new(configurations);
    worlds.iter_mut().for_each(|world| begin(world, history));
    comparison.compare(&mut worlds);
    for (at, event) in history.events.iter().enumerate() {
        if at % PROGRESS_EVERY == 0 {
            progress(at, history.events.len());
        }
        for world in &mut worlds {
            world.advance(event.time);
            world.happen(event);
            world.schedule();
        }
        comparison.compare(&mut worlds);
        if let Change::DeletePod(namespace, name) = &event.change {
            comparison.forget(&format!("{namespace}/{name}"));
        }
    }
    let nodes = worlds.first().map_or(0, |world| world.scheduler.cluster().node_count());
    let configs = worlds.into_iter().map(|mut world| {
        world.end();
        Simulated { name: world.name, metrics: world.measures.into_metrics() }
    });
    Ok(Simulation {
        api_version: API_VERSION,
        kind: "Simulation",
        from,
        to,
        nodes,
        events: history.events.len(),
        configs: configs.collect(),
        divergences: comparison.divergences,
        divergent_pods: comparison.count,
        notes: history.notes.clone(),
    })
}

/// Where and when a configuration puts the pods of a history.
pub fn placements(
    history: &History,
    configuration: &Configuration,
    options: &Options,
) -> Result<Vec<Placement>, bayplan_scheduler::Error> {
    let configuration = if options.preempt { configuration.clone() } else { without_preemption(configuration) };
    let (placements, _) = run(history, &configuration, options.ties.clone(), Retries::Hopeful)?;
    Ok(placements)
}

/// Runs a history under one configuration.
fn run(
    history: &History,
    configuration: &Configuration,
    ties: TieBreak,
    retries: Retries,
) -> Result<(Vec<Placement>, Metrics), bayplan_scheduler::Error> {
    let (from, to) = history.span().unwrap_or((Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH));
    let measures = Measures::new(from, sample_every(from, to), Arc::new(mix_of(history)));
    let mut world = World::new("", configuration, ties, retries, measures, from)?;
    begin(&mut world, history);
    for event in &history.events {
        world.advance(event.time);
        world.happen(event);
        world.schedule();
    }
    world.end();
    Ok((world.placements, world.measures.into_metrics()))
}

fn sample_every(from: Timestamp, to: Timestamp) -> SignedDuration {
    let every = to.duration_since(from).checked_div(SAMPLES).unwrap_or(SignedDuration::ZERO);
    every.max(SignedDuration::from_millis(1))
}

/// Brings in the cluster at the beginning, and decides what is pending in it.
fn begin(world: &mut World, history: &History) {
    // Nodes first: a pod on a node that is not known yet would count for no domain.
    let (nodes, pods): (Vec<&Object>, Vec<&Object>) =
        history.objects.iter().partition(|object| !matches!(object, Object::Pod(_)));
    nodes.into_iter().chain(pods).for_each(|object| world.begin_with(object));
    world.schedule();
}

/// What the pods of a history ask for.
fn mix_of(history: &History) -> Mix {
    let mut mix = Mix::default();
    let at_first = history.objects.iter().filter_map(|object| match object {
        Object::Pod(pod) => Some(pod),
        _ => None,
    });
    let later = history.events.iter().filter_map(|event| match &event.change {
        Change::CreatePod { pod, .. } => Some(pod),
        _ => None,
    });
    let mut last: Option<&bayplan_model::pod::PodSpec> = None;
    for pod in at_first.chain(later).filter(|pod| !pod.is_terminal()) {
        // Pods of one template come in a row.
        if last.is_none_or(|last| last.containers != pod.spec.containers || last.overhead != pod.spec.overhead) {
            mix.add(&PodUsage::of(pod).requested);
            last = Some(&pod.spec);
        }
    }
    mix.reduce();
    mix
}
