//! ServiceCIDRs: the ranges that cluster IPs are allocated from.

use serde_json::Value;

use crate::field::{At, ErrorList, GoValue, Path};
use crate::ip_rules;
use crate::kind::{Kind, STANDARD_VERBS, Subresource};
use crate::object::list;
use crate::printing::{AGE, NAME, Printer, age_of, name_of, string};
use crate::strategy::{StatusRule, Strategy, status_keeps_metadata};
use crate::validation::Validation;

pub(crate) static KIND: Kind = Kind {
    group: "networking.k8s.io",
    kind: "ServiceCIDR",
    plural: "servicecidrs",
    singular: "servicecidr",
    verbs: STANDARD_VERBS,
    subresources: &[Subresource::status("ServiceCIDR")],
    storage_prefix: "servicecidrs",
    strategy: Strategy { status: StatusRule::Owned, on_update: status_keeps_metadata, ..Strategy::PLAIN },
    validation: Validation { create_rules, change_rules, ..Validation::PLAIN },
    printer: Printer {
        columns: &[NAME, string("CIDRs"), AGE],
        cells: |object, now| {
            let ranges: Vec<&str> = list(&object["spec"], "cidrs").iter().filter_map(Value::as_str).collect();
            vec![name_of(object), ranges.join(",").into(), age_of(object, now)]
        },
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

/// One range for each family of addresses.
const RANGES_MAX: usize = 2;

fn create_rules(errors: &mut ErrorList, object: &Value) {
    let spec = &object["spec"];
    let root = Path::root("spec");
    let path = root.child("cidrs");
    let ranges: Vec<&str> = list(spec, "cidrs").iter().map(|range| range.as_str().unwrap_or_default()).collect();
    if ranges.is_empty() {
        errors.required(path, "at least one CIDR required");
        return;
    }
    if ranges.len() > RANGES_MAX {
        errors.invalid(
            path,
            At(root, GoValue("io.k8s.api.networking.v1.ServiceCIDRSpec", spec)),
            "may only hold up to 2 values",
        );
        return;
    }
    for (index, range) in ranges.iter().enumerate() {
        if let Some(problem) = ip_rules::range_problem(range) {
            errors.invalid(path.index(index), *range, &problem);
        }
    }
    if one_family_twice(&ranges) {
        let detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        errors.invalid(path, &spec["cidrs"], detail);
    }
}

/// A range of the other family may be added; nothing else changes.
fn change_rules(errors: &mut ErrorList, new: &Value, old: &Value) {
    let (before, after) = (list(&old["spec"], "cidrs"), list(&new["spec"], "cidrs"));
    let root = Path::root("spec");
    let path = root.child("cidrs");
    let added = (before.len(), after.len()) == (1, RANGES_MAX);
    if !added && before.len() != after.len() {
        errors.invalid(path, &new["spec"]["cidrs"], "field is immutable");
        return;
    }
    for (index, (_, range)) in before.iter().zip(after).enumerate().filter(|(_, (was, is))| was != is) {
        errors.invalid(path.index(index), range.as_str().unwrap_or_default(), "field is immutable");
    }
    if added {
        create_rules(errors, new);
    }
}

fn one_family_twice(ranges: &[&str]) -> bool {
    let families: Vec<bool> = ranges.iter().filter_map(|range| Some(ip_rules::range(range)?.0.is_ipv4())).collect();
    families.len() == RANGES_MAX && families[0] == families[1]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(ranges: &[&str]) -> Value {
        json!({
            "kind": "ServiceCIDR", "apiVersion": "networking.k8s.io/v1",
            "metadata": {"name": "a", "resourceVersion": "1"},
            "spec": {"cidrs": ranges},
        })
    }

    #[test]
    fn ranges_are_one_of_each_family() {
        for good in [&["10.0.0.0/16"][..], &["fd00::/108"], &["10.0.0.0/16", "fd00::/108"]] {
            assert_eq!(KIND.validate_create(&object(good)).len(), 0, "{good:?}");
        }
        for (bad, field) in [
            (&[][..], "spec.cidrs"),
            (&["10.0.0.0/16", "10.1.0.0/16"], "spec.cidrs"),
            (&["10.0.0.0/16", "fd00::/108", "10.1.0.0/16"], "spec.cidrs"),
            (&["10.0.0.1/16"], "spec.cidrs[0]"),
            (&["10.0.0.0/33"], "spec.cidrs[0]"),
            (&["10.0.0.0/+8"], "spec.cidrs[0]"),
            (&["fd00:0::/64"], "spec.cidrs[0]"),
            (&["here"], "spec.cidrs[0]"),
        ] {
            let errors = KIND.validate_create(&object(bad));
            assert_eq!(errors.iter().map(|error| error.field.as_str()).collect::<Vec<_>>(), [field], "{bad:?}");
        }
    }

    #[test]
    fn only_the_other_family_may_be_added() {
        let old = object(&["10.0.0.0/16"]);
        assert_eq!(KIND.validate_update("", &object(&["10.0.0.0/16", "fd00::/108"]), &old).len(), 0);
        for bad in [&["10.1.0.0/16"][..], &["10.1.0.0/16", "fd00::/108"], &["10.0.0.0/16", "10.1.0.0/16"], &[]] {
            assert_eq!(KIND.validate_update("", &object(bad), &old).len(), 1, "{bad:?}");
        }
    }
}
