//! The fields that field selectors may name.

use serde_json::Value;

/// What a kind's objects can be selected by, beyond `metadata.name`.
#[derive(Debug)]
pub(crate) struct SelectableFields {
    pub(crate) names: &'static [&'static str],
    /// Whether `metadata.namespace` can be selected by too.
    pub(crate) by_namespace: bool,
    /// Translates older or alternative spellings of a field; returns any other label unchanged.
    pub(crate) canonical: fn(&str) -> &str,
    /// The value of a field, empty when unset.
    pub(crate) value: fn(&Value, &str) -> String,
    /// How a field is refused.
    pub(crate) refusal: fn(&str) -> String,
}

impl SelectableFields {
    pub(crate) const NONE: SelectableFields = SelectableFields {
        names: &[],
        by_namespace: true,
        canonical: |label| label,
        value: text_at,
        refusal: |label| format!("field label not supported: {label}"),
    };

    /// Fields that hold text.
    pub(crate) const fn texts(names: &'static [&'static str]) -> SelectableFields {
        SelectableFields { names, ..SelectableFields::NONE }
    }

    pub(crate) fn value_of(&self, object: &Value, field: &str) -> Option<String> {
        let known = matches!(field, "metadata.name" | "metadata.namespace") || self.names.contains(&field);
        known.then(|| (self.value)(object, field))
    }

    pub(crate) fn of_label<'l>(&self, label: &'l str) -> Result<&'l str, String> {
        if label == "metadata.name" || (label == "metadata.namespace" && self.by_namespace) {
            return Ok(label);
        }
        let canonical = (self.canonical)(label);
        if self.names.contains(&canonical) {
            return Ok(canonical);
        }
        // Upstream words the refusal differently for kinds without selectable fields of their own.
        if self.names.is_empty() {
            Err(format!("{label:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""))
        } else {
            Err((self.refusal)(label))
        }
    }
}

/// The text at a dotted path, empty when there is none.
pub(crate) fn text_at(object: &Value, field: &str) -> String {
    let found = field.split('.').fold(object, |value, name| &value[name]);
    found.as_str().unwrap_or("").to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::Scheme;

    #[test]
    fn fields_are_selected_by_in_upstreams_words() {
        let kind = |group: &str, kind: &str| Scheme::built_in().by_kind(group, "v1", kind).expect("it is in the table");
        let check = |group: &str, name: &str, label: &'static str| kind(group, name).field_label(label);
        assert_eq!(check("", "Pod", "spec.host"), Ok("spec.nodeName"));
        assert_eq!(check("events.k8s.io", "Event", "regarding.name"), Ok("involvedObject.name"));
        assert_eq!(check("", "Pod", "spec.bogus"), Err("field label not supported: spec.bogus".to_owned()));
        assert_eq!(
            check("events.k8s.io", "Event", "involvedObject.name"),
            Err("field label not supported: involvedObject.name".to_owned())
        );
        assert_eq!(
            check("batch", "Job", "spec.bogus"),
            Err(r#"field label "spec.bogus" not supported for Job"#.to_owned())
        );
        assert_eq!(
            check("apps", "Deployment", "spec.bogus"),
            Err(r#""spec.bogus" is not a known field selector: only "metadata.name", "metadata.namespace""#.to_owned())
        );
        let node = json!({ "metadata": { "name": "n" }, "spec": {} });
        assert_eq!(kind("", "Node").field_value(&node, "spec.unschedulable"), Some("false".to_owned()));
    }
}
