//! Expected output with gaps, and whether output is as expected.

use std::time::Duration;

/// How long output may take to become as expected; generous because shared machines stall.
pub(crate) const EVENTUALLY: Duration = Duration::from_secs(60);

/// The line with runs of blanks as one: column widths follow from names that are not ours.
pub(crate) fn squeeze(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether a line is as expected, where `[..]` stands for any text.
fn matches_line(pattern: &str, line: &str) -> bool {
    let mut rest = line;
    let mut parts = pattern.split("[..]").peekable();
    let mut first = true;
    while let Some(part) = parts.next() {
        let at = match (first, parts.peek()) {
            (true, None) => return rest == part,
            (true, _) => rest.starts_with(part).then_some(0),
            (false, None) => return rest.ends_with(part),
            (false, _) => rest.find(part),
        };
        let Some(at) = at else { return false };
        rest = &rest[at + part.len()..];
        first = false;
    }
    true
}

/// Whether lines are as expected, where a line `...` stands for any number of lines.
pub(crate) fn matches(expected: &[String], lines: &[String]) -> bool {
    match (expected.split_first(), lines.split_first()) {
        (None, None) => true,
        (Some((pattern, others)), _) if pattern == "..." => {
            matches(others, lines) || (!lines.is_empty() && matches(expected, &lines[1..]))
        }
        (Some((pattern, others)), Some((line, rest))) => matches_line(pattern, line) && matches(others, rest),
        _ => false,
    }
}

#[test]
fn a_transcript_line_matches_only_what_it_says() {
    assert!(matches_line("a[..]c", "abc"));
    assert!(matches_line("a[..]", "abc"));
    assert!(matches_line("[..]b[..]", "abc"));
    assert!(!matches_line("a[..]d", "abc"));
    assert!(!matches_line("ab", "abc"));
    let lines = |text: &str| text.lines().map(squeeze).collect::<Vec<_>>();
    assert!(matches(&lines("a\n...\nc"), &lines("a\nb\nb\nc")));
    assert!(!matches(&lines("a\n...\nc"), &lines("a\nb")));
    assert!(!matches(&lines("a"), &lines("a\nb")));
}
