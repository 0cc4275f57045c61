//! Keys here and in etcd: the same behind the prefix.

use std::sync::Arc;

use bytes::Bytes;

use crate::options::{ConnectError, DEFAULT_PREFIX};

/// The first key here.
const FIRST: &str = "/registry/";
/// The key behind the last one here: `0` follows `/`.
const END: &str = "/registry0";

/// The part of etcd's keys that belongs to the store.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    /// Begins and ends with a slash.
    prefix: String,
}

impl Keys {
    /// The keys behind a prefix, with or without slashes around it.
    pub(crate) fn new(prefix: &str) -> Result<Keys, ConnectError> {
        let name = prefix.trim_matches('/');
        if name.is_empty() {
            return Err(ConnectError::Prefix(prefix.to_owned()));
        }
        Ok(Keys { prefix: format!("/{name}/") })
    }

    /// All keys in etcd: first, and behind the last.
    pub(crate) fn bounds(&self) -> (Bytes, Bytes) {
        (Bytes::from(self.prefix.clone()), self.end())
    }

    fn end(&self) -> Bytes {
        Bytes::from(format!("{}0", self.prefix.trim_end_matches('/')))
    }

    /// A key as etcd has it; the error says why it has none.
    pub(crate) fn stored(&self, key: &str) -> Result<Bytes, String> {
        let rest = key.strip_prefix(FIRST).filter(|rest| !rest.is_empty());
        let rest = rest.ok_or_else(|| format!("the key '{key}' is not below {DEFAULT_PREFIX}/"))?;
        Ok(Bytes::from(format!("{}{rest}", self.prefix)))
    }

    /// The part of a range that lies in etcd; `None` when it is empty.
    pub(crate) fn stored_range(&self, start: &str, end: &str) -> Option<(Bytes, Bytes)> {
        let (start, end) = (start.max(FIRST), end.min(END));
        if start >= end {
            return None;
        }
        let stored = |key: &str| match key.strip_prefix(FIRST) {
            Some(rest) => Bytes::from(format!("{}{rest}", self.prefix)),
            None => self.end(),
        };
        Some((stored(start), stored(end)))
    }

    /// A key of etcd as it is here; `None` when it is not text.
    pub(crate) fn key(&self, stored: &[u8]) -> Option<Arc<str>> {
        let rest = std::str::from_utf8(stored).ok()?.strip_prefix(&self.prefix)?;
        if self.prefix == FIRST {
            return std::str::from_utf8(stored).ok().map(Into::into);
        }
        Some(format!("{FIRST}{rest}").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_stands_for_registry() {
        for (prefix, stored) in [
            ("/registry", "/registry/pods/a"),
            ("registry/", "/registry/pods/a"),
            ("/clusters/blue", "/clusters/blue/pods/a"),
        ] {
            let keys = Keys::new(prefix).unwrap();
            assert_eq!(keys.stored("/registry/pods/a").unwrap(), stored, "{prefix}");
            assert_eq!(keys.key(stored.as_bytes()).as_deref(), Some("/registry/pods/a"), "{prefix}");
            assert_eq!(keys.key(b"/elsewhere/pods/a"), None);
            assert_eq!(keys.key(&[stored.as_bytes(), &[0xff]].concat()), None);
        }
        assert!(Keys::new("/").is_err());
        let keys = Keys::new("/registry").unwrap();
        for outside in ["", "/", "/registry", "/registry/", "/registryx/a", "compact_rev_key"] {
            assert!(keys.stored(outside).unwrap_err().contains(outside), "{outside}");
        }
    }

    #[test]
    fn a_range_ends_where_the_keys_end() {
        let keys = Keys::new("/blue").unwrap();
        let range = |start, end| {
            let (start, end) = keys.stored_range(start, end)?;
            Some((String::from_utf8(start.into()).unwrap(), String::from_utf8(end.into()).unwrap()))
        };
        let pair = |start: &str, end: &str| Some((start.to_owned(), end.to_owned()));
        assert_eq!(range("/registry/pods/", "/registry/pods0"), pair("/blue/pods/", "/blue/pods0"));
        assert_eq!(range("/", "0"), pair("/blue/", "/blue0"));
        assert_eq!(range("", "\u{10FFFF}"), pair("/blue/", "/blue0"));
        assert_eq!(range("/registry/b", "/registry/a"), None);
        assert_eq!(range("/a", "/b"), None);
        assert_eq!(range("/s", "/t"), None);
    }
}
