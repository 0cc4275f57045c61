//! Priority: a pod's class becomes its priority; there is one default class.

use bayplan_kinds::admission::priority;
use bayplan_model::status::Status;
use serde_json::Value;

use super::{AdmissionContext, Operation, row, text};

const GROUP: &str = "scheduling.k8s.io";
const SYSTEM_CLASSES: [&str; 2] = ["system-cluster-critical", "system-node-critical"];

pub(super) async fn admit(context: &AdmissionContext<'_>, pod: &mut Value, old: Option<&Value>) -> Result<(), Status> {
    if !context.is("", "pods") {
        return Ok(());
    }
    match context.operation {
        Operation::Create => set_priority(context, pod).await,
        Operation::Update => {
            if let Some(old) = old {
                priority::keep_priority(pod, old);
            }
            Ok(())
        }
        Operation::Delete => Ok(()),
    }
}

async fn set_priority(context: &AdmissionContext<'_>, pod: &mut Value) -> Result<(), Status> {
    let classes = row(GROUP, "priorityclasses")?;
    let name = text(pod, "/spec/priorityClassName").to_owned();
    let class = if name.is_empty() {
        default_class(context).await?
    } else {
        let class = context.objects.get(classes, "", &name).await?;
        let missing = || context.refuse(pod, format!("no PriorityClass with name {name} was found"));
        Some(Value::clone(&*class.ok_or_else(missing)?))
    };
    priority::set_priority(pod, class.as_ref()).map_err(|why| context.refuse(pod, why))
}

/// The class of pods that name none: the lowest of those marked as default.
async fn default_class(context: &AdmissionContext<'_>) -> Result<Option<Value>, Status> {
    let classes = context.objects.list(row(GROUP, "priorityclasses")?, "").await?;
    let defaults = classes.iter().filter(|class| class["globalDefault"] == true);
    Ok(defaults.min_by_key(|class| class["value"].as_i64()).map(|class| Value::clone(class)))
}

pub(super) async fn validate(context: &AdmissionContext<'_>, class: &Value) -> Result<(), Status> {
    if !context.is(GROUP, "priorityclasses") {
        return Ok(());
    }
    if context.operation == Operation::Delete {
        return if SYSTEM_CLASSES.contains(&context.name) {
            Err(context.refuse(class, "this is a system priority class and cannot be deleted"))
        } else {
            Ok(())
        };
    }
    if class["globalDefault"] != true {
        return Ok(());
    }
    match default_class(context).await? {
        Some(other) if text(&other, "/metadata/name") != text(class, "/metadata/name") => {
            let name = text(&other, "/metadata/name");
            let why = format!("PriorityClass {name} is already marked as default. Only one default can exist");
            Err(context.refuse(class, why))
        }
        _ => Ok(()),
    }
}
