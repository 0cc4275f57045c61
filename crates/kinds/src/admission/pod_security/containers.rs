//! Containers as checks name them: `container "a"`, `containers "a", "b"`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Pod;
use crate::object::{list, text};

/// All containers of a pod: init containers first, ephemeral ones last.
pub(super) fn all<'a>(pod: &Pod<'a>) -> impl Iterator<Item = &'a Value> + use<'a> {
    let spec = pod.spec;
    ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(move |field| list(spec, field))
}

/// The names of the containers for which something holds.
pub(super) fn named<'a>(pod: &Pod<'a>, mut holds: impl FnMut(&'a Value) -> bool) -> Vec<&'a str> {
    all(pod).filter(|container| holds(container)).map(|container| text(container, "name")).collect()
}

/// `"a", "b"`.
pub(super) fn quoted<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> String {
    // Quoted as they are: names are checked before, and values are shown as they were given.
    let quoted: Vec<String> = names.into_iter().map(|name| format!("\"{}\"", name.as_ref())).collect();
    quoted.join(", ")
}

/// `container "a"` or `containers "a", "b"`.
pub(super) fn containers(names: &[&str]) -> String {
    format!("{} {}", plural(names.len(), "container", "containers"), quoted(names))
}

pub(super) fn plural<'t>(count: usize, one: &'t str, many: &'t str) -> &'t str {
    if count == 1 { one } else { many }
}

/// Who sets something: the pod itself, and containers.
pub(super) fn setters(pod: bool, names: &[&str]) -> Vec<String> {
    let mut setters = Vec::new();
    if pod {
        setters.push("pod".to_owned());
    }
    if !names.is_empty() {
        setters.push(containers(names));
    }
    setters
}

/// The text of a profile's type at a place of a security context; `None` when there is no profile.
pub(super) fn profile<'a>(security: &'a Value, profile: &str) -> Option<&'a str> {
    let profile = security.get(profile).filter(|profile| !profile.is_null())?;
    Some(text(profile, "type"))
}

/// Who sets a profile of a type that is not allowed, and to which types.
pub(super) fn bad_profiles<'a>(
    pod: &'a Pod<'a>,
    name: &str,
    allowed: fn(&str) -> bool,
) -> (bool, Vec<&'a str>, BTreeSet<&'a str>) {
    let mut values = BTreeSet::new();
    let of_pod = profile(pod.security(), name).filter(|kind| !allowed(kind));
    values.extend(of_pod);
    let names = named(pod, |container| match profile(&container["securityContext"], name) {
        Some(kind) if !allowed(kind) => {
            values.insert(kind);
            true
        }
        _ => false,
    });
    (of_pod.is_some(), names, values)
}
