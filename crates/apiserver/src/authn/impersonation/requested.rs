//! Whom the headers of a request ask to act as.

use std::collections::BTreeMap;

use bayplan_model::status::Status;
use http::HeaderMap;

use crate::status_errors::bad_request;
use crate::user::User;

pub(super) const USER: &str = "impersonate-user";
const UID: &str = "impersonate-uid";
pub(super) const GROUP: &str = "impersonate-group";
pub(super) const EXTRA_PREFIX: &str = "impersonate-extra-";

/// The user in the headers, as they stand there.
pub(super) struct Requested {
    pub(super) user: User,
    /// False if some text in `user` only stands in for bytes that are no text: the rights may be asked, to answer as
    /// upstream does, but nobody acts as this user.
    pub(super) readable: bool,
}

/// Reads the headers; none if they ask for nothing. Groups, uid and extra need a user's name beside them.
pub(super) fn of(headers: &HeaderMap) -> Result<Option<Requested>, Status> {
    let mut readable = true;
    let mut text = |bytes: &[u8]| {
        readable &= std::str::from_utf8(bytes).is_ok();
        String::from_utf8_lossy(bytes).into_owned()
    };
    let mut one = |name: &str| headers.get(name).map(|value| text(value.as_bytes())).unwrap_or_default();
    let (name, uid) = (one(USER), one(UID));
    let groups: Vec<String> = headers.get_all(GROUP).iter().map(|value| text(value.as_bytes())).collect();
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        if let Some(key) = name.as_str().strip_prefix(EXTRA_PREFIX) {
            let key = text(&percent_decoded(key.as_bytes()));
            extra.entry(key).or_default().push(text(value.as_bytes()));
        }
    }
    let user = User { name, uid, groups, extra };
    if !user.name.is_empty() {
        return Ok(Some(Requested { user, readable }));
    }
    if user == User::default() {
        return Ok(None);
    }
    Err(bad_request(format!("requested {} without impersonating a user name", go_syntax(&user))))
}

/// Decodes an extra key: clients percent-encode the characters that header names cannot have. A key with a broken
/// escape is taken as it is.
fn percent_decoded(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digit = |at: usize| tail.get(at).and_then(|digit| char::from(*digit).to_digit(16));
        let (Some(high), Some(low)) = (digit(0), digit(1)) else { return text.to_vec() };
        bytes.push(u8::try_from(high * 16 + low).expect("two hexadecimal digits are a byte"));
        rest = &tail[2..];
    }
    bytes
}

/// Go's `%#v` of the user, which upstream shows.
fn go_syntax(user: &User) -> String {
    let list = |values: &[String]| {
        let quoted: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
        if values.is_empty() { "[]string(nil)".to_owned() } else { format!("[]string{{{}}}", quoted.join(", ")) }
    };
    let extra: Vec<String> = user.extra.iter().map(|(key, values)| format!("{key:?}:{}", list(values))).collect();
    let extra = if extra.is_empty() { "(nil)".to_owned() } else { format!("{{{}}}", extra.join(", ")) };
    format!(
        "&user.DefaultInfo{{Name:{:?}, UID:{:?}, Groups:{}, Extra:map[string][]string{extra}}}",
        user.name,
        user.uid,
        list(&user.groups)
    )
}
