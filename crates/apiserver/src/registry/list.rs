//! List: one snapshot of a collection, in pages if the client wants pages.

use std::sync::Arc;

use bayplan_kinds::Kind;
use bayplan_model::status::Status;
use bayplan_store::{Entry, Range, ReadError, Revision};

use super::continuation::Continuation;
use super::{List, Registry, VersionedObject, conversion};
use crate::request::{ListOptions, VersionMatch};
use crate::selection::Selection;
use crate::status_errors::{self, FieldError};
use crate::watch_cache::{CachedObject, prefix_end};

/// How many entries are read at once when a selector leaves some of them out.
const CHUNK_MIN: usize = 500;
/// The most entries read at once; more would keep other requests waiting.
const CHUNK_MAX: usize = 10_000;

/// Which state of the collection a list reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Snapshot {
    /// The state that is known here, perhaps a moment old.
    Any,
    /// The newest state.
    Newest,
    /// A state at least as new as the revision.
    NotOlderThan(Revision),
    /// The state at exactly the revision.
    Exact(Revision),
}

impl Registry {
    /// The key range of a resource in a namespace, or in all of them: the first key, and the first after the last.
    pub(crate) fn bounds(resource: &'static Kind, namespace: &str) -> (String, String) {
        let prefix = if namespace.is_empty() || !resource.namespaced() {
            format!("/registry/{}/", resource.storage_prefix)
        } else {
            format!("/registry/{}/{namespace}/", resource.storage_prefix)
        };
        let end = prefix_end(&prefix);
        (prefix, end)
    }

    /// Reads a collection.
    pub(crate) async fn list(
        &self,
        resource: &'static Kind,
        namespace: &str,
        selection: &Selection,
        options: &ListOptions,
    ) -> Result<List, Status> {
        let (prefix, end) = Self::bounds(resource, namespace);
        let token = match options.continue_token.as_str() {
            "" => None,
            text => Some(Continuation::decode(text)?),
        };
        let snapshot = snapshot(options, token.as_ref())?;
        // Upstream's watch cache ignores the limit if any state will do.
        let limit = if options.resource_version == "0" && token.is_none() { 0 } else { options.limit.max(0) };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let at = match snapshot {
            Snapshot::Any | Snapshot::Newest => None,
            Snapshot::NotOlderThan(revision) => {
                self.wait_for(revision).await?;
                None
            }
            Snapshot::Exact(revision) => {
                self.wait_for(revision).await?;
                Some(revision)
            }
        };
        let start = token.as_ref().map_or_else(|| prefix.clone(), |token| format!("{prefix}{}", token.start()));
        let expired = |error| match (error, &token) {
            (ReadError::Compacted { .. }, Some(token)) => {
                let mut status = status_errors::expired(EXPIRED_CONTINUE);
                status.metadata.continue_token = Some(token.clone().inconsistent().encode());
                status
            }
            (error, _) => status_errors::read(error),
        };
        let recent = snapshot == Snapshot::Any;
        self.pages(resource, &prefix, start, &end, at, recent, limit, selection).await.map_err(|e| match e {
            ListError::Read(error) => expired(error),
            ListError::Status(status) => status,
        })
    }

    #[allow(clippy::too_many_arguments)]
    async fn pages(
        &self,
        resource: &'static Kind,
        prefix: &str,
        mut start: String,
        end: &str,
        mut at: Option<Revision>,
        mut recent: bool,
        limit: usize,
        selection: &Selection,
    ) -> Result<List, ListError> {
        let mut items = Vec::new();
        let mut chunk = if limit == 0 || selection.is_empty() { limit } else { limit.max(CHUNK_MIN) };
        loop {
            let range = if std::mem::take(&mut recent) {
                self.store.range_recent(&start, end, chunk).await
            } else {
                self.store.range(&start, end, at, chunk).await
            };
            let range = range.map_err(ListError::Read)?;
            at = Some(range.revision);
            let Range { revision, entries, remaining, .. } = range;
            let count = entries.len();
            for (index, entry) in entries.iter().enumerate() {
                if let Some(selected) = self.select(resource, entry, selection).map_err(ListError::Status)? {
                    items.push(selected);
                }
                let following = count - index - 1 + remaining;
                if limit > 0 && items.len() == limit && following > 0 {
                    let last = entry.key.strip_prefix(prefix).unwrap_or(&entry.key);
                    return Ok(List {
                        resource,
                        items,
                        revision,
                        continue_token: Some(Continuation::after(last, revision).encode()),
                        remaining: selection.is_empty().then_some(following),
                    });
                }
            }
            let Some(last) = entries.last().filter(|_| remaining > 0) else {
                return Ok(List { resource, items, revision, continue_token: None, remaining: None });
            };
            start = format!("{}\0", last.key);
            chunk = (chunk * 2).min(CHUNK_MAX);
        }
    }

