//! Rolls back to an earlier revision when the `deprecated.deployment.rollback.to` annotation asks for it.

use std::sync::Arc;

use serde_json::Value;

use super::annotations::{self, ROLLBACK_TO};
use super::template::{self, POD_TEMPLATE_HASH};
use super::{Rollout, Sets};
use crate::controller::Requeue;
use crate::error::Error;
use crate::requests::{self, DEPLOYMENTS};
use crate::workload::ReplicaSet;

impl Rollout<'_> {
    /// The revision to roll back to, if one is requested; 0 means the previous one.
    pub(super) fn rollback_to(&self) -> Option<i64> {
        self.d.metadata.annotations.get(ROLLBACK_TO)?.parse().ok()
    }

    /// Makes an earlier revision's template the Deployment's own, and removes the request.
    pub(super) async fn rollback(&mut self, wanted: i64) -> Result<Requeue, Error> {
        let sets = self.sets(true).await?;
        let revision = if wanted == 0 { last_revision(&sets) } else { wanted };
        let target = sets.all().into_iter().find(|rs| annotations::revision(rs) == Some(revision));
        match target {
            _ if revision == 0 => self.not_found("Unable to find last revision."),
            None => self.not_found("Unable to find the revision to rollback to."),
            Some(rs) if template::same(&rs.spec.template, &self.d.spec.template) => {
                let name = &self.d.metadata.name;
                let note = format!("The rollback revision contains the same template as current deployment \"{name}\"");
                self.context.warning(self.regarding(), "DeploymentRollbackTemplateUnchanged", note);
            }
            Some(rs) => {
                self.restore(&rs);
                let note = format!("Rolled back deployment \"{}\" to revision {revision}", self.d.metadata.name);
                self.context.normal(self.regarding(), "DeploymentRollback", note);
            }
        }
        self.d.metadata.annotations.remove(ROLLBACK_TO);
        requests::update(self.context.api, &DEPLOYMENTS, &self.d.metadata, &self.d).await?;
        Ok(Requeue::OnChange)
    }

    fn not_found(&self, note: &str) {
        self.context.warning(self.regarding(), "DeploymentRollbackRevisionNotFound", note.into());
    }

    fn restore(&mut self, rs: &ReplicaSet) {
        let mut template = Value::clone(&rs.spec.template);
        if let Some(Value::Object(labels)) = template.pointer_mut("/metadata/labels") {
            labels.remove(POD_TEMPLATE_HASH);
        }
        self.d.spec.template = Arc::new(template);
        self.d.metadata.annotations.retain(|annotation, _| annotations::is_own(annotation));
        let copied = rs.metadata.annotations.iter().filter(|(annotation, _)| !annotations::is_own(annotation));
        self.d.metadata.annotations.extend(copied.map(|(annotation, value)| (annotation.clone(), value.clone())));
    }
}

/// The second highest revision, 0 when there is none.
fn last_revision(sets: &Sets) -> i64 {
    let mut revisions: Vec<i64> = sets.all().iter().filter_map(|rs| annotations::revision(rs)).collect();
    revisions.sort_unstable();
    revisions.iter().rev().nth(1).copied().unwrap_or(0)
}
