//! What the cluster says about a write: the admission plugins, in upstream's order.
//!
//! ```text
//!   decoded, defaulted object ─▶ admit (may change it) ─▶ strategy, validation ─▶ validate (may only refuse) ─▶ store
//! ```

use std::collections::BTreeSet;

use bayplan_kinds::Kind;
use bayplan_kinds::admission::{add_default_tolerations, protect_in_use, taint_until_ready};
use bayplan_model::status::Status;
use serde_json::Value;

use crate::authz::Authorizer;
use crate::registry::SystemObjects;
use crate::status_errors;
use crate::user::User;
use crate::warnings::Warnings;
pub(crate) use metrics::AdmissionMetrics;
use metrics::{Step, StepTimer};

mod certificates;
mod ingress_class;
mod limit_ranger;
mod metrics;
mod namespace_lifecycle;
mod node_restriction;
mod owner_references;
mod pod_security;
mod priority;
mod resource_quota;
mod role_escalation;
mod runtime_class;
mod service_account;
mod storage;
mod topology_labels;

/// What a write does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// A new object, or a subresource that is created (binding, eviction).
    Create,
    /// A changed object.
    Update,
    /// A removal.
    Delete,
}

/// The write an admission plugin judges.
pub(crate) struct AdmissionContext<'a> {
    /// What it does.
    pub(crate) operation: Operation,
    /// To which resource.
    pub(crate) resource: &'static Kind,
    /// Through which subresource, empty for the object itself.
    pub(crate) subresource: &'a str,
    /// In which namespace, empty at cluster scope.
    pub(crate) namespace: &'a str,
    /// To which object; empty while a generated name is not yet known.
    pub(crate) name: &'a str,
    /// The name in the URL; empty in that of a collection.
    pub(crate) requested_name: &'a str,
    /// By whom.
    pub(crate) user: &'a User,
    /// Without consequences.
    pub(crate) dry_run: bool,
    /// What the client is warned of.
    pub(crate) warnings: &'a Warnings,
    /// The other objects.
    pub(crate) objects: &'a dyn SystemObjects,
    /// Where it is told how long the plugins took.
    pub(crate) metrics: Option<&'a AdmissionMetrics>,
    /// Who decides about rights beyond that to the write itself.
    pub(crate) authorizer: &'a Authorizer,
}

/// Which of the plugins that lean on a controller are on; the others always are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionPlugins {
    /// `ServiceAccount`: pods get an account and its token. Needs the controller that makes the accounts.
    pub service_account: bool,
    /// `TaintNodesByCondition`: nodes start unschedulable. Needs the node lifecycle controller.
    pub taint_nodes_by_condition: bool,
    /// `StorageObjectInUseProtection`: volumes and claims get finalizers. Needs the controllers that remove them.
    pub storage_object_in_use_protection: bool,
    /// `NodeRestriction`: kubelets change their own node and its pods alone. For real kubelets.
    pub node_restriction: bool,
    /// `PodSecurity`: namespaces choose by their labels what pods may do.
    pub pod_security: bool,
    /// `OwnerReferencesPermissionEnforcement`: owners are set by those alone who may delete. Off upstream, too.
    pub owner_references: bool,
}

impl Default for AdmissionPlugins {
    /// All that work with simulated nodes, which register as ready.
    fn default() -> Self {
        AdmissionPlugins {
            service_account: true,
            taint_nodes_by_condition: false,
            storage_object_in_use_protection: true,
            node_restriction: false,
            pod_security: true,
            owner_references: false,
        }
    }
}

impl AdmissionPlugins {
    /// The plugins that may change the object, before validation. A deletion has no object: give it `Null`.
    pub(crate) async fn admit(
        &self,
        context: &AdmissionContext<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let mut timer = StepTimer::start(context.metrics, Step::Admit, context.operation);
        let answer = self.ask_to_admit(context, object, old, &mut timer).await;
        timer.end(answer)
    }

    async fn ask_to_admit(
        &self,
        context: &AdmissionContext<'_>,
        object: &mut Value,
        old: Option<&Value>,
        timer: &mut StepTimer<'_>,
    ) -> Result<(), Status> {
        timer.answered("NamespaceLifecycle", namespace_lifecycle::admit(context, object).await)?;
        timer.answered("LimitRanger", limit_ranger::admit(context, object).await)?;
        if self.service_account {
            timer.answered("ServiceAccount", service_account::admit(context, object).await)?;
        }
        if self.node_restriction {
            timer.answered("NodeRestriction", node_restriction::admit(context, object, old).await)?;
        }
        if self.taint_nodes_by_condition && context.is_new("", "nodes") {
            taint_until_ready(object);
            timer.answered("TaintNodesByCondition", Ok(()))?;
        }
        timer.answered("Priority", priority::admit(context, object, old).await)?;
        if context.operation != Operation::Delete && context.is("", "pods") {
            add_default_tolerations(object);
            timer.answered("DefaultTolerationSeconds", Ok(()))?;
        }
        timer.answered("DefaultStorageClass", storage::admit_class(context, object).await)?;
        if self.storage_object_in_use_protection
            && context.operation == Operation::Create
            && context.subresource.is_empty()
        {
            protect_in_use(context.resource, object);
            timer.answered("StorageObjectInUseProtection", Ok(()))?;
        }
        timer.answered("RuntimeClass", runtime_class::admit(context, object).await)?;
        timer.answered("DefaultIngressClass", ingress_class::admit(context, object).await)?;
        timer.answered("PodTopologyLabels", topology_labels::admit(context, object).await)?;
        certificates::admit(context, object);
        // Part of storing roles and bindings upstream, not of admission: it has no series of its own.
        role_escalation::admit(context, object, old).await
    }