    /// The object of an entry in the requested version, if it is selected.
    fn select(
        &self,
        resource: &'static Kind,
        entry: &Entry,
        selection: &Selection,
    ) -> Result<Option<VersionedObject>, Status> {
        if selection.is_empty() {
            let encoded = self.view(resource, entry)?;
            return Ok(Some(VersionedObject { encoded, revision: Some(entry.mod_revision) }));
        }
        let object = self.cache(resource).object(entry)?;
        if !selection.matches(&object) {
            return Ok(None);
        }
        let encoded = conversion::view(resource, object.encoded.clone())?;
        Ok(Some(VersionedObject { encoded, revision: Some(entry.mod_revision) }))
    }

    /// A cached object in the requested version.
    pub(crate) fn converted(
        &self,
        resource: &'static Kind,
        object: &Arc<CachedObject>,
    ) -> Result<Arc<CachedObject>, Status> {
        if std::ptr::eq(resource, resource.storage()) {
            return Ok(object.clone());
        }
        let encoded = conversion::view(resource, object.encoded.clone())?;
        Ok(Arc::new(object.with_encoded(encoded)))
    }
}

/// Why a page could not be read.
enum ListError {
    Read(ReadError),
    Status(Status),
}

const EXPIRED_CONTINUE: &str = "The provided continue parameter is too old to display a consistent list result. You \
    can start a new list without the continue parameter, or use the continue token in this response to retrieve the \
    remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were \
    created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

fn invalid_options(error: FieldError) -> Status {
    status_errors::invalid("meta.k8s.io", "ListOptions", "", &[error])
}

/// Reads `resourceVersionMatch`.
fn version_match(text: &str) -> Result<Option<VersionMatch>, Status> {
    match text {
        "" => Ok(None),
        "Exact" => Ok(Some(VersionMatch::Exact)),
        "NotOlderThan" => Ok(Some(VersionMatch::NotOlderThan)),
        other => Err(invalid_options(FieldError::new(
            "FieldValueNotSupported",
            "resourceVersionMatch",
            format!("Unsupported value: {other:?}: supported values: \"Exact\", \"NotOlderThan\", \"\""),
        ))),
    }
}

/// Which state the options ask for; refuses combinations as upstream's `ValidateListOptions` does.
fn snapshot(options: &ListOptions, token: Option<&Continuation>) -> Result<Snapshot, Status> {
    let version = options.resource_version.as_str();
    let forbidden = |detail: &str| Err(invalid_options(FieldError::forbidden("resourceVersionMatch", detail)));
    if options.send_initial_events.is_some() {
        return Err(invalid_options(FieldError::forbidden(
            "sendInitialEvents",
            "sendInitialEvents is forbidden for list",
        )));
    }
    if !options.version_match.is_empty() {
        if version.is_empty() {
            return forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided");
        }
        if token.is_some() {
            return forbidden("resourceVersionMatch is forbidden when continue is provided");
        }
    }
    let matching = version_match(&options.version_match)?;
    if matching == Some(VersionMatch::Exact) && version == "0" {
        return forbidden("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
    }
    if let Some(token) = token {
        if !matches!(version, "" | "0") {
            return Err(status_errors::bad_request("specifying resource version is not allowed when using continue"));
        }
        return Ok(token.revision().map_or(Snapshot::Newest, Snapshot::Exact));
    }
    match version {
        "" => return Ok(Snapshot::Newest),
        "0" => return Ok(Snapshot::Any),
        _ => {}
    }
    let revision = parse_version(version)?;
    Ok(match matching {
        Some(VersionMatch::Exact) => Snapshot::Exact(revision),
        Some(VersionMatch::NotOlderThan) => Snapshot::NotOlderThan(revision),
        None if options.limit > 0 => Snapshot::Exact(revision),
        None => Snapshot::NotOlderThan(revision),
    })
}

/// The revision that a list waits for, if its options can be read.
pub(crate) fn awaited_revision(options: &ListOptions) -> Option<Revision> {
    let token = match options.continue_token.as_str() {
        "" => None,
        text => Some(Continuation::decode(text).ok()?),
    };
    match snapshot(options, token.as_ref()).ok()? {
        Snapshot::Any | Snapshot::Newest => None,
        Snapshot::NotOlderThan(revision) | Snapshot::Exact(revision) => Some(revision),
    }
}

/// Reads the resource version of a list or a watch.
pub(crate) fn parse_version(version: &str) -> Result<Revision, Status> {
    version.parse().map_err(|_| {
        status_errors::bad_request(format!(
            "invalid resource version: resourceVersion: Invalid value: {version:?}: strconv.ParseUint: parsing \
             {version:?}: invalid syntax"
        ))
    })
}

/// Checks the options of a watch; true if the stream starts with the current state.
pub(crate) fn watch_options(options: &ListOptions) -> Result<bool, Status> {
    let matching = options.version_match.as_str();
    let forbidden = |detail: &str| Err(invalid_options(FieldError::forbidden("resourceVersionMatch", detail)));
    let Some(initial) = options.send_initial_events else {
        if !matching.is_empty() {
            return forbidden("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided");
        }
        return Ok(matches!(options.resource_version.as_str(), "" | "0"));
    };
    match matching {
        "" => forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
        "NotOlderThan" => Ok(initial),
        other => Err(invalid_options(FieldError::new(
            "FieldValueNotSupported",
            "resourceVersionMatch",
            format!("Unsupported value: {other:?}: supported values: \"NotOlderThan\""),
        ))),
    }
}
