//! The arguments of `whatif`: actions, which are carried out in the order in which they are written.

use std::path::PathBuf;

use bayplan_explain::whatif::Condition;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueEnum};

use super::output::{Output, formats};
use super::source::Source;

const ACTIONS_HEADING: &str = "Actions, in their order";

#[derive(Debug, Args)]
pub(crate) struct Whatif {
    #[command(flatten)]
    pub(crate) actions: Actions,
    /// The namespace of what names none [default: that of the kubeconfig's context, or else `default`].
    #[arg(short, long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    #[command(flatten)]
    pub(crate) decisions: Decisions,
    /// Take the objects of -f exactly as they are instead of completing them as an API server would.
    #[arg(long)]
    pub(crate) as_written: bool,
    /// Exit with 1 when this holds for the answer, for example 'pending>0', 'stuck>0' or 'utilisation.cpu>=0.9', and
    /// with 0 when none does. Repeatable.
    #[arg(long, value_name = "CONDITION", value_parser = condition)]
    pub(crate) fail_if: Vec<Condition>,
    #[command(flatten)]
    pub(crate) source: Source,
    /// Print text, text with every pod, JSON or YAML.
    #[arg(
        short,
        long,
        value_name = "FORMAT",
        default_value = "text",
        value_parser = formats([Output::Text, Output::Wide, Output::Json, Output::Yaml]),
        help_heading = "Output"
    )]
    pub(crate) output: Output,
}

/// How what-ifs and simulations decide.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Decisions {
    /// Which of several equally good nodes is chosen.
    #[arg(long, value_enum, value_name = "RULE", default_value_t = TieRule::Random)]
    pub(crate) ties: TieRule,
    /// Makes the choices of `--ties random` repeatable.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Let nobody be evicted for a more important pod: a pod that fits nowhere stays pending.
    #[arg(long)]
    pub(crate) no_preemption: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TieRule {
    /// One of them at random.
    Random,
    /// The one whose name is smallest.
    Name,
}

/// An action as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Given {
    /// `-f FILE`
    File(PathBuf),
    /// `--replicas COUNT`
    Replicas(usize),
    /// `--add COUNT=POOL|FILE`
    Add(usize, String),
    /// `--drain NODE,…`
    Drain(Vec<String>),
    /// `--cordon NODE,…`
    Cordon(Vec<String>),
    /// `--delete KIND/NAME`
    Delete(String),
    /// `--scale KIND/NAME=COUNT`
    Scale(String, usize),
    /// `--set-priority KIND/NAME=NUMBER|CLASS`
    SetPriority(String, String),
}

/// All actions, in the order in which they were written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Actions(pub(crate) Vec<Given>);

/// A flag that is an action: its name, its value, what it does, and how its value is read.
struct Flag {
    name: &'static str,
    short: Option<char>,
    value: &'static str,
    help: &'static str,
    read: fn(&str) -> Result<Given, String>,
}

const FLAGS: &[Flag] = &[
    Flag {
        name: "filename",
        short: Some('f'),
        value: "FILE",
        help: "Create the objects of a YAML or JSON file, or of a folder; `-` is standard input. Workloads become \
               their pods. Repeatable",
        read: |text| Ok(Given::File(text.into())),
    },
    Flag {
        name: "replicas",
        short: None,
        value: "COUNT",
        help: "Give the workloads of the -f before it, or of all, so many pods",
        read: |text| number(text).map(Given::Replicas),
    },
    Flag {
        name: "add",
        short: None,
        value: "COUNT=POOL|FILE",
        help: "Add nodes: copies of those of a pool (by its name, a label KEY=VALUE, or a node's name), or of a node \
               in a file. Repeatable",
        read: |text| {
            let (count, like) = text.split_once('=').ok_or("it is not of the form 3=POOL or 3=node.yaml")?;
            Ok(Given::Add(number(count)?, like.to_owned()))
        },
    },
    Flag {
        name: "drain",
        short: None,
        value: "NODE,…",
        help: "Evict the pods of nodes as far as disruption budgets allow. Repeatable",
        read: |text| Ok(Given::Drain(names(text)?)),
    },
    Flag {
        name: "cordon",
        short: None,
        value: "NODE,…",
        help: "Let nodes take no more pods. Repeatable",
        read: |text| Ok(Given::Cordon(names(text)?)),
    },
    Flag {
        name: "delete",
        short: None,
        value: "KIND/NAME",
        help: "Delete an object and the pods that go with it. Repeatable",
        read: |text| Ok(Given::Delete(text.to_owned())),
    },
    Flag {
        name: "scale",
        short: None,
        value: "KIND/NAME=COUNT",
        help: "Give a workload another number of pods, for example deploy/web=40. Repeatable",
        read: |text| {
            let (what, count) = text.rsplit_once('=').ok_or("it is not of the form deploy/web=40")?;
            Ok(Given::Scale(what.to_owned(), number(count)?))
        },
    },
    Flag {
        name: "set-priority",
        short: None,
        value: "KIND/NAME=NUMBER|CLASS",
        help: "Give a pod, or the pods of a workload, another priority. Repeatable",
        read: |text| {
            let (what, priority) = text.rsplit_once('=').ok_or("it is not of the form deploy/web=1000")?;
            Ok(Given::SetPriority(what.to_owned(), priority.to_owned()))
        },
    },
];

