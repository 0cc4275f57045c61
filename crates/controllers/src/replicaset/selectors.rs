//! Many selectors asked at once.

use std::collections::{BTreeMap, BTreeSet};

use bayplan_model::label_selector::{Operator, Selector};
use bayplan_model::meta::Map;

/// A label and its value.
type Label<'a> = (&'a str, &'a str);

/// The selectors of ReplicaSets, by the label that fewest of them ask for. Those of one Deployment differ in their
/// template's hash, so a pod is compared with one of them and not with each.
pub(super) struct Selectors<'a> {
    by_label: BTreeMap<Label<'a>, Vec<&'a Selector>>,
    /// Those that ask for no exact label.
    others: Vec<&'a Selector>,
}

impl<'a> Selectors<'a> {
    pub(super) fn new(selectors: impl Iterator<Item = &'a Selector> + Clone) -> Self {
        let mut askers: BTreeMap<Label<'_>, usize> = BTreeMap::new();
        for label in selectors.clone().flat_map(exact_labels) {
            *askers.entry(label).or_default() += 1;
        }
        let mut index = Selectors { by_label: BTreeMap::new(), others: Vec::new() };
        let mut seen = BTreeSet::new();
        for selector in selectors.filter(|selector| seen.insert(selector.to_string())) {
            match exact_labels(selector).min_by_key(|label| askers.get(label)) {
                Some(label) => index.by_label.entry(label).or_default().push(selector),
                None => index.others.push(selector),
            }
        }
        index
    }

    /// Whether any of them selects the labels.
    pub(super) fn select(&self, labels: &Map) -> bool {
        let asked = labels.iter().filter_map(|(key, value)| self.by_label.get(&(key.as_str(), value.as_str())));
        asked.flatten().chain(&self.others).any(|selector| selector.matches(labels))
    }
}

fn exact_labels(selector: &Selector) -> impl Iterator<Item = Label<'_>> {
    let exact = selector.requirements().iter().filter(|one| one.operator() == Operator::Equals);
    exact.filter_map(|one| Some((one.key(), one.values().first()?.as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_selectors_select_what_any_of_them_selects() {
        let labels = |text: &str| -> Map {
            text.split(',').filter_map(|label| label.split_once('=')).map(|(k, v)| (k.into(), v.into())).collect()
        };
        for (selectors, of, expected) in [
            (&["app=web,hash=1", "app=web,hash=2"][..], "app=web,hash=2", true),
            (&["app=web,hash=1", "app=web,hash=2"], "app=web,hash=3", false),
            (&["app=web,hash=1", "app=web,hash=2"], "hash=1", false),
            (&["app=web,tier in (a,b)", "app=web,tier in (c)"], "app=web,tier=c", true),
            (&["tier in (a,b)", "app=web"], "tier=b", true),
            (&["tier in (a,b)", "app=web"], "tier=c,app=db", false),
            (&["app=web", "app=web"], "app=web", true),
            (&[""], "", true),
            (&[], "app=web", false),
        ] {
            let selectors: Vec<Selector> = selectors.iter().map(|text| Selector::parse(text).unwrap()).collect();
            assert_eq!(Selectors::new(selectors.iter()).select(&labels(of)), expected, "{selectors:?} of {of}");
        }
    }
}
