//! `bayplan whatif`: what would happen if.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use bayplan_explain::whatif::{
    Action, Detail, MORE_COPIES_MAX, NodeTemplate, ObjectName, Options, Priority, WhatIf, render, whatif,
};
use bayplan_explain::why::Verdict;
use bayplan_explain::{Profiles, State};
use bayplan_scheduler::{Registry, Rng, TieBreak};
use jiff::Timestamp;

use super::Outcome;
use super::load::{configuration, load, read_manifests};
use super::why::namespace_of;
use crate::args::output::Output;
use crate::args::whatif::{Decisions, Given, TieRule, Whatif};
use crate::output;

impl Decisions {
    /// Which of several equally good nodes is chosen.
    pub(crate) fn rule(self) -> TieBreak {
        match self.ties {
            TieRule::Name => TieBreak::SmallestName,
            TieRule::Random => TieBreak::Random(Rng::new(self.seed)),
        }
    }
}

/// Carries out the actions and prints what comes of them.
pub(crate) async fn run(args: Whatif) -> Result<ExitCode> {
    let namespace = namespace_of(&args.source, args.namespace.as_deref());
    let actions = actions(&args.actions.0, &namespace)?;
    let configuration = configuration(&args.source)?;
    let profiles = Profiles::build(&configuration, &Registry::default())?;
    let state = State::new(load(&args.source).await?);
    let options = Options {
        ties: args.decisions.rule(),
        preempt: !args.decisions.no_preemption,
        as_written: args.as_written,
        percentage: configuration.percentage_of_nodes_to_score,
        namespace,
        more_copies_max: MORE_COPIES_MAX,
        now: state.origin().time.unwrap_or_else(Timestamp::now),
    };
    let answer = whatif(state, &profiles, actions, &options)?;
    let detail = if args.output == Output::Wide { Detail::Wide } else { Detail::Summary };
    output::print(args.output, &answer, || render(&answer, detail))?;
    let held: Vec<&str> = args.fail_if.iter().filter(|condition| condition.holds(&answer)).map(|c| c.text()).collect();
    for condition in &held {
        warn(&format!("{condition} holds"));
    }
    let outcome = match (args.fail_if.is_empty(), held.is_empty()) {
        (true, _) => outcome(&answer),
        (false, true) => Outcome::Fits,
        (false, false) => Outcome::ConditionHeld,
    };
    Ok(outcome.into())
}

#[allow(clippy::print_stderr, reason = "scripts read standard output, people this")]
fn warn(line: &str) {
    eprintln!("bayplan: {line}");
}

/// The worst that became of a pod.
fn outcome(answer: &WhatIf) -> Outcome {
    let of = |verdict: Verdict| match verdict {
        Verdict::Placed | Verdict::WillPlace => Outcome::Fits,
        Verdict::NotYet | Verdict::Gated => Outcome::NotYet,
        Verdict::Never => Outcome::Never,
    };
    let pending = answer.pending.iter().map(|pending| of(pending.verdict));
    let stuck = answer.stuck.first().map(|_| Outcome::NotYet);
    pending.chain(stuck).max().unwrap_or(Outcome::Fits)
}

/// The actions, with the files that they name.
fn actions(given: &[Given], namespace: &str) -> Result<Vec<Action>> {
    let name = |text: &str| ObjectName::parse(text, namespace).map_err(|error| anyhow!(error));
    let mut actions = Vec::new();
    for (at, action) in given.iter().enumerate() {
        actions.push(match action {
            Given::Replicas(_) => continue,
            Given::File(path) => {
                let objects = read_manifests(std::slice::from_ref(path))?;
                Action::Apply { objects, replicas: replicas_for(given, at), from: path.display().to_string() }
            }
            Given::Add(count, like) => Action::AddNodes { count: *count, like: node_template(like)? },
            Given::Drain(nodes) => Action::Drain(nodes.clone()),
            Given::Cordon(nodes) => Action::Cordon(nodes.clone()),
            Given::Delete(what) => Action::Delete(name(what)?),
            Given::Scale(what, replicas) => Action::Scale { workload: name(what)?, replicas: *replicas },
            Given::SetPriority(what, priority) => {
                let priority = match priority.parse() {
                    Ok(value) => Priority::Value(value),
                    Err(_) => Priority::Class(priority.clone()),
                };
                Action::SetPriority { of: name(what)?, priority }
            }
        });
    }
    Ok(actions)
}

/// `--replicas` belongs to the `-f` before it; one before any `-f` belongs to all.
fn replicas_for(given: &[Given], file: usize) -> Option<usize> {
    let replicas = |given: &Given| match given {
        Given::Replicas(count) => Some(*count),
        _ => None,
    };
    let is_file = |given: &&Given| matches!(given, Given::File(_));
    let own = given[file + 1..].iter().take_while(|given| !is_file(given)).find_map(replicas);
    own.or_else(|| given.iter().take_while(|given| !is_file(given)).find_map(replicas))
}

/// A node in a file, or else the name of a pool.
fn node_template(like: &str) -> Result<NodeTemplate> {
    let is_file = Path::new(like).is_file() || [".yaml", ".yml", ".json"].iter().any(|end| like.ends_with(end));
    if !is_file {
        return Ok(NodeTemplate::Pool(like.to_owned()));
    }
    let objects = read_manifests(&[PathBuf::from(like)])?;
    let node = objects.into_iter().find(|object| object["kind"] == "Node");
    let node = node.with_context(|| format!("there is no node in {like}"))?;
    Ok(NodeTemplate::Node(Box::new(node)))
}
