//! Compares the indexes over slices, claims and classes with walks over all of them, on random histories.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bayplan_model::node::Node;
use bayplan_model::resource_claim::{AllocationResult, DeviceResult, ResourceClaim};
use bayplan_model::resource_slice::{DeviceClass, ResourceSlice};
use bayplan_testkit::Rng;
use serde_json::{Value, json};

use super::pools::pools;
use crate::cluster::{ClaimKey, Cluster, EXTENDED_RESOURCE_CLAIM_ANNOTATION, Object};

fn decode<T: serde::de::DeserializeOwned>(json: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(json).unwrap())
}

const DEVICES: [&str; 3] = ["d0", "d1", "d2"];
const POOLS: [&str; 3] = ["p0", "p1", "p2"];

fn slice(rng: &mut Rng) -> Arc<ResourceSlice> {
    let mut spec = json!({
        "driver": "x.io",
        "pool": {
            "name": rng.pick(&POOLS), "generation": 1 + rng.below(2), "resourceSliceCount": 1 + rng.below(2),
        },
    });
    match rng.below(6) {
        0 | 1 => spec["nodeName"] = (*rng.pick(&["n0", "n1"])).into(),
        2 => spec["allNodes"] = true.into(),
        3 => {
            let operator = *rng.pick(&["In", "Nonsense"]);
            let zone = json!({"key": "zone", "operator": operator, "values": [rng.pick(&["a", "b"])]});
            spec["nodeSelector"] = json!({"nodeSelectorTerms": [{"matchExpressions": [zone]}]});
        }
        4 => spec["perDeviceNodeSelection"] = true.into(),
        _ => {}
    }
    if rng.below(4) == 0 {
        spec["sharedCounters"] = json!([{"name": rng.pick(&["c0", "c1"]), "counters": {"m": {"value": "4"}}}]);
    } else {
        let devices = (0..rng.below(4)).map(|_| {
            let mut device = json!({"name": rng.pick(&DEVICES)});
            if rng.below(3) == 0 {
                device["consumesCounters"] =
                    json!([{"counterSet": rng.pick(&["c0", "c1"]), "counters": {"m": {"value": "1"}}}]);
            }
            match rng.below(3) {
                0 => device["nodeName"] = (*rng.pick(&["n0", "n1"])).into(),
                1 => device["allNodes"] = true.into(),
                _ => device["bindingConditions"] = json!(["ready"]),
            }
            device
        });
        spec["devices"] = devices.collect();
    }
    decode(json!({"metadata": {"name": format!("s{}", rng.below(6))}, "spec": spec}))
}

fn allocation(rng: &mut Rng) -> Value {
    let results: Value = (0..1 + rng.below(2))
        .map(|_| {
            let mut result =
                json!({"request": "r", "driver": "x.io", "pool": rng.pick(&POOLS), "device": rng.pick(&DEVICES)});
            match rng.below(4) {
                0 => result["adminAccess"] = true.into(),
                1 | 2 => {
                    result["shareID"] = "s".into();
                    result["consumedCapacity"] = json!({"memory": rng.pick(&["1", "2", "500m"])});
                }
                _ => {}
            }
            result
        })
        .collect();
    json!({"devices": {"results": results}})
}

fn claim(rng: &mut Rng) -> Arc<ResourceClaim> {
    let mut claim = json!({"metadata": {
        "namespace": rng.pick(&["a", "b"]), "name": rng.pick(&["c0", "c1", "c2"]), "uid": rng.pick(&["u0", "u1"]),
    }});
    if rng.below(2) == 0 {
        claim["metadata"]["annotations"] = json!({EXTENDED_RESOURCE_CLAIM_ANNOTATION: rng.pick(&["true", "false"])});
        claim["metadata"]["ownerReferences"] = json!([{"uid": rng.pick(&["pod0", "pod1"]), "controller": true}]);
    }
    if rng.below(2) == 0 {
        claim["status"] = json!({"allocation": allocation(rng)});
    }
    decode(claim)
}

fn class(rng: &mut Rng) -> Arc<DeviceClass> {
    let mut class = json!({"metadata": {
        "name": rng.pick(&["k0", "k1", "k2"]),
        "creationTimestamp": rng.pick(&["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]),
    }});
    if rng.below(3) > 0 {
        class["spec"] = json!({"extendedResourceName": rng.pick(&["x.io/a", "x.io/b"])});
    }
    decode(class)
}

type Amounts = BTreeMap<String, i64>;

/// Every device that is taken: for itself, and the shares of it.
fn taken<'a>(results: impl Iterator<Item = &'a DeviceResult>) -> BTreeMap<(String, String), (bool, Option<Amounts>)> {
    let mut all: BTreeMap<(String, String), (bool, Option<Amounts>)> = BTreeMap::new();
    for result in results.filter(|result| result.admin_access != Some(true)) {
        let (exclusive, shares) = all.entry((result.pool.clone(), result.device.clone())).or_default();
        if result.share_id.is_none() {
            *exclusive = true;
            continue;
        }
        let shares = shares.get_or_insert_default();
        for (name, amount) in &result.consumed_capacity {
            *shares.entry(name.clone()).or_default() += amount.milli_value();
        }
    }
    all
}

fn is_pending(cluster: &Cluster, key: &ClaimKey) -> bool {
    match key {
        ClaimKey::Claim(namespace, name, uid) => {
            let claim = cluster.objects.resource_claims.get(namespace, name);
            claim.is_some_and(|claim| claim.metadata.uid == *uid && claim.status.allocation.is_none())
        }
        ClaimKey::ExtendedResources(namespace, pod) => {
            extended(cluster, namespace, pod).is_none_or(|claim| claim.status.allocation.is_none())
        }
    }
}

fn extended<'a>(cluster: &'a Cluster, namespace: &str, pod: &str) -> Option<&'a Arc<ResourceClaim>> {
    cluster.objects.resource_claims.in_namespace(namespace).find(|claim| {
        let meta = &claim.metadata;
        meta.annotations.get(EXTENDED_RESOURCE_CLAIM_ANNOTATION).is_some_and(|value| value == "true")
            && meta.controller().is_some_and(|owner| owner.uid == pod)
    })
}

