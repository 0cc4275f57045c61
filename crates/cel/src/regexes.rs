//! Patterns: Go's syntax, a size that is known before they are compiled, and compiled ones kept.

use std::sync::{Arc, Mutex, PoisonError};

use bayplan_model::keyed::KeyedMap;
use regex::{Regex, RegexBuilder};
use regex_syntax::hir::{Hir, HirKind};

use crate::Error;
use crate::cost::{Meter, REGEX, TRAVERSAL, factor};

/// The most that repetitions may multiply a part of a pattern by; Go's limit.
const REPEATS_MAX: u64 = 1000;
/// The most states of a pattern. Real ones have some hundred; compiling this many takes about ten milliseconds.
const STATES_MAX: u64 = 20_000;
/// What a compiled pattern may occupy: some hundred bytes for each state, and as much again for its cache.
const BYTES_MAX: usize = 4 << 20;
/// The compiled patterns that are kept. They occupy at most this many times twice [`BYTES_MAX`]; real ones ten KiB.
const KEPT_MAX: usize = 32;
/// What reading a pattern costs for each character, also of one that turns out to be none: about 200 ns.
const READ: u64 = 4;
/// What compiling costs for each state: about 200 ns.
const COMPILE: u64 = 4;

/// A compiled pattern and the number of its states.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) regex: Regex,
    states: u64,
}

/// Whether a pattern can be compiled. It is not, as that takes longer the more its repetitions stand for.
pub(crate) fn check(pattern: &str) -> Result<(), Error> {
    read(pattern).map(|_| ())
}

fn refuse(reason: impl std::fmt::Display) -> Error {
    Error::runtime(format!("error parsing regexp: {reason}"))
}

/// The pattern in the syntax of the crate, and its states. Takes time by the length of the text, not by its meaning.
fn read(pattern: &str) -> Result<(String, u64), Error> {
    if let Some(operators) = nested_repetition(pattern) {
        return Err(refuse(format_args!("invalid nested repetition operator: `{operators}`")));
    }
    let translated = translate(pattern);
    let parsed = regex_syntax::ParserBuilder::new().nest_limit(200).build().parse(&translated);
    let parsed = parsed.map_err(|error| refuse(reason(pattern, &error)))?;
    let (states, _) = states(&parsed)?;
    if states > STATES_MAX {
        return Err(refuse(format_args!("expression too large: `{pattern}`")));
    }
    Ok((translated, states))
}

fn build(pattern: &str, translated: &str, states: u64) -> Result<Pattern, Error> {
    let regex = RegexBuilder::new(translated).size_limit(BYTES_MAX).dfa_size_limit(BYTES_MAX).nest_limit(200).build();
    let regex = regex.map_err(|_| refuse(format_args!("expression too large: `{pattern}`")))?;
    Ok(Pattern { regex, states })
}

/// Go's words for what is wrong with a pattern.
fn reason(pattern: &str, error: &regex_syntax::Error) -> String {
    use regex_syntax::ast::ErrorKind::*;
    let regex_syntax::Error::Parse(error) = error else { return format!("invalid escape sequence: `{pattern}`") };
    let span = error.span();
    let part = error.pattern().get(span.start.offset..span.end.offset).unwrap_or(pattern);
    match error.kind() {
        GroupUnclosed => format!("missing closing ): `{pattern}`"),
        GroupUnopened => format!("unexpected ): `{pattern}`"),
        ClassUnclosed => format!("missing closing ]: `{}`", error.pattern().get(span.start.offset..).unwrap_or(part)),
        RepetitionMissing => format!("missing argument to repetition operator: `{part}`"),
        RepetitionCountInvalid => format!("invalid repeat count: `{part}`"),
        EscapeUnexpectedEof => "trailing backslash at end of expression: ``".to_owned(),
        EscapeUnrecognized => format!("invalid escape sequence: `{part}`"),
        ClassRangeInvalid => format!("invalid character class range: `{part}`"),
        NestLimitExceeded(_) => format!("expression nests too deeply: `{pattern}`"),
        _ => format!("invalid or unsupported Perl syntax: `{part}`"),
    }
}

