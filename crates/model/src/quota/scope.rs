//! Which objects a quota speaks of.

use serde::Deserialize;
use serde_json::Value;

/// One requirement on the objects of a quota; all of a quota's must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Scope {
    /// What is looked at: `Terminating`, `PriorityClass`.
    pub scope_name: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// What it is compared with.
    pub values: Vec<String>,
}

impl Scope {
    /// Whether a thing of this name meets the requirement; without a name, there is no such thing.
    pub(super) fn accepts(&self, name: Option<&str>) -> bool {
        let named = || name.is_some_and(|name| self.values.iter().any(|value| value == name));
        match self.operator.as_str() {
            "In" => named(),
            "NotIn" => !named(),
            "Exists" => name.is_some(),
            "DoesNotExist" => name.is_none(),
            _ => false,
        }
    }
}

/// The scopes of a quota's spec: those of `scopes` mean that the thing exists.
pub fn scopes(spec: &Value) -> Vec<Scope> {
    let plain = spec["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let plain = plain.map(|name| Scope { scope_name: name.into(), operator: "Exists".into(), values: Vec::new() });
    let selected = spec["scopeSelector"]["matchExpressions"].as_array().into_iter().flatten();
    // One that cannot be read accepts nothing.
    plain.chain(selected.map(|term| Scope::deserialize(term).unwrap_or_default())).collect()
}
