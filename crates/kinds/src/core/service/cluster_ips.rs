//! The rules of cluster IPs, families and their policy, of which a service has one or two each.

use std::collections::BTreeSet;

use serde_json::Value;

use super::headless;
use crate::field::{At, ErrorList, Path};
use crate::ip_rules;
use crate::object::{given, list, text};

const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];
const POLICIES: [&str; 3] = ["PreferDualStack", "RequireDualStack", "SingleStack"];
/// One address for each family.
const ADDRESSES_MAX: usize = 2;

pub(super) fn texts<'s>(spec: &'s Value, field: &str) -> Vec<&'s str> {
    list(spec, field).iter().map(|item| item.as_str().unwrap_or_default()).collect()
}

/// Checks the fields of a version; an allocator asks for them, too. Upstream: `ValidateServiceClusterIPsRelatedFields`.
pub(super) fn rules(errors: &mut ErrorList, spec: &Value, old: Option<&Value>) {
    if text(spec, "type") == "ExternalName" {
        return;
    }
    let root = Path::root("spec");
    let (path, addresses) = (root.child("clusterIPs"), texts(spec, "clusterIPs"));
    let shown = &spec["clusterIPs"];
    match (text(spec, "clusterIP"), addresses.first()) {
        ("", None) => {}
        ("", Some(_)) => errors.invalid(path, shown, "must be empty when `clusterIP` is not specified"),
        (_, None) => errors.required(path, ""),
        (one, Some(first)) if one != *first => errors.invalid(path, shown, "first value must match `clusterIP`"),
        _ => {}
    }
    families(errors, root.child("ipFamilies"), spec);
    let policy = text(spec, "ipFamilyPolicy");
    if given(spec, "ipFamilyPolicy") && !POLICIES.contains(&policy) {
        errors.not_supported(root.child("ipFamilyPolicy"), policy, &POLICIES);
    }
    let stored = old.map(|old| texts(old, "clusterIPs")).unwrap_or_default();
    let mut valid = true;
    for (index, address) in addresses.iter().enumerate() {
        if index == 0 && *address == "None" {
            if addresses.len() > 1 {
                valid = false;
                errors.invalid(path, shown, "'None' must be the first and only value");
            }
        } else {
            valid &= ip_rules::legacy_address(errors, path.index(index), address, &stored);
        }
    }
    if addresses.len() > ADDRESSES_MAX {
        errors.invalid(path, shown, "may only hold up to 2 values");
    }
    if !valid {
        return;
    }
    if addresses.len() > 1 && !one_of_each_family(&addresses) {
        errors.invalid(path, shown, "may specify no more than one IP for each IP family");
    }
    if !headless(spec) {
        match_families(errors, path, &addresses, &texts(spec, "ipFamilies"));
    }
}

fn families(errors: &mut ErrorList, path: Path<'_>, spec: &Value) {
    let mut seen = BTreeSet::new();
    for (index, family) in texts(spec, "ipFamilies").into_iter().enumerate() {
        if !FAMILIES.contains(&family) {
            errors.not_supported(path.index(index), family, &FAMILIES);
        }
        if !seen.insert(family) {
            errors.duplicate(path.index(index), family);
        }
    }
}

fn one_of_each_family(addresses: &[&str]) -> bool {
    addresses.len() == ADDRESSES_MAX && ip_rules::is_ipv6(addresses[0]) != ip_rules::is_ipv6(addresses[1])
}

fn match_families(errors: &mut ErrorList, path: Path<'_>, addresses: &[&str], families: &[&str]) {
    for (index, (address, family)) in addresses.iter().zip(families).enumerate() {
        let matches = match *family {
            "IPv4" => !ip_rules::is_ipv6(address),
            "IPv6" => ip_rules::is_ipv6(address),
            _ => true,
        };
        if !matches {
            let detail = format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
            errors.invalid(path.index(index), *address, &detail);
        }
    }
}

/// The first of each stays; the second comes and goes with the policy. Upstream: `validateUpgradeDowngradeClusterIPs`,
/// `validateUpgradeDowngradeIPFamilies`.
pub(super) fn change_rules(errors: &mut ErrorList, new: &Value, old: &Value) {
    let external = |spec: &Value| text(spec, "type") == "ExternalName";
    if external(new) || external(old) {
        return;
    }
    let (is_headless, was_headless) = (headless(new), headless(old));
    if !(is_headless && was_headless) {
        changed_addresses(errors, new, old);
    }
    if !is_headless && !was_headless {
        changed_families(errors, new, old);
    }
}

fn changed_addresses(errors: &mut ErrorList, new: &Value, old: &Value) {
    let root = Path::root("spec");
    let path = root.child("clusterIPs");
    let (now, before) = (texts(new, "clusterIPs"), texts(old, "clusterIPs"));
    let shown = &new["clusterIPs"];
    const CHANGED: &str = "may not change once set";
    if now.len() == before.len() {
        for (index, _) in now.iter().zip(&before).enumerate().filter(|(_, (now, before))| now != before) {
            errors.invalid(path.index(index), At(path, shown), CHANGED);
        }
        return;
    }
    if now.is_empty() {
        errors.invalid(path.index(0), At(path, shown), "primary clusterIP can not be unset");
    } else if before.first().is_some_and(|before| now[0] != *before) {
        errors.invalid(path.index(0), At(path, shown), CHANGED);
    }
    if now.len() < before.len() && now.len() == 1 {
        released_second(errors, new, "must be set to 'SingleStack' when releasing the secondary clusterIP");
    }
}

fn changed_families(errors: &mut ErrorList, new: &Value, old: &Value) {
    let root = Path::root("spec");
    let families = root.child("ipFamilies");
    let path = families.index(0);
    let (now, before) = (texts(new, "ipFamilies"), texts(old, "ipFamilies"));
    const CHANGED: &str = "may not change once set";
    if now.len() == before.len() {
        for _ in now.iter().zip(&before).filter(|(now, before)| now != before) {
            errors.invalid(path, At(families, &new["ipFamilies"]), CHANGED);
        }
        return;
    }
    // Upstream asks for the addresses here, and shows them below.
    if now.len() < before.len() && texts(new, "clusterIPs").is_empty() {
        errors.invalid(path, At(families, &new["ipFamilies"]), "primary ipFamily can not be unset");
    }
    if let (Some(now), Some(before)) = (now.first(), before.first())
        && now != before
    {
        errors.invalid(path, At(root.child("clusterIPs"), &new["clusterIPs"]), CHANGED);
    }
    if now.len() < before.len() && now.len() == 1 {
        released_second(errors, new, "must be set to 'SingleStack' when releasing the secondary ipFamily");
    }
}

fn released_second(errors: &mut ErrorList, new: &Value, detail: &str) {
    if text(new, "ipFamilyPolicy") != "SingleStack" {
        let root = Path::root("spec");
        errors.invalid(root.child("ipFamilyPolicy"), &new["ipFamilyPolicy"], detail);
    }
}
