//! Pods that no Job will count any more: their finalizer is removed, so that they can go.

use bayplan_model::api::Api;
use bayplan_model::label_selector::Selector;
use bayplan_model::status::Status;

use super::JobController;
use super::object::BATCH_V1;
use super::release::{IfUnchanged, remove_finalizer};
use super::tally::has_finalizer;
use crate::controller::{Context, Requeue};
use crate::error::{Error, not_found};
use crate::pod::Pod;

impl JobController {
    /// Frees one pod, if it is still an orphan.
    pub(super) async fn free_pod(&self, namespace: &str, name: &str, context: Context<'_>) -> Result<Requeue, Error> {
        let pod = self.cache.pods().get(namespace, name);
        if let Some(pod) = pod {
            self.free(&pod, context.api).await?;
        }
        Ok(Requeue::OnChange)
    }

    /// Frees the pods that a Job selected which is finished or gone.
    pub(super) async fn free_selected(
        &self,
        namespace: &str,
        selector: &str,
        context: Context<'_>,
    ) -> Result<Requeue, Error> {
        let selector = Selector::parse(selector).map_err(|error| Error::Invalid(error.to_string()))?;
        let pods: Vec<_> = {
            let pods = self.cache.pods();
            pods.namespace(namespace)
                .filter(|pod| has_finalizer(pod) && selector.matches(&pod.metadata.labels))
                .cloned()
                .collect()
        };
        let mut refused = None;
        for pod in pods {
            if let Err(status) = self.free(&pod, context.api).await {
                refused = Some(status);
            }
        }
        refused.map_or(Ok(Requeue::OnChange), |status| Err(Error::Api(status)))
    }

    async fn free(&self, pod: &Pod, api: &dyn Api) -> Result<(), Status> {
        if !has_finalizer(pod) || !self.is_nobodys(pod) {
            return Ok(());
        }
        match remove_finalizer(api, &pod.metadata, IfUnchanged::No).await {
            Err(status) if !not_found(&status) => Err(status),
            _ => Ok(()),
        }
    }

    /// Whether no Job will count the pod: it has no controller, or a Job that is gone or finished.
    fn is_nobodys(&self, pod: &Pod) -> bool {
        let Some(owner) = pod.metadata.controller() else { return true };
        if owner.kind != "Job" || owner.api_version != BATCH_V1 {
            return false;
        }
        self.resolve(&pod.metadata.namespace, owner).is_none_or(|job| job.is_finished() && !job.is_managed_elsewhere())
    }
}
