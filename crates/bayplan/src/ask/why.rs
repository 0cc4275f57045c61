//! `bayplan why`: why a pod is pending, or why it is where it is.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use bayplan_client::Config;
use bayplan_explain::text::{self, Style};
use bayplan_explain::why::{
    Explanation, ExplanationList, NewPod, NodeExplanation, Options, Owner, PodName, Verdict, WrittenPods, explain,
    explain_all, explain_node, find_changes, find_changes_of_all, pods_of_manifests, pods_of_owner,
};
use bayplan_explain::{Complete, Completion, DEFAULT_NAMESPACE, Profiles, State, Subject};
use bayplan_model::decision_log::Decision;
use bayplan_page::{Standalone, standalone};
use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::{Object, PodInfo, Registry, TieBreak};
use bayplan_sources::resource_of;
use clap::CommandFactory;
use clap::error::ErrorKind;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::Outcome;
use super::load::{configuration, load, read_manifests};
use super::logged::Logged;
use crate::args::Cli;
use crate::args::output::Output;
use crate::args::source::Source;
use crate::args::why::Why;
use crate::output;

/// What is asked about.
#[derive(Debug, PartialEq, Eq)]
enum Question {
    Pod(String),
    Workload(&'static str, String),
    Node(String),
    Namespace,
    All,
    Manifests,
}

/// An answer in one of its forms.
#[derive(Serialize)]
#[serde(untagged)]
enum Answer {
    One(Box<Explanation>),
    Several(ExplanationList),
    Node(NodeExplanation),
}

/// Answers the question and prints the answer.
pub(crate) async fn run(args: Why) -> Result<ExitCode> {
    let question = Question::of(&args).unwrap_or_else(|error| misused(&error));
    let namespace = namespace_of(&args.source, args.namespace.as_deref());
    let Basis { mut state, configuration, ties, attempt } = basis(&args, &question, &namespace).await?;
    let profiles = Profiles::build(&configuration, &Registry::default())?;
    let now = state.origin().time.unwrap_or_else(Timestamp::now);
    let options = Options {
        per_node: args.per_node || args.output == Output::Wide,
        no_preemption: args.decisions.no_preemption,
        ties,
        node: args.node.clone(),
        now,
    };
    for note in state.notes() {
        warn(note);
    }
    let mut answer = match &question {
        Question::Manifests => manifests(&mut state, &profiles, &args, &namespace, &options)?,
        question => ask(&mut state, &profiles, question, &namespace, &options)?,
    };
    if let (Answer::One(explanation), Some((decision, time))) = (&mut answer, &attempt) {
        explanation.add_logged_attempt(decision.attempt.into(), *time, decision.message.as_deref());
    }
    if let Some(name) = args.node.as_deref().filter(|name| state.cluster().node(name).is_none()) {
        bail!("there is no node {name}");
    }
    if args.output == Output::Html && !args.message {
        let name = args.source.from.first().map_or_else(|| "live".to_owned(), |path| path.display().to_string());
        let shown = Standalone { pods: &answer.pods(), profiles: &profiles, name: &name, now, state: &mut state };
        writeln!(std::io::stdout().lock(), "{}", standalone(shown))?;
    } else {
        print(&answer, &args)?;
    }
    Ok(answer.outcome().into())
}

/// What the question is asked of: a cluster as it is, or as it was when a decision of a log was made.
struct Basis {
    state: State,
    configuration: Configuration,
    ties: TieBreak,
    /// The decision of the log, and its time.
    attempt: Option<(Decision, Timestamp)>,
}

async fn basis(args: &Why, question: &Question, namespace: &str) -> Result<Basis> {
    let Some(log) = &args.log else {
        let state = State::new(load(&args.source).await?);
        let (configuration, ties) = (configuration(&args.source)?, args.decisions.rule());
        return Ok(Basis { state, configuration, ties, attempt: None });
    };
    let Question::Pod(name) = question else {
        bail!("a decision log is asked about one pod: why pod/NAME --log {log}")
    };
    let logged = Logged::find(Path::new(log), namespace, name, args.at)?;
    logged.notes.iter().for_each(|note| warn(note));
    warn(&logged.line());
    let ties = logged.ties();
    let Logged { state, configuration, decision, time, .. } = logged;
    Ok(Basis { state, configuration, ties, attempt: Some((decision, time)) })
}

/// Ends as clap does when arguments make no sense.
fn misused(error: &anyhow::Error) -> ! {
    let mut cli = Cli::command();
    // Built, it says how `why` is used and not how all of it is.
    cli.build();
    let command = cli.find_subcommand_mut("why").expect("it is the command that was parsed");
    command.error(ErrorKind::InvalidValue, error).exit()
}

/// One line on standard error about something that could not be read.
#[allow(clippy::print_stderr)]
fn warn(note: &str) {
    eprintln!("bayplan: {note}");
}

impl Question {
    fn of(args: &Why) -> Result<Self> {
        if !args.filename.is_empty() {
            return Ok(Question::Manifests);
        }
        let (kind, name) = match args.what.as_slice() {
            [] if args.all_namespaces => return Ok(Question::All),
            [] => return Ok(Question::Namespace),
            [one] => one.split_once('/').unwrap_or(("pod", one)),
            [kind, name, ..] => (kind.as_str(), name.as_str()),
        };
        if name.is_empty() || name.contains('/') {
            bail!("{:?} names nothing: ask about pod/NAME, deployment/NAME or node/NAME", args.what.join(" "));
        }
        let name = name.to_owned();
        Ok(match kind.to_ascii_lowercase().as_str() {
            "pod" | "pods" | "po" => Question::Pod(name),
            "node" | "nodes" | "no" => Question::Node(name),
            "deployment" | "deployments" | "deploy" => Question::Workload("Deployment", name),
            "replicaset" | "replicasets" | "rs" => Question::Workload("ReplicaSet", name),
            "statefulset" | "statefulsets" | "sts" => Question::Workload("StatefulSet", name),
            "daemonset" | "daemonsets" | "ds" => Question::Workload("DaemonSet", name),
            "job" | "jobs" => Question::Workload("Job", name),
            "replicationcontroller" | "replicationcontrollers" | "rc" => {
                Question::Workload("ReplicationController", name)
            }
            other => bail!(
                "{other:?} has no pods that could be asked about: use pod, node, deployment, replicaset, \
                            statefulset, daemonset, job or replicationcontroller"
            ),
        })
    }
}

/// The namespace of the question: the flag's, that of the kubeconfig's context, or `default`.
pub(crate) fn namespace_of(source: &Source, flag: Option<&str>) -> String {
    let of_context = || {
        let live = source.from.is_empty();
        let config = live.then(|| Config::load(source.kubeconfig.as_deref(), source.context.as_deref(), None).ok());
        config.flatten().map(|config| config.namespace).filter(|namespace| !namespace.is_empty())
    };
    flag.map(str::to_owned).or_else(of_context).unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned())
}

