//! The tables of limits in `SECURITY.md` are true: every constant they name has the number they say, and every test
//! they name is there.
//!
//! A row links a constant and says its number (`[NAME](file) 3 MiB`, the name as code), or links a test (a name in
//! small letters). Every row needs a test; what it says of limits may have no constant.

use super::tree::Tree;
use super::{Violation, violation};

const DOCUMENT: &str = "SECURITY.md";
/// The first column of the tables that are checked.
const HEADER: &str = "| what it can send, hold or repeat |";

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut inside = false;
    for (index, line) in tree.text(DOCUMENT).unwrap_or_default().lines().enumerate() {
        let header = line.starts_with(HEADER);
        inside = header || (inside && line.starts_with('|'));
        if inside && !header && !line.starts_with("|---") {
            let wrong = check_row(tree, line);
            let at = format!("{DOCUMENT}:{}", index + 1);
            found.extend(wrong.into_iter().map(|why| violation("limit", &at, line, why)));
        }
    }
    found
}

fn check_row(tree: &Tree, row: &str) -> Vec<String> {
    let (mut wrong, mut tests) = (Vec::new(), 0);
    for Named { name, file, after } in named(row) {
        let source = tree.text(file).unwrap_or_default();
        if name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_') {
            let (said, defined) = (said(after), constant(source, name));
            match (said, defined) {
                (Some(said), Some(defined)) if said == defined => {}
                (_, None) => wrong.push(format!("{file} has no constant {name} whose number can be read")),
                (None, _) => wrong.push(format!("says no number after {name}")),
                (Some(said), Some(defined)) => wrong.push(format!("says {said} of {name}, which is {defined}")),
            }
        } else {
            tests += 1;
            if !is_test(source, name) {
                wrong.push(format!("{file} has no test {name}"));
            }
        }
    }
    if tests == 0 {
        wrong.push("the row names no test".to_owned());
    }
    wrong
}

/// A link whose text is code, and what follows it.
struct Named<'a> {
    name: &'a str,
    file: &'a str,
    after: &'a str,
}

fn named(row: &str) -> impl Iterator<Item = Named<'_>> {
    row.split("[`").skip(1).filter_map(|rest| {
        let (name, rest) = rest.split_once("`](")?;
        let (file, after) = rest.split_once(')')?;
        Some(Named { name, file, after })
    })
}

fn is_test(source: &str, name: &str) -> bool {
    (source.contains("test]") || source.contains("test(")) && source.contains(&format!("fn {name}("))
}

/// A number, or a time in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    Count(u64),
    Time(u64),
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Limit::Count(count) => write!(f, "{count}"),
            Limit::Time(millis) => write!(f, "{millis} ms"),
        }
    }
}

/// Reads ` 3 MiB`, ` 10,000` or ` 15 min` at the start of a text.
fn said(text: &str) -> Option<Limit> {
    let mut words = text.split([' ', ';', '|', '.']).filter(|word| !word.is_empty());
    let number: u64 = words.next()?.trim_end_matches(',').replace(',', "").parse().ok()?;
    let unit = words.next().unwrap_or_default().trim_end_matches(',');
    Some(match unit {
        "KiB" => Limit::Count(number << 10),
        "MiB" => Limit::Count(number << 20),
        "GiB" => Limit::Count(number << 30),
        "ms" => Limit::Time(number),
        "s" => Limit::Time(number * 1000),
        "min" => Limit::Time(number * 60_000),
        "h" => Limit::Time(number * 3_600_000),
        _ => Limit::Count(number),
    })
}

/// The number that a constant of this name is defined with.
fn constant(source: &str, name: &str) -> Option<Limit> {
    let (_, rest) = source.split_once(&format!("const {name}: "))?;
    let (_, expression) = rest.split_once('=')?;
    let expression = expression.split(';').next()?.trim();
    let Some((constructor, argument)) = expression.strip_suffix(')').and_then(|call| call.split_once('(')) else {
        return product(expression).map(Limit::Count);
    };
    let number = product(argument)?;
    let (_, unit) = constructor.rsplit_once("::")?;
    let factor = match unit {
        "from_millis" => 1,
        "from_secs" => 1000,
        "from_mins" => 60_000,
        "from_hours" => 3_600_000,
        _ => return None,
    };
    Some(Limit::Time(number * factor))
}

/// Reads `3 * 1024 * 1024`, `16 << 20` and `10_000`.
fn product(expression: &str) -> Option<u64> {
    let number = |text: &str| text.trim().replace('_', "").parse::<u64>().ok();
    if let Some((left, right)) = expression.split_once("<<") {
        return Some(number(left)? << number(right)?);
    }
    expression.split('*').map(number).try_fold(1, |product, factor| Some(product * factor?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::check_rule;

    const SOURCE: &str = "const BODY_MAX: usize = 3 * 1024 * 1024;\n\
                          pub const WAIT: Duration = Duration::from_secs(15);\n\
                          const SEATS: usize = 10_000;\n#[test]\nfn large_bodies_are_refused() {}\n";

    fn expect(row: &str, expected: &[&str]) {
        let document =
            format!("{HEADER} limit | test |\n|---|---|---|\n{row}\n\n| other | table |\n|---|---|\n| a | b |\n");
        check_rule(check, &[("SECURITY.md", &document), ("a.rs", SOURCE)], expected);
    }

    #[test]
    fn numbers_are_those_of_the_constants() {
        let test = "[`large_bodies_are_refused`](a.rs)";
        for limit in [
            "[`BODY_MAX`](a.rs) 3 MiB",
            "[`WAIT`](a.rs) 15 s, then 429",
            "[`SEATS`](a.rs) 10,000; more wait, [`WAIT`](a.rs) 15 s",
            "nothing at all",
        ] {
            expect(&format!("| a body | {limit} | {test} |"), &[]);
        }
        for (limit, why) in [
            ("[`BODY_MAX`](a.rs) 4 MiB", "says 4194304 of BODY_MAX, which is 3145728"),
            ("[`WAIT`](a.rs) 15", "says 15 of WAIT, which is 15000 ms"),
            ("[`WAIT`](a.rs)", "says no number after WAIT"),
            ("[`GONE`](a.rs) 1", "a.rs has no constant GONE whose number can be read"),
        ] {
            expect(&format!("| a body | {limit} | {test} |"), &[&format!("SECURITY.md:3: {why}")]);
        }
    }

    #[test]
    fn tests_are_there() {
        expect("| a body | none | [`gone`](a.rs) |", &["SECURITY.md:3: a.rs has no test gone"]);
        expect("| a body | none | soon |", &["SECURITY.md:3: the row names no test"]);
    }
}
