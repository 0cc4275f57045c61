//! The escalation check: no user may grant rights that they do not hold.
//!
//! A rule stands for a product: each of its groups with each of its resources, verbs and names, a million permissions
//! in two kilobytes. The product is never written out. Values of one dimension that the same held rules accept are one
//! class, and whether a permission is covered depends on the classes of its values alone. There are as many classes as
//! the held rules tell values apart, however long the wanted lists are.

use std::collections::{BTreeMap, BTreeSet};

use super::policy::Rule;
use super::rbac::path_matches;
use crate::user::User;

/// The most permissions that a refusal names; it counts the others. Granting all of `cluster-admin`'s own kinds one by
/// one takes fewer.
const LISTED_MAX: usize = 1_000;

/// The most bytes of the permissions that a refusal names, since a single name may be as long as a request.
const LISTED_BYTES_MAX: usize = 256 * 1024;

/// The most combinations of classes that are compared for one object, a few nanoseconds each. `admin` makes about 5,000
/// of them out of any rule.
const COMBINATIONS_MAX: usize = 1_000_000;

/// The permissions that are not held.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Uncovered {
    listed: Vec<Rule>,
    listed_bytes: usize,
    /// How many there are, listed or not.
    count: u64,
    /// Some were not compared, because there are too many combinations.
    undecided: bool,
}

impl Uncovered {
    /// Whether everything is held.
    pub fn is_empty(&self) -> bool {
        self.count == 0 && !self.undecided
    }

    /// The first of them, each broken down to one group, resource, verb and name.
    pub fn listed(&self) -> &[Rule] {
        &self.listed
    }

    fn full(&self) -> bool {
        self.listed.len() >= LISTED_MAX || self.listed_bytes > LISTED_BYTES_MAX
    }

    fn list(&mut self, single: Rule) {
        let parts = [&single.verbs, &single.api_groups, &single.resources, &single.resource_names];
        let bytes: usize = parts.into_iter().chain([&single.non_resource_urls]).flatten().map(String::len).sum();
        self.listed_bytes = self.listed_bytes.saturating_add(bytes);
        self.listed.push(single);
    }
}

/// The permissions of `wanted` that `held` does not cover.
pub fn uncovered(held: &[&Rule], wanted: &[Rule]) -> Uncovered {
    let held = Held::new(held);
    let mut uncovered = Uncovered::default();
    let mut combinations = COMBINATIONS_MAX;
    for rule in wanted {
        for product in [Product::of_resources(&held, rule), Product::of_urls(&held, rule)] {
            let Some(left) = combinations.checked_sub(product.combinations()) else {
                uncovered.undecided = true;
                return uncovered;
            };
            combinations = left;
            product.find_uncovered(&mut uncovered);
        }
    }
    uncovered
}

/// The message of a refusal, in upstream's words.
pub fn refusal(user: &User, uncovered: &Uncovered) -> String {
    let lines: BTreeSet<String> = compact(&uncovered.listed).iter().map(describe).collect();
    let mut lines: Vec<String> = lines.into_iter().collect();
    let more = uncovered.count.saturating_sub(uncovered.listed.len() as u64);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    if uncovered.undecided {
        lines.push(format!("and others: at most {COMBINATIONS_MAX} combinations of rules are compared"));
    }
    format!(
        "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        user.name,
        quoted(&user.groups),
        lines.join("\n")
    )
}

/// A set of held rules, one bit each.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RuleSet(Vec<u64>);

impl RuleSet {
    fn none(rules: usize) -> RuleSet {
        RuleSet(vec![0; rules.div_ceil(64)])
    }

