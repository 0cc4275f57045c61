//! How many nodes have an image, as kube-scheduler counts them.
//!
//! It copies a node into its snapshot when the node or a pod on it has changed, and the copy keeps the count of that
//! moment. Nodes that come and go with the image later do not change it, until something happens on the node itself.
//! So two nodes may have different counts for one image, and score differently by it.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::Arc;

use bayplan_model::keyed::KeyedMap;
use bayplan_model::node::Node;
use bayplan_scheduler::{Cluster, Object};

use super::timeline::Timeline;
use super::track::{Change, Number, Version};

/// A change on a node, by which it is copied anew.
struct Touch {
    number: Number,
    version: Version,
    /// Of a pod, not of the node itself.
    by_pod: bool,
}

/// The past of the images' spread, and the changes on nodes.
#[derive(Default)]
pub(super) struct ImageSpread {
    /// How many nodes have an image, from which position of the nodes on. Images that never changed are not here.
    counts: KeyedMap<String, VecDeque<(Number, usize)>>,
    touches: KeyedMap<Arc<str>, VecDeque<Touch>>,
}

fn node(object: &Option<Object>) -> Option<&Arc<Node>> {
    match object {
        Some(Object::Node(node)) => Some(node),
        _ => None,
    }
}

/// The images that a change brings to a node or takes from it.
fn images(change: &Change) -> impl Iterator<Item = &String> {
    let versions = [node(&change.old), node(&change.new)];
    let same = matches!(versions, [Some(old), Some(new)] if old.status.images == new.status.images);
    let versions = versions.into_iter().flatten().filter(move |_| !same);
    versions.flat_map(|node| &node.status.images).flat_map(|image| &image.names)
}

fn is_of_pod(change: &Change) -> bool {
    matches!(change.new.as_ref().or(change.old.as_ref()), Some(Object::Pod(_)))
}

fn count(cluster: &Cluster, image: &str) -> usize {
    cluster.image(image).map_or(0, |image| image.nodes)
}

impl ImageSpread {
    /// Notes how often the images were there before a change.
    pub(super) fn before(&mut self, change: &Change, cluster: &Cluster) {
        for image in images(change) {
            if !self.counts.contains_key(image) {
                self.counts.insert(image.clone(), VecDeque::from([(0, count(cluster, image))]));
            }
        }
    }

    /// Notes a change of this number, and how often the images are there after it.
    pub(super) fn after(&mut self, change: &Change, number: Number, cluster: &Cluster) {
        for image in images(change) {
            let now = count(cluster, image);
            if let Some(counts) = self.counts.get_mut(image)
                && counts.back().is_none_or(|(_, before)| *before != now)
            {
                counts.push_back((number + 1, now));
            }
        }
        if let Some(node) = change.node() {
            let touch = Touch { number, version: change.version, by_pod: is_of_pod(change) };
            match self.touches.get_mut(node) {
                Some(touches) => touches.push_back(touch),
                None => drop(self.touches.insert(Arc::from(node), VecDeque::from([touch]))),
            }
        }
    }

    /// Forgets a change that is not kept any longer; the first one that is kept has this number.
    pub(super) fn forget(&mut self, change: &Change, first: Number) {
        for image in images(change) {
            let Some(counts) = self.counts.get_mut(image) else { continue };
            while counts.get(1).is_some_and(|(from, _)| *from <= first) {
                counts.pop_front();
            }
            if counts.len() == 1 {
                self.counts.remove(image);
            }
        }
        let Some(node) = change.node() else { return };
        if let Some(touches) = self.touches.get_mut(node) {
            touches.retain(|touch| touch.by_pod != is_of_pod(change) || touch.number >= first);
            if touches.is_empty() {
                self.touches.remove(node);
            }
        }
    }

    /// The least and the highest count that an image had between two positions of the nodes; none when it never
    /// changed.
    fn between(&self, image: &str, positions: RangeInclusive<Number>) -> Option<(usize, usize)> {
        let counts = self.counts.get(image)?;
        let first = counts.partition_point(|(from, _)| from <= positions.start()).saturating_sub(1);
        let seen = counts.range(first..).take_while(|(from, _)| from <= positions.end()).map(|(_, count)| *count);
        Some((seen.clone().min()?, seen.max()?))
    }
}

impl Timeline {
    /// The positions of the nodes at which kube-scheduler may have copied a node last, when it decides in this state:
    /// from the last change on the node until the next decision, which is the present one if there was none between.
    fn copied(&self, node: &str) -> RangeInclusive<Number> {
        let (pods, nodes) = (self.pods().position(), self.nodes().position());
        let known = |touch: &&Touch| touch.number < if touch.by_pod { pods } else { nodes };
        let touches = self.images().touches.get(node);
        let touched = touches.and_then(|touches| touches.iter().rev().find(known)).map(|touch| touch.version);
        // A pod that was placed out of turn was placed after it could be tried.
        let early = self.early().filter(|(pod, _)| pod.is_assigned() && pod.spec.node_name == node);
        if let Some(since) = early.map(|(_, turn)| turn.since).max() {
            let version = self.version(since.saturating_sub(1)).max(touched.unwrap_or_default());
            return self.nodes().first_from(version).min(nodes)..=nodes;
        }
        let Some(touched) = touched else { return self.nodes().first()..=self.nodes().first() };
        let after = self.pods().first_from(touched + 1);
        // A pod that came after the change was decided after it.
        let next = (after..pods)
            .filter_map(|number| self.pods().change(number))
            .find(|change| change.act().is_some_and(|(_, turn)| turn.since > after));
        let until = next.map_or(nodes, |change| self.nodes().first_from(change.version)).min(nodes);
        self.nodes().first_from(touched + 1).min(until)..=until
    }

    /// The least and the highest number of nodes with an image that kube-scheduler may count for a node in this state;
    /// none for an image that has not come or gone on any node.
    pub(super) fn image_counts(&self, node: &str, image: &str) -> Option<(usize, usize)> {
        self.images().counts.contains_key(image).then(|| self.images().between(image, self.copied(node)))?
    }
}
