//! A kind as data: what it is called, where it is served, and the functions that fill in, check, prepare and print it.

use std::cmp::Ordering;

use jiff::Timestamp;
use serde_json::Value;

use crate::field::{Circumstances, ErrorList, FieldError};
use crate::group_version_kind::GroupVersionKind;
use crate::object::Object;
use crate::printing::{Column, Printer, Row};
use crate::scheme::Scheme;
use crate::strategy::Strategy;
use crate::validation::Validation;
use crate::verb::Verb;

/// Every verb of an ordinary stored kind.
pub(crate) const STANDARD_VERBS: &[Verb] = &[
    Verb::Create,
    Verb::Delete,
    Verb::DeleteCollection,
    Verb::Get,
    Verb::List,
    Verb::Patch,
    Verb::Update,
    Verb::Watch,
];
/// The verbs of a status, and of every other subresource that is a view of the object.
pub(crate) const STATUS_VERBS: &[Verb] = &[Verb::Get, Verb::Patch, Verb::Update];
pub(crate) const CREATE_ONLY: &[Verb] = &[Verb::Create];

/// Where objects of a kind live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In the cluster as a whole.
    Cluster,
    /// In a namespace.
    Namespaced,
}

/// One kind of the API.
///
/// Kinds are compared by identity: a [`Scheme`] holds exactly one for each group, version and name.
#[derive(Debug)]
pub struct Kind {
    /// API group, empty for core.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// `Pod`: the name objects carry in their `kind`.
    pub kind: &'static str,
    /// `pods`: the name in URLs; empty for kinds that have no URL of their own.
    pub plural: &'static str,
    /// `pod`: the name that discovery tells kubectl for single objects.
    pub singular: &'static str,
    /// Cluster-wide or namespaced.
    pub scope: Scope,
    /// What kubectl users type.
    pub short_names: &'static [&'static str],
    /// Sets of kinds that kubectl knows by one name, `all` for example.
    pub categories: &'static [&'static str],
    /// Supported verbs, sorted; empty for kinds that are read but not served.
    pub verbs: &'static [Verb],
    /// Subresources, sorted by name.
    pub subresources: &'static [Subresource],
    /// The storage folder under `/registry/`; empty for kinds that are never stored.
    pub storage_prefix: &'static str,
    /// Fills in what upstream fills in on decoding.
    pub(crate) defaults: fn(&mut Object),
    /// What happens to an object before it is stored.
    pub strategy: Strategy,
    /// Turns an object of the storage version into this one, apart from `apiVersion`; nothing for the storage version.
    pub(crate) from_storage: fn(&mut Object),
    /// Turns an object into one of the storage version, apart from `apiVersion`; nothing for the storage version.
    pub(crate) to_storage: fn(&mut Object),
    /// Annotations that stand for fields of upstream's internal form: metadata that is shown alone lacks them.
    pub(crate) annotated_fields: &'static [&'static str],
    /// Adds to an object without contents what upstream's internal form has none without.
    pub(crate) blank: fn(&mut Object),
    /// The rules an object must keep.
    pub(crate) validation: Validation,
    /// What `kubectl get` prints.
    pub(crate) printer: Printer,
}

/// One subresource of a [`Kind`].
#[derive(Debug)]
pub struct Subresource {
    /// `status`, `scale`, `binding`, …
    pub name: &'static str,
    /// Group of the kind of its bodies, empty for the parent's own group version.
    pub group: &'static str,
    /// Version of the kind of its bodies, empty for the parent's own group version.
    pub version: &'static str,
    /// The kind of its bodies.
    pub kind: &'static str,
    /// Supported verbs, sorted.
    pub verbs: &'static [Verb],
}

/// The verbs of a session, and of a proxy: the methods that upstream passes on.
pub(crate) const CONNECT_VERBS: &[Verb] = &[Verb::Create, Verb::Get];
pub(crate) const PROXY_VERBS: &[Verb] = &[Verb::Create, Verb::Delete, Verb::Get, Verb::Patch, Verb::Update];

/// The `scale` of workloads.
pub(crate) const SCALE: Subresource =
    Subresource { name: "scale", group: "autoscaling", version: "v1", kind: "Scale", verbs: STATUS_VERBS };

