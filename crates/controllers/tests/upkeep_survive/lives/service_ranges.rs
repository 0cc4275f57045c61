//! ServiceCIDRs: each is protected and ready, one that was deleted stays while an address depends on it alone, and no
//! address is ever without a range.

use std::sync::Arc;

use bayplan_controllers::{Kind, ServiceCidrController};
use bayplan_testkit::Rng;
use serde_json::{Value, json};

use super::{Edit, Life, has_finalizer, is_deleted, name, nobody, silent, text};
use crate::server::Server;

const RANGES: &str = "servicecidrs";
const ADDRESSES: &str = "ipaddresses";
const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";

/// A range by name, and how the addresses in it begin.
const ALL: [(&str, &str, &str); 4] = [
    ("kubernetes", "10.0.0.0/24", "10.0.0."),
    ("more", "10.1.0.0/24", "10.1.0."),
    ("same", "10.1.0.0/24", "10.1.0."),
    ("wide", "10.1.0.0/16", "10.1."),
];

pub(super) const LIFE: Life = Life {
    name: "service-cidr",
    kinds: &[Kind::ServiceCidr, Kind::ServiceAddress],
    controller: |cache| Arc::new(ServiceCidrController::new(cache)),
    stages: &[first_ranges, addresses_are_given, a_used_range_goes, another_takes_over, it_goes_too, addresses_go],
    report: silent,
    others: nobody,
    edit,
    assert_always: |server, _| assert_covered(server),
    assert_kept,
};

fn range(name: &str) -> Value {
    let (_, cidr, _) = ALL.into_iter().find(|(known, ..)| *known == name).unwrap();
    json!({"metadata": {"name": name}, "spec": {"cidrs": [cidr]}})
}

fn address(text: &str, manager: &str) -> Value {
    json!({"metadata": {"name": text, "labels": {MANAGED_BY: manager}}})
}

fn covers(range: &Value, address: &str) -> bool {
    let (.., begin) = ALL.into_iter().find(|(known, ..)| *known == name(range)).unwrap();
    address.starts_with(begin)
}

/// The addresses that the API server gave away.
fn given(server: &Server) -> Vec<String> {
    let addresses = server.objects(ADDRESSES);
    let ours = addresses.iter().filter(|one| one["metadata"]["labels"][MANAGED_BY] == "ipallocator.k8s.io");
    ours.map(|one| name(one).to_owned()).collect()
}

/// The API server gives an address of a range that is not being deleted.
fn give(server: &Server, text: &str) {
    let ranges = server.objects(RANGES);
    let open = ranges.iter().any(|range| !is_deleted(range) && covers(range, text));
    if open && server.find(ADDRESSES, text).is_none() {
        server.put(ADDRESSES, address(text, "ipallocator.k8s.io"));
    }
}

fn first_ranges(server: &Server) {
    server.put(RANGES, range("kubernetes"));
    server.put(RANGES, range("more"));
}

fn addresses_are_given(server: &Server) {
    ["10.0.0.1", "10.1.0.1", "10.1.0.2"].into_iter().for_each(|text| give(server, text));
    server.put(ADDRESSES, address("10.2.0.1", "somebody"));
}

fn a_used_range_goes(server: &Server) {
    server.remove(RANGES, "more");
}

fn another_takes_over(server: &Server) {
    server.put(RANGES, range("wide"));
}

fn it_goes_too(server: &Server) {
    server.remove(RANGES, "wide");
    server.remove(ADDRESSES, "10.1.0.1");
}

fn addresses_go(server: &Server) {
    server.remove(ADDRESSES, "10.1.0.2");
}

fn edit(rng: &mut Rng) -> Edit {
    let named = *rng.pick(&["more", "same", "wide"]);
    let text = *rng.pick(&["10.1.0.1", "10.1.0.2", "10.1.7.1"]);
    match rng.below(5) {
        // Two that are deleted at the same time each count on the other, upstream's as well.
        0 | 1 => Box::new(move |server| {
            if !server.objects(RANGES).iter().any(is_deleted) {
                server.remove(RANGES, named);
            }
        }),
        2 => Box::new(move |server| give(server, text)),
        3 => Box::new(move |server| server.remove(ADDRESSES, text)),
        _ => Box::new(move |server| {
            if server.find(RANGES, named).is_none() {
                server.put(RANGES, range(named));
            }
        }),
    }
}

/// Every address that was given is in a range.
fn assert_covered(server: &Server) {
    let ranges = server.objects(RANGES);
    for address in given(server) {
        assert!(ranges.iter().any(|range| covers(range, &address)), "{address} is in no range");
    }
}

fn assert_kept(server: &Server, when: &str) {
    assert_covered(server);
    let (ranges, addresses) = (server.objects(RANGES), given(server));
    for range in &ranges {
        let name = name(range);
        assert!(has_finalizer(range, FINALIZER), "{when}: {name} is protected");
        let others = || ranges.iter().filter(|other| super::name(other) != name);
        let alone = |address: &&String| covers(range, address) && !others().any(|other| covers(other, address));
        let needed = addresses.iter().any(|address| alone(&address));
        let ready = text(&range["status"]["conditions"][0]["status"]);
        match is_deleted(range) {
            true => assert!(needed && ready == "False", "{when}: {name} is kept for nobody, or says {ready:?}"),
            false => assert_eq!(ready, "True", "{when}: {name}"),
        }
        assert_eq!(range["status"]["conditions"].as_array().unwrap().len(), 1, "{when}: {name}");
    }
}
