//! List: one snapshot of a collection, in pages if asked for.

use std::sync::Arc;

use bayplan_model::status::Status;
use bayplan_store::{Entry, Range, ReadError, Revision};

use super::continuation::Continuation;
use super::{List, Registry, Shown, conversion};
use crate::cache::{Item, prefix_end};
use crate::request::{ListOptions, VersionMatch};
use crate::resources::Resource;
use crate::selection::Selection;
use crate::status_errors::{self, FieldError};

/// How many entries are read at once when only some of them will match.
const CHUNK_MIN: usize = 500;
/// Reading more at once than this keeps others waiting.
const CHUNK_MAX: usize = 10_000;

/// Which state a list must show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Snapshot {
    /// The newest one.
    Newest,
    /// One at least as new.
    NotOlderThan(Revision),
    /// Exactly one.
    Exact(Revision),
}

impl Registry {
    /// The keys of a resource in a namespace, or everywhere: first and behind the last.
    pub fn bounds(resource: &'static Resource, namespace: &str) -> (String, String) {
        let prefix = if namespace.is_empty() || !resource.namespaced() {
            format!("/registry/{}/", resource.storage_prefix)
        } else {
            format!("/registry/{}/{namespace}/", resource.storage_prefix)
        };
        let end = prefix_end(&prefix);
        (prefix, end)
    }

    /// Reads a collection.
    pub async fn list(
        &self,
        resource: &'static Resource,
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
        // Upstream's cache ignores a limit on a list of any state.
        let limit = if options.resource_version == "0" && token.is_none() { 0 } else { options.limit.max(0) };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let at = match snapshot {
            Snapshot::Newest => None,
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
        self.pages(resource, &prefix, start, &end, at, limit, selection).await.map_err(|e| match e {
            Failure::Read(error) => expired(error),
            Failure::Status(status) => status,
        })
    }

    #[allow(clippy::too_many_arguments)]
    async fn pages(
        &self,
        resource: &'static Resource,
        prefix: &str,
        mut start: String,
        end: &str,
        mut at: Option<Revision>,
        limit: usize,
        selection: &Selection,
    ) -> Result<List, Failure> {
        let mut items = Vec::new();
        let mut chunk = if limit == 0 || selection.is_empty() { limit } else { limit.max(CHUNK_MIN) };
        loop {
            let range = self.store.range(&start, end, at, chunk).await.map_err(Failure::Read)?;
            at = Some(range.revision);
            let Range { revision, entries, remaining } = range;
            let count = entries.len();
            for (index, entry) in entries.iter().enumerate() {
                if let Some(shown) = self.select(resource, entry, selection).map_err(Failure::Status)? {
                    items.push(shown);
                }
                let behind = count - index - 1 + remaining;
                if limit > 0 && items.len() == limit && behind > 0 {
                    let last = entry.key.strip_prefix(prefix).unwrap_or(&entry.key);
                    return Ok(List {
                        resource,
                        items,
                        revision,
                        continue_token: Some(Continuation::after(last, revision).encode()),
                        remaining: selection.is_empty().then_some(behind),
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

    /// The entry as the resource shows it, if it is selected.
    fn select(
        &self,
        resource: &'static Resource,
        entry: &Entry,
        selection: &Selection,
    ) -> Result<Option<Shown>, Status> {
        if selection.is_empty() {
            let encoded = self.view(resource, entry)?;
            return Ok(Some(Shown { encoded, revision: Some(entry.mod_revision) }));
        }
        let item = self.cache(resource).item(entry)?;
        if !selection.matches(&item) {
            return Ok(None);
        }
        let encoded = conversion::view(resource, item.encoded.clone())?;
        Ok(Some(Shown { encoded, revision: Some(entry.mod_revision) }))
    }

    /// The parsed form of a stored item as the resource shows it.
    pub(crate) fn converted(&self, resource: &'static Resource, item: &Arc<Item>) -> Result<Arc<Item>, Status> {
        if std::ptr::eq(resource, resource.storage()) {
            return Ok(item.clone());
        }
        let encoded = conversion::view(resource, item.encoded.clone())?;
        Ok(Arc::new(item.with_encoded(encoded)))
    }
}

enum Failure {
    Read(ReadError),
    Status(Status),
}

const EXPIRED_CONTINUE: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

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

/// The rules that tie resource version, match and token together.
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
    if matches!(version, "" | "0") {
        return Ok(Snapshot::Newest);
    }
    let revision = parse_version(version)?;
    Ok(match matching {
        Some(VersionMatch::Exact) => Snapshot::Exact(revision),
        Some(VersionMatch::NotOlderThan) => Snapshot::NotOlderThan(revision),
        None if options.limit > 0 => Snapshot::Exact(revision),
        None => Snapshot::NotOlderThan(revision),
    })
}

/// Reads a resource version of a list or a watch.
pub(crate) fn parse_version(version: &str) -> Result<Revision, Status> {
    version.parse().map_err(|_| {
        status_errors::bad_request(format!(
            "invalid resource version: resourceVersion: Invalid value: {version:?}: strconv.ParseUint: parsing {version:?}: invalid syntax"
        ))
    })
}

/// The rules of a watch's options; true when the current state comes first.
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
