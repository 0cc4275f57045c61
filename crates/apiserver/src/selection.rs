//! Which objects a list or a watch is about: a label selector and a field selector.

use bayplan_model::field_selector::FieldSelector;
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

    fn field<'a>(&self, item: &'a Item, field: &str) -> &'a str {
        let alias = self.aliases.iter().find(|(alias, _)| alias == field);
        item.field(alias.map_or(field, |(_, name)| name)).unwrap_or_default()
    }
}
