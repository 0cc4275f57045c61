//! The rules of a kind, and the order in which they are checked.
//!
//! Rules report into an [`ErrorList`] under the [`crate::field::Path`] of the field they are about. Objects arrive in
//! canonical form, defaulted, and prepared by their strategy.

use serde_json::Value;

use crate::field::{ErrorList, FieldError};
use crate::metadata::{self, NameRule};
use crate::names;

/// When a kind's validation checks the metadata of new objects.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MetadataCheck {
    /// First of all, with this rule for names.
    First(NameRule),
    /// Last, when there are no other errors, with the rule for names in URLs.
    Last,
    /// Not at all.
    Never,
}

/// What holds for every version of an object: (errors, new object, the old one on updates).
pub(crate) type Rules = fn(&mut ErrorList, &Value, Option<&Value>);
/// What holds between two versions: (errors, new object, old object).
pub(crate) type ChangeRules = fn(&mut ErrorList, &Value, &Value);

/// The rules of one kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Validation {
    pub(crate) metadata: MetadataCheck,
    /// Whether finalizers need no domain.
    pub(crate) any_finalizer: bool,
    /// Whether updates check the new metadata as creates do.
    pub(crate) rechecks_metadata: bool,
    pub(crate) rules: Rules,
    /// What only new objects must satisfy.
    pub(crate) create_rules: fn(&mut ErrorList, &Value),
    /// What may not change through the object itself.
    pub(crate) change_rules: ChangeRules,
    /// The rules of the status endpoint, which does not ask the others.
    pub(crate) status_rules: ChangeRules,
    /// What may change through other subresources, in place of `change_rules`.
    pub(crate) subresource_rules: &'static [(&'static str, ChangeRules)],
}

impl Validation {
    pub(crate) const PLAIN: Validation = Validation {
        metadata: MetadataCheck::First(names::dns_subdomain),
        any_finalizer: false,
        rechecks_metadata: false,
        rules: |_, _, _| {},
        create_rules: |_, _| {},
        change_rules: |_, _, _| {},
        status_rules: |_, _, _| {},
        subresource_rules: &[],
    };

    pub(crate) fn create(&self, namespaced: bool, mut errors: ErrorList, object: &Value) -> Vec<FieldError> {
        let check = if self.any_finalizer { metadata::create_with_any_finalizer } else { metadata::create };
        if let MetadataCheck::First(rule) = self.metadata {
            check(&mut errors, &object["metadata"], namespaced, rule);
        }
        (self.rules)(&mut errors, object, None);
        (self.create_rules)(&mut errors, object);
        if matches!(self.metadata, MetadataCheck::Last) && errors.is_empty() {
            check(&mut errors, &object["metadata"], namespaced, names::path_segment);
        }
        errors.into_vec()
    }

    pub(crate) fn update(
        &self,
        namespaced: bool,
        mut errors: ErrorList,
        subresource: &str,
        object: &Value,
        old: &Value,
    ) -> Vec<FieldError> {
        // What holds for any kind, which upstream checks before the kind does.
        metadata::create_with_any_finalizer(&mut errors, &object["metadata"], namespaced, names::path_segment);
        metadata::update(&mut errors, &object["metadata"], &old["metadata"]);
        // Kinds say it again, and so does the answer.
        if !self.any_finalizer {
            metadata::update(&mut errors, &object["metadata"], &old["metadata"]);
            metadata::qualified_finalizers(&mut errors, &object["metadata"]);
        }
        let special = self.subresource_rules.iter().find(|(name, _)| *name == subresource);
        if let (false, true, MetadataCheck::First(rule)) =
            (subresource == "status", self.rechecks_metadata, self.metadata)
        {
            metadata::create(&mut errors, &object["metadata"], namespaced, rule);
        }
        match (subresource, special) {
            ("status", _) => (self.status_rules)(&mut errors, object, old),
            (_, Some((_, change_rules))) => {
                (self.rules)(&mut errors, object, Some(old));
                change_rules(&mut errors, object, old);
            }
            _ => {
                (self.rules)(&mut errors, object, Some(old));
                (self.change_rules)(&mut errors, object, old);
            }
        }
        errors.into_vec()
    }
}
