//! The requests of a pod, as the filter, the scorers and the node compute them.

use bayplan_model::pod::Pod;
use bayplan_model::resources::{Amounts, PodUsage, RequestRules, ResourceList, limits};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Outcome;
use crate::difference::compare;

pub(super) fn check(case: &Value) -> Outcome {
    let pod = Pod::deserialize(&case["pod"])?;
    let plain = RequestRules::default();
    let with_status = RequestRules { with_status: true, ..RequestRules::default() };
    let scoring = RequestRules { defaults: RequestRules::scoring_defaults(), ..with_status.clone() };
    let usage = PodUsage::of(&pod);
    let mut node_info = amounts(&usage.requested);
    node_info["nonZeroMilliCPU"] = usage.non_zero_milli_cpu.into();
    node_info["nonZeroMemory"] = usage.non_zero_memory.into();
    let mut answer = Map::new();
    for (name, list) in [
        ("requests", plain.requests(&pod)),
        ("requestsWithStatus", with_status.requests(&pod)),
        ("requestsForScoring", scoring.requests(&pod)),
        ("limits", limits(&pod)),
    ] {
        if !list.is_empty() || case["expected"].get(name).is_some() {
            answer.insert(name.into(), quantities(&list));
        }
    }
    answer.insert("fit".into(), amounts(&Amounts::of(&plain.requests(&pod))));
    answer.insert("nodeInfo".into(), node_info);
    Ok(compare(&case["expected"], &Value::Object(answer))?)
}

fn quantities(list: &ResourceList) -> Value {
    list.iter().map(|(name, quantity)| (name.clone(), Value::from(quantity.to_string()))).collect::<Map<_, _>>().into()
}

fn amounts(amounts: &Amounts) -> Value {
    let mut answer = json!({
        "milliCPU": amounts.milli_cpu,
        "memory": amounts.memory,
        "ephemeralStorage": amounts.ephemeral_storage,
    });
    if !amounts.scalars.is_empty() {
        let scalars = amounts.scalars.iter().map(|(name, amount)| (name.to_string(), Value::from(*amount)));
        answer["scalarResources"] = Value::Object(scalars.collect());
    }
    answer
}