fn ask(
    state: &mut State,
    profiles: &Profiles,
    question: &Question,
    namespace: &str,
    options: &Options,
) -> Result<Answer> {
    let pending = |state: &State, of: Option<&str>| -> Vec<Arc<PodInfo>> {
        let is_asked = |pod: &&Arc<PodInfo>| of.is_none_or(|namespace| pod.metadata.namespace == namespace);
        state.pending().filter(is_asked).cloned().collect()
    };
    let pods = match question {
        Question::Pod(name) => {
            let pod = state.pod(namespace, name).cloned();
            let pod = pod.with_context(|| no_pod(state, namespace, name))?;
            let mut explanation = explain(state, profiles, &pod, options);
            add_changes(state, profiles, &mut explanation, options);
            return Ok(Answer::One(Box::new(explanation)));
        }
        Question::Node(name) => {
            let answer = explain_node(state, profiles, name, options);
            return Ok(Answer::Node(answer.with_context(|| format!("there is no node {name}"))?));
        }
        Question::Workload(kind, name) => {
            let owner = Owner { kind, namespace: namespace.to_owned(), name: name.clone() };
            return of_workload(state, profiles, &owner, options).map(Answer::Several);
        }
        Question::Namespace => pending(state, Some(namespace)),
        Question::All | Question::Manifests => pending(state, None),
    };
    let mut list = explain_all(state, profiles, pods, options);
    add_changes_of_all(state, profiles, &mut list, options);
    Ok(Answer::Several(list))
}

