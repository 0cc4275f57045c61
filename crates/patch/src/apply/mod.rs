//! Server-side apply: who owns which field of an object, and merging what somebody applies (KEP-555).
//!
//! ```text
//!   create, update, patch   live + new ──compare──▶ changes ─▶ others lose what changed, the manager gains it
//!   apply                   live + applied ──merge──▶ merged ──prune──▶ new ─▶ conflicts, or others lose what changed
//!                                     └──field_set──▶ what the manager owns from now on
//! ```
//!
//! Upstream's `structured-merge-diff` and the field managers around it. The schema decides what is owned as a whole
//! (`shape`), and sets of fields stay in the form in which objects carry them (`fields`).

mod compare;
mod conflict;
mod element;
mod fields;
mod last_applied;
mod managed;
mod merge;
mod prune;
mod remove;
mod scale;
mod shape;
#[cfg(test)]
mod tests;
mod update;
mod validate;

use bayplan_model::schema::Definition;
use serde_json::Value;

use compare::{field_set, same, strip};
pub use conflict::Conflict;
use managed::{Identity, Managers, Operation, Owned};
pub use scale::{from_scale, to_scale};
use shape::Shape;
pub use update::update;
use update::{Others, limit, owned_changes, updated};

/// Who owned the fields of an object whose managers nobody had noted before the first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// What an endpoint can make somebody own: strategies reset the rest (upstream's `GetResetFields`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// Everything but what lies on these paths or below them.
    AllBut(&'static [&'static [&'static str]]),
}

/// The versions of a kind.
pub trait Versions {
    /// Whether the kind has a version, given as `apiVersion`.
    fn knows(&self, version: &str) -> bool;
    /// An object in another version, with its type; `None` if the kind does not have that version.
    fn convert(&self, object: &Value, from: &str, to: &str) -> Option<(Value, &'static Definition)>;
}

/// A request that writes an object, as far as ownership goes.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The version of the object and of the entries: `apps/v1`.
    pub api_version: &'a str,
    /// The kind.
    pub kind: &'a str,
    /// Its type.
    pub definition: &'static Definition,
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// Who writes; empty if unknown.
    pub manager: &'a str,
    /// When, as entries have it.
    pub now: &'a str,
    /// What the endpoint makes them own.
    pub ownership: Ownership,
    /// The other versions of the kind.
    pub versions: &'a dyn Versions,
}

impl std::fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request").field("manager", &self.manager).field("subresource", &self.subresource).finish()
    }
}

/// Why an object cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The request is wrong.
    #[error("{0}")]
    BadRequest(String),
    /// The object does not fit the schema, for which upstream blames itself.
    #[error("{0}")]
    Unfit(String),
    /// Others own fields that would change.
    #[error("{}", conflict::message(.0))]
    Conflicts(Vec<Conflict>),
}

/// What applying gives.
#[derive(Clone, Debug)]
pub struct Applied {
    /// The object without managed fields, before defaulting; `None` if nothing changes but its owners.
    pub object: Option<Value>,
    /// The new `metadata.managedFields`.
    pub managed_fields: Value,
}

/// Applies an object to a live one, which is the empty object of the kind if there is none; `empty` is that.
pub fn apply(
    live: &Value,
    empty: &Value,
    applied: &Value,
    force: bool,
    request: &Request<'_>,
) -> Result<Applied, Error> {
    check_kind(applied, request)?;
    let mut live = live.clone();
    let entries = managed::take(&mut live).unwrap_or_default();
    let managers = managed::read(entries, false).ok_or_else(|| {
        Error::Unfit("failed to decode managed fields: operation must be `Apply` or `Update`".to_owned())
    })?;
    let attempt = Attempt { live: &live, empty, applied, request };
    let result = match attempt.run(managers.clone(), force) {
        Err(Error::Conflicts(conflicts)) if request.manager == last_applied::KUBECTL => {
            // What kubectl applied on the client's side before is its own.
            match last_applied::unexplained(&live, &conflicts, request) {
                Some(rest) if rest.is_empty() => attempt.run(managers, true),
                Some(rest) => Err(Error::Conflicts(rest)),
                None => Err(Error::Conflicts(conflicts)),
            }
        }
        other => other,
    };
    let (object, managers) = result?;
    let object = last_applied::renewed(object, &live, applied, request);
    Ok(Applied { object, managed_fields: managed::write(managers) })
}

/// Puts managed fields into an object.
pub fn put_managed_fields(object: &mut Value, entries: Value) {
    managed::put(object, entries);
}

/// True if managed fields differ in nothing but their times, which is no change when the objects are equal besides.
pub fn differ_only_in_time(old: &Value, new: &Value) -> bool {
    managed::differ_only_in_time(old, new)
}

fn check_kind(applied: &Value, request: &Request<'_>) -> Result<(), Error> {
    let text = |key: &str| applied[key].as_str().unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if api_version != request.api_version || kind != request.kind {
        return Err(Error::BadRequest(format!("invalid object type: {}", gvk(api_version, kind))));
    }
    if applied["metadata"]["managedFields"].is_array() {
        return Err(Error::BadRequest("metadata.managedFields must be nil".to_owned()));
    }
    Ok(())
}

/// `apps/v1, Kind=Deployment`, as Go shows a kind.
fn gvk(api_version: &str, kind: &str) -> String {
    let slash = if api_version.contains('/') { "" } else { "/" };
    format!("{slash}{api_version}, Kind={kind}")
}

struct Attempt<'a> {
    live: &'a Value,
    empty: &'a Value,
    applied: &'a Value,
    request: &'a Request<'a>,
}

impl Attempt<'_> {
    fn run(&self, managers: Managers, force: bool) -> Result<(Option<Value>, Managers), Error> {
        let request = self.request;
        let shape = Shape::of_definition(request.definition);
        let mut managers = if managers.is_empty() {
            updated(self.empty, self.live, managers, BEFORE_FIRST_APPLY, request)
        } else {
            managers
        };
        if let Some(faults) = validate::faults(self.applied, shape) {
            return Err(Error::Unfit(format!("failed to create typed patch object ({}): {faults}", self.shown())));
        }
        let mut merged = merge::merge(self.live.clone(), self.applied, shape)
            .map_err(|error| Error::Unfit(format!("failed to merge config: {error}")))?;
        let identity = Identity::new(request.manager, Operation::Apply, request.api_version, request.subresource);
        let mut fields = field_set(self.applied, shape);
        limit(&mut fields, request.ownership);
        let api_version = request.api_version.to_owned();
        let last = managers.remove(&identity);
        let time = last.as_ref().and_then(|last| last.time.clone());
        managers.insert(identity.clone(), Owned { api_version, time, fields });
        if let Some(last) = last {
            merged = prune::prune(merged, &managers, &last, request);
        }
        let changes = owned_changes(self.live, &merged, request);
        let mut others = Others::new(self.live, &merged, &changes, request);
        conflict::displace(&mut managers, &identity, &mut others, force).map_err(Error::Conflicts)?;
        let object = (!same(self.live, &merged)).then_some(merged);
        if let Some(own) = managers.get_mut(&identity) {
            strip(&mut own.fields);
            if object.is_some() {
                own.time = Some(request.now.to_owned());
            }
        }
        managers.retain(|_, owned| !owned.fields.is_empty());
        Ok((object, managers))
    }

    fn shown(&self) -> String {
        let metadata = &self.applied["metadata"];
        let text = |key: &str| metadata[key].as_str().unwrap_or_default();
        let kind = gvk(self.request.api_version, self.request.kind);
        format!("{}/{}; {kind}", text("namespace"), text("name"))
    }
}
