//! Links and paths in documents and doc comments lead to files that are there.
//!
//! Checked are links to files (`[text](path)`, also with an anchor), and paths in code spans that begin at a folder of
//! the root (`docs/store.md`), because that is how prose names code. A path with a placeholder (`<plugin>`, `*`, `…`)
//! is not looked up.

use super::lexer::{Kind, tokens};
use super::tree::Tree;
use super::{Violation, violation};

/// Folders and files of the root that a path in a code span may begin with.
const ROOTS: [&str; 7] = ["crates/", "conformance/", "docs/", "fuzz/", "xtask/", ".ci/", ".github/"];

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, text) in tree.with_extension("md") {
        for (line, text) in prose(text) {
            found.extend(broken(tree, path, line, text, false));
        }
    }
    for (path, text) in tree.with_extension("rs") {
        for token in tokens(text).iter().filter(|token| token.kind == Kind::DocComment) {
            for (index, line) in token.text.lines().enumerate() {
                found.extend(broken(tree, path, token.line + index, line, true));
            }
        }
    }
    found
}

/// The lines of a document that are not in fenced blocks, counted from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((index + 1, line))
    })
}

fn broken(tree: &Tree, path: &str, line: usize, text: &str, in_code: bool) -> Vec<Violation> {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut missing = Vec::new();
    for target in links(text).filter(|target| !in_code || is_file_name(target)) {
        let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
        let file = if file.is_empty() { path.to_owned() } else { join(folder, file) };
        if !tree.has(&file) {
            missing.push(format!("links to {target}, which is not there"));
        } else if !anchor.is_empty() && file.ends_with(".md") && !has_heading(tree, &file, anchor) {
            missing.push(format!("links to {target}, which has no such heading"));
        }
    }
    for span in code_spans(text).filter(|span| ROOTS.iter().any(|root| span.starts_with(root))) {
        let is_path = span.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
        if is_path && !tree.has(span) {
            missing.push(format!("names {span}, which is not there"));
        }
    }
    let at = format!("{path}:{line}");
    missing.into_iter().map(|why| violation("link", &at, path, why)).collect()
}

/// Targets of links within the repository.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(target, _)| target));
    targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:") && !target.contains(' '))
}

/// Whether a link of a doc comment is to a file; others are to items, and rustdoc checks those.
fn is_file_name(target: &str) -> bool {
    target.contains('/') || target.split('#').next().is_some_and(|file| file.ends_with(".md") || file.ends_with(".rs"))
}

fn code_spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn join(folder: &str, target: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "." | "" => {}
            ".." if parts.pop().is_some() => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn has_heading(tree: &Tree, file: &str, anchor: &str) -> bool {
    let lines = prose(tree.text(file).unwrap_or_default());
    lines
        .filter(|(_, line)| line.starts_with('#'))
        .map(|(_, line)| slug(line.trim_start_matches('#')))
        .any(|slug| slug == anchor)
}

/// The anchor that a heading gets.
fn slug(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::check_rule;

    #[test]
    fn a_document_links_to_files_that_are_there() {
        let sample = "see [a](b.md) and [c](../README.md#two-words), [d](https://a/b)\n```\n[x](y)\n```\n[e](f/)";
        check_rule(
            check,
            &[("docs/a.md", sample), ("README.md", "# One")],
            &[
                "docs/a.md:1: links to b.md, which is not there",
                "docs/a.md:1: links to ../README.md#two-words, which has no such heading",
                "docs/a.md:5: links to f/, which is not there",
            ],
        );
        let there = [("docs/a.md", sample), ("docs/b.md", ""), ("docs/f/g.md", ""), ("README.md", "## Two words")];
        check_rule(check, &there, &[]);
    }

    #[test]
    fn a_doc_comment_links_to_files_that_are_there() {
        let sample = "/// [a](../docs/a.md), [`b`](crate::b) and `docs/a.md`\n// `docs/a.md`\nfn a() {}";
        let expected = [
            "src/a.rs:1: links to ../docs/a.md, which is not there",
            "src/a.rs:1: names docs/a.md, which is not there",
        ];
        check_rule(check, &[("src/a.rs", sample)], &expected);
        check_rule(check, &[("src/a.rs", sample), ("docs/a.md", "")], &[]);
    }

    #[test]
    fn a_path_in_prose_is_there_unless_it_has_a_placeholder() {
        let expected = ["a.md:1: names crates/a/src, which is not there"];
        check_rule(check, &[("a.md", "`crates/a/src`, `crates/<name>/src`, `crates/*.rs`, `cargo`")], &expected);
        check_rule(check, &[("a.md", "`crates/a/src`"), ("crates/a/src/b.rs", "")], &[]);
    }
}