/// Looks for what would let in a pod of the state.
fn add_changes(state: &mut State, profiles: &Profiles, explanation: &mut Explanation, options: &Options) {
    if let Some(json) = written_pod(state, &explanation.pod) {
        find_changes(state, profiles, explanation, Subject::as_written(&json), options);
    }
}

/// A pod of the state as it is written.
fn written_pod(state: &State, pod: &PodName) -> Option<Value> {
    let written = state.written(resource_of("v1", "Pod")?, &pod.namespace, &pod.name)?;
    serde_json::from_str(written.get()).ok()
}

/// The same for each group of a list.
fn add_changes_of_all(state: &mut State, profiles: &Profiles, list: &mut ExplanationList, options: &Options) {
    let pods = WrittenPods { json: &written_pod, complete: None };
    find_changes_of_all(state, profiles, list, &pods, options);
}

/// Why a pod is not there to be asked about.
fn no_pod(state: &State, namespace: &str, name: &str) -> String {
    let resource = resource_of("v1", "Pod");
    if resource.is_some_and(|resource| state.written(resource, namespace, name).is_some()) {
        return format!("pod {namespace}/{name} has finished: it needs no node any more");
    }
    let elsewhere = state.pending().find(|pod| pod.metadata.name == name);
    match elsewhere {
        Some(pod) => format!("there is no pod {namespace}/{name}, but one in -n {}", pod.metadata.namespace),
        None => format!("there is no pod {namespace}/{name}"),
    }
}

/// A workload's pending pods; those on nodes are only counted.
fn of_workload(state: &mut State, profiles: &Profiles, owner: &Owner, options: &Options) -> Result<ExplanationList> {
    let pods = pods_of_owner(state, owner);
    let Owner { kind, namespace, name } = owner;
    let api_version = match *kind {
        "Job" => "batch/v1",
        "ReplicationController" => "v1",
        _ => "apps/v1",
    };
    let resource = resource_of(api_version, kind);
    let is_known = resource.is_some_and(|resource| state.written(resource, namespace, name).is_some());
    if pods.is_empty() && !is_known {
        bail!("there is no {} {namespace}/{name}, and no pod of it", kind.to_lowercase());
    }
    let (placed, pending): (Vec<_>, Vec<_>) = pods.into_iter().partition(|pod| pod.is_assigned());
    let mut list = explain_all(state, profiles, pending, options);
    add_changes_of_all(state, profiles, &mut list, options);
    list.counts.placed += placed.len();
    Ok(list)
}

fn manifests(state: &mut State, profiles: &Profiles, args: &Why, namespace: &str, options: &Options) -> Result<Answer> {
    let objects: Vec<Value> = read_manifests(&args.filename)?;
    let mut completion = Completion::of(state);
    let pods = match args.as_written {
        true => pods_of_manifests(state, objects, namespace, Ok)?,
        false => pods_of_manifests(state, objects, namespace, |object| {
            let completed = completion.complete(object, options.now).map_err(|refused| refused.why().to_owned())?;
            completion.learn(completed["kind"].as_str().unwrap_or_default(), &completed);
            Ok(completed)
        })?,
    };
    let complete =
        |_: &State, object: Value| completion.complete(object, options.now).map_err(|refused| refused.why().to_owned());
    let complete: Option<&Complete<'_>> = if args.as_written { None } else { Some(&complete) };
    let answer = match pods.as_slice() {
        [pod] => {
            let mut explanation = explain(state, profiles, &pod.info, options);
            let subject = Subject { json: &pod.written, complete };
            find_changes(state, profiles, &mut explanation, subject, options);
            Answer::One(Box::new(explanation))
        }
        many => {
            let mut list = explain_all(state, profiles, many.iter().map(|pod| pod.info.clone()), options);
            let json = |_: &State, named: &PodName| {
                let is_meant = |pod: &&NewPod| {
                    let metadata = &pod.info.metadata;
                    metadata.name == named.name && metadata.namespace == named.namespace
                };
                many.iter().find(is_meant).map(|pod| pod.written.clone())
            };
            find_changes_of_all(state, profiles, &mut list, &WrittenPods { json: &json, complete }, options);
            Answer::Several(list)
        }
    };
    if args.output == Output::Html {
        // The page shows pods of the state.
        pods.iter().for_each(|pod| state.put(Object::Pod(pod.info.pod.clone())));
    }
    Ok(answer)
}