fn number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number"))
}

fn names(text: &str) -> Result<Vec<String>, String> {
    let names: Vec<String> =
        text.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect();
    if names.is_empty() { Err("it names no node".into()) } else { Ok(names) }
}

fn condition(text: &str) -> Result<Condition, String> {
    text.parse().map_err(|error: bayplan_explain::whatif::ConditionError| error.to_string())
}

impl Args for Actions {
    fn augment_args(command: Command) -> Command {
        command.args(FLAGS.iter().map(|flag| {
            let arg = Arg::new(flag.name).long(flag.name).value_name(flag.value).help(flag.help);
            let arg = arg.action(ArgAction::Append).help_heading(ACTIONS_HEADING).value_parser(flag.read);
            match flag.short {
                Some(short) => arg.short(short),
                None => arg,
            }
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Actions::augment_args(command)
    }
}

impl FromArgMatches for Actions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut found: Vec<(usize, Given)> = Vec::new();
        for flag in FLAGS {
            let values = matches.get_many::<Given>(flag.name).into_iter().flatten().cloned();
            found.extend(matches.indices_of(flag.name).into_iter().flatten().zip(values));
        }
        found.sort_by_key(|(index, _)| *index);
        Ok(Actions(found.into_iter().map(|(_, given)| given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Actions::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn parse(arguments: &str) -> Result<Whatif, String> {
        let words = ["bayplan", "whatif"].into_iter().chain(arguments.split_whitespace());
        match Cli::try_parse_from(words).map_err(|error| error.to_string())?.command {
            Command::Whatif(whatif) => Ok(*whatif),
            _ => panic!("another command"),
        }
    }

    #[test]
    fn actions_keep_the_order_in_which_they_are_written() {
        let whatif =
            parse("--drain a,b -f x.yaml --replicas 3 --add 2=gpu --from d --scale deploy/w=4 --drain=c -f y.yaml")
                .unwrap();
        let expected = [
            Given::Drain(vec!["a".into(), "b".into()]),
            Given::File("x.yaml".into()),
            Given::Replicas(3),
            Given::Add(2, "gpu".into()),
            Given::Scale("deploy/w".into(), 4),
            Given::Drain(vec!["c".into()]),
            Given::File("y.yaml".into()),
        ];
        assert_eq!(whatif.actions.0, expected);
    }

    #[test]
    fn a_bad_action_is_refused_with_an_example_of_a_good_one() {
        for (arguments, needle) in [
            ("--add gpu", "3=POOL"),
            ("--add x=gpu", "not a number"),
            ("--scale deploy/w", "deploy/web=40"),
            ("--drain ,", "names no node"),
            ("--set-priority deploy/w", "deploy/web=1000"),
            ("--fail-if pending", "'pending>0'"),
            ("--fail-if bananas>1", "is not a number of an answer"),
            ("--fail-if pending>many", "is not a number such as"),
        ] {
            let error = parse(arguments).unwrap_err();
            assert!(error.contains(needle), "{arguments}: {error}");
        }
    }
}
