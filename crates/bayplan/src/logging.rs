//! The log: what is written, from which flag or variable that follows, and in which form.

use std::io::IsTerminal;

use anyhow::{Result, bail};
use tracing_subscriber::EnvFilter;

use crate::args::component::MetricsAndLogs;
use crate::args::{Cli, Command};
use crate::json_log::JsonLines;

/// The levels, from nothing to everything.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// The parts of Bayplan that log, as filters name them.
const PARTS: [&str; 21] = [
    "bayplan",
    "bayplan_apiserver",
    "bayplan_bench",
    "bayplan_cel",
    "bayplan_client",
    "bayplan_controllers",
    "bayplan_etcd",
    "bayplan_explain",
    "bayplan_flowcontrol",
    "bayplan_kinds",
    "bayplan_listener",
    "bayplan_metrics",
    "bayplan_model",
    "bayplan_otlp",
    "bayplan_page",
    "bayplan_patch",
    "bayplan_runner",
    "bayplan_scheduler",
    "bayplan_sim",
    "bayplan_sources",
    "bayplan_store",
];

/// Starts the log as the command line and the environment say. `before` is the filter before a verb whose own `--log`
/// is a decision log.
pub(crate) fn start(cli: &Cli, before: Option<&str>) -> Result<()> {
    let flags = match &cli.command {
        Command::Scheduler(scheduler) => Some(&scheduler.component.metrics_and_logs),
        Command::ControllerManager(manager) => Some(&manager.component.metrics_and_logs),
        // It has a screen of its own, and its log is as quiet as that of `up` unless somebody asks.
        Command::Apiserver(apiserver) => {
            let flags = &apiserver.metrics_and_logs;
            (flags.verbosity.is_some() || flags.logging_format == "json").then_some(flags)
        }
        _ => None,
    };
    let log = match &cli.command {
        Command::Page(_) | Command::Simulate(_) | Command::Why(_) => before,
        _ => cli.log.as_deref(),
    };
    let filter = filter(log, flags, std::env::var("RUST_LOG").ok().as_deref())?;
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let log = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_new(filter)?)
        .with_writer(std::io::stderr)
        .with_ansi(!no_color && std::io::stderr().is_terminal());
    match flags.is_some_and(|flags| flags.logging_format == "json") {
        true => log.event_format(JsonLines).init(),
        false => log.init(),
    }
    Ok(())
}

/// The filter in `EnvFilter`'s form: `--log`, else `-v`, else `RUST_LOG`, else the command's default.
fn filter(log: Option<&str>, flags: Option<&MetricsAndLogs>, rust_log: Option<&str>) -> Result<String> {
    if let Some(text) = log {
        return checked("--log ", text);
    }
    if let Some(level) = flags.and_then(|flags| flags.verbosity) {
        return Ok(with_details(level, for_own_parts(level_of_verbosity(level))));
    }
    match (rust_log, flags) {
        (Some(text), _) if !text.trim().is_empty() => checked("RUST_LOG=", text),
        // A component without a screen of its own says in its log what it does.
        (_, Some(_)) => Ok("warn,bayplan=info".to_owned()),
        (_, None) => Ok("warn".to_owned()),
    }
}

/// What upstream shows at a verbosity that is not yet debug: requests to the API server, attempts of the scheduler.
const DETAILS: (i32, &str) = (3, "bayplan_apiserver::requests=debug,bayplan_scheduler::attempts=debug");

fn with_details(level: i32, filter: String) -> String {
    if level == DETAILS.0 { format!("{filter},{}", DETAILS.1) } else { filter }
}

fn level_of_verbosity(level: i32) -> &'static str {
    match level {
        ..=0 => "warn",
        1..=3 => "info",
        4..=5 => "debug",
        _ => "trace",
    }
}