/// A pool as a node sees it: driver, name, slices, counters, whether it is incomplete, whether it is invalid.
type Seen = (String, String, Vec<String>, Vec<String>, bool, bool);

/// The pools of a node by a walk over all slices.
fn plain_pools(cluster: &Cluster, node: &Node) -> Result<Vec<Seen>, ()> {
    let reaches = |name: &Option<String>, all: bool, selector: &Option<bayplan_model::affinity::NodeSelector>| {
        if let Some(name) = name.as_ref().filter(|name| !name.is_empty()) {
            return Ok(*name == node.metadata.name);
        }
        let Some(selector) = selector.as_ref().filter(|_| !all) else { return Ok(all) };
        let matcher = bayplan_model::affinity::NodeMatcher::new(selector);
        if matcher.errors().is_empty() { Ok(matcher.matches(node)) } else { Err(()) }
    };
    let relevant = |slice: &ResourceSlice| {
        let spec = &slice.spec;
        if !spec.shared_counters.is_empty() {
            return Ok(true);
        }
        if spec.node_name.is_some() || spec.all_nodes || spec.node_selector.is_some() {
            return reaches(&spec.node_name, spec.all_nodes, &spec.node_selector);
        }
        let devices = spec.devices.iter().filter(|_| spec.per_device_node_selection);
        let reached: Result<Vec<bool>, ()> =
            devices.map(|d| reaches(&d.node_name, d.all_nodes, &d.node_selector)).collect();
        Ok(reached?.contains(&true))
    };
    let all: Vec<&Arc<ResourceSlice>> = cluster.objects.resource_slices.iter().collect();
    let mut here = Vec::new();
    for slice in &all {
        if relevant(slice)? {
            here.push(*slice);
        }
    }
    // Slices may disagree about the size of their pool: the node's own come first.
    here.sort_by_key(|slice| slice.spec.node_name.is_none() || !slice.spec.shared_counters.is_empty());
    let ids: BTreeSet<&String> = here.iter().map(|slice| &slice.spec.pool.name).collect();
    let (mut early, mut late) = (Vec::new(), Vec::new());
    for id in ids {
        let of_pool: Vec<_> = all.iter().filter(|slice| slice.spec.pool.name == *id).collect();
        let mine: Vec<_> = here.iter().filter(|slice| slice.spec.pool.name == *id).collect();
        let newest = mine.iter().map(|slice| slice.spec.pool.generation).max().unwrap();
        let mine: Vec<_> = mine.into_iter().filter(|slice| slice.spec.pool.generation == newest).collect();
        let same: Vec<_> = of_pool.iter().filter(|slice| slice.spec.pool.generation == newest).collect();
        let count = mine[0].spec.pool.resource_slice_count;
        let complete = mine.len() as i64 == count;
        if !complete && of_pool.iter().any(|slice| slice.spec.pool.generation > newest) {
            continue;
        }
        let sets: Vec<_> = same.iter().flat_map(|slice| &slice.spec.shared_counters).collect();
        let set_names: BTreeSet<_> = sets.iter().map(|set| set.name.clone()).collect();
        let devices: Vec<_> = same.iter().flat_map(|slice| &slice.spec.devices).collect();
        let names: BTreeSet<_> = devices.iter().map(|device| &device.name).collect();
        let consumed = devices.iter().flat_map(|device| &device.consumes_counters);
        let is_invalid = set_names.len() != sets.len()
            || names.len() != devices.len()
            || consumed.into_iter().any(|c| !set_names.contains(&c.counter_set));
        let slices: Vec<_> = mine.iter().filter(|slice| slice.spec.shared_counters.is_empty()).collect();
        let waits = slices.iter().flat_map(|s| &s.spec.devices).any(|device| !device.binding_conditions.is_empty());
        let counters = if set_names.len() == sets.len() { set_names.into_iter().collect() } else { Vec::new() };
        let mut slices: Vec<String> = slices.iter().map(|slice| slice.metadata.name.clone()).collect();
        slices.sort();
        let incomplete = !complete && same.len() as i64 != count;
        let seen = ("x.io".to_owned(), id.clone(), slices, counters, incomplete, is_invalid);
        if waits { late.push(seen) } else { early.push(seen) }
    }
    early.extend(late);
    Ok(early)
}

