//! The text that upstream hashes: a template as Go's memory holds it, types included.

use serde_json::Value;

use super::layout::{INLINE, fields};
use super::quantity;

const TEMPLATE: &str = "v1.PodTemplateSpec";

/// The zero time: what a template's metadata has. A template with a time of its own would show the time zone of the
/// machine that hashes it, so no value is upstream's for it.
const ZERO_TIME: &str = "{Time:(time.Time){wall:(uint64)0 ext:(int64)0 loc:(*time.Location)<nil>}}";

/// The dump of a template.
pub(super) fn dump(template: &Value) -> String {
    let mut out = format!("({TEMPLATE})");
    structure(&mut out, TEMPLATE, Some(template));
    out
}

/// A value without its type. Absent and empty lists and maps are the same.
fn value(out: &mut String, go_type: &str, kind: &str, found: Option<&Value>) {
    let present = found.filter(|value| !value.is_null());
    if let Some(kind) = kind.strip_prefix('*') {
        match present {
            Some(_) => value(out, go_type.trim_start_matches('*'), kind, present),
            None => out.push_str("<nil>"),
        }
    } else if let Some(kind) = kind.strip_prefix("[]") {
        list(out, go_type.strip_prefix("[]").unwrap_or(go_type), kind, present);
    } else if let Some(kind) = kind.strip_prefix("map[string]") {
        map(out, kind, present);
    } else if kind == "struct" {
        structure(out, go_type, present);
    } else {
        plain(out, kind, present);
    }
}

fn list(out: &mut String, go_type: &str, kind: &str, present: Option<&Value>) {
    let Some(items) = present.and_then(Value::as_array).filter(|items| !items.is_empty()) else {
        return out.push_str("<nil>");
    };
    out.push('[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(' ');
        }
        value(out, go_type, kind, Some(item));
    }
    out.push(']');
}

/// Maps are of strings or of quantities.
fn map(out: &mut String, kind: &str, present: Option<&Value>) {
    let Some(entries) = present.and_then(Value::as_object).filter(|entries| !entries.is_empty()) else {
        return out.push_str("<nil>");
    };
    let mut entries: Vec<_> = entries.iter().collect();
    entries.sort_unstable_by_key(|(key, _)| *key);
    out.push_str("map[");
    for (index, (key, entry)) in entries.into_iter().enumerate() {
        if index > 0 {
            out.push(' ');
        }
        out.push_str(key);
        out.push(':');
        value(out, "resource.Quantity", kind, Some(entry));
    }
    out.push(']');
}

fn structure(out: &mut String, go_type: &str, present: Option<&Value>) {
    match go_type {
        "v1.Time" => return out.push_str(ZERO_TIME),
        "resource.Quantity" => return quantity::dump(out, &text(present)),
        "intstr.IntOrString" => return int_or_string(out, present),
        _ => {}
    }
    out.push('{');
    for (index, field) in fields(go_type).iter().enumerate() {
        if index > 0 {
            out.push(' ');
        }
        out.push_str(field.name);
        out.push_str(":(");
        out.push_str(field.go_type);
        out.push(')');
        let inner = match field.json {
            INLINE => present,
            name => present.and_then(|object| object.get(name)),
        };
        value(out, field.go_type, field.kind, inner);
    }
    out.push('}');
}

fn int_or_string(out: &mut String, present: Option<&Value>) {
    let (tag, number, text) = match present {
        Some(Value::String(text)) => (1, 0, text.as_str()),
        Some(number) => (0, number.as_i64().unwrap_or(0), ""),
        None => (0, 0, ""),
    };
    out.push_str(&format!("{{Type:(intstr.Type){tag} IntVal:(int32){number} StrVal:(string){text}}}"));
}

fn plain(out: &mut String, kind: &str, present: Option<&Value>) {
    match kind {
        "string" => out.push_str(present.and_then(Value::as_str).unwrap_or("")),
        "bool" => out.push_str(if present.and_then(Value::as_bool).unwrap_or(false) { "true" } else { "false" }),
        _ => out.push_str(&present.and_then(Value::as_i64).unwrap_or(0).to_string()),
    }
}

/// A quantity as the server writes it. Clients may send numbers, servers answer strings.
fn text(present: Option<&Value>) -> String {
    match present {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    }
}
