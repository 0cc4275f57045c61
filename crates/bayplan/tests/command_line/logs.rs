//! The log: `--log`, `RUST_LOG`, and its form.

use crate::process::{Server, bayplan, check_failure, read};

const LEVELS: &str = "write one of off, error, warn, info, debug, trace";

#[test]
fn a_filter_that_cannot_match_is_refused() {
    let parts = "or part=level such as bayplan_scheduler=debug";
    for (filter, why) in [
        ("inof", format!("\"inof\" is not a level: {LEVELS}, {parts}")),
        ("info,verbose", format!("\"verbose\" is not a level: {LEVELS}, {parts}")),
        ("bayplan_scheduler=debg", format!("\"debg\" is not a level: {LEVELS}")),
    ] {
        check_failure(&["--log", filter, "version"], &format!("bayplan: --log {filter}: {why}"));
    }
    let output = bayplan(&["version"]).env("RUST_LOG", "inof").output().unwrap();
    let expected = format!("bayplan: RUST_LOG=inof: \"inof\" is not a level: {LEVELS}, {parts}\n");
    assert_eq!(read(output), (1, String::new(), expected));
}

/// The log of a short life of a cluster.
fn log(arguments: &[&str], rust_log: Option<&str>) -> String {
    let mut command = bayplan(&["up", "--port", "0", "--in-memory", "--nodes", "1"]);
    command.args(arguments).envs(rust_log.map(|filter| ("RUST_LOG", filter)));
    Server::start(command).stop("-INT").1
}

#[test]
fn the_log_is_as_loud_as_the_flag_or_else_the_environment_says() {
    assert_eq!(log(&[], None), "");
    assert_eq!(log(&["--log", "warn"], Some("debug")), "");
    for text in [log(&["--log", "debug"], None), log(&[], Some("debug"))] {
        assert!(text.contains(" INFO bayplan::cluster: the API server answers url="), "{text}");
        assert!(!text.contains('\x1b'), "no colours outside a terminal: {text}");
        let foreign = |line: &str| line.contains(" DEBUG ") && !line.contains(" DEBUG bayplan");
        assert_eq!(text.lines().find(|line| foreign(line)), None);
    }
}
