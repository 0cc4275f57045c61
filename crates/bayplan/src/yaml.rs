//! JSON values as YAML, in the form Kubernetes' own tools write.

use std::fmt::Write;

use serde_json::{Map, Value};

/// A document: keys sorted, lists at the indentation of their key.
pub(crate) fn write(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => write_map(&mut out, map, 0, false),
        Value::Array(list) if !list.is_empty() => write_list(&mut out, list, 0),
        other => _ = writeln!(out, "{}", scalar(other)),
    }
    out
}

fn write_map(out: &mut String, map: &Map<String, Value>, indent: usize, after_dash: bool) {
    for (at, (key, value)) in map.iter().enumerate() {
        let indent_here = if at == 0 && after_dash { 0 } else { indent };
        let _ = write!(out, "{:indent_here$}{}:", "", text(key));
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                out.push('\n');
                write_map(out, inner, indent + 2, false);
            }
            Value::Array(list) if !list.is_empty() => {
                out.push('\n');
                write_list(out, list, indent);
            }
            other => _ = writeln!(out, " {}", scalar(other)),
        }
    }
}

fn write_list(out: &mut String, list: &[Value], indent: usize) {
    for value in list {
        let _ = write!(out, "{:indent$}- ", "");
        match value {
            Value::Object(inner) if !inner.is_empty() => write_map(out, inner, indent + 2, true),
            // A list in a list begins on the line of its dash.
            Value::Array(inner) if !inner.is_empty() => {
                let mut nested = String::new();
                write_list(&mut nested, inner, indent + 2);
                out.push_str(nested.trim_start());
            }
            other => _ = writeln!(out, "{}", scalar(other)),
        }
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(string) => text(string),
        Value::Object(_) => "{}".into(),
        Value::Array(_) => "[]".into(),
        other => other.to_string(),
    }
}

/// A string, quoted when it would be read as something else.
fn text(string: &str) -> String {
    let word = |c: char| c.is_ascii_alphanumeric() || "-_./@+ ".contains(c);
    let is_word = ["true", "false", "null", "yes", "no", "on", "off", "y", "n", "~", ""];
    let means_else = is_word.contains(&string.to_lowercase().as_str()) || string.parse::<f64>().is_ok();
    let is_name = string.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '_')
        && !string.ends_with(' ')
        && string.chars().all(word);
    let is_duration = string.ends_with('s') && string.chars().all(|c| c.is_ascii_digit() || "hmsuµn.".contains(c));
    if means_else || string.contains(char::is_control) {
        Value::from(string).to_string()
    } else if is_name || is_duration {
        string.to_owned()
    } else {
        format!("'{}'", string.replace('\'', "''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn documents_look_as_kubernetes_tools_write_them() {
        let value = json!({
            "b": {"empty": {}, "list": [{"name": "x", "weight": 0}, {"name": "y", "deep": {"a": [1, 2]}}]},
            "a": "", "c": "true", "d": "10m0s", "e": "12", "f": "application/json", "g": [], "h": "*", "i": [[1], "z"],
        });
        assert_eq!(
            write(&value),
            "a: \"\"\nb:\n  empty: {}\n  list:\n  - name: x\n    weight: 0\n  - deep:\n      a:\n      - 1\n      - 2\n\
             \x20   name: \"y\"\nc: \"true\"\nd: 10m0s\ne: \"12\"\nf: application/json\ng: []\nh: '*'\ni:\n- - 1\n- z\n"
        );
    }
}
