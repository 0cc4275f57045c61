//! Front proxies: a client whose certificate names it as one says in headers for whom it asks.

use std::collections::BTreeMap;

use http::HeaderMap;

use super::authenticated;
use crate::user::User;

/// Who is a front proxy, and in which headers it names its users; upstream's `--requestheader-*`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestHeaders {
    /// The common names of front proxies; empty for every certificate of their authority.
    pub allowed_names: Vec<String>,
    /// The headers of the user's name; the first with a value counts.
    pub username_headers: Vec<String>,
    /// The headers of the user's uid; the first with a value counts.
    pub uid_headers: Vec<String>,
    /// The headers of groups; all their values count.
    pub group_headers: Vec<String>,
    /// What the names of headers with extra information begin with.
    pub extra_headers_prefix: Vec<String>,
}

impl RequestHeaders {
    /// Those that kubeadm gives every cluster.
    pub(crate) fn usual() -> RequestHeaders {
        let one = |name: &str| vec![name.to_owned()];
        RequestHeaders {
            allowed_names: one("front-proxy-client"),
            username_headers: one("X-Remote-User"),
            uid_headers: Vec::new(),
            group_headers: one("X-Remote-Group"),
            extra_headers_prefix: one("X-Remote-Extra-"),
        }
    }

    /// True if certificates with this common name are those of front proxies.
    pub(super) fn allows(&self, common_name: &str) -> bool {
        self.allowed_names.is_empty() || self.allowed_names.iter().any(|name| name == common_name)
    }

    /// The user in the headers; none if they name nobody. A value that is no text names another user than is meant, so
    /// that nobody is named by such headers.
    pub(super) fn user(&self, headers: &HeaderMap) -> Option<User> {
        let name = first(headers, &self.username_headers)?;
        let mut groups = Vec::new();
        for header in &self.group_headers {
            for value in headers.get_all(header.as_str()) {
                groups.push(std::str::from_utf8(value.as_bytes()).ok()?.to_owned());
            }
        }
        let uid = first(headers, &self.uid_headers).unwrap_or_default();
        Some(authenticated(User { name, uid, groups, extra: self.extra(headers)? }))
    }

    fn extra(&self, headers: &HeaderMap) -> Option<BTreeMap<String, Vec<String>>> {
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for prefix in &self.extra_headers_prefix {
            let prefix = prefix.to_ascii_lowercase();
            for (name, value) in headers {
                // Header names are lower case here.
                let Some(key) = name.as_str().strip_prefix(prefix.as_str()) else { continue };
                let value = std::str::from_utf8(value.as_bytes()).ok()?.to_owned();
                extra.entry(unescaped(key)).or_default().push(value);
            }
        }
        Some(extra)
    }
}

fn first(headers: &HeaderMap, names: &[String]) -> Option<String> {
    let values = names.iter().filter_map(|name| headers.get(name.as_str()));
    let mut given = values.filter(|value| !value.is_empty());
    given.next().and_then(|value| std::str::from_utf8(value.as_bytes()).ok()).map(str::to_owned)
}

/// A key with its percent-encoding undone; as it is if that is malformed, as upstream.
fn unescaped(key: &str) -> String {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits: Option<(u8, u8)> = rest.next().zip(rest.next());
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        match digits.and_then(|(high, low)| digit(high).zip(digit(low))) {
            Some((high, low)) => bytes.push(high << 4 | low),
            None => return key.to_owned(),
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| key.to_owned())
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn kubeadm() -> RequestHeaders {
        RequestHeaders {
            allowed_names: vec!["front-proxy-client".into()],
            username_headers: vec!["X-Remote-User".into()],
            uid_headers: vec!["X-Remote-Uid".into()],
            group_headers: vec!["X-Remote-Group".into()],
            extra_headers_prefix: vec!["X-Remote-Extra-".into()],
        }
    }

    fn headers(given: &[(&'static str, &[u8])]) -> HeaderMap {
        let one = |(name, value): &(&'static str, &[u8])| {
            (HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap())
        };
        given.iter().map(one).collect()
    }

    #[test]
    fn headers_name_a_user_with_groups_uid_and_extra() {
        let user = kubeadm()
            .user(&headers(&[
                ("x-remote-user", b"alice"),
                ("x-remote-uid", b"u1"),
                ("x-remote-group", b"devs"),
                ("x-remote-group", b"ops"),
                ("x-remote-extra-scopes", b"read"),
                ("x-remote-extra-scopes", b"write"),
                ("x-remote-extra-acme.com%2fteam", b"blue"),
                ("x-remote-extra-bad%2", b"kept"),
            ]))
            .unwrap();
        assert_eq!((&*user.name, &*user.uid), ("alice", "u1"));
        assert_eq!(user.groups, ["devs", "ops", "system:authenticated"]);
        assert_eq!(user.extra["scopes"], ["read", "write"]);
        assert_eq!(user.extra["acme.com/team"], ["blue"]);
        assert_eq!(user.extra["bad%2"], ["kept"]);
    }

    #[test]
    fn headers_without_a_name_or_with_one_that_is_no_text_name_nobody() {
        for given in [
            &[("x-remote-group", &b"system:masters"[..])][..],
            &[("x-remote-user", b"")],
            &[("x-remote-user", b"\xff")],
            &[("x-remote-user", b"alice"), ("x-remote-group", b"\xff")],
        ] {
            assert_eq!(kubeadm().user(&headers(given)), None, "{given:?}");
        }
        assert!(kubeadm().allows("front-proxy-client") && !kubeadm().allows("alice"));
        assert!(RequestHeaders::default().allows("anybody"));
    }
}