impl Answer {
    /// The worst verdict counts.
    fn outcome(&self) -> Outcome {
        let of = |verdict: Verdict| match verdict {
            Verdict::Placed | Verdict::WillPlace => Outcome::Fits,
            Verdict::NotYet | Verdict::Gated => Outcome::NotYet,
            Verdict::Never => Outcome::Never,
        };
        match self {
            Answer::One(explanation) => of(explanation.verdict),
            Answer::Several(list) => {
                list.groups.iter().map(|group| of(group.explanation.verdict)).max().unwrap_or(Outcome::Fits)
            }
            Answer::Node(_) => Outcome::Fits,
        }
    }

    /// The pods that were asked about, as `namespace/name`.
    fn pods(&self) -> Vec<String> {
        match self {
            Answer::One(explanation) => vec![explanation.pod.to_string()],
            Answer::Several(list) => list.groups.iter().flat_map(|group| &group.pods).cloned().collect(),
            Answer::Node(node) => {
                let refused = node.refuses.iter().flat_map(|refused| &refused.pods);
                node.would_take.iter().chain(refused).cloned().collect()
            }
        }
    }

    /// The messages of the FailedScheduling events, each once; an error's text stands for a message.
    fn messages(&self) -> Vec<&str> {
        let explanations: Vec<&Explanation> = match self {
            Answer::One(explanation) => vec![explanation],
            Answer::Several(list) => list.groups.iter().map(|group| &group.explanation).collect(),
            Answer::Node(_) => Vec::new(),
        };
        let mut all: Vec<&str> = Vec::new();
        for explanation in explanations {
            let said = explanation.message.as_deref().or(explanation.error.as_deref());
            all.extend(said.filter(|text| !all.contains(text)));
        }
        all
    }

    fn text(&self, style: Style) -> String {
        match self {
            Answer::One(explanation) => text::explanation(explanation, style),
            Answer::Several(list) => text::list(list, style),
            Answer::Node(node) => text::node(node, style),
        }
    }
}

fn print(answer: &Answer, args: &Why) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    if args.message {
        for message in answer.messages() {
            writeln!(stdout, "{message}")?;
        }
        return Ok(());
    }
    let style = Style { colours: has_colours(&stdout), wide: args.output == Output::Wide };
    output::write(&mut stdout, args.output, answer, || answer.text(style))
}

/// Colours are for terminals, and not for those who set `NO_COLOR`.
pub(crate) fn has_colours(output: &impl IsTerminal) -> bool {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    output.is_terminal() && !no_color
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::Command;

    fn question(arguments: &str) -> Result<Question, String> {
        let words = ["bayplan", "why"].into_iter().chain(arguments.split_whitespace());
        let cli = Cli::try_parse_from(words).map_err(|error| error.kind().to_string())?;
        let Command::Why(why) = cli.command else { panic!("another command") };
        Question::of(&why).map_err(|error| error.to_string())
    }

    #[test]
    fn a_question_is_asked_as_kubectl_names_things() {
        let pod = |name: &str| Ok(Question::Pod(name.into()));
        for (arguments, expected) in [
            ("pod/web", pod("web")),
            ("web", pod("web")),
            ("pod web", pod("web")),
            ("po/web", pod("web")),
            ("deploy/web", Ok(Question::Workload("Deployment", "web".into()))),
            ("StatefulSet db", Ok(Question::Workload("StatefulSet", "db".into()))),
            ("node/n-1", Ok(Question::Node("n-1".into()))),
            ("", Ok(Question::Namespace)),
            ("-A", Ok(Question::All)),
            ("-f pod.yaml", Ok(Question::Manifests)),
        ] {
            assert_eq!(question(arguments), expected, "{arguments}");
        }
        for (arguments, needle) in [
            ("pod/", "names nothing"),
            ("secret/x", "has no pods"),
            ("pod/web -A", "cannot be used with"),
            ("--as-written web", "cannot be used with"),
            ("--as-written", "required arguments"),
        ] {
            assert!(question(arguments).unwrap_err().contains(needle), "{arguments}: {:?}", question(arguments));
        }
    }
}
