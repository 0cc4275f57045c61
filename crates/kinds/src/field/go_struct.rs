//! Objects as some messages show them: with the names, the order and the empty fields of Go's structs.

use serde_json::Value;

/// A field of a Go struct: its name in JSON, its name in Go, and what is shown when it is not given.
pub(crate) type GoField = (&'static str, &'static str, &'static str);

/// Shows an object as Go does; `nested` shows the fields that are structs themselves.
pub(crate) fn go_struct(object: &Value, fields: &[GoField], nested: impl Fn(&str, &Value) -> Option<String>) -> String {
    if object.is_null() {
        return "null".to_owned();
    }
    let shown: Vec<String> = fields
        .iter()
        .map(|(field, name, unset)| {
            let value = match &object[*field] {
                Value::Null => (*unset).to_owned(),
                value => nested(field, value).unwrap_or_else(|| value.to_string()),
            };
            format!("{name:?}:{value}")
        })
        .collect();
    format!("{{{}}}", shown.join(","))
}

/// Shows each element of a list.
pub(crate) fn go_list(list: &Value, element: impl Fn(&Value) -> String) -> String {
    let shown: Vec<String> = list.as_array().into_iter().flatten().map(element).collect();
    format!("[{}]", shown.join(","))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn empty_fields_are_shown_in_gos_order() {
        let fields: &[GoField] = &[("name", "Name", "\"\""), ("keys", "Keys", "null"), ("inner", "Inner", "null")];
        let inner = |field: &str, value: &Value| (field == "inner").then(|| go_list(value, |one| format!("<{one}>")));
        let shown = |object: Value| go_struct(&object, fields, inner);
        assert_eq!(shown(json!({"keys": ["b"], "name": "a"})), r#"{"Name":"a","Keys":["b"],"Inner":null}"#);
        assert_eq!(shown(json!({"inner": [1, 2]})), r#"{"Name":"","Keys":null,"Inner":[<1>,<2>]}"#);
        assert_eq!(shown(Value::Null), "null");
    }
}
