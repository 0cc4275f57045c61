//! The packages of others that are built in: their licences, their sources, and that none is there twice.
//!
//! `deny.toml` says what is allowed, in cargo-deny's form, so that both read the same list. This rule needs nothing but
//! cargo and no network; cargo-deny also asks for advisories (CONTRIBUTING.md).

use std::collections::{BTreeMap, BTreeSet};

use super::{Violation, violation};

/// How `cargo tree` prints a package so that [`check`] can read it: name, version and source, then the licence.
pub(crate) const FORMAT: &str = "{p} | {l}";

/// What `deny.toml` allows.
#[derive(Debug, Default)]
struct Policy<'a> {
    licences: BTreeSet<&'a str>,
    /// Packages of which a second version is accepted, as `name@version`.
    duplicates: BTreeSet<&'a str>,
}

/// A package as `cargo tree` lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Package<'a> {
    name: &'a str,
    version: &'a str,
    /// Where it comes from, unless that is crates.io.
    source: Option<&'a str>,
    licence: &'a str,
}

impl<'a> Package<'a> {
    /// Reads `name v1.0.0 (source) | licence`; lines that end with `(*)` repeat a package.
    fn parse(line: &'a str) -> Option<Package<'a>> {
        let (package, licence) = line.split_once(" | ")?;
        let mut parts = package.split(' ');
        let (name, version) = (parts.next()?, parts.next()?.strip_prefix('v')?);
        let source = parts.find(|part| *part != "(proc-macro)").map(|source| source.trim_matches(['(', ')']));
        Some(Package { name, version, source, licence: licence.trim_end_matches(" (*)").trim() })
    }

    /// Whether it is a folder of this workspace.
    fn is_ours(&self) -> bool {
        self.source.is_some_and(|source| !source.contains("://") && source != "registry")
    }
}

/// Checks the packages that `cargo tree` lists.
pub(crate) fn check(listed: &str, deny: &str) -> Vec<Violation> {
    let policy = policy(deny);
    let packages: BTreeSet<Package<'_>> = listed.lines().filter_map(Package::parse).collect();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut found = Vec::new();
    for Package { name, version, source, licence } in packages.into_iter().filter(|package| !package.is_ours()) {
        versions.entry(name).or_default().push(version);
        let at = format!("{name} {version}");
        if let Some(source) = source {
            found.push(violation("package", &at, name, format!("comes from {source}, not from crates.io")));
        }
        if !Licence::parse(licence).is_some_and(|licence| licence.allowed(&policy.licences)) {
            let why = format!("its licence `{licence}` is not allowed by deny.toml");
            found.push(violation("package", &at, name, why));
        }
    }
    found.extend(duplicates(&versions, &policy));
    found
}

/// Packages that are there in several versions without leave, and leave that is not needed.
fn duplicates(versions: &BTreeMap<&str, Vec<&str>>, policy: &Policy<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (name, versions) in versions {
        let more = versions.iter().filter(|version| !policy.duplicates.contains(format!("{name}@{version}").as_str()));
        if more.count() > 1 {
            let why = format!("is there as {}; deny.toml accepts one", versions.join(" and "));
            found.push(violation("package", name, name, why));
        }
    }
    for skipped in &policy.duplicates {
        let (name, version) = skipped.split_once('@').unwrap_or((skipped, ""));
        if !versions.get(name).is_some_and(|versions| versions.len() > 1 && versions.contains(&version)) {
            let why = format!("skips {skipped}, of which there is no second version");
            found.push(violation("package", "deny.toml", skipped, why));
        }
    }
    found
}

/// Reads the two lists; the rest of `deny.toml` is cargo-deny's.
fn policy(deny: &str) -> Policy<'_> {
    let mut policy = Policy::default();
    let (mut section, mut list) = ("", "");
    for line in deny.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        if let Some(header) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            (section, list) = (header, "");
        } else if let Some((key, _)) = line.split_once(" = [") {
            list = key;
        } else if let Some(value) = line.split('"').nth(1) {
            match (section, list) {
                ("licenses", "allow") => drop(policy.licences.insert(value)),
                ("bans", "skip") => drop(policy.duplicates.insert(value)),
                _ => {}
            }
        }
        if line.ends_with(']') && !line.starts_with('[') {
            list = "";
        }
    }
    policy
}

