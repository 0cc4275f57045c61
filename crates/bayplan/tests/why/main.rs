//! `bayplan why` as its users see it: transcripts, the JSON against its schema, and recorded answers of upstream
//! through the binary.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod etcd;
#[path = "../transcript/schema.rs"]
mod json_schema;
mod large;
mod recorded;
mod schema;
#[path = "../transcript/shell.rs"]
mod shell;
#[path = "../transcript/mod.rs"]
mod transcript;

use shell::Beside;

const BESIDE: Beside = Beside("why");

#[test]
fn every_transcript_reads_as_written() {
    BESIDE.play_all(8);
}

#[test]
fn colours_are_for_terminals_only() {
    let folder = tempfile::tempdir().unwrap();
    let is_red =
        |command: &str| String::from_utf8(BESIDE.shell(command, folder.path()).stdout).unwrap().contains("\x1b[1;31m");
    assert!(!is_red("bayplan why pod/picky --from cluster.yaml"));
    let in_terminal =
        |more: &str| is_red(&format!("{more} script -qec 'bayplan why pod/picky --from cluster.yaml' /dev/null"));
    // `script` gives the command a terminal; not every machine has it.
    if BESIDE.shell("command -v script", folder.path()).status.success() {
        assert!(in_terminal(""));
        assert!(!in_terminal("NO_COLOR=1"));
    }
}
