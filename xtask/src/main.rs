//! What those who work on Bayplan run: `cargo xtask <command>`.
//!
//! Commands that only name a longer command are rows of `COMMANDS`; `tidy` and `fuzz` are code of this crate.

mod fuzz;
mod tidy;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// A name for command lines that are run one after the other from the root.
struct Alias {
    name: &'static str,
    about: &'static str,
    lines: &'static [&'static [&'static str]],
}

const COMMANDS: &[Alias] = &[
    Alias { name: "ci", about: "everything a change must pass", lines: &[&["bash", ".ci/run"]] },
    Alias {
        name: "bench",
        about: "what a decision costs; arguments go to `bayplan bench`",
        lines: &[&["cargo", "run", "--release", "--locked", "-p", "bayplan", "--", "bench"]],
    },
    Alias {
        name: "guards",
        about: "holds the cost of decisions to what it was, and its growth to a line (about four minutes; valgrind)",
        lines: &[
            &[
                "cargo",
                "test",
                "--release",
                "--locked",
                "-p",
                "bayplan-bench",
                "--test",
                "guard",
                "--",
                "--ignored",
                "--test-threads=1",
            ],
            // The ordinary tests optimize the scheduler, too, and are built already.
            &["cargo", "test", "--locked", "-p", "bayplan-scheduler", "--test", "linear", "--", "--ignored"],
        ],
    },
    Alias {
        name: "corpus",
        about: "replays all recorded answers of upstream and counts those that are equal",
        lines: &[&["cargo", "test", "--release", "--locked", "-p", "conformance", "--", "--nocapture"]],
    },
    Alias {
        name: "kubectl",
        about: "the transcripts and the user guide with a real kubectl",
        lines: &[&[
            "cargo",
            "test",
            "--locked",
            "-p",
            "bayplan",
            "--test",
            "kubectl",
            "--test",
            "guide",
            "--",
            "--ignored",
        ]],
    },
    Alias {
        name: "reference",
        about: "writes docs/guide/reference from the binary's own help and defaults",
        lines: &[&[
            "env",
            "BAYPLAN_WRITE_REFERENCE=1",
            "cargo",
            "test",
            "--locked",
            "-p",
            "bayplan",
            "--test",
            "reference",
        ]],
    },
    Alias {
        name: "manifests",
        about: "writes deploy/manifests from the chart, with a helm that it builds on first use",
        lines: &[&[
            "bash",
            "-c",
            "HELM=$(.ci/helm) BAYPLAN_WRITE_MANIFESTS=1 \
             cargo test --locked -p bayplan --test deploy -- --ignored the_manifests_are_what_the_chart_renders",
        ]],
    },
    Alias {
        name: "deny",
        about: "licences, duplicates and advisories with cargo-deny, which must be installed",
        lines: &[&["cargo", "deny", "check"]],
    },
];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_default();
    let more: Vec<String> = arguments.collect();
    match name.as_str() {
        "tidy" => return tidy(),
        "fuzz" => return said(fuzz::run(&root(), &more)),
        _ => {}
    }
    match COMMANDS.iter().find(|command| command.name == name) {
        Some(command) => run(command, &more),
        None => usage(),
    }
}

fn tidy() -> ExitCode {
    match tidy::check(&root()) {
        Ok(violations) if violations.is_empty() => ExitCode::SUCCESS,
        Ok(violations) => fail(&violations.join("\n")),
        Err(error) => fail(&error),
    }
}

fn said(result: Result<String, String>) -> ExitCode {
    match result {
        Ok(text) => {
            #[allow(clippy::print_stdout, reason = "this is a command line")]
            {
                println!("{text}");
            }
            ExitCode::SUCCESS
        }
        Err(text) => fail(&text),
    }
}

fn run(command: &Alias, more: &[String]) -> ExitCode {
    for line in command.lines {
        let [program, arguments @ ..] = line else { continue };
        let status = Command::new(program).args(arguments).args(more).current_dir(root()).status();
        match status {
            Ok(status) if status.success() => {}
            Ok(status) => return fail(&format!("`{}` failed: {status}", line.join(" "))),
            Err(error) => return fail(&format!("cannot run {program}: {error}")),
        }
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    let lines = COMMANDS.iter().map(|command| format!("  {:<10} {}", command.name, command.about));
    let tidy = format!("  {:<10} {}", "tidy", "what the tree must look like: sizes, arrows, names, links, licences");
    let fuzz =
        format!("  {:<10} {}", "fuzz", "[seconds] [target…]: bytes that nobody should send, 10 s for each target");
    fail(&format!("usage: cargo xtask <command>\n\n{}", lines.chain([tidy, fuzz]).collect::<Vec<_>>().join("\n")))
}

fn fail(text: &str) -> ExitCode {
    #[allow(clippy::print_stderr, reason = "this is a command line")]
    {
        eprintln!("{text}");
    }
    ExitCode::FAILURE
}

/// The root of the workspace, wherever the command is run.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}
