//! What was computed from one pod of a template, shared with the others.

use std::sync::Arc;

use bayplan_model::pod::Pod;
use rustc_hash::FxHashMap;

use super::PodInfo;
use super::shape::same_but_for_the_node;

/// Templates that are remembered; beyond that all are forgotten and learnt anew.
const TEMPLATES_MAX: usize = 1 << 12;

/// One pod of each template that was seen lately.
#[derive(Default)]
pub(crate) struct Templates {
    by_hash: FxHashMap<u64, Arc<PodInfo>>,
}

impl Templates {
    /// Computes what plugins need of a pod, or takes it from another pod of the same template.
    pub(crate) fn info(&mut self, pod: Arc<Pod>) -> Arc<PodInfo> {
        let shape_hash = super::ShapeHash::of(&pod);
        let hash = shape_hash.base;
        if let Some(known) = self.by_hash.get(&hash)
            && same_but_for_the_node(&pod, &known.pod)
        {
            return Arc::new(PodInfo { pod, shape_hash, ..PodInfo::clone(known) });
        }
        let info = Arc::new(PodInfo::new(pod));
        if self.by_hash.len() >= TEMPLATES_MAX {
            self.by_hash.clear();
        }
        self.by_hash.insert(hash, Arc::clone(&info));
        info
    }
}