    fn insert(&mut self, rule: usize) {
        self.0[rule / 64] |= 1 << (rule % 64);
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    fn and(&self, other: &RuleSet) -> RuleSet {
        RuleSet(self.0.iter().zip(&other.0).map(|(a, b)| a & b).collect())
    }

    fn or(&self, other: &RuleSet) -> RuleSet {
        RuleSet(self.0.iter().zip(&other.0).map(|(a, b)| a | b).collect())
    }
}

/// What the held rules say of one dimension.
struct Accepted<'a> {
    /// The rules that accept every value.
    any: RuleSet,
    /// The rules that name a value.
    named: BTreeMap<&'a str, RuleSet>,
}

impl<'a> Accepted<'a> {
    fn new(held: &[&'a Rule], values: fn(&Rule) -> &[String], accepts_any: fn(&[String]) -> bool) -> Accepted<'a> {
        let mut accepted = Accepted { any: RuleSet::none(held.len()), named: BTreeMap::new() };
        for (at, rule) in held.iter().enumerate() {
            if accepts_any(values(rule)) {
                accepted.any.insert(at);
            }
            for value in values(rule) {
                accepted.named.entry(value).or_insert_with(|| RuleSet::none(held.len())).insert(at);
            }
        }
        accepted
    }

    fn by(&self, value: &str) -> RuleSet {
        self.named.get(value).map_or_else(|| self.any.clone(), |named| self.any.or(named))
    }
}

/// What the held rules accept.
struct Held<'a> {
    verbs: Accepted<'a>,
    groups: Accepted<'a>,
    resources: Accepted<'a>,
    names: Accepted<'a>,
    /// The patterns of paths, with the rules that have them.
    urls: BTreeMap<&'a str, RuleSet>,
}

impl<'a> Held<'a> {
    fn new(held: &[&'a Rule]) -> Held<'a> {
        let star = |values: &[String]| values.iter().any(|value| value == "*");
        Held {
            verbs: Accepted::new(held, |rule| &rule.verbs, star),
            groups: Accepted::new(held, |rule| &rule.api_groups, star),
            resources: Accepted::new(held, |rule| &rule.resources, star),
            names: Accepted::new(held, |rule| &rule.resource_names, <[String]>::is_empty),
            urls: Accepted::new(held, |rule| &rule.non_resource_urls, |_| false).named,
        }
    }

    fn resource(&self, resource: &str) -> RuleSet {
        let direct = self.resources.by(resource);
        let of_any_parent =
            resource.split_once('/').and_then(|(_, sub)| self.resources.named.get(&*format!("*/{sub}")));
        of_any_parent.map_or_else(|| direct.clone(), |rules| direct.or(rules))
    }

    /// The rules that accept a path. They must not be limited to names, of which a path has none.
    fn url(&self, path: &str) -> RuleSet {
        let matching = self.urls.iter().filter(|(pattern, _)| path_matches(pattern, path));
        let rules = matching.fold(RuleSet(vec![0; self.names.any.0.len()]), |all, (_, rules)| all.or(rules));
        rules.and(&self.names.any)
    }
}

/// One dimension of a wanted rule.
struct Dimension<'w> {
    /// The wanted values, each with its class; `None` for a rule without names.
    values: Vec<(Option<&'w String>, usize)>,
    /// The held rules that accept the values of a class.
    classes: Vec<RuleSet>,
    /// How many values a class has.
    sizes: Vec<u64>,
}

impl<'w> Dimension<'w> {
    fn new(values: &'w [String], accepting: impl Fn(&str) -> RuleSet) -> Dimension<'w> {
        let mut dimension = Dimension { values: Vec::new(), classes: Vec::new(), sizes: Vec::new() };
        let mut known: BTreeMap<RuleSet, usize> = BTreeMap::new();
        for value in values {
            let class = *known.entry(accepting(value)).or_insert_with_key(|rules| {
                dimension.classes.push(rules.clone());
                dimension.sizes.push(0);
                dimension.classes.len() - 1
            });
            dimension.sizes[class] += 1;
            dimension.values.push((Some(value), class));
        }
        dimension
    }

    /// The names of a rule: without any, it stands for all of them, which only a rule without names covers.
    fn of_names(held: &Held<'_>, names: &'w [String]) -> Dimension<'w> {
        if names.is_empty() {
            return Dimension { values: vec![(None, 0)], classes: vec![held.names.any.clone()], sizes: vec![1] };
        }
        Dimension::new(names, |name| held.names.by(name))
    }
}

/// All permissions of a rule that are about resources, or all about paths.
struct Product<'w> {
    dimensions: Vec<Dimension<'w>>,
    /// Makes the permission of one value of each dimension.
    single: fn(&[Option<&String>]) -> Rule,
}

impl<'w> Product<'w> {
    fn of_resources(held: &Held<'_>, rule: &'w Rule) -> Product<'w> {
        Product {
            dimensions: vec![
                Dimension::new(&rule.api_groups, |group| held.groups.by(group)),
                Dimension::new(&rule.resources, |resource| held.resource(resource)),
                Dimension::new(&rule.verbs, |verb| held.verbs.by(verb)),
                Dimension::of_names(held, &rule.resource_names),
            ],
            single: |values| Rule {
                api_groups: one(values, 0),
                resources: one(values, 1),
                verbs: one(values, 2),
                resource_names: one(values, 3),
                ..Rule::default()
            },
        }
    }

