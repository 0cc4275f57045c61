//! The flags of this process with their values, as `/flagz` shows them.

use std::ffi::OsStr;
use std::sync::OnceLock;

use clap::{ArgMatches, CommandFactory, FromArgMatches};

use super::Cli;

/// Set once, before anything runs.
static FLAGS: OnceLock<Vec<(String, String)>> = OnceLock::new();

/// Parses the command line and keeps its flags for [`flags`]; a wrong one ends the process with a message.
pub(crate) fn parse(arguments: Vec<String>) -> Cli {
    let matches = Cli::command().get_matches_from(arguments);
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let _ = FLAGS.set(flags_of(&matches));
    cli
}

/// All flags of the command, given or not.
pub(crate) fn flags() -> &'static [(String, String)] {
    FLAGS.get().map_or(&[], Vec::as_slice)
}

fn flags_of(matches: &ArgMatches) -> Vec<(String, String)> {
    let Some((name, given)) = matches.subcommand() else { return Vec::new() };
    let command = Cli::command();
    let Some(command) = command.find_subcommand(name) else { return Vec::new() };
    let value = |id: &str| {
        let values = given.try_get_raw(id).ok().flatten().into_iter().flatten();
        values.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(",")
    };
    command.get_arguments().filter_map(|arg| Some((arg.get_long()?.to_owned(), value(arg.get_id().as_str())))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_have_the_values_given_or_their_defaults() {
        let line = ["bayplan", "scheduler", "--leader-elect=false", "--kubeconfig", "/a/b"];
        let flags = flags_of(&Cli::command().get_matches_from(line));
        let value = |name: &str| flags.iter().find(|(flag, _)| flag == name).map(|(_, value)| value.as_str());
        assert_eq!(value("leader-elect"), Some("false"));
        assert_eq!(value("kubeconfig"), Some("/a/b"));
        assert_eq!(value("bind-address"), Some("0.0.0.0"), "a default");
        assert_eq!(value("master"), Some(""), "neither given nor defaulted");
    }
}
