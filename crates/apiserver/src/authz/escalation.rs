//! The escalation check: no user may grant rights that they do not hold.

use std::collections::BTreeSet;

use super::policy::Rule;
use super::rbac::path_matches;
use crate::user::User;

/// The permissions of `wanted` that `held` does not cover, each broken down to one group, resource, verb and name.
pub fn uncovered(held: &[&Rule], wanted: &[Rule]) -> Vec<Rule> {
    wanted.iter().flat_map(break_down).filter(|single| !held.iter().any(|rule| covers(rule, single))).collect()
}

/// The message of a refusal, in upstream's words.
pub fn refusal(user: &User, uncovered: &[Rule]) -> String {
    let lines: BTreeSet<String> = compact(uncovered).iter().map(describe).collect();
    format!(
        "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        user.name,
        quoted(&user.groups),
        lines.into_iter().collect::<Vec<_>>().join("\n")
    )
}

fn break_down(rule: &Rule) -> Vec<Rule> {
    let mut singles = Vec::new();
    for group in &rule.api_groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                let single = Rule {
                    verbs: vec![verb.clone()],
                    api_groups: vec![group.clone()],
                    resources: vec![resource.clone()],
                    ..Rule::default()
                };
                if rule.resource_names.is_empty() {
                    singles.push(single);
                } else {
                    singles.extend(
                        rule.resource_names
                            .iter()
                            .map(|name| Rule { resource_names: vec![name.clone()], ..single.clone() }),
                    );
                }
            }
        }
    }
    for url in &rule.non_resource_urls {
        for verb in &rule.verbs {
            singles.push(Rule { verbs: vec![verb.clone()], non_resource_urls: vec![url.clone()], ..Rule::default() });
        }
    }
    singles
}

fn covers(held: &Rule, single: &Rule) -> bool {
    let names = held.resource_names.is_empty()
        || !single.resource_names.is_empty() && single.resource_names.iter().all(|n| held.resource_names.contains(n));
    names
        && has_all(&held.verbs, &single.verbs)
        && has_all(&held.api_groups, &single.api_groups)
        && covers_resources(&held.resources, &single.resources)
        && single
            .non_resource_urls
            .iter()
            .all(|path| held.non_resource_urls.iter().any(|pattern| path_matches(pattern, path)))
}

fn has_all(held: &[String], wanted: &[String]) -> bool {
    held.iter().any(|item| item == "*") || wanted.iter().all(|item| held.contains(item))
}

fn covers_resources(held: &[String], wanted: &[String]) -> bool {
    has_all(held, wanted)
        || wanted.iter().all(|resource| {
            held.contains(resource)
                || resource.split_once('/').is_some_and(|(_, sub)| held.contains(&format!("*/{sub}")))
        })
}

/// Joins the verbs of rules about one resource and name, so that the message stays short.
fn compact(rules: &[Rule]) -> Vec<Rule> {
    let mut joined: Vec<Rule> = Vec::new();
    for rule in rules {
        let same = |other: &&mut Rule| {
            other.non_resource_urls.is_empty()
                && (&other.api_groups, &other.resources, &other.resource_names)
                    == (&rule.api_groups, &rule.resources, &rule.resource_names)
        };
        match joined.iter_mut().find(same).filter(|_| rule.non_resource_urls.is_empty()) {
            Some(other) => other.verbs.extend(rule.verbs.iter().cloned()),
            None => joined.push(rule.clone()),
        }
    }
    joined
}

fn describe(rule: &Rule) -> String {
    let parts: Vec<String> = [
        ("APIGroups", &rule.api_groups),
        ("Resources", &rule.resources),
        ("NonResourceURLs", &rule.non_resource_urls),
        ("ResourceNames", &rule.resource_names),
        ("Verbs", &rule.verbs),
    ]
    .into_iter()
    .filter(|(_, values)| !values.is_empty())
    .map(|(label, values)| format!("{label}:{}", quoted(values)))
    .collect();
    format!("{{{}}}", parts.join(", "))
}

/// Go's `%q` of a list of strings.
fn quoted(values: &[String]) -> String {
    let values: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
    format!("[{}]", values.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_reads_like_upstreams() {
        let alice = User {
            name: "alice".into(),
            groups: vec!["devs".into(), "system:authenticated".into()],
            ..User::default()
        };
        let rule = |verbs: &[&str]| Rule {
            verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
            api_groups: vec![String::new()],
            resources: vec!["secrets".into()],
            ..Rule::default()
        };
        let missing = uncovered(&[], &[rule(&["get", "list"])]);
        assert_eq!(missing, [rule(&["get"]), rule(&["list"])]);
        assert_eq!(
            refusal(&alice, &missing),
            "user \"alice\" (groups=[\"devs\" \"system:authenticated\"]) is attempting to grant RBAC permissions not \
             currently held:\n{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"list\"]}"
        );
    }
}
