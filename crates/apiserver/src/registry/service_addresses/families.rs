//! Which families a service has addresses of, and what a client need not repeat; upstream's `initIPFamilyFields`,
//! `patchAllocatedValues` and `normalizeClusterIPs`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::service_range::Family;
use crate::status_errors::FieldError;

impl Family {
    pub(super) fn text(self) -> &'static str {
        match self {
            Family::IPv4 => "IPv4",
            Family::IPv6 => "IPv6",
        }
    }

    fn other(self) -> Family {
        match self {
            Family::IPv4 => Family::IPv6,
            Family::IPv6 => Family::IPv4,
        }
    }

    fn of(address: &str) -> Family {
        if address.contains(':') { Family::IPv6 } else { Family::IPv4 }
    }

    pub(super) fn read(text: &str) -> Family {
        if text == "IPv6" { Family::IPv6 } else { Family::IPv4 }
    }
}

pub(super) type Spec = Map<String, Value>;

pub(super) fn texts(value: Option<&Value>) -> Vec<String> {
    let items = value.and_then(Value::as_array).into_iter().flatten();
    items.map(|item| item.as_str().unwrap_or_default().to_owned()).collect()
}

pub(super) fn text<'s>(spec: &'s Spec, field: &str) -> &'s str {
    spec.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn needs_address(spec: &Spec) -> bool {
    text(spec, "type") != "ExternalName"
}

/// Whether node ports are chosen for a service that names none.
pub(super) fn chooses_node_ports(spec: &Spec) -> bool {
    match text(spec, "type") {
        "NodePort" => true,
        "LoadBalancer" => spec.get("allocateLoadBalancerNodePorts").and_then(Value::as_bool) != Some(false),
        _ => false,
    }
}

