//! Words that were given up must not come back as names in code.
//!
//! `retired.txt` lists them with what took their place. Comments and strings are free: there they are ordinary English.

use super::lexer::{Kind, tokens};
use super::tree::Tree;
use super::{Violation, violation};

/// The list; a path of this crate, so that a test may plant another.
const LIST: &str = include_str!("retired.txt");

/// An identifier of more words is the name of a test: a sentence, in ordinary English.
const WORDS_MAX: usize = 4;

/// A name that is not used any more.
struct Retired<'a> {
    /// The whole identifier, or with `*` in front of it one of its words.
    pattern: &'a str,
    instead: &'a str,
}

/// The entry of the list that an identifier is, or that one of its words is.
fn find<'a, 'b>(list: &'b [Retired<'a>], identifier: &str) -> Option<&'b Retired<'a>> {
    let words = words(identifier);
    let words = if words.len() <= WORDS_MAX { words } else { Vec::new() };
    list.iter().find(|retired| match retired.pattern.strip_prefix('*') {
        Some(word) => words.iter().any(|part| part == word),
        None => retired.pattern == identifier,
    })
}

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let list = list(LIST);
    let mut found = Vec::new();
    for (path, text) in tree.with_extension("rs") {
        for module in path.trim_end_matches(".rs").split('/') {
            if let Some(retired) = find(&list, module) {
                let why = format!("`{module}` is retired: {}", retired.instead);
                found.push(violation("retired", path, retired.pattern, why));
            }
        }
        for token in tokens(text).iter().filter(|token| token.kind == Kind::Ident) {
            if let Some(retired) = find(&list, token.text) {
                let why = format!("`{}` is retired: {}", token.text, retired.instead);
                found.push(violation("retired", &format!("{path}:{}", token.line), retired.pattern, why));
            }
        }
    }
    found
}

fn list(text: &str) -> Vec<Retired<'_>> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_once(' '))
        .map(|(pattern, instead)| Retired { pattern, instead: instead.trim() })
        .collect()
}

/// The words of an identifier in lower case: of `KinId` and of `kin_id` the same two.
fn words(identifier: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut before = '_';
    for c in identifier.chars() {
        let begins = before == '_' || (c.is_uppercase() && !before.is_uppercase());
        match words.last_mut() {
            _ if c == '_' => {}
            Some(word) if !begins => word.extend(c.to_lowercase()),
            _ => words.push(c.to_lowercase().collect()),
        }
        before = c;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::check_rule;

    #[test]
    fn a_retired_name_does_not_come_back() {
        let sample = "// Kin\nstruct KinId;\nfn a() { \"kin\"; }";
        check_rule(check, &[("a.rs", sample)], &["a.rs:2: `KinId` is retired: AffinityClass"]);
        let expected = ["src/kin/mod.rs: `kin` is retired: AffinityClass"];
        check_rule(check, &[("src/kin/mod.rs", "")], &expected);
        check_rule(check, &[("a.rs", "struct Kind; fn akin() {} /// a judge of its kin\nfn skin() {}")], &[]);
        check_rule(check, &[("a.rs", "fn a_pod_leaves_its_kin_behind() {}")], &[]);
    }

    #[test]
    fn whole_names_are_told_from_words() {
        check_rule(check, &[("a.rs", "Judge")], &["a.rs:1: `Judge` is retired: QueuePlugins"]);
        check_rule(check, &[("a.rs", "JudgeNot")], &[]);
    }

    #[test]
    fn every_line_of_the_list_names_what_to_say_instead() {
        for line in LIST.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            assert!(line.trim().contains(' '), "{line}");
        }
    }
}
