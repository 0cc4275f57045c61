//! Metric families as `/metrics` shows them: what they are called, are, and are told apart by.

use std::collections::{BTreeMap, BTreeSet};

/// One family. Values and how many series there are depend on the run.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Family {
    kind: String,
    help: String,
    labels: BTreeSet<String>,
    buckets: BTreeSet<String>,
}

/// The families of a page whose names begin with a prefix.
pub(crate) fn families(page: &str, prefix: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    for line in page.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            current = name.to_owned();
            families.entry(current.clone()).or_default().help = help.to_owned();
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            current = name.to_owned();
            families.entry(current.clone()).or_default().kind = kind.to_owned();
        } else if line.starts_with(&current) {
            let labels = line.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}')).map_or("", |(labels, _)| labels);
            let family = families.get_mut(&current).expect("samples stand below their family's TYPE");
            for (name, value) in labels.split("\",").filter_map(|label| label.split_once("=\"")) {
                match name {
                    "le" => family.buckets.insert(value.trim_end_matches('"').to_owned()),
                    _ => family.labels.insert(name.to_owned()),
                };
            }
        }
    }
    families.retain(|name, _| name.starts_with(prefix));
    families
}

#[test]
fn a_family_is_read_from_its_lines() {
    let page = "# HELP a_seconds Time. [STABLE]\n# TYPE a_seconds histogram\n\
                a_seconds_bucket{op=\"x, \\\"y\\\"\",le=\"0.1\"} 1\na_seconds_bucket{op=\"x\",le=\"+Inf\"} 2\n\
                a_seconds_sum{op=\"x\"} 0.3\na_seconds_count{op=\"x\"} 2\n# HELP b B.\n# TYPE b gauge\nb 1\n";
    let set = |values: &[&str]| values.iter().map(ToString::to_string).collect();
    let family = Family {
        kind: "histogram".into(),
        help: "Time. [STABLE]".into(),
        labels: set(&["op"]),
        buckets: set(&["0.1", "+Inf"]),
    };
    assert_eq!(families(page, "a_"), BTreeMap::from([("a_seconds".to_owned(), family)]));
}
