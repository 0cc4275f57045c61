//! Metric families as `/metrics` shows them: what they are called, what they are, and what they are told apart by.

use std::collections::{BTreeMap, BTreeSet};

/// One family. Values depend on the run.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Family {
    pub(crate) kind: String,
    pub(crate) labels: BTreeSet<String>,
    pub(crate) buckets: BTreeSet<String>,
    /// The labels of each series.
    pub(crate) series: BTreeSet<String>,
}

/// The families of a page whose names begin with a prefix.
pub(crate) fn families(page: &str, prefix: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    for line in page.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            current = name.to_owned();
            families.entry(current.clone()).or_default().kind = kind.to_owned();
        } else if let (Some(family), false) = (families.get_mut(&current), line.starts_with('#')) {
            family.sample(line);
        }
    }
    families.retain(|name, _| name.starts_with(prefix));
    families
}

impl Family {
    fn sample(&mut self, line: &str) {
        let labels = line.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}')).map_or("", |(labels, _)| labels);
        let mut series = Vec::new();
        for (name, value) in labels.split("\",").filter_map(|label| label.split_once("=\"")) {
            let value = value.trim_end_matches('"');
            if name == "le" {
                self.buckets.insert(value.to_owned());
            } else {
                self.labels.insert(name.to_owned());
                series.push(format!("{name}={value}"));
            }
        }
        series.sort();
        self.series.insert(series.join(","));
    }
}

#[test]
fn a_family_is_read_from_its_lines() {
    let page = "# HELP a_seconds Time. [STABLE]\n# TYPE a_seconds histogram\n\
                a_seconds_bucket{op=\"x, y\",le=\"0.1\"} 1\na_seconds_bucket{op=\"z\",le=\"+Inf\"} 2\n\
                a_seconds_sum{op=\"z\"} 0.3\na_seconds_count{op=\"z\"} 2\n# HELP b B.\n# TYPE b gauge\nb 1\n";
    let set = |values: &[&str]| values.iter().map(ToString::to_string).collect();
    let family = Family {
        kind: "histogram".into(),
        labels: set(&["op"]),
        buckets: set(&["0.1", "+Inf"]),
        series: set(&["op=x, y", "op=z"]),
    };
    assert_eq!(families(page, "a_"), BTreeMap::from([("a_seconds".to_owned(), family)]));
}
