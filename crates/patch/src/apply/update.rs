//! Ownership after a create, update or patch: who changes a field owns it.

use serde_json::Value;

use super::compare::{Changes, compare, strip};
use super::fields::{self, Fields};
use super::managed::{self, Identity, Managers, Operation, Owned};
use super::shape::Shape;
use super::{Ownership, Request, Versions};

/// Sets the managed fields of `new`, which takes the place of `live`.
///
/// `live` is the empty object of the kind for a create. Entries that `new` brings along count, unless they are those of
/// a subresource, because clients may edit them.
pub fn update(live: &Value, new: &mut Value, request: &Request<'_>) {
    let given = managed::take(new);
    let stored = &live["metadata"]["managedFields"];
    let is_same = given.as_ref() == Some(stored);
    let managers = match given {
        Some(given) if is_same => managed::read(given, false),
        Some(given) if request.subresource.is_empty() => {
            if managed::is_reset(&given) {
                Some(Managers::new())
            } else {
                managed::read(given, true).filter(|managers| !managers.is_empty())
            }
        }
        _ => None,
    };
    let managers = managers.or_else(|| managed::read(stored.clone(), false)).unwrap_or_default();
    // Objects whose entries were taken away stay without, until somebody applies them.
    if managers.is_empty() && !live["metadata"]["uid"].as_str().unwrap_or_default().is_empty() {
        return;
    }
    let managers = updated(live, new, managers, request.manager, request);
    managed::put(new, managed::write(managers));
}

/// The entries after an update by a manager.
pub(super) fn updated(
    live: &Value,
    new: &Value,
    mut managers: Managers,
    manager: &str,
    request: &Request<'_>,
) -> Managers {
    let changes = owned_changes(live, new, request);
    if changes.is_empty() {
        drop_unknown_versions(&mut managers, request);
        return managers;
    }
    let mut others = Others::new(live, new, &changes, request);
    managers.retain(|_, owned| {
        let Some(changes) = others.in_version(&owned.api_version) else { return false };
        for gone in [&changes.modified, &changes.added, &changes.removed] {
            fields::subtract(&mut owned.fields, gone);
        }
        true
    });
    let Changes { added, modified, .. } = changes;
    let mut taken = modified;
    fields::add(&mut taken, added);
    strip(&mut taken);
    if !taken.is_empty() {
        take(&mut managers, manager, taken, request);
    }
    managers.retain(|_, owned| !owned.fields.is_empty());
    managed::cap(&mut managers);
    managers
}

fn take(managers: &mut Managers, manager: &str, taken: Fields, request: &Request<'_>) {
    let identity = Identity::new(manager, Operation::Update, request.api_version, request.subresource);
    let owned = managers.entry(identity).or_insert_with(|| Owned {
        api_version: request.api_version.to_owned(),
        time: None,
        fields: Fields::new(),
    });
    fields::add(&mut owned.fields, taken);
    owned.time = Some(request.now.to_owned());
}

fn drop_unknown_versions(managers: &mut Managers, request: &Request<'_>) {
    managers.retain(|_, owned| owned.api_version == request.api_version || request.versions.knows(&owned.api_version));
}

/// What a request changes of what it may own.
pub(super) fn owned_changes(live: &Value, new: &Value, request: &Request<'_>) -> Changes {
    let mut changes = compare(live, new, Shape::of_definition(request.definition));
    changes.each(|set| limit(set, request.ownership));
    changes
}

/// Takes out of a set what an endpoint does not own.
pub(super) fn limit(set: &mut Fields, ownership: Ownership) {
    let Ownership::AllBut(paths) = ownership;
    paths.iter().for_each(|path| fields::remove_path(set, path));
}

/// The changes as the entries of other versions see them.
pub(super) struct Others<'a> {
    live: &'a Value,
    new: &'a Value,
    version: &'a str,
    changes: &'a Changes,
    versions: &'a dyn Versions,
    ownership: Ownership,
    converted: Vec<(String, Option<Changes>)>,
}

impl<'a> Others<'a> {
    pub(super) fn new(live: &'a Value, new: &'a Value, changes: &'a Changes, request: &Request<'a>) -> Others<'a> {
        let Request { api_version: version, versions, ownership, .. } = *request;
        Others { live, new, version, changes, versions, ownership, converted: Vec::new() }
    }

    /// The changes in a version; `None` for one that the kind does not have.
    pub(super) fn in_version(&mut self, version: &str) -> Option<&Changes> {
        if version == self.version {
            return Some(self.changes);
        }
        let at = self.converted.iter().position(|(known, _)| known == version).unwrap_or_else(|| {
            let changes = self.convert(version);
            self.converted.push((version.to_owned(), changes));
            self.converted.len() - 1
        });
        self.converted[at].1.as_ref()
    }

    fn convert(&self, version: &str) -> Option<Changes> {
        let (live, definition) = self.versions.convert(self.live, self.version, version)?;
        let (new, _) = self.versions.convert(self.new, self.version, version)?;
        let mut changes = compare(&live, &new, Shape::of_definition(definition));
        changes.each(|set| limit(set, self.ownership));
        Some(changes)
    }
}
