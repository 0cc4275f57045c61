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
    /// Not by the kind, only by the server: last, when there are no other errors, with the rule for names in URLs.
    Last,
    /// Not at all.
    Never,
}

/// What a kind's own validation of an update says again about metadata, after the server did; the answer repeats it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MetadataRecheck {
    /// Nothing.
    None,
    /// What it says of new objects.
    AsNew,
    /// The same twice, because upstream asks the rules of the kind twice.
    AsNewTwice,
    /// What it says of changed objects.
    AsChanged,
    /// Both.
    AsNewAndChanged,
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
    /// What updates say again about metadata.
    pub(crate) update_metadata: MetadataRecheck,
    /// What the status endpoint says again about metadata.
    pub(crate) status_metadata: MetadataRecheck,
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
        update_metadata: MetadataRecheck::AsChanged,
        status_metadata: MetadataRecheck::AsChanged,
        rules: |_, _, _| {},
        create_rules: |_, _| {},
        change_rules: |_, _, _| {},
        status_rules: |_, _, _| {},
        subresource_rules: &[],
    };

    pub(crate) fn create(&self, namespaced: bool, mut errors: ErrorList, object: &Value) -> Vec<FieldError> {
        if let MetadataCheck::First(rule) = self.metadata {
            self.as_new(&mut errors, &object["metadata"], namespaced, rule);
        }
        (self.rules)(&mut errors, object, None);
        (self.create_rules)(&mut errors, object);
        if matches!(self.metadata, MetadataCheck::Last) && errors.is_empty() {
            metadata::create_with_any_finalizer(&mut errors, &object["metadata"], namespaced, names::path_segment);
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
        let recheck =
            if matches!(subresource, "status" | "finalize") { self.status_metadata } else { self.update_metadata };
        self.recheck_metadata(&mut errors, recheck, namespaced, (&object["metadata"], &old["metadata"]));
        let special = self.subresource_rules.iter().find(|(name, _)| *name == subresource);
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

    fn recheck_metadata(
        &self,
        errors: &mut ErrorList,
        recheck: MetadataRecheck,
        namespaced: bool,
        (new, old): (&Value, &Value),
    ) {
        let (times_as_new, as_changed) = match recheck {
            MetadataRecheck::None => (0, false),
            MetadataRecheck::AsNew => (1, false),
            MetadataRecheck::AsNewTwice => (2, false),
            MetadataRecheck::AsChanged => (0, true),
            MetadataRecheck::AsNewAndChanged => (1, true),
        };
        if let MetadataCheck::First(rule) = self.metadata {
            for _ in 0..times_as_new {
                self.as_new(errors, new, namespaced, rule);
            }
        }
        if as_changed {
            metadata::update(errors, new, old);
            if !self.any_finalizer {
                metadata::qualified_finalizers(errors, new);
            }
        }
    }

    fn as_new(&self, errors: &mut ErrorList, metadata: &Value, namespaced: bool, rule: NameRule) {
        let check = if self.any_finalizer { metadata::create_with_any_finalizer } else { metadata::create };
        check(errors, metadata, namespaced, rule);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::find;

    #[test]
    fn what_is_wrong_with_changed_metadata_is_said_as_often_as_upstream_says_it() {
        // The server says it twice of owners and not at all of finalizers; then each kind says it in its own way.
        for (group, plural, subresource, of_owners, of_finalizers) in [
            ("apps", "deployments", "", 3, 1),
            ("apps", "controllerrevisions", "", 4, 2),
            ("", "limitranges", "", 3, 1),
            ("", "persistentvolumes", "", 4, 2),
            ("policy", "poddisruptionbudgets", "", 2, 0),
            ("node.k8s.io", "runtimeclasses", "", 4, 0),
            ("coordination.k8s.io", "leases", "", 3, 0),
            ("rbac.authorization.k8s.io", "roles", "", 4, 2),
            ("batch", "cronjobs", "status", 2, 0),
            ("batch", "jobs", "status", 3, 1),
            ("certificates.k8s.io", "certificatesigningrequests", "status", 4, 2),
        ] {
            let kind = find(group, "v1", plural).unwrap();
            let old = json!({"metadata": {"name": "a", "namespace": "b", "resourceVersion": "1"}});
            let mut new = old.clone();
            new["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Pod", "name": "p"}]);
            new["metadata"]["finalizers"] = json!(["nodomain"]);
            let errors = kind.validate_update(subresource, &new, &old);
            let said = |field: &str| errors.iter().filter(|error| error.field == field).count();
            let told = (said("metadata.ownerReferences.uid"), said("metadata.finalizers[0]"));
            assert_eq!(told, (of_owners, of_finalizers), "{plural} {subresource}");
        }
    }
}