pub(super) fn needs_health_check(spec: &Spec) -> bool {
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

fn node_port(port: &Value) -> i64 {
    port["nodePort"].as_i64().unwrap_or(0)
}

fn ports(spec: &Spec) -> &[Value] {
    spec.get("ports").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Fills in what the server gave before and the client left out: whoever sends its own manifest again means no change.
pub(super) fn keep_given(spec: &mut Spec, old: &Spec) {
    if needs_address(spec) && needs_address(old) {
        for field in ["clusterIP", "clusterIPs"] {
            let missing = match field {
                "clusterIP" => text(spec, field).is_empty(),
                _ => texts(spec.get(field)).is_empty(),
            };
            if let (true, Some(before)) = (missing, old.get(field)) {
                spec.insert(field.to_owned(), before.clone());
            }
        }
    }
    if chooses_node_ports(spec) && chooses_node_ports(old) {
        let used = |spec: &Spec| ports(spec).iter().map(node_port).collect::<BTreeSet<i64>>();
        let used: BTreeSet<i64> = used(old).intersection(&used(spec)).copied().filter(|port| *port != 0).collect();
        let before: BTreeMap<&str, i64> =
            ports(old).iter().map(|port| (port["name"].as_str().unwrap_or_default(), node_port(port))).collect();
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            let found = before.get(port["name"].as_str().unwrap_or_default()).copied().unwrap_or(0);
            if node_port(port) == 0 && found != 0 && !used.contains(&found) && port.is_object() {
                port["nodePort"] = json!(found);
            }
        }
    }
    let check = |spec: &Spec| spec.get("healthCheckNodePort").and_then(Value::as_i64).unwrap_or(0);
    if needs_health_check(spec) && needs_health_check(old) && check(spec) == 0 && check(old) != 0 {
        spec.insert("healthCheckNodePort".to_owned(), json!(check(old)));
    }
}

/// Gives the older field, `clusterIP`, and the newer one the same meaning where only one was written.
pub(super) fn unite_addresses(spec: &mut Spec, old: Option<&Spec>) {
    let (one, all) = (text(spec, "clusterIP").to_owned(), texts(spec.get("clusterIPs")));
    let Some(old) = old else {
        if !one.is_empty() && all.is_empty() {
            spec.insert("clusterIPs".to_owned(), json!([one]));
        }
        return;
    };
    let (one_before, all_before) = (text(old, "clusterIP"), texts(old.get("clusterIPs")));
    if one == one_before {
        if all.is_empty() && !all_before.is_empty() {
            spec.insert("clusterIPs".to_owned(), json!(all_before));
        }
    } else if all == all_before {
        if one.is_empty() {
            spec.remove("clusterIPs");
        } else {
            spec.insert("clusterIPs".to_owned(), json!([one]));
        }
    }
}

/// Whether a service that merely prefers two addresses is as it was: it keeps what it has.
pub(super) fn keeps_preference(spec: &Spec, old: Option<&Spec>) -> bool {
    let Some(old) = old else { return false };
    let prefers = |spec: &Spec| text(spec, "ipFamilyPolicy") == "PreferDualStack";
    let same = |field: &str| texts(spec.get(field)) == texts(old.get(field));
    prefers(spec)
        && (prefers(old) || text(old, "ipFamilyPolicy").is_empty())
        && text(spec, "type") == text(old, "type")
        && matches!(text(spec, "type"), "ClusterIP" | "NodePort" | "LoadBalancer")
        && same("clusterIPs")
        && same("ipFamilies")
}

fn selects(spec: &Spec) -> bool {
    spec.get("selector").and_then(Value::as_object).is_some_and(|selector| !selector.is_empty())
}

/// Fills in the policy, as long as nobody said otherwise.
pub(super) fn default_policy(spec: &mut Spec, old: Option<&Spec>) {
    if !text(spec, "ipFamilyPolicy").is_empty() {
        return;
    }
    let before = old.map(|old| text(old, "ipFamilyPolicy")).filter(|policy| !policy.is_empty());
    let alone = text(spec, "clusterIP") == "None" && !selects(spec);
    let policy = before.unwrap_or(if alone { "RequireDualStack" } else { "SingleStack" });
    spec.insert("ipFamilyPolicy".to_owned(), json!(policy));
}

/// Settles the families of a service, of those that the cluster has; its policy is known, and what it names is valid.
pub(super) fn settle(spec: &mut Spec, old: Option<&Spec>, configured: &[Family]) -> Result<(), Vec<FieldError>> {
    let policy = text(spec, "ipFamilyPolicy").to_owned();
    let single = policy == "SingleStack";
    let mut addresses = texts(spec.get("clusterIPs"));
    let mut families = texts(spec.get("ipFamilies"));
    let mut errors = Vec::new();
    let mut refuse = |detail: String| errors.push(FieldError::invalid("spec.ipFamilyPolicy", json!(policy), detail));
    if let Some(old) = old {
        for (field, now, what) in
            [("clusterIPs", &mut addresses, "cluster IP"), ("ipFamilies", &mut families, "IP family")]
        {
            let before = texts(old.get(field));
            if single && *now == before && now.len() > 1 {
                // As long as neither has changed, the policy says what is meant.
                now.truncate(1);
                spec.insert(field.to_owned(), json!(now));
            } else if !single && !now.is_empty() && now.len() < before.len() {
                refuse(format!("must be 'SingleStack' to release the secondary {what}"));
            }
        }
    }
    for (count, what) in [(addresses.len(), "cluster IPs"), (families.len(), "IP families")] {
        if single && count == 2 {
            refuse(format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"));
        }
    }
    for (index, address) in addresses.iter().enumerate().take_while(|(_, address)| *address != "None") {
        let family = Family::of(address);
        if index < families.len() {
            continue;
        }
        if configured.contains(&family) {
            families.push(family.text().to_owned());
        } else {
            let detail = format!("{} is not configured on this cluster", family.text());
            errors.push(FieldError::invalid(format!("spec.clusterIPs[{index}]"), json!(addresses), detail));
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let alone = text(spec, "clusterIP") == "None" && !selects(spec);
    if !alone {
        check_configured(&policy, &families, configured)?;
    }
    if families.is_empty() {
        families.push(configured.first().copied().unwrap_or(Family::IPv4).text().to_owned());
    }
    // A service without addresses and selector may have families that the cluster has not.
    if !single && families.len() == 1 && (alone || configured.len() == 2) {
        families.push(Family::read(&families[0]).other().text().to_owned());
    }
    spec.insert("ipFamilies".to_owned(), json!(families));
    Ok(())
}

fn check_configured(policy: &str, families: &[String], configured: &[Family]) -> Result<(), Vec<FieldError>> {
    let mut errors = Vec::new();
    if policy == "RequireDualStack" && configured.len() < 2 {
        let detail = "this cluster is not configured for dual-stack services";
        errors.push(FieldError::invalid("spec.ipFamilyPolicy", json!(policy), detail));
    }
    for (index, family) in families.iter().enumerate() {
        if !configured.contains(&Family::read(family)) {
            let field = format!("spec.ipFamilies[{index}]");
            errors.push(FieldError::invalid(field, json!(family), "not configured on this cluster"));
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}