fn check(cluster: &Cluster, in_flight: &BTreeMap<String, (ClaimKey, Arc<AllocationResult>)>, context: &str) {
    let known = cluster.objects.resource_claims.iter().filter_map(|claim| claim.status.allocation.as_ref());
    let all = known.chain(in_flight.values().map(|(_, allocation)| &**allocation));
    let expected = taken(all.flat_map(|allocation| &allocation.devices.results));
    for pool in POOLS {
        for device in DEVICES {
            let held = cluster.objects.devices.pool("x.io", pool).and_then(|pool| pool.in_use(device));
            let seen = held.map(|held| {
                let shares = held.shared().map(|amounts| {
                    amounts.iter().map(|(name, amount)| (name.clone(), amount.milli_value())).collect::<Amounts>()
                });
                (
                    held.is_exclusive(),
                    shares.map(|shares| shares.into_iter().filter(|(_, sum)| *sum != 0).collect::<Amounts>()),
                )
            });
            assert_eq!(
                seen,
                expected.get(&(pool.to_owned(), device.to_owned())).cloned(),
                "{context}: {pool}/{device}"
            );
        }
    }
    for (name, zone) in [("n0", "a"), ("n1", "b"), ("n2", "b")] {
        let node: Arc<Node> = decode(json!({"metadata": {"name": name, "labels": {"zone": zone}}}));
        let seen = pools(&cluster.objects.devices, &node).map_err(drop).map(|pools| {
            let seen = pools.iter().map(|pool| {
                let slices = pool.slices.iter().map(|known| known.slice.metadata.name.clone()).collect();
                let counters: BTreeSet<_> = pool.generation.counters.keys().map(|(set, _)| set.clone()).collect();
                let counters: Vec<String> = counters.into_iter().collect();
                (pool.driver.to_owned(), pool.name.to_owned(), slices, counters, pool.is_incomplete, pool.is_invalid())
            });
            seen.collect::<Vec<Seen>>()
        });
        assert_eq!(seen, plain_pools(cluster, &node), "{context}: pools of {name}");
    }
    for namespace in ["a", "b"] {
        for pod in ["pod0", "pod1"] {
            let uid = |claim: Option<&Arc<ResourceClaim>>| claim.map(|claim| claim.metadata.key());
            let (seen, plain) = (cluster.extended_resource_claim(namespace, pod), extended(cluster, namespace, pod));
            assert_eq!(uid(seen), uid(plain), "{context}: {namespace}/{pod}");
        }
    }
    for resource in ["x.io/a", "x.io/b"] {
        let named = cluster.objects.device_classes.iter();
        let named = named.filter(|class| class.spec.extended_resource_name.as_deref() == Some(resource));
        let newest = named.reduce(|best, class| {
            if class.metadata.creation_timestamp > best.metadata.creation_timestamp { class } else { best }
        });
        let name = |class: Option<&Arc<DeviceClass>>| class.map(|class| class.metadata.name.clone());
        assert_eq!(name(cluster.class_of_extended_resource(resource)), name(newest), "{context}: {resource}");
    }
}

#[test]
fn what_is_kept_of_devices_equals_a_walk_over_all_objects() {
    for seed in 1..150u64 {
        let mut rng = Rng::new(seed);
        let mut cluster = Cluster::new();
        let mut in_flight: BTreeMap<String, (ClaimKey, Arc<AllocationResult>)> = BTreeMap::new();
        for step in 0..120 {
            let object = match rng.below(7) {
                0 | 1 => Some(Object::ResourceSlice(slice(&mut rng))),
                2 | 3 => Some(Object::ResourceClaim(claim(&mut rng))),
                4 => Some(Object::DeviceClass(class(&mut rng))),
                _ => None,
            };
            match object {
                Some(object) if rng.below(4) > 0 => drop(cluster.objects.store(&object)),
                Some(object) => drop(cluster.objects.remove(&object)),
                None => {
                    let key = match rng.below(2) {
                        0 => ClaimKey::of(&claim(&mut rng)),
                        _ => {
                            let (namespace, pod) = (*rng.pick(&["a", "b"]), *rng.pick(&["pod0", "pod1"]));
                            ClaimKey::ExtendedResources(namespace.to_owned(), pod.to_owned())
                        }
                    };
                    let name = format!("{key:?}");
                    if rng.below(3) > 0 {
                        let allocation = decode::<AllocationResult>(allocation(&mut rng));
                        cluster.allocate_claim(key.clone(), allocation.clone());
                        in_flight.insert(name, (key, allocation));
                    } else {
                        cluster.deallocate_claim(&key);
                        in_flight.remove(&name);
                    }
                }
            }
            in_flight.retain(|_, (key, _)| is_pending(&cluster, key));
            check(&cluster, &in_flight, &format!("seed {seed}, step {step}"));
        }
    }
}
