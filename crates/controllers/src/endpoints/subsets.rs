//! Addresses packed into subsets: the canonical form in which two Endpoints with the same addresses are equal.

use std::sync::Arc;

use bayplan_model::keyed::KeyedMap;

use super::object::{Address, Port, Subset};
use crate::service::{Dump, fnv_128a};

/// Packs addresses into subsets.
///
/// An address that several ports offer is in one subset with all of them; one that is listed as ready and as not ready
/// is not ready.
#[derive(Debug, Default)]
pub(crate) struct Packer {
    addresses: Vec<Arc<Address>>,
    /// By address and UID: pods on the network of their node share an address.
    by_identity: KeyedMap<(String, String), usize>,
    /// Whether each address is ready, by port; without a port for addresses that offer none.
    by_port: KeyedMap<Option<Port>, KeyedMap<usize, bool>>,
}

/// The addresses of a port, each with whether it is ready.
type Offering = Vec<(usize, bool)>;

impl Packer {
    /// Adds an address; the first that is added is kept.
    pub(crate) fn add(&mut self, address: Address) -> usize {
        let identity = (address.ip.clone(), address.uid().unwrap_or_default().to_owned());
        *self.by_identity.entry(identity).or_insert_with(|| {
            self.addresses.push(Arc::new(address));
            self.addresses.len() - 1
        })
    }

    /// Says that an address offers a port.
    pub(crate) fn offer(&mut self, address: usize, port: Option<&Port>, ready: bool) {
        let offers = match self.by_port.get_mut(&port.cloned()) {
            Some(offers) => offers,
            None => self.by_port.entry(port.cloned()).or_default(),
        };
        offers.entry(address).and_modify(|known| *known &= ready).or_insert(ready);
    }

    /// The subsets, in upstream's order.
    pub(crate) fn pack(self) -> Vec<Subset> {
        let mut order: Vec<usize> = (0..self.addresses.len()).collect();
        order.sort_by(|one, other| {
            let key = |at: &usize| (&self.addresses[*at].ip, self.addresses[*at].uid());
            key(one).cmp(&key(other))
        });
        let mut place = vec![0; order.len()];
        order.iter().enumerate().for_each(|(at, address)| place[*address] = at);
        let mut ports_of: KeyedMap<Offering, Vec<Port>> = KeyedMap::default();
        for (port, offers) in self.by_port {
            let mut offering: Offering = offers.into_iter().map(|(address, ready)| (place[address], ready)).collect();
            offering.sort_unstable();
            ports_of.entry(offering).or_default().extend(port);
        }
        let subset = |(offering, ports): (Offering, Vec<Port>)| {
            let addresses = |wanted: bool| {
                let chosen = offering.iter().filter(move |(_, ready)| *ready == wanted);
                chosen.map(|(at, _)| Address::clone(&self.addresses[order[*at]])).collect()
            };
            Subset { addresses: addresses(true), not_ready_addresses: addresses(false), ports: sorted(ports) }
        };
        let mut subsets: Vec<Subset> = ports_of.into_iter().map(subset).collect();
        if subsets.len() > 1 {
            subsets.sort_by_cached_key(|subset| fnv_128a(&subset.dump()));
        }
        subsets
    }
}

fn sorted(mut ports: Vec<Port>) -> Vec<Port> {
    if ports.len() > 1 {
        ports.sort_by_cached_key(|port| fnv_128a(&port.dump(Dump::of("v1.EndpointPort"))));
    }
    ports
}

/// Subsets in their canonical form; upstream's `RepackSubsets`.
pub(crate) fn repack(subsets: &[Subset]) -> Vec<Subset> {
    let mut packer = Packer::default();
    for subset in subsets {
        for (addresses, ready) in [(&subset.addresses, true), (&subset.not_ready_addresses, false)] {
            for address in addresses {
                let at = packer.add(address.clone());
                if subset.ports.is_empty() {
                    packer.offer(at, None, ready);
                }
                subset.ports.iter().for_each(|port| packer.offer(at, Some(port), ready));
            }
        }
    }
    packer.pack()
}

/// How many addresses Endpoints hold; upstream's `maxCapacity`.
pub(super) const ADDRESSES_MAX: usize = 1000;

/// Cuts the subsets down to what Endpoints may hold: ready addresses first, each subset by its share. Answers whether
/// anything had to go.
pub(super) fn truncate(subsets: &mut [Subset]) -> bool {
    let ready: usize = subsets.iter().map(|subset| subset.addresses.len()).sum();
    let not_ready: usize = subsets.iter().map(|subset| subset.not_ready_addresses.len()).sum();
    if ready + not_ready <= ADDRESSES_MAX {
        return false;
    }
    let (max, total) = if ready > ADDRESSES_MAX { (ADDRESSES_MAX, ready) } else { (ADDRESSES_MAX - ready, not_ready) };
    let mut room = max;
    for subset in subsets {
        if ready > ADDRESSES_MAX {
            subset.not_ready_addresses.clear();
        }
        let cut = if ready > ADDRESSES_MAX { &mut subset.addresses } else { &mut subset.not_ready_addresses };
        let share = share(cut.len(), total, max).min(room);
        cut.truncate(share);
        room -= cut.len();
    }
    true
}

/// The part of `max` that falls to `count` of `total`, rounded up, in the floating point of upstream.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers of addresses are far below 2^52, and not negative"
)]
fn share(count: usize, total: usize, max: usize) -> usize {
    (count as f64 / total as f64 * max as f64).ceil() as usize
}