impl Subresource {
    /// The `status` of a kind.
    pub(crate) const fn status(kind: &'static str) -> Subresource {
        Subresource { name: "status", group: "", version: "", kind, verbs: STATUS_VERBS }
    }

    /// A subresource that upstream passes on to kubelets, and the kind of its options.
    pub(crate) const fn passed_on(name: &'static str, kind: &'static str, verbs: &'static [Verb]) -> Subresource {
        Subresource { name, group: "", version: "", kind, verbs }
    }
}

impl Kind {
    /// A kind without behaviour of its own, from which the others start.
    pub(crate) const PLAIN: Kind = Kind {
        group: "",
        version: "v1",
        kind: "",
        plural: "",
        singular: "",
        scope: Scope::Cluster,
        short_names: &[],
        categories: &[],
        verbs: &[],
        subresources: &[],
        storage_prefix: "",
        defaults: |_| {},
        strategy: Strategy::PLAIN,
        from_storage: |_| {},
        to_storage: |_| {},
        annotated_fields: &[],
        blank: |_| {},
        validation: Validation::PLAIN,
        printer: Printer::PLAIN,
    };

    /// `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        self.group_version_kind().api_version()
    }

    /// `pods` or `deployments.apps`: how messages name the resource.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// Group, version and name.
    pub fn group_version_kind(&self) -> GroupVersionKind<'static> {
        GroupVersionKind { group: self.group, version: self.version, kind: self.kind }
    }

    /// True for kinds whose objects live in namespaces.
    pub fn namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    /// True for kinds with objects in the store; reviews and bindings have none.
    pub fn stored(&self) -> bool {
        !self.storage_prefix.is_empty()
    }

    /// The kind in whose version the objects are stored: another one only for second views, as `events.k8s.io` is of
    /// core events.
    pub fn storage(&'static self) -> &'static Kind {
        Scheme::built_in().storage_version(self)
    }

    /// Converts an object of the storage version to this one.
    pub fn convert_from_storage(&'static self, object: &mut Value) {
        if self != self.storage()
            && let Value::Object(object) = object
        {
            (self.from_storage)(object);
            object.insert("apiVersion".into(), self.api_version().into());
        }
    }

    /// Converts an object to the storage version.
    pub fn convert_to_storage(&'static self, object: &mut Value) {
        if self != self.storage()
            && let Value::Object(object) = object
        {
            (self.to_storage)(object);
            object.insert("apiVersion".into(), self.storage().api_version().into());
        }
    }

    /// The subresource of that name.
    pub fn subresource(&'static self, name: &str) -> Option<&'static Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }

    /// The kind of a subresource's bodies.
    pub fn subresource_kind(&self, subresource: &'static Subresource) -> GroupVersionKind<'static> {
        let Subresource { group, version, kind, .. } = *subresource;
        if version.is_empty() {
            GroupVersionKind { group: self.group, version: self.version, kind }
        } else {
            GroupVersionKind { group, version, kind }
        }
    }

    /// The kind of a collection, `PodList`.
    pub fn list_kind(&self) -> String {
        format!("{}List", self.kind)
    }

    /// Fills in the defaults of a decoded object.
    ///
    /// This includes what upstream's conversions do (mirrored and merged fields), which clients cannot distinguish from
    /// defaulting. It expects the canonical form that [`crate::codec`] gives, and is idempotent.
    pub fn default(&self, object: &mut Value) {
        if let Value::Object(object) = object {
            (self.defaults)(object);
        }
    }

    /// What is wrong with a new object, which is defaulted and prepared for its create.
    pub fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        self.validation.create(self.namespaced(), ErrorList::default(), object)
    }

    /// What is wrong with a new object under some circumstances.
    pub fn validate_create_under(&self, circumstances: Circumstances, object: &Value) -> Vec<FieldError> {
        self.validation.create(self.namespaced(), ErrorList::under(circumstances), object)
    }

    /// What is wrong with a changed object; `subresource` is empty for the object itself.
    pub fn validate_update(&self, subresource: &str, object: &Value, old: &Value) -> Vec<FieldError> {
        self.validation.update(self.namespaced(), ErrorList::default(), subresource, object, old)
    }

    /// What is wrong with a changed object under some circumstances.
    pub fn validate_update_under(
        &self,
        circumstances: Circumstances,
        subresource: &str,
        object: &Value,
        old: &Value,
    ) -> Vec<FieldError> {
        self.validation.update(self.namespaced(), ErrorList::under(circumstances), subresource, object, old)
    }

    /// Resets what a create may not set and fills what the server owns.
    pub fn prepare_for_create(&self, object: &mut Value, now: Timestamp) {
        if let Value::Object(object) = object {
            self.strategy.create(self.group_version_kind(), object, now);
        }
    }

    /// Whether a new object that is not defaulted yet will have its labels in common with its template.
    pub fn shares_labels(&self, given: &Value) -> bool {
        let some = |metadata: &Value| metadata["labels"].as_object().is_some_and(|labels| !labels.is_empty());
        self.strategy.shares_template_labels
            && !some(&given["metadata"])
            && some(&given["spec"]["template"]["metadata"])
    }

    /// Gives a new object, which is prepared for its create, the labels of its template.
    pub fn share_labels(&self, object: &mut Value) {
        let labels = object["spec"]["template"]["metadata"]["labels"].clone();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.insert("labels".to_owned(), labels);
        }
    }

    /// Restores what an update may not set, through the object (`subresource` empty) or a subresource; bumps the
    /// generation.
    pub fn prepare_for_update(&self, object: &mut Value, old: &Value, subresource: &str, now: Timestamp) {
        if let Value::Object(object) = object {
            self.strategy.update(object, old, subresource, now);
        }
    }

    /// An object without contents, as upstream's internal form of one is shown.
    pub fn blank(&self) -> Value {
        let mut object = self.empty();
        if let Value::Object(object) = &mut object {
            (self.blank)(object);
        }
        object
    }

    /// Whether metadata that is shown alone may differ from that of the whole object.
    pub fn annotates_fields(&self) -> bool {
        !self.annotated_fields.is_empty()
    }

    /// Makes the metadata of a whole object that of an answer with metadata alone.
    pub fn show_metadata_alone(&self, metadata: &mut Value) {
        let Some(metadata) = metadata.as_object_mut().filter(|_| self.annotates_fields()) else { return };
        let Some(Value::Object(annotations)) = metadata.get_mut("annotations") else { return };
        annotations.retain(|name, _| !self.annotated_fields.contains(&name.as_str()));
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }

    /// What to warn the client of a new object of, before [`Kind::prepare_for_create`].
    pub fn early_warnings(&self, object: &Value) -> Vec<String> {
        (self.strategy.early_warnings)(object)
    }

    /// Whether upstream stores this new object without what its reads default: then an update that changes nothing
    /// changes what is stored, once.
    pub fn is_stored_short(&self, object: &Value) -> bool {
        (self.strategy.stored_short)(object)
    }

    /// What to warn the client of.
    pub fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        (self.strategy.warnings)(object, old)
    }

    /// What to warn the client of who wrote through a subresource.
    pub fn subresource_warnings(&self, subresource: &str, object: &Value) -> Vec<String> {
        if subresource == "status" { (self.strategy.status_warnings)(object) } else { Vec::new() }
    }

    /// The fields that field selectors may name, beyond `metadata.name` and `metadata.namespace`.
    pub fn selectable_fields(&self) -> &'static [&'static str] {
        self.strategy.selectable.names
    }

    /// The value of a selectable field, empty when unset; `None` for fields that cannot be selected.
    pub fn field_value(&self, object: &Value, field: &str) -> Option<String> {
        self.strategy.selectable.value_of(object, field)
    }

    /// The selectable field that a field label stands for, or why it cannot be selected by.
    pub fn field_label<'l>(&self, label: &'l str) -> Result<&'l str, String> {
        self.strategy.selectable.of_label(label)
    }

    /// The columns that `kubectl get` prints.
    pub fn columns(&self) -> &'static [Column] {
        self.printer.columns
    }

    /// The order of the rows of a list, when it is not that of the names.
    pub fn table_order(&self) -> Option<fn(&Value, &Value) -> Ordering> {
        self.printer.order
    }

    /// An object's row of cells.
    pub fn row(&self, object: &Value, now: Timestamp) -> Row {
        Row { cells: (self.printer.cells)(object, now), conditions: (self.printer.conditions)(object) }
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Kind {}
