//! ClusterRoles whose rules are those of other ClusterRoles, chosen by labels: `admin`, `edit` and `view` among them.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use bayplan_model::api::PatchKind;
use bayplan_model::label_selector::{LabelSelector, Selector};
use bayplan_model::meta::{HasMeta, ObjectMeta};
use futures::future::BoxFuture;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;

use crate::cache::{AnyDelta, Cache, Kind};
use crate::controller::{Context, Controller, Requeue, Wakeup};
use crate::error::{Error, not_found};
use crate::requests::{self, CLUSTER_ROLES};

/// A ClusterRole as the controller reads it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterRole {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// Whose rules it has; its own are written by its user when absent.
    pub aggregation_rule: Option<AggregationRule>,
    /// What it allows.
    #[serde(deserialize_with = "null_is_empty")]
    pub rules: Vec<PolicyRule>,
}

/// `ClusterRole.aggregationRule`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AggregationRule {
    /// The roles whose rules it has, one group after the other.
    #[serde(deserialize_with = "null_is_empty")]
    pub cluster_role_selectors: Vec<LabelSelector>,
}

/// One rule; an absent list means the same as an empty one.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyRule {
    /// The groups.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub api_groups: Vec<String>,
    /// Paths that are no resources.
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub non_resource_urls: Vec<String>,
    /// Only objects of these names.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub resource_names: Vec<String>,
    /// The resources.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub resources: Vec<String>,
    /// What may be done.
    #[serde(deserialize_with = "null_is_empty")]
    pub verbs: Vec<String>,
}

fn null_is_empty<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl HasMeta for ClusterRole {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

/// The controller of `aggregationRule`.
pub struct ClusterRoleAggregationController {
    cache: Arc<Cache>,
}

impl ClusterRoleAggregationController {
    /// A controller over this cache.
    pub fn new(cache: Arc<Cache>) -> Self {
        ClusterRoleAggregationController { cache }
    }

    async fn reconcile(&self, name: &str, context: Context<'_>) -> Result<Requeue, Error> {
        let role = self.cache.cluster_roles().get("", name);
        let Some((role, Some(rules))) = role.map(|role| (role.clone(), self.rules_of(&role))) else {
            return Ok(Requeue::OnChange);
        };
        let rules = rules?;
        if rules == role.rules {
            return Ok(Requeue::OnChange);
        }
        // Upstream applies them by force: what others write into them is written over in either way.
        let rules = if rules.is_empty() { json!(null) } else { json!(rules) };
        let patch = json!({"rules": rules});
        match requests::patch(context.api, &CLUSTER_ROLES, &role.metadata, PatchKind::Merge, &patch).await {
            Err(status) if not_found(&status) => Ok(Requeue::OnChange),
            answer => answer.map(|_| Requeue::OnChange).map_err(Error::from),
        }
    }

    /// The rules of the roles that an aggregating role selects: each once, in the order of selectors and of names.
    fn rules_of(&self, role: &ClusterRole) -> Option<Result<Vec<PolicyRule>, Error>> {
        let selectors = &role.aggregation_rule.as_ref()?.cluster_role_selectors;
        let selectors: Result<Vec<Selector>, _> = selectors.iter().map(LabelSelector::selector).collect();
        let selectors = match selectors {
            Ok(selectors) => selectors,
            Err(error) => return Some(Err(Error::Invalid(error.to_string()))),
        };
        let (mut rules, mut known) = (Vec::new(), BTreeSet::new());
        let roles = self.cache.cluster_roles();
        for selector in &selectors {
            let others = roles.all().filter(|other| other.metadata.name != role.metadata.name);
            for other in others.filter(|other| selector.matches(&other.metadata.labels)) {
                rules.extend(other.rules.iter().filter(|rule| known.insert(*rule)).cloned());
            }
        }
        Some(Ok(rules))
    }
}

impl Controller for ClusterRoleAggregationController {
    fn name(&self) -> &'static str {
        "clusterrole-aggregation-controller"
    }

    fn watches(&self) -> &'static [Kind] {
        &[Kind::ClusterRole]
    }

    fn observe(&self, delta: &AnyDelta) -> Vec<Wakeup> {
        let AnyDelta::ClusterRole(_) = delta else { return Vec::new() };
        let roles = self.cache.cluster_roles();
        let aggregating = roles.all().filter(|role| role.aggregation_rule.is_some());
        aggregating.map(|role| Wakeup::now(role.metadata.name.clone())).collect()
    }

    fn sync<'a>(&'a self, key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Requeue, Error>> {
        Box::pin(self.reconcile(key, context))
    }
}