/// A licence expression as SPDX writes it.
#[derive(Debug)]
enum Licence<'a> {
    One(&'a str),
    Any(Vec<Licence<'a>>),
    All(Vec<Licence<'a>>),
}

impl<'a> Licence<'a> {
    fn parse(text: &'a str) -> Option<Licence<'a>> {
        let words = text.split_inclusive(['(', ')', '/', ' ']).flat_map(|part| {
            let end = part.trim_end_matches(['(', ')', '/', ' ']).len();
            [&part[..end], part[end..].trim()]
        });
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        let mut rest = words.as_slice();
        let parsed = Licence::any(&mut rest)?;
        rest.is_empty().then_some(parsed)
    }

    fn any(rest: &mut &[&'a str]) -> Option<Licence<'a>> {
        let mut choices = vec![Licence::all(rest)?];
        // `/` is how it was written before there was SPDX.
        while let Some(("OR" | "/", after)) = rest.split_first().map(|(word, after)| (*word, after)) {
            *rest = after;
            choices.push(Licence::all(rest)?);
        }
        Some(Licence::Any(choices))
    }

    fn all(rest: &mut &[&'a str]) -> Option<Licence<'a>> {
        let mut parts = vec![Licence::one(rest)?];
        while let Some(("AND", after)) = rest.split_first().map(|(word, after)| (*word, after)) {
            *rest = after;
            parts.push(Licence::one(rest)?);
        }
        Some(Licence::All(parts))
    }

    fn one(rest: &mut &[&'a str]) -> Option<Licence<'a>> {
        let (first, after) = rest.split_first()?;
        *rest = after;
        if *first == "(" {
            let inner = Licence::any(rest)?;
            let (close, after) = rest.split_first()?;
            *rest = after;
            return (*close == ")").then_some(inner);
        }
        // An exception only ever permits more.
        if rest.first() == Some(&"WITH") {
            *rest = rest.get(2..)?;
        }
        (!matches!(*first, ")" | "OR" | "AND" | "WITH" | "/")).then_some(Licence::One(first))
    }

    fn allowed(&self, list: &BTreeSet<&str>) -> bool {
        match self {
            Licence::One(name) => list.contains(name),
            Licence::Any(choices) => choices.iter().any(|choice| choice.allowed(list)),
            Licence::All(parts) => parts.iter().all(|part| part.allowed(list)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DENY: &str =
        "[licenses]\nallow = [\n  \"MIT\",\n  \"ISC\",\n]\n[bans]\nskip = [\n  { crate = \"a@1.0.0\" },\n]\n";

    /// What is there twice with leave, so that the leave is needed.
    const TWO_OF_A: &str = "ours v0.1.0 (/src/ours) | GPL-3.0\na v1.0.0 | MIT\na v2.0.0 | MIT\na v2.0.0 | MIT (*)\n";

    fn expect(more: &str, expected: &[&str]) {
        let found: Vec<String> = check(&format!("{TWO_OF_A}{more}"), DENY).iter().map(ToString::to_string).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_licence_is_on_the_list() {
        expect("", &[]);
        for allowed in ["MIT", "MIT/Apache-2.0", "(MIT OR GPL-3.0) AND ISC", "MIT WITH LLVM-exception OR GPL-3.0"] {
            expect(&format!("b v1.0.0 (proc-macro) | {allowed}"), &[]);
        }
        for refused in ["GPL-3.0", "MIT AND GPL-3.0", "", "MIT OR"] {
            let why = format!("b 1.0.0: its licence `{refused}` is not allowed by deny.toml");
            expect(&format!("b v1.0.0 | {refused}"), &[&why]);
        }
    }

    #[test]
    fn a_package_is_there_once_unless_deny_toml_says_why() {
        let why = "b: is there as 1.0.0 and 2.0.0; deny.toml accepts one";
        expect("b v1.0.0 | MIT\nb v2.0.0 | MIT", &[why]);
        let unused: Vec<String> = check("a v2.0.0 | MIT", DENY).iter().map(ToString::to_string).collect();
        assert_eq!(unused, ["deny.toml: skips a@1.0.0, of which there is no second version"]);
    }

    #[test]
    fn a_package_comes_from_crates_io() {
        let why = "b 1.0.0: comes from https://example.com/b#1234, not from crates.io";
        expect("b v1.0.0 (https://example.com/b#1234) | MIT", &[why]);
        expect("b v1.0.0 (registry `mirror`) | MIT", &["b 1.0.0: comes from registry, not from crates.io"]);
    }
}
