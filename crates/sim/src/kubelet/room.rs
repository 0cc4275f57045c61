//! What a node has room for: pods that come, and pods that ask for something else than they have.

use std::sync::Arc;

use jiff::Timestamp;

use super::{Kubelet, Outbox, Timer};
use crate::admission::rejection;
use crate::pod::{Admission, Pod};
use crate::resize::same_resources;

impl Kubelet {
    /// Decides whether the node admits a pod, if that is open; false while it cannot be decided.
    pub(super) fn admit(&mut self, uid: &Arc<str>) -> bool {
        let Some(pod) = self.pods.get(uid).filter(|pod| pod.admission == Admission::Open && !pod.stopping) else {
            return true;
        };
        let Some(node) = &self.admits_by else { return false };
        let others = self.pods.values().filter(|other| other.counts()).map(Pod::allocated);
        let rejection = rejection(&pod.view, others, node);
        if let Some(pod) = self.pods.get_mut(uid) {
            match rejection {
                Some(rejection) => pod.reject(rejection),
                None => pod.admission = Admission::Admitted,
            }
        }
        true
    }

    /// Looks at what was deferred again, the oldest first: something on the node may have been set free.
    pub(super) fn resize_deferred(&mut self, now: Timestamp, out: &mut Outbox) {
        let since = |uid: &Arc<str>| {
            let resize = self.pods.get(uid)?.resize.as_deref()?;
            Some((resize.deferred.as_ref()?.since, Arc::clone(uid)))
        };
        let mut waiting: Vec<_> = self.deferred.iter().filter_map(since).collect();
        waiting.sort();
        for (_, uid) in waiting {
            if self.resize_pod(&uid, now, out) {
                self.advance_pod(&uid, now, out);
            }
        }
    }

    /// Decides about a change of a pod's resources, if there is one; whether its status has changed.
    pub(super) fn resize_pod(&mut self, uid: &Arc<str>, now: Timestamp, out: &mut Outbox) -> bool {
        self.deferred.remove(uid);
        let Some(pod) = self.pods.get(uid).filter(|pod| pod.counts() && !pod.stopping) else { return false };
        let (Some(resize), Some(node)) = (&pod.resize, &self.admits_by) else { return false };
        let is_asked = !same_resources(&pod.view.spec, &resize.allocated.spec);
        let others = self.pods.iter().filter(|(other, pod)| *other != uid && pod.counts());
        let others = others.map(|(_, pod)| pod.allocated());
        let rejection = if is_asked { rejection(&pod.view, others, node) } else { None };
        let Some(pod) = self.pods.get_mut(uid) else { return false };
        let Some(resize) = &mut pod.resize else { return false };
        match rejection {
            None if is_asked => {
                let moment = resize.allocate(&pod.view, now);
                pod.moments.push(moment);
                let ends_at = resize.progress.as_ref().map_or(now, |progress| progress.ends_at);
                out.timers.push((ends_at, self.identity.id, Timer::Pod(Arc::clone(uid))));
            }
            // It asks for what it has again.
            None if resize.deferred.take().is_none() => return false,
            None => {}
            Some(why) => {
                self.deferred.insert(Arc::clone(uid));
                let Some(moment) = resize.defer(&pod.view, why, now) else { return false };
                pod.moments.push(moment);
            }
        }
        pod.mark_changed();
        true
    }
}
