//! Which objects a list or a watch selects: a label selector and a field selector.

use bayplan_kinds::Kind;
use bayplan_model::field_selector::{FieldSelector, Operator};
use bayplan_model::label_selector::Selector;
use bayplan_model::status::Status;

use crate::status_errors::bad_request;
use crate::watch_cache::CachedObject;

/// Parsed selectors; they read objects in their storage version. Upstream's `SelectionPredicate`.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    labels: Selector,
    fields: FieldSelector,
    /// Fields with one name in the query and another in the storage version.
    aliases: Vec<(String, String)>,
}

impl Selection {
    /// Parses the two selectors; refuses fields that the kind cannot be selected by.
    pub(crate) fn parse(resource: &'static Kind, labels: &str, fields: &str) -> Result<Selection, Status> {
        let labels = Selector::parse(labels).map_err(|e| bad_request(e.to_string()))?;
        let fields = FieldSelector::parse(fields).map_err(|e| bad_request(e.to_string()))?;
        let mut aliases = Vec::new();
        for requirement in fields.requirements() {
            let name = resource.field_label(&requirement.field).map_err(bad_request)?;
            if name != requirement.field {
                aliases.push((requirement.field.clone(), name.to_owned()));
            }
        }
        Ok(Selection { labels, fields, aliases })
    }

    /// True when everything is selected.
    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    /// True when the stored object is selected.
    pub(crate) fn matches(&self, object: &CachedObject) -> bool {
        self.labels.matches(&object.labels) && self.fields.matches(|field| self.field(object, field))
    }

    /// A field that must have one value, if the field selector names such a field.
    pub(crate) fn required_value(&self) -> Option<(&str, &str)> {
        let requirement = self.fields.requirements().iter().find(|r| r.operator == Operator::Equals)?;
        Some((self.name(&requirement.field), &requirement.value))
    }

    fn name<'a>(&'a self, field: &'a str) -> &'a str {
        self.aliases.iter().find(|(alias, _)| alias == field).map_or(field, |(_, name)| name)
    }

    fn field<'a>(&self, object: &'a CachedObject, field: &str) -> &'a str {
        object.field(self.name(field)).unwrap_or_default()
    }
}