    /// The plugins that look at a `TokenRequest`.
    pub(crate) async fn admit_token(&self, context: &AdmissionContext<'_>, request: &Value) -> Result<(), Status> {
        if self.node_restriction { node_restriction::admit_token(context, request).await } else { Ok(()) }
    }

    /// The plugins that may only refuse, after validation. A deletion has no object: give it `Null`.
    pub(crate) async fn validate(
        &self,
        context: &AdmissionContext<'_>,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let mut timer = StepTimer::start(context.metrics, Step::Validate, context.operation);
        let answer = self.ask_to_validate(context, object, old, &mut timer).await;
        timer.end(answer)
    }

    async fn ask_to_validate(
        &self,
        context: &AdmissionContext<'_>,
        object: &Value,
        old: Option<&Value>,
        timer: &mut StepTimer<'_>,
    ) -> Result<(), Status> {
        timer.answered("LimitRanger", limit_ranger::validate(context, object).await)?;
        if self.pod_security {
            timer.answered("PodSecurity", pod_security::validate(context, object, old).await)?;
        }
        if self.owner_references {
            let answer = owner_references::validate(context, object, old);
            timer.answered("OwnerReferencesPermissionEnforcement", answer)?;
        }
        ask_others_to_validate(context, object, old, timer).await
    }
}

/// Those that cannot be switched off.
async fn ask_others_to_validate(
    context: &AdmissionContext<'_>,
    object: &Value,
    old: Option<&Value>,
    timer: &mut StepTimer<'_>,
) -> Result<(), Status> {
    timer.answered("Priority", priority::validate(context, object).await)?;
    timer.answered("PersistentVolumeClaimResize", storage::validate_resize(context, object, old).await)?;
    timer.answered("RuntimeClass", runtime_class::validate(context, object).await)?;
    if let Some(plugin) = certificates::plugin(context) {
        timer.answered(plugin, certificates::validate(context, object, old))?;
    }
    timer.answered("ResourceQuota", resource_quota::validate(context, object, old).await)
}

impl AdmissionContext<'_> {
    /// Whether the write is to this core resource itself, not to one of its subresources.
    fn is(&self, group: &str, plural: &str) -> bool {
        self.subresource.is_empty() && self.resource.group == group && self.resource.plural == plural
    }

    fn is_new(&self, group: &str, plural: &str) -> bool {
        self.operation == Operation::Create && self.is(group, plural)
    }

    /// Whether the write changes what the containers of a pod ask for.
    fn resizes(&self) -> bool {
        self.is_of_pods("resize")
    }

    fn is_of_pods(&self, subresource: &str) -> bool {
        self.resource.group.is_empty() && self.resource.plural == "pods" && self.subresource == subresource
    }

    /// The 403 that refuses the write. A name that is yet to be generated is shown by its prefix.
    fn refuse(&self, object: &Value, why: impl std::fmt::Display) -> Status {
        let given = |pointer| text(object, pointer);
        let name = [self.name, given("/metadata/name"), given("/metadata/generateName"), "Unknown"]
            .into_iter()
            .find(|name| !name.is_empty())
            .unwrap_or_default();
        status_errors::forbidden(self.resource, name, why)
    }
}

/// A resource admission reads.
fn row(group: &str, plural: &str) -> Result<&'static Kind, Status> {
    bayplan_kinds::find(group, "v1", plural)
        .ok_or_else(|| status_errors::internal(format!("{plural} are needed for admission, but not served")))
}

/// The text at a JSON pointer, empty when there is none.
fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The elements of the list at a JSON pointer.
fn list<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// The list `object[key]`, made when it is missing; `None` when `object` is no object or the field no list.
fn list_mut<'a>(object: &'a mut Value, key: &str) -> Option<&'a mut Vec<Value>> {
    let field = object.as_object_mut()?.entry(key).or_insert(Value::Null);
    if field.is_null() {
        *field = Value::Array(Vec::new());
    }
    field.as_array_mut()
}

/// The elements of the list `object[key]`, if it is there; indexing for writing would leave a null behind.
fn elements_mut<'a>(object: &'a mut Value, key: &str) -> impl Iterator<Item = &'a mut Value> {
    object.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten()
}

/// The map `object[key]`, made when it is missing; `None` when `object` is no object or the field no map.
fn map_mut<'a>(object: &'a mut Value, key: &str) -> Option<&'a mut serde_json::Map<String, Value>> {
    let field = object.as_object_mut()?.entry(key).or_insert(Value::Null);
    if field.is_null() {
        *field = Value::Object(serde_json::Map::new());
    }
    field.as_object_mut()
}

/// Several errors as upstream prints an aggregate: without repetitions, in brackets when more than one remains.
fn aggregate(errors: &[String]) -> Option<String> {
    let mut seen = BTreeSet::new();
    let mut distinct: Vec<&String> = errors.iter().filter(|error| seen.insert(*error)).collect();
    match distinct.len() {
        0 => None,
        1 => distinct.pop().cloned(),
        _ => Some(format!("[{}]", distinct.iter().map(|error| error.as_str()).collect::<Vec<_>>().join(", "))),
    }
}

#[cfg(test)]
mod tests;
