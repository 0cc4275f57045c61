//! Impersonation: a user with the right to `impersonate` acts as another user.

use std::collections::BTreeMap;

use bayplan_model::status::Status;
use http::HeaderMap;

use super::{ANONYMOUS, GROUP_UNAUTHENTICATED, authenticated};
use crate::authz::{Action, Attributes, Authorizer};
use crate::request::Verb;
use crate::serviceaccounts;
use crate::status_errors::internal;
use crate::user::User;

const USER: &str = "impersonate-user";
const UID: &str = "impersonate-uid";
const GROUP: &str = "impersonate-group";
const EXTRA_PREFIX: &str = "impersonate-extra-";
const AUTHENTICATION_GROUP: &str = "authentication.k8s.io";

/// The user that the request acts as: the one in its headers if `user` may impersonate them, otherwise `user`.
pub(crate) fn impersonate(user: User, headers: &HeaderMap, authorizer: &Authorizer) -> Result<User, Status> {
    let wanted = requested(headers);
    if wanted == User::default() {
        return Ok(user);
    }
    if wanted.name.is_empty() {
        return Err(internal("requested impersonation of groups, uid or extra without impersonating a user"));
    }
    check(&user, &wanted, authorizer)?;
    Ok(complete(wanted))
}

fn requested(headers: &HeaderMap) -> User {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let groups = headers.get_all(GROUP).iter().filter_map(|value| value.to_str().ok()).map(str::to_owned).collect();
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        if let (Some(key), Ok(value)) = (name.as_str().strip_prefix(EXTRA_PREFIX), value.to_str()) {
            extra.entry(percent_decoded(key)).or_default().push(value.to_owned());
        }
    }
    User { name: text(USER), uid: text(UID), groups, extra }
}

fn check(user: &User, wanted: &User, authorizer: &Authorizer) -> Result<(), Status> {
    let allowed = |group, resource, subresource, name, namespace| {
        let action = Action::Resource { group, resource, subresource, name, namespace };
        authorizer.check(&Attributes { user, verb: &Verb::Impersonate, action })
    };
    match serviceaccounts::split_user_name(&wanted.name) {
        Some((namespace, name)) => allowed("", "serviceaccounts", "", name, namespace)?,
        None => allowed("", "users", "", &wanted.name, "")?,
    }
    for group in &wanted.groups {
        allowed("", "groups", "", group, "")?;
    }
    for (key, values) in &wanted.extra {
        for value in values {
            allowed(AUTHENTICATION_GROUP, "userextras", key, value, "")?;
        }
    }
    if !wanted.uid.is_empty() {
        allowed(AUTHENTICATION_GROUP, "uids", "", &wanted.uid, "")?;
    }
    Ok(())
}

fn complete(mut wanted: User) -> User {
    if wanted.groups.is_empty()
        && let Some((namespace, _)) = serviceaccounts::split_user_name(&wanted.name)
    {
        wanted.groups = serviceaccounts::groups(namespace);
    }
    if wanted.name == ANONYMOUS {
        if !wanted.in_group(GROUP_UNAUTHENTICATED) {
            wanted.groups.push(GROUP_UNAUTHENTICATED.to_owned());
        }
        return wanted;
    }
    authenticated(wanted)
}

/// Decodes an extra key: clients percent-encode the characters that header names cannot have.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = |digit: u8| char::from(digit).to_digit(16);
        match (first, tail) {
            (b'%', [high, low, tail @ ..]) if hex(*high).is_some() && hex(*low).is_some() => {
                let value = hex(*high).unwrap_or(0) * 16 + hex(*low).unwrap_or(0);
                bytes.push(u8::try_from(value).unwrap_or(b'%'));
                rest = tail;
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::user::GROUP_MASTERS;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn a_master_acts_as_others() {
        let admin = || User::new("admin", [GROUP_MASTERS]);
        let authorizer = Authorizer::default();
        let as_who = |pairs: &[(&'static str, &str)]| impersonate(admin(), &headers(pairs), &authorizer).unwrap();
        assert_eq!(as_who(&[]), admin());
        assert_eq!(as_who(&[(USER, "bob")]).groups, ["system:authenticated"]);
        assert_eq!(as_who(&[(USER, "bob"), (GROUP, "a"), (GROUP, "b")]).groups, ["a", "b", "system:authenticated"]);
        assert_eq!(
            as_who(&[(USER, "system:serviceaccount:ns:robot")]).groups,
            ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"]
        );
        assert_eq!(as_who(&[(USER, "system:anonymous")]).groups, ["system:unauthenticated"]);
        let extra = as_who(&[(USER, "bob"), ("impersonate-extra-example.com%2fscopes", "x")]).extra;
        assert_eq!(extra["example.com/scopes"], ["x"]);
    }

    #[test]
    fn others_need_the_right() {
        let alice = || User::new("alice", [""; 0]);
        let authorizer = Authorizer::default();
        let refusal = impersonate(alice(), &headers(&[(USER, "bob")]), &authorizer).unwrap_err();
        assert_eq!(
            refusal.message,
            "users \"bob\" is forbidden: User \"alice\" cannot impersonate resource \"users\" in API group \"\" at the \
             cluster scope"
        );
        assert_eq!(impersonate(alice(), &headers(&[(GROUP, "g")]), &authorizer).unwrap_err().code, 500);
    }
}
