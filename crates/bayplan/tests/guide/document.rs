//! A page of the guide as the steps it asks for.

use crate::pattern::squeeze;

/// Something a reader would do.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    Run(Command),
    /// Save a file.
    Write {
        path: String,
        text: String,
    },
    /// End the command that begins so and still serves.
    Stop {
        line: usize,
        command: String,
    },
    /// Have a cluster.
    Cluster,
}

/// A command, and what it must print.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Command {
    pub(crate) line: usize,
    pub(crate) text: String,
    /// In the form of `pattern`, with `...` and `[..]`.
    pub(crate) expected: Vec<String>,
    /// Whether the page ends it with `^C`.
    pub(crate) interrupted: bool,
}

/// The line and the language of every fenced block.
pub(crate) fn fences(text: &str) -> Vec<(usize, &str)> {
    let lines =
        text.lines().enumerate().filter_map(|(index, line)| Some((index + 1, line.trim().strip_prefix("```")?)));
    lines.step_by(2).map(|(line, info)| (line, info.split(' ').next().unwrap_or_default())).collect()
}

pub(crate) fn steps(text: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let line = line.trim();
        if let Some(directive) = line.strip_prefix("<!-- guide: ").and_then(|line| line.strip_suffix(" -->")) {
            steps.push(match directive.split_once(' ') {
                Some(("stop", command)) => Step::Stop { line: index + 1, command: command.to_owned() },
                _ if directive == "cluster" => Step::Cluster,
                _ => panic!("line {}: what is `guide: {directive}`?", index + 1),
            });
        } else if let Some(info) = line.strip_prefix("```") {
            let block = lines.by_ref().take_while(|(_, line)| line.trim() != "```");
            let block: Vec<(usize, &str)> = block.map(|(index, line)| (index + 1, line)).collect();
            match info.split_once(' ') {
                None if info == "console" => steps.extend(commands(&block).into_iter().map(Step::Run)),
                Some((_, path)) => steps.push(Step::Write { path: path.to_owned(), text: joined(&block) }),
                None => {}
            }
        }
    }
    steps
}

fn joined(block: &[(usize, &str)]) -> String {
    block.iter().map(|(_, line)| format!("{line}\n")).collect()
}

fn commands(block: &[(usize, &str)]) -> Vec<Command> {
    let mut commands: Vec<Command> = Vec::new();
    for (line, text) in block {
        match commands.last_mut() {
            _ if text.starts_with("$ ") => {
                commands.push(Command { line: *line, text: text[2..].to_owned(), ..Command::default() });
            }
            Some(command) if is_unfinished(&command.text) => {
                command.text.push('\n');
                command.text.push_str(text);
            }
            Some(command) if text.trim() == "^C" => command.interrupted = true,
            Some(command) if !text.is_empty() => command.expected.push(pattern(text)),
            Some(_) => {}
            None => panic!("line {line}: a console block begins with a command"),
        }
    }
    commands
}

/// Whether the shell would read on: after a backslash, or until the end of a here-document.
fn is_unfinished(text: &str) -> bool {
    let here_document =
        text.lines().next().and_then(|line| line.split_once("<<")).map(|(_, end)| end.trim_matches('\''));
    text.ends_with('\\') || here_document.is_some_and(|end| text.lines().last() != Some(end))
}

fn pattern(line: &str) -> String {
    let line = squeeze(line);
    if line == "…" { "...".to_owned() } else { line.replace('…', "[..]") }
}

#[test]
fn a_page_reads_as_the_steps_a_reader_takes() {
    let page = [
        "# Title",
        "<!-- guide: cluster -->",
        "```yaml a.yaml",
        "kind: A",
        "```",
        "```console",
        "$ cat <<EOF\na\nEOF",
        "a\n…\nb … c",
        "$ a \\\n  b",
        "^C",
        "```",
        "```yaml\nnothing: 1\n```",
        "<!-- guide: stop bayplan up -->",
    ]
    .join("\n");
    let command = |line, text: &str, expected: &[&str], interrupted| {
        let expected = expected.iter().map(|line| line.to_string()).collect();
        Step::Run(Command { line, text: text.to_owned(), expected, interrupted })
    };
    let expected = [
        Step::Cluster,
        Step::Write { path: "a.yaml".into(), text: "kind: A\n".into() },
        command(7, "cat <<EOF\na\nEOF", &["a", "...", "b [..] c"], false),
        command(13, "a \\\n  b", &[], true),
        Step::Stop { line: 20, command: "bayplan up".into() },
    ];
    assert_eq!(steps(&page), expected);
    assert_eq!(fences(&page), [(3, "yaml"), (6, "console"), (17, "yaml")]);
}