/// The number of states of a pattern with its repetitions written out, and how often the most repeated part stands in
/// it. The outer of two repetitions that are too many together is the one that Go names.
fn states(of: &Hir) -> Result<(u64, u64), Error> {
    let of_all = |parts: &[Hir]| {
        let mut all = (0u64, 1);
        for part in parts {
            let (count, repeats) = states(part)?;
            all = (all.0.saturating_add(count), all.1.max(repeats));
        }
        Ok::<_, Error>(all)
    };
    Ok(match of.kind() {
        HirKind::Empty | HirKind::Look(_) => (1, 1),
        HirKind::Literal(literal) => (literal.0.len() as u64, 1),
        HirKind::Class(regex_syntax::hir::Class::Unicode(class)) => {
            // A range of characters is some ranges of bytes.
            (class.iter().map(|range| range.end().len_utf8() as u64).sum::<u64>().max(1), 1)
        }
        HirKind::Class(regex_syntax::hir::Class::Bytes(class)) => (class.iter().count() as u64, 1),
        HirKind::Capture(capture) => {
            let (count, repeats) = states(&capture.sub)?;
            (count.saturating_add(2), repeats)
        }
        HirKind::Concat(parts) => of_all(parts)?,
        HirKind::Alternation(parts) => {
            let (count, repeats) = of_all(parts)?;
            (count.saturating_add(parts.len() as u64), repeats)
        }
        HirKind::Repetition(repetition) => {
            let (min, max) = (repetition.min, repetition.max);
            let times = u64::from(max.unwrap_or(min).max(min)).max(1);
            let (count, repeats) = states(&repetition.sub)?;
            let repeats = repeats.saturating_mul(times);
            if repeats > REPEATS_MAX {
                return Err(refuse(format_args!("invalid repeat count: `{}`", written(min, max))));
            }
            (count.saturating_mul(times).saturating_add(1), repeats)
        }
    })
}

fn written(min: u32, max: Option<u32>) -> String {
    match max {
        Some(max) if max == min => format!("{{{min}}}"),
        Some(max) => format!("{{{min},{max}}}"),
        None => format!("{{{min},}}"),
    }
}

/// Two repetitions of one thing, such as `x**`, which Go refuses.
fn nested_repetition(pattern: &str) -> Option<&str> {
    let bytes = pattern.as_bytes();
    let (mut at, mut in_class, mut repeated) = (0, false, None);
    while at < bytes.len() {
        let start = at;
        at += 1;
        let before = repeated.take();
        match bytes[start] {
            b'\\' => at += 1,
            b'[' => in_class = true,
            b']' => in_class = false,
            b'*' | b'+' | b'?' if !in_class => {
                if let Some(first) = before {
                    return pattern.get(first..at);
                }
                at += usize::from(bytes.get(at) == Some(&b'?'));
                repeated = Some(start);
            }
            _ => {}
        }
    }
    None
}

