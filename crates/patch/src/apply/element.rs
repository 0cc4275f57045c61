//! Path elements as FieldsV1 writes them: `f:name`, `k:{"name":"c"}`, `v:"text"`, `i:3`.

use std::fmt;

use bayplan_model::quoted::Quoted;
use bayplan_model::schema::Type;
use serde_json::{Map, Value};

use super::shape::Shape;

pub(crate) const FIELD: &str = "f:";
pub(crate) const KEY: &str = "k:";
const VALUE: &str = "v:";
const INDEX: &str = "i:";

/// The type whose name has a default, although it may be left out.
const NAMED_BY_DEFAULT: &str = "LocalObjectReference";

/// The element of a named field.
pub(crate) fn field(name: &str) -> String {
    format!("{FIELD}{name}")
}

/// The element of an item of a list that is owned by item; `keys` is empty for sets. The error is upstream's text.
pub(crate) fn of_item(item: &Value, element: &'static Type, keys: &[&'static str]) -> Result<String, String> {
    if keys.is_empty() {
        return match item {
            Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
            Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
            Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
            scalar => Ok(format!("{VALUE}{}", written(scalar))),
        };
    }
    let fields = match item {
        Value::Object(fields) => fields,
        Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    };
    let mut key = Map::new();
    for name in keys {
        if let Some(value) = fields.get(*name).cloned().or_else(|| default(element, name)) {
            key.insert((*name).to_owned(), value);
        }
    }
    if key.is_empty() {
        let names: Vec<String> = keys.iter().map(|name| format!("{name:?}")).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values \
             for any key fields)",
            names.join(" ")
        ));
    }
    Ok(format!("{KEY}{}", written(&Value::Object(key))))
}

/// What a key counts as that an item does not have: upstream's schema has a default for the fields that are always
/// written, and for the protocol of ports.
fn default(element: &'static Type, name: &str) -> Option<Value> {
    if name == "protocol" {
        return Some(Value::from("TCP"));
    }
    let definition = element.object()?;
    let field = definition.field(name)?;
    match field.ty {
        Type::String(_) if definition.short_name() == NAMED_BY_DEFAULT => Some(Value::from("")),
        _ if field.omit_empty || field.optional || field.omit_zero => None,
        Type::String(_) => Some(Value::from("")),
        Type::Int32 | Type::Int64 => Some(Value::from(0)),
        _ => None,
    }
}

/// A value as Go's encoder writes it: compact, fields in order, without characters that mean something in HTML.
fn written(value: &Value) -> String {
    let text = value.to_string();
    if !text.contains(['<', '>', '&']) {
        return text;
    }
    text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// The one spelling of an element that somebody sent: `Some(None)` for one of a kind to come, `None` for nonsense.
pub(crate) fn normalized(element: &str) -> Option<Option<String>> {
    let (kind, content) = element.split_at_checked(2)?;
    match kind {
        FIELD => Some(Some(element.to_owned())),
        VALUE => {
            let value: Value = serde_json::from_str(content).ok()?;
            Some(Some(format!("{VALUE}{}", written(&value))))
        }
        KEY => {
            let key: Map<String, Value> = serde_json::from_str(content).ok()?;
            Some(Some(format!("{KEY}{}", written(&Value::Object(key)))))
        }
        INDEX => content.parse::<i64>().ok().map(|index| Some(format!("{INDEX}{index}"))),
        _ => kind.ends_with(':').then_some(None),
    }
}

/// A path as messages show it: `.spec.containers[name="c"].image`.
pub(crate) struct Shown<'a>(pub(crate) &'a [String]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|element| show(element, f))
    }
}

fn show(element: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (kind, content) = element.split_at_checked(2).unwrap_or((element, ""));
    match kind {
        FIELD => write!(f, ".{content}"),
        INDEX => write!(f, "[{content}]"),
        VALUE => write!(f, "[={}]", Scalar(&serde_json::from_str(content).unwrap_or_default())),
        _ => {
            let key: Map<String, Value> = serde_json::from_str(content).unwrap_or_default();
            let fields: Vec<String> = key.iter().map(|(name, value)| format!("{name}={}", Scalar(value))).collect();
            write!(f, "[{}]", fields.join(","))
        }
    }
}

struct Scalar<'a>(&'a Value);

impl fmt::Display for Scalar<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::String(text) => write!(f, "{}", Quoted(text)),
            other => write!(f, "{other}"),
        }
    }
}

/// The shape of the items of a list.
pub(crate) fn item_shape(element: &'static Type) -> Shape {
    Shape::of(element, None)
}

#[cfg(test)]
mod tests {
    use bayplan_model::schema::Schema;
    use serde_json::json;

    use super::*;

    #[test]
    fn items_are_named_by_their_keys_and_defaults() {
        let spec = Schema::get().named("io.k8s.api.core.v1.Container").unwrap();
        let ports = spec.field("ports").unwrap();
        let of = |item: Value| of_item(&item, ports.ty.element().unwrap(), &ports.list_map_keys);
        assert_eq!(of(json!({"containerPort": 80})).unwrap(), r#"k:{"containerPort":80,"protocol":"TCP"}"#);
        assert_eq!(of(json!({"protocol": "UDP"})).unwrap(), r#"k:{"containerPort":0,"protocol":"UDP"}"#);
        assert!(of(json!(null)).unwrap_err().contains("null element"));
        assert_eq!(of_item(&json!("a<b"), &Type::String("string"), &[]).unwrap(), "v:\"a\\u003cb\"");
        assert!(of_item(&json!({}), &Type::String("string"), &[]).is_err());
    }

    #[test]
    fn paths_are_shown_as_upstream_shows_them() {
        let path: Vec<String> =
            ["f:spec", "k:{\"name\":\"c\",\"port\":8}", "v:\"a\\u003cb\"", "i:3"].map(str::to_owned).into();
        assert_eq!(Shown(&path).to_string(), ".spec[name=\"c\",port=8][=\"a<b\"][3]");
    }
}
