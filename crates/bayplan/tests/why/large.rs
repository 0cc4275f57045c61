//! A stream that is larger than what should be held of it.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use bayplan_testkit::binary;

/// How much is sent.
const STREAM_BYTES: usize = 4 << 30;
/// What the process may take meanwhile: what is kept, and what is made of it.
const MEMORY_KB_MAX: u64 = 3_000_000;

const FIRST: &str = concat!(
    r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"},"status":{"allocatable":{"cpu":"4","pods":"9"}}}"#,
    r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"large"},"spec":{"containers":[{"name":"c","#,
    r#""resources":{"requests":{"cpu":"9"}}}]}}"#,
);

/// The most memory that a process has had, in KB.
fn peak(child: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
#[ignore = "sends 4 GB: a minute and a half"]
fn a_stream_of_any_length_takes_bounded_memory() {
    let mut why = Command::new(binary(env!("CARGO_BIN_EXE_bayplan")));
    why.args(["why", "pod/large", "--message", "--from", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = why.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let environment = format!(r#"{{"name":"V","value":"{}"}}"#, "x".repeat(9000));
    input.write_all(FIRST.as_bytes()).unwrap();
    let (mut sent, mut number, mut most) = (0, 0, 0);
    while sent < STREAM_BYTES {
        number += 1;
        let pod = format!(
            r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"p{number}"}},"status":{{"phase":"Succeeded"}},
            "spec":{{"nodeName":"n","containers":[{{"name":"c","env":[{environment}]}}]}}}}"#
        );
        input.write_all(pod.as_bytes()).unwrap();
        sent += pod.len();
        if number % 10_000 == 0 {
            most = peak(&child).max(most);
        }
    }
    most = peak(&child).max(most);
    drop(input);
    let mut message = String::new();
    child.stdout.take().unwrap().read_to_string(&mut message).unwrap();
    child.wait().unwrap();
    assert!(message.starts_with("0/1 nodes are available: 1 Insufficient cpu."), "{message}");
    assert!(most < MEMORY_KB_MAX, "{most} KB");
    println!("{most} KB for {sent} bytes");
}