/// Writes Go's syntax in the crate's: classes such as `\d` are ASCII, a bracket within brackets is a character, and
/// braces that are no repetition are characters.
fn translate(pattern: &str) -> String {
    let mut written = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern.chars().peekable();
    let mut in_class = false;
    let mut class_start = false;
    while let Some(c) = rest.next() {
        let at_start = std::mem::take(&mut class_start);
        match c {
            '\\' => {
                let class = match rest.peek() {
                    Some('d') => "[0-9]",
                    Some('D') => "[^0-9]",
                    Some('w') => "[0-9A-Za-z_]",
                    Some('W') => "[^0-9A-Za-z_]",
                    Some('s') => "[\\t\\n\\f\\r ]",
                    Some('S') => "[^\\t\\n\\f\\r ]",
                    Some('b') if !in_class => "(?-u:\\b)",
                    Some('B') if !in_class => "(?-u:\\B)",
                    _ => "",
                };
                if class.is_empty() {
                    written.push(c);
                    written.extend(rest.next());
                } else {
                    rest.next();
                    written.push_str(class);
                }
            }
            '[' if !in_class => {
                in_class = true;
                class_start = true;
                written.push(c);
                if rest.peek() == Some(&'^') {
                    written.extend(rest.next());
                }
                if rest.peek() == Some(&']') {
                    rest.next();
                    written.push_str("\\]");
                }
            }
            '[' if rest.peek() != Some(&':') => written.push_str("\\["),
            '[' => {
                // A class by name, to its end.
                written.push(c);
                for c in rest.by_ref() {
                    written.push(c);
                    if c == ']' {
                        break;
                    }
                }
            }
            ']' if in_class => {
                in_class = false;
                written.push(c);
            }
            '&' | '~' if in_class => written.extend(['\\', c]),
            '-' if in_class && (at_start || rest.peek() == Some(&'-')) => written.push_str("\\-"),
            '{' if !in_class && !is_repetition(rest.clone()) => written.push_str("\\{"),
            '}' if !in_class && !closes_repetition(&written) => written.push_str("\\}"),
            c => written.push(c),
        }
    }
    written
}

/// Whether what follows a brace is `n}`, `n,}` or `n,m}`.
fn is_repetition(rest: std::iter::Peekable<std::str::Chars<'_>>) -> bool {
    let inside: String = rest.take_while(|c| *c != '}').take(12).collect();
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match inside.split_once(',') {
        Some((from, to)) => number(from) && (to.is_empty() || number(to)),
        None => number(&inside),
    }
}

fn closes_repetition(written: &str) -> bool {
    let tail = written.trim_end_matches(|c: char| c.is_ascii_digit() || c == ',');
    let name = written.trim_end_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
    tail.ends_with('{') && !tail.ends_with("\\{") || ["\\x{", "\\p{", "\\P{"].iter().any(|open| name.ends_with(open))
}

/// The compiled patterns that were used last.
#[derive(Debug, Default)]
pub struct Regexes(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    patterns: KeyedMap<Box<str>, (u64, Arc<Pattern>)>,
    clock: u64,
}

impl Regexes {
    /// Finds or compiles a pattern, and charges for its use on a text of this length.
    pub(crate) fn get(&self, pattern: &str, text: u64, meter: &mut Meter) -> Result<Arc<Pattern>, Error> {
        let characters = pattern.chars().count() as u64;
        let upstream = factor(text + 1, TRAVERSAL).saturating_mul(factor(characters, REGEX));
        let found = match self.find(pattern) {
            Some(found) => found,
            None => {
                meter.charge(characters.saturating_mul(READ))?;
                let (translated, states) = read(pattern)?;
                meter.charge(states.saturating_mul(COMPILE))?;
                let compiled = Arc::new(build(pattern, &translated, states)?);
                self.keep(pattern, &compiled);
                compiled
            }
        };
        let actual = factor((text + 1).saturating_mul(found.states), TRAVERSAL * REGEX);
        meter.charge(upstream.max(actual))?;
        Ok(found)
    }

    fn find(&self, pattern: &str) -> Option<Arc<Pattern>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.clock += 1;
        let now = kept.clock;
        let (used, found) = kept.patterns.get_mut(pattern)?;
        *used = now;
        Some(Arc::clone(found))
    }

    fn keep(&self, pattern: &str, compiled: &Arc<Pattern>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.patterns.len() >= KEPT_MAX {
            let oldest = kept.patterns.iter().min_by_key(|(_, (used, _))| *used).map(|(pattern, _)| pattern.clone());
            oldest.and_then(|oldest| kept.patterns.remove(&oldest));
        }
        let now = kept.clock;
        kept.patterns.insert(pattern.into(), (now, Arc::clone(compiled)));
    }
}
