//! The status of a StatefulSet, and how it is written.

use std::borrow::Borrow;

use bayplan_model::status::{Status, reason};
use jiff::Timestamp;

use super::StatefulSetController;
use super::object::{StatefulSet, StatefulSetStatus};
use crate::controller::{Context, lock};
use crate::pod::{Phase, Pod};
use crate::requests::{self, STATEFUL_SETS};
use crate::revisions::REVISION_LABEL;

/// How often a status that meets a newer version is written: upstream's default retry.
const CONFLICT_ATTEMPTS: usize = 5;

/// The revision that a pod is of.
pub(super) fn revision_of(pod: &Pod) -> &str {
    pod.metadata.labels.get(REVISION_LABEL).map_or("", String::as_str)
}

/// Whether a pod runs and is ready.
pub(super) fn is_ready(pod: &Pod) -> bool {
    pod.phase == Phase::Running && pod.ready
}

impl StatefulSetStatus {
    /// Counts pods.
    pub(super) fn count<P: Borrow<Pod>>(&mut self, pods: impl Iterator<Item = P>, min_ready: i32, now: Timestamp) {
        let (mut all, mut ready, mut available, mut current, mut updated) = (0, 0, 0, 0, 0);
        for pod in pods {
            let pod = pod.borrow();
            all += 1;
            ready += i32::from(is_ready(pod));
            available += i32::from(is_ready(pod) && pod.is_available(min_ready, now));
            if pod.metadata.deletion_timestamp.is_none() {
                current += i32::from(revision_of(pod) == self.current_revision);
                updated += i32::from(revision_of(pod) == self.update_revision);
            }
        }
        (self.replicas, self.ready_replicas, self.available_replicas) = (all, ready, available);
        (self.current_replicas, self.updated_replicas) = (current, updated);
    }

    /// Ends an update in which all pods have arrived.
    fn complete(&mut self, set: &StatefulSet) {
        let wanted = set.spec.replicas;
        if set.rolls() && [self.updated_replicas, self.ready_replicas, self.replicas] == [wanted; 3] {
            self.current_replicas = self.updated_replicas;
            self.current_revision.clone_from(&self.update_revision);
        }
    }

    /// Whether it says anything that `known` does not. The number of collisions alone is no reason to write.
    fn is_news(&self, known: &StatefulSetStatus) -> bool {
        let told = |status: &StatefulSetStatus| StatefulSetStatus {
            observed_generation: 0,
            collision_count: None,
            ..status.clone()
        };
        self.observed_generation > known.observed_generation || told(self) != told(known)
    }
}

impl StatefulSetController {
    /// Completes the status and writes it if it changed. When somebody wrote the set meanwhile, the write is made again
    /// on the version that the cache has by then.
    pub(super) async fn write_status(
        &self,
        key: &str,
        set: &StatefulSet,
        status: &mut StatefulSetStatus,
        context: Context<'_>,
    ) -> Result<(), Status> {
        status.complete(set);
        if !status.is_news(&set.status) {
            return Ok(());
        }
        let mut onto = set.clone();
        for attempt in 1.. {
            let written = StatefulSet { status: status.clone(), ..onto };
            match requests::update_status(context.api, &STATEFUL_SETS, &set.metadata, &written).await {
                Ok(stored) => {
                    let (uid, version) = (&stored.metadata.uid, &stored.metadata.resource_version);
                    lock(&self.consistency).wrote_owner(key, uid, version);
                    break;
                }
                Err(status) if !status.is(reason::CONFLICT) || attempt == CONFLICT_ATTEMPTS => return Err(status),
                Err(status) => {
                    let (namespace, name) = (&set.metadata.namespace, &set.metadata.name);
                    let newest = self.cache.stateful_sets().get(namespace, name);
                    // Without a newer version the answer would be the same; the key is tried again soon.
                    let is_new = |newest: &&std::sync::Arc<StatefulSet>| {
                        newest.metadata.resource_version != written.metadata.resource_version
                    };
                    onto = (**newest.as_ref().filter(is_new).ok_or(status)?).clone();
                }
            }
        }
        Ok(())
    }
}
