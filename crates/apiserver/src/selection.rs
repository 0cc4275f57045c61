//! Which objects a list or a watch is about: a label selector and a field selector.

use bayplan_model::field_selector::{FieldSelector, Operator};
use bayplan_model::label_selector::Selector;
use bayplan_model::status::Status;

use crate::cache::Item;
use crate::resources::Resource;
use crate::status_errors::bad_request;
use crate::strategy;

/// A parsed selection; it looks at objects as they are stored.
#[derive(Clone, Debug)]
pub struct Selection {
    labels: Selector,
    fields: FieldSelector,
    /// Fields whose name in the query is not their name in the stored kind.
    aliases: Vec<(String, String)>,
}

impl Selection {
    /// Parses the two selectors; fields the kind cannot be selected by are refused.
    pub fn parse(resource: &'static Resource, labels: &str, fields: &str) -> Result<Selection, Status> {
        let labels = Selector::parse(labels).map_err(|e| bad_request(e.to_string()))?;
        let fields = FieldSelector::parse(fields).map_err(|e| bad_request(e.to_string()))?;
        let mut aliases = Vec::new();
        for requirement in fields.requirements() {
            let name = strategy::check_field_label(resource, &requirement.field).map_err(bad_request)?;
            if name != requirement.field {
                aliases.push((requirement.field.clone(), name.to_owned()));
            }
        }
        Ok(Selection { labels, fields, aliases })
    }

    /// True when everything is selected.
    pub fn is_empty(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    /// True when the stored object is selected.
    pub fn matches(&self, item: &Item) -> bool {
        self.labels.matches(&item.labels) && self.fields.matches(|field| self.field(item, field))
    }

    /// One field of the stored object that must have one value, if there is such a field.
    pub fn narrow(&self) -> Option<(&str, &str)> {
        let requirement = self.fields.requirements().iter().find(|r| r.operator == Operator::Equals)?;
        Some((self.name(&requirement.field), &requirement.value))
    }

    fn name<'a>(&'a self, field: &'a str) -> &'a str {
        self.aliases.iter().find(|(alias, _)| alias == field).map_or(field, |(_, name)| name)
    }

    fn field<'a>(&self, item: &'a Item, field: &str) -> &'a str {
        item.field(self.name(field)).unwrap_or_default()
    }
}
