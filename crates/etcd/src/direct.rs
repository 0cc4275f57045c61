//! Reads from etcd itself: of a whole range at one revision, in pages of bounded size.

use bayplan_store::{Entry, Range, ReadError, Revision, Unreadable};
use bytes::Bytes;

use crate::client::proto::{KeyValue, RangeRequest, RangeResponse};
use crate::client::{CallError, Client, RANGE};
use crate::values::{Values, etcd_revision, revision};

/// How many keys the first page has; nothing is known yet of their size.
const FIRST_PAGE_KEYS: i64 = 100;
/// How many bytes a page is to have: some tens of milliseconds of a network.
const PAGE_BYTES: usize = 8 << 20;
/// The fewest and the most keys of a page.
const PAGE_KEYS_MIN: i64 = 10;
const PAGE_KEYS_MAX: i64 = 10_000;

/// A read of a range, page by page; all pages are of one revision.
pub(crate) struct Pages<'a> {
    client: &'a Client,
    next: Bytes,
    end: Bytes,
    at: i64,
    page_keys: i64,
    /// How many keys lie behind the pages read so far.
    remaining: i64,
    more: bool,
}

impl<'a> Pages<'a> {
    /// A read of `start <= key < end` at a revision (`None`: the newest).
    pub(crate) fn new(client: &'a Client, bounds: (Bytes, Bytes), at: Option<Revision>) -> Self {
        let at = at.map_or(0, etcd_revision);
        Pages { client, next: bounds.0, end: bounds.1, at, page_keys: FIRST_PAGE_KEYS, remaining: 0, more: true }
    }

    /// The next page, of at most `limit` keys (0: as many as fit); `None` behind the last.
    pub(crate) async fn next(&mut self, limit: usize) -> Result<Option<Vec<KeyValue>>, CallError> {
        if !self.more {
            return Ok(None);
        }
        let limit = i64::try_from(limit).unwrap_or(0);
        let request = RangeRequest {
            key: self.next.clone(),
            range_end: self.end.clone(),
            limit: if limit == 0 { self.page_keys } else { limit.min(self.page_keys) },
            revision: self.at,
            keys_only: false,
        };
        let answer: RangeResponse = self.client.call(RANGE.to("read a range"), request).await?;
        if self.at == 0 {
            self.at = answer.header.map_or(0, |header| header.revision);
        }
        self.more = answer.more && !answer.kvs.is_empty();
        self.remaining = answer.count - answer.kvs.len() as i64;
        if let Some(last) = answer.kvs.last() {
            self.next = [&*last.key, &[0]].concat().into();
            let bytes: usize = answer.kvs.iter().map(|kv| kv.key.len() + kv.value.len()).sum();
            let fitting = PAGE_BYTES / (bytes / answer.kvs.len()).max(1);
            self.page_keys = i64::try_from(fitting).unwrap_or(PAGE_KEYS_MAX).clamp(PAGE_KEYS_MIN, PAGE_KEYS_MAX);
        }
        Ok(Some(answer.kvs))
    }

    /// The revision of the pages, known after the first.
    pub(crate) fn revision(&self) -> Revision {
        revision(self.at)
    }
}

/// A range at a revision, read from etcd.
pub(crate) async fn range(
    client: &Client,
    values: &Values,
    bounds: (Bytes, Bytes),
    at: Option<Revision>,
    limit: usize,
) -> Result<Range, CallError> {
    let mut pages = Pages::new(client, bounds, at);
    let (mut entries, mut unreadable): (Vec<Entry>, Vec<Unreadable>) = (Vec::new(), Vec::new());
    while limit == 0 || entries.len() < limit {
        let wanted = if limit == 0 { 0 } else { limit - entries.len() };
        let Some(page) = pages.next(wanted).await? else { break };
        for found in page.into_iter().filter_map(|kv| values.entry(kv)) {
            match found {
                Ok(entry) => entries.push(entry),
                Err(left_out) => unreadable.push(left_out),
            }
        }
    }
    let remaining = usize::try_from(pages.remaining).unwrap_or(0);
    Ok(Range { revision: pages.revision(), entries, remaining, unreadable })
}

/// What a failed read is to a caller who asked for a revision.
pub(crate) fn read_error(error: CallError, requested: Revision, oldest: Revision, current: Revision) -> ReadError {
    match error {
        // etcd does not say what its oldest revision is; it is newer than the one that was asked for.
        CallError::Compacted => ReadError::Compacted { requested, oldest: oldest.max(requested + 1) },
        CallError::Future => ReadError::Future { requested, current },
        error => ReadError::Unavailable(error.to_string()),
    }
}