/// A level for Bayplan's own parts; the frames of HTTP/2 and TLS would bury what they say.
fn for_own_parts(level: &str) -> String {
    match level {
        "debug" | "trace" => format!("info,bayplan={level}"),
        level => level.to_owned(),
    }
}

/// Refuses what `EnvFilter` would take and then never match, such as a misspelt level.
fn checked(origin: &str, text: &str) -> Result<String> {
    let lower = text.trim().to_lowercase();
    if LEVELS.contains(&&*lower) {
        return Ok(for_own_parts(&lower));
    }
    for directive in text.split(',').map(str::trim).filter(|directive| !directive.is_empty()) {
        // Filters on spans have a grammar of their own, which `EnvFilter` checks.
        if !directive.contains(['[', '{'])
            && let Err(why) = check_directive(directive)
        {
            bail!("{origin}{text}: {why}");
        }
    }
    match EnvFilter::try_new(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => bail!("{origin}{text}: {error}"),
    }
}

fn check_directive(directive: &str) -> Result<(), String> {
    let is_level = |text: &str| LEVELS.contains(&&*text.to_lowercase());
    let levels = LEVELS.join(", ");
    let Some((part, level)) = directive.split_once('=') else {
        return match is_level(directive) {
            true => Ok(()),
            false => Err(format!(
                "{directive:?} is not a level: write one of {levels}, or part=level such as bayplan_scheduler=debug"
            )),
        };
    };
    if !is_level(level) {
        return Err(format!("{level:?} is not a level: write one of {levels}"));
    }
    let root = part.split("::").next().unwrap_or(part);
    if root.starts_with("bayplan") && !PARTS.contains(&root) {
        return Err(format!("there is no {root}: the parts are {}", PARTS.join(", ")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(log: Option<&str>, rust_log: Option<&str>, expected: &str) {
        let found = filter(log, None, rust_log).unwrap_or_else(|error| error.to_string());
        assert_eq!(found, expected);
    }

    #[test]
    fn a_level_is_for_bayplans_own_parts() {
        check(None, None, "warn");
        check(Some("info"), None, "info");
        check(Some("debug"), None, "info,bayplan=debug");
        check(Some("TRACE"), None, "info,bayplan=trace");
        check(Some("warn,bayplan_scheduler=debug"), None, "warn,bayplan_scheduler=debug");
        check(Some("h2=trace"), None, "h2=trace");
    }

    #[test]
    fn the_flag_wins_over_the_variable() {
        check(Some("info"), Some("debug"), "info");
        check(None, Some("debug"), "info,bayplan=debug");
        check(None, Some(""), "warn");
        let error = "RUST_LOG=loud: \"loud\" is not a level: write one of off, error, warn, info, debug, trace, or \
                     part=level such as bayplan_scheduler=debug";
        check(None, Some("loud"), error);
    }

    #[test]
    fn what_would_never_match_is_refused() {
        check(
            Some("warn,bayplan_scheduler=debg"),
            None,
            "--log warn,bayplan_scheduler=debg: \"debg\" is not a level: write one of off, error, warn, info, debug, \
             trace",
        );
        let error = filter(Some("bayplan_shceduler=debug"), None, None).unwrap_err().to_string();
        assert!(error.starts_with("--log bayplan_shceduler=debug: there is no bayplan_shceduler"), "{error}");
    }

    #[test]
    fn every_crate_of_the_workspace_can_be_named() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let Ok(manifest) = std::fs::read_to_string(entry.path().join("Cargo.toml")) else { continue };
            let name = manifest.lines().find_map(|line| line.strip_prefix("name = ")).unwrap().trim_matches('"');
            let name = name.replace('-', "_");
            // Crates for tests alone are not in the binary.
            let is_for_tests = ["bayplan_testkit", "bayplan_world"].contains(&&*name);
            let logs = name.starts_with("bayplan") && !is_for_tests;
            assert!(!logs || PARTS.contains(&&*name), "{name} is missing in PARTS");
        }
    }
}
