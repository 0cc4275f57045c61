//! The pods of a file that later ones refer to.

use std::collections::hash_map::Entry;
use std::hash::BuildHasher;
use std::sync::Arc;

use bayplan_model::decision_log::NUMBERS_MAX;
use bayplan_model::keyed::{KeyedMap, KeyedState};
use bayplan_model::pod::{Pod, PodSpec};

/// What a pod is written from.
pub(super) enum Base<'a> {
    /// From an earlier pod of this number.
    Earlier(u32, &'a Pod),
    /// From nothing: it is written as a whole, and later ones refer to it by this number.
    Itself(u32),
}

/// The pods that others may be written from, one of each template.
#[derive(Default)]
pub(super) struct Bases {
    /// Numbers, by the hash of what pods of one template have in common. Two templates of one hash only make lines
    /// longer: what a pod has other than its base is written, whatever it is.
    numbers: KeyedMap<u64, u32>,
    /// By number, with their hashes.
    pods: Vec<(u64, Arc<Pod>)>,
    /// The number that is given next once all are given: that of the oldest.
    oldest: usize,
    hasher: KeyedState,
}

impl Bases {
    /// Forgets all of them, for a new file.
    pub(super) fn clear(&mut self) {
        self.numbers.clear();
        self.pods.clear();
        self.oldest = 0;
    }

    /// Finds a pod of the same template, or takes this one for those that follow.
    pub(super) fn of(&mut self, pod: &Arc<Pod>) -> Base<'_> {
        let hash = self.template_hash(pod);
        let number = match self.numbers.entry(hash) {
            Entry::Occupied(known) => {
                let number = *known.get();
                return Base::Earlier(number, &self.pods[number as usize].1);
            }
            Entry::Vacant(entry) => {
                let count = self.pods.len() as u32;
                *entry.insert(if count < NUMBERS_MAX { count } else { self.oldest as u32 })
            }
        };
        match self.pods.get_mut(number as usize) {
            None => self.pods.push((hash, Arc::clone(pod))),
            Some(oldest) => {
                self.numbers.remove(&oldest.0);
                *oldest = (hash, Arc::clone(pod));
                self.oldest = (self.oldest + 1) % self.pods.len();
            }
        }
        Base::Itself(number)
    }

    /// Pods of one template have all of this in common, and most of the rest. Names of volumes, claims and labels may
    /// be each pod's own.
    fn template_hash(&self, pod: &Pod) -> u64 {
        let meta = &pod.metadata;
        let PodSpec { containers, init_containers, affinity, topology_spread_constraints, .. } = &pod.spec;
        let PodSpec { node_selector, tolerations, priority, scheduler_name, .. } = &pod.spec;
        let whose = (&meta.namespace, &meta.generate_name, &meta.owner_references);
        let runs = (containers, init_containers, priority, scheduler_name);
        self.hasher.hash_one((whose, runs, affinity, topology_spread_constraints, node_selector, tolerations))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, image: &str) -> Arc<Pod> {
        let json = serde_json::json!({
            "metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": image}]},
        });
        Arc::new(serde_json::from_value(json).unwrap())
    }

    fn number(bases: &mut Bases, name: &str, image: &str) -> (u32, bool) {
        match bases.of(&pod(name, image)) {
            Base::Earlier(number, base) => {
                assert_eq!(base.spec.containers[0].image, image);
                (number, false)
            }
            Base::Itself(number) => (number, true),
        }
    }

    #[test]
    fn pods_of_one_template_are_written_from_its_first() {
        let mut bases = Bases::default();
        assert_eq!(number(&mut bases, "a", "x"), (0, true));
        assert_eq!(number(&mut bases, "b", "y"), (1, true));
        assert_eq!(number(&mut bases, "c", "x"), (0, false));
        bases.clear();
        assert_eq!(number(&mut bases, "b", "y"), (0, true));
    }

    #[test]
    fn the_oldest_number_is_given_again_when_all_are_given() {
        let mut bases = Bases::default();
        for image in 0..NUMBERS_MAX {
            assert_eq!(number(&mut bases, "a", &image.to_string()), (image, true));
        }
        assert_eq!(number(&mut bases, "a", "one more"), (0, true));
        assert_eq!(number(&mut bases, "a", "two more"), (1, true));
        assert_eq!(number(&mut bases, "b", "one more"), (0, false));
        assert_eq!(number(&mut bases, "b", "2"), (2, false));
        assert_eq!(number(&mut bases, "b", "0"), (2, true), "its number was given to another");
    }
}