    fn of_urls(held: &Held<'_>, rule: &'w Rule) -> Product<'w> {
        Product {
            dimensions: vec![
                Dimension::new(&rule.non_resource_urls, |path| held.url(path)),
                Dimension::new(&rule.verbs, |verb| held.verbs.by(verb)),
            ],
            single: |values| Rule { non_resource_urls: one(values, 0), verbs: one(values, 1), ..Rule::default() },
        }
    }

    /// How many combinations of classes there are.
    fn combinations(&self) -> usize {
        self.dimensions.iter().fold(1, |all, dimension| all.saturating_mul(dimension.classes.len()))
    }

    fn find_uncovered(&self, uncovered: &mut Uncovered) {
        let mut open = vec![BTreeSet::new(); self.dimensions.len()];
        let count = self.count(&mut open, &mut Vec::new(), None, 1);
        uncovered.count = uncovered.count.saturating_add(count);
        if count > 0 {
            self.list(&open, &mut Vec::new(), &mut Vec::new(), uncovered);
        }
    }

    /// Counts the uncovered permissions whose first classes are `classes`, which the rules in `covering` accept; notes
    /// in `open` which beginnings have any.
    fn count(
        &self,
        open: &mut [BTreeSet<Vec<usize>>],
        classes: &mut Vec<usize>,
        covering: Option<&RuleSet>,
        permissions: u64,
    ) -> u64 {
        let depth = classes.len();
        let Some(dimension) = self.dimensions.get(depth) else {
            return if covering.is_none_or(RuleSet::is_empty) { permissions } else { 0 };
        };
        let mut count: u64 = 0;
        for (class, rules) in dimension.classes.iter().enumerate() {
            let covering = covering.map_or_else(|| rules.clone(), |before| before.and(rules));
            classes.push(class);
            let found = self.count(open, classes, Some(&covering), permissions.saturating_mul(dimension.sizes[class]));
            if found > 0 {
                open[depth].insert(classes.clone());
            }
            classes.pop();
            count = count.saturating_add(found);
        }
        count
    }

    /// Lists uncovered permissions in the order of the rule. Only beginnings that lead to one are followed, so that
    /// each permission costs one pass over each dimension at most.
    fn list(
        &self,
        open: &[BTreeSet<Vec<usize>>],
        classes: &mut Vec<usize>,
        chosen: &mut Vec<Option<&'w String>>,
        uncovered: &mut Uncovered,
    ) {
        let depth = classes.len();
        let Some(dimension) = self.dimensions.get(depth) else {
            return uncovered.list((self.single)(chosen));
        };
        for (value, class) in &dimension.values {
            if uncovered.full() {
                return;
            }
            classes.push(*class);
            if open[depth].contains(classes) {
                chosen.push(*value);
                self.list(open, classes, chosen, uncovered);
                chosen.pop();
            }
            classes.pop();
        }
    }
}

