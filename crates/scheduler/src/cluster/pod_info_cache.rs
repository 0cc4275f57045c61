//! Shares what is computed from a pod between all pods of one template.

use std::sync::Arc;

use bayplan_model::pod::Pod;
use rustc_hash::FxHashMap;

use super::PodInfo;
use super::signature::same_except_node;

/// The most templates that are cached; beyond it the cache is cleared.
const TEMPLATES_MAX: usize = 1 << 12;

/// One recent pod of each template.
#[derive(Default)]
pub(crate) struct PodInfoCache {
    by_hash: FxHashMap<u64, Arc<PodInfo>>,
}

impl PodInfoCache {
    /// Computes what plugins read of a pod, or takes it from another pod of the same template.
    pub(crate) fn info(&mut self, pod: Arc<Pod>) -> Arc<PodInfo> {
        let signature_hash = super::SignatureHash::of(&pod);
        let hash = signature_hash.base;
        if let Some(cached) = self.by_hash.get(&hash)
            && same_except_node(&pod, &cached.pod)
        {
            return Arc::new(PodInfo { pod, signature_hash, ..PodInfo::clone(cached) });
        }
        let info = Arc::new(PodInfo::new(pod));
        if self.by_hash.len() >= TEMPLATES_MAX {
            self.by_hash.clear();
        }
        self.by_hash.insert(hash, Arc::clone(&info));
        info
    }
}