fn one(values: &[Option<&String>], at: usize) -> Vec<String> {
    values[at].into_iter().cloned().collect()
}

/// Joins the verbs of rules about one resource and name, so that the message stays short.
fn compact(rules: &[Rule]) -> Vec<Rule> {
    let mut joined: Vec<Rule> = Vec::new();
    let mut places = BTreeMap::new();
    for rule in rules {
        let about = (&rule.api_groups, &rule.resources, &rule.resource_names);
        match places.get(&about).filter(|_| rule.non_resource_urls.is_empty()) {
            Some(at) => {
                let other: &mut Rule = &mut joined[*at];
                other.verbs.extend(rule.verbs.iter().cloned());
            }
            None => {
                if rule.non_resource_urls.is_empty() {
                    places.insert(about, joined.len());
                }
                joined.push(rule.clone());
            }
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

    fn alice() -> User {
        User { name: "alice".into(), groups: vec!["devs".into(), "system:authenticated".into()], ..User::default() }
    }

    fn texts(values: &[&str]) -> Vec<String> {
        values.iter().map(|value| (*value).to_owned()).collect()
    }

    fn rule(groups: &[&str], resources: &[&str], verbs: &[&str], names: &[&str]) -> Rule {
        Rule {
            verbs: texts(verbs),
            api_groups: texts(groups),
            resources: texts(resources),
            resource_names: texts(names),
            ..Rule::default()
        }
    }

    fn paths(urls: &[&str], verbs: &[&str]) -> Rule {
        Rule { verbs: texts(verbs), non_resource_urls: texts(urls), ..Rule::default() }
    }

    /// The permissions of a rule written out, each compared with each held rule: what the classes must agree with.
    fn written_out(held: &[&Rule], wanted: &[Rule]) -> Vec<Rule> {
        let has_all = |held: &[String], wanted: &[String]| {
            held.iter().any(|item| item == "*") || wanted.iter().all(|item| held.contains(item))
        };
        let covers = |held: &Rule, single: &Rule| {
            let names = held.resource_names.is_empty()
                || !single.resource_names.is_empty()
                    && single.resource_names.iter().all(|name| held.resource_names.contains(name));
            let resources = has_all(&held.resources, &single.resources)
                || single.resources.iter().all(|resource| {
                    resource.split_once('/').is_some_and(|(_, sub)| held.resources.contains(&format!("*/{sub}")))
                });
            let urls = single.non_resource_urls.iter();
            names
                && has_all(&held.verbs, &single.verbs)
                && has_all(&held.api_groups, &single.api_groups)
                && resources
                && urls.into_iter().all(|path| held.non_resource_urls.iter().any(|held| path_matches(held, path)))
        };
        let mut singles = Vec::new();
        for wanted in wanted {
            for group in &wanted.api_groups {
                for resource in &wanted.resources {
                    for verb in &wanted.verbs {
                        let none = [String::new()];
                        let names = if wanted.resource_names.is_empty() { &none[..] } else { &wanted.resource_names };
                        singles.extend(names.iter().map(|name| rule(&[group], &[resource], &[verb], &[name])));
                    }
                }
            }
            for url in &wanted.non_resource_urls {
                singles.extend(wanted.verbs.iter().map(|verb| paths(&[url], &[verb])));
            }
        }
        for single in &mut singles {
            single.resource_names.retain(|name| !name.is_empty());
        }
        singles.retain(|single| !held.iter().any(|held| covers(held, single)));
        singles
    }

    #[test]
    fn a_refusal_reads_like_upstreams() {
        let missing = uncovered(&[], &[rule(&[""], &["secrets"], &["get", "list"], &[])]);
        assert_eq!(
            missing.listed,
            [rule(&[""], &["secrets"], &["get"], &[]), rule(&[""], &["secrets"], &["list"], &[])]
        );
        assert_eq!(
            refusal(&alice(), &missing),
            "user \"alice\" (groups=[\"devs\" \"system:authenticated\"]) is attempting to grant RBAC permissions not \
             currently held:\n{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"list\"]}"
        );
    }

    #[test]
    fn what_is_covered_is_what_the_product_written_out_says() {
        let held = [
            rule(&["", "apps"], &["pods", "*/scale", "deployments"], &["get", "list"], &[]),
            rule(&["apps"], &["*"], &["watch"], &["web", "db"]),
            rule(&["*"], &["secrets"], &["*"], &["one"]),
            paths(&["/healthz", "/apis/*"], &["get"]),
            Rule { resource_names: texts(&["x"]), ..paths(&["/metrics"], &["get"]) },
        ];
        let groups = [&[][..], &[""], &["apps", "batch", ""], &["*"]];
        let resources = [&[][..], &["pods"], &["pods/scale", "*/scale", "pods/log", "secrets"], &["*"]];
        let verbs = [&[][..], &["get"], &["list", "watch", "delete", "get"], &["*"]];
        let names = [&[][..], &["one"], &["web", "other", "one"]];
        let urls = [&[][..], &["/healthz"], &["/apis/apps", "/metrics", "/apis/*", "*"]];
        for kept in 0..=held.len() {
            let held: Vec<&Rule> = held[..kept].iter().collect();
            for (groups, resources) in groups.iter().flat_map(|g| resources.iter().map(move |r| (g, r))) {
                for (verbs, names) in verbs.iter().flat_map(|v| names.iter().map(move |n| (v, n))) {
                    for urls in urls {
                        let wanted = Rule { non_resource_urls: texts(urls), ..rule(groups, resources, verbs, names) };
                        let found = uncovered(&held, &[wanted.clone(), wanted.clone()]);
                        let expected = written_out(&held, &[wanted.clone(), wanted.clone()]);
                        assert_eq!(found.listed, expected, "{wanted:?}");
                        assert_eq!(found.count, expected.len() as u64);
                    }
                }
            }
        }
    }

    #[test]
    fn a_million_permissions_in_two_kilobytes_are_counted_and_not_written_out() {
        let hundred = |prefix: &str| (0..100).map(|number| format!("{prefix}{number}")).collect::<Vec<_>>();
        let wanted = Rule { verbs: hundred("v"), api_groups: hundred("g"), resources: hundred("r"), ..Rule::default() };
        let held = rule(&["*"], &["r7"], &["*"], &[]);
        let missing = uncovered(&[&held], std::slice::from_ref(&wanted));
        assert_eq!((missing.count, missing.listed.len()), (990_000, LISTED_MAX));
        let message = refusal(&alice(), &missing);
        assert!(message.ends_with("\nand 989000 more"), "{}", &message[message.len() - 100..]);
        assert!(message.len() < 64 * 1024, "{}", message.len());
        assert!(uncovered(&[&rule(&["*"], &["*"], &["*"], &[])], &[wanted]).is_empty());
    }

    #[test]
    fn rules_that_tell_too_many_values_apart_are_refused_and_it_is_said() {
        let apart = |prefix: &str| (0..120).map(|number| format!("{prefix}{number}")).collect::<Vec<_>>();
        let (groups, resources, verbs) = (apart("g"), apart("r"), apart("v"));
        let wanted =
            Rule { verbs: verbs.clone(), api_groups: groups.clone(), resources: resources.clone(), ..Rule::default() };
        let held: Vec<Rule> = (0..120).map(|at| rule(&[&groups[at]], &[&resources[at]], &[&verbs[at]], &[])).collect();
        let missing = uncovered(&held.iter().collect::<Vec<_>>(), &[wanted]);
        assert!(!missing.is_empty());
        let message = refusal(&alice(), &missing);
        assert!(message.ends_with("at most 1000000 combinations of rules are compared"), "{message}");
    }
}
