//! Bootstrap tokens: `id.secret`, kept as secrets of `kube-system`, by which new nodes join.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;

use crate::registry::Objects;
use crate::user::User;

const NAMESPACE: &str = "kube-system";
const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";
/// The group of everybody with such a token; other groups begin with it.
const GROUP: &str = "system:bootstrappers";
const ID_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 16;
/// The longest rest of a group's name, as upstream.
const GROUP_REST_MAX: usize = 256;

/// The user of a bootstrap token: its secret is there, has not expired and lets itself be used for that.
pub(super) async fn authenticate(token: &str, objects: &dyn Objects, now: Timestamp) -> Option<User> {
    let (id, secret) = split(token)?;
    let secrets = bayplan_kinds::find("", "v1", "secrets")?;
    let stored = objects.get(secrets, NAMESPACE, &format!("bootstrap-token-{id}")).await.ok()??;
    user(&stored, id, secret, now)
}

/// Id and secret of a token, `abcdef.0123456789abcdef`.
fn split(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.split_once('.')?;
    let fits = |text: &str, length| {
        text.len() == length && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    (fits(id, ID_LENGTH) && fits(secret, SECRET_LENGTH)).then_some((id, secret))
}

fn user(stored: &Value, id: &str, secret: &str, now: Timestamp) -> Option<User> {
    let data = |key: &str| stored["data"][key].as_str().and_then(|text| STANDARD.decode(text).ok());
    let text = |key: &str| data(key).and_then(|bytes| String::from_utf8(bytes).ok());
    let usable = stored["type"] == SECRET_TYPE
        && stored["metadata"]["deletionTimestamp"].is_null()
        && data("token-secret").is_some_and(|kept| verify_slices_are_equal(&kept, secret.as_bytes()).is_ok())
        && text("token-id").as_deref() == Some(id)
        && text("usage-bootstrap-authentication").as_deref() == Some("true");
    if !usable {
        return None;
    }
    // A time that cannot be read has passed, as upstream.
    let expires = text("expiration").filter(|expires| !expires.is_empty());
    if expires.is_some_and(|expires| !expires.parse::<Timestamp>().is_ok_and(|at| now < at)) {
        return None;
    }
    let mut groups = vec![GROUP.to_owned()];
    let more = text("auth-extra-groups").unwrap_or_default();
    for group in more.split(',').filter(|group| !group.is_empty()) {
        if !is_group(group) {
            tracing::warn!(id, group, "a bootstrap token is refused: its groups must begin with {GROUP}:");
            return None;
        }
        groups.push(group.to_owned());
    }
    groups.sort();
    groups.dedup();
    Some(User::new(format!("system:bootstrap:{id}"), groups))
}

/// Whether a token may put its user into a group.
fn is_group(group: &str) -> bool {
    let Some(rest) = group.strip_prefix(GROUP).and_then(|rest| rest.strip_prefix(':')) else { return false };
    let of_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    rest.len() <= GROUP_REST_MAX
        && rest.bytes().all(|byte| of_name(byte) || matches!(byte, b':' | b'-'))
        && rest.bytes().last().is_some_and(of_name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::serviceaccounts::tests::Fixture;

    const TOKEN: &str = "abcdef.0123456789abcdef";

    fn secret(changes: &[(&str, &str)]) -> Value {
        let mut data = json!({
            "token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
            "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token",
            "expiration": "1970-01-01T00:20:00Z",
        });
        for (key, value) in changes {
            data[*key] = (*value).into();
        }
        for value in data.as_object_mut().unwrap().values_mut() {
            *value = STANDARD.encode(value.as_str().unwrap()).into();
        }
        json!({
            "metadata": {"name": "bootstrap-token-abcdef", "namespace": "kube-system"},
            "type": SECRET_TYPE,
            "data": data,
        })
    }

    async fn ask(secret: Value, token: &str, second: i64) -> Option<User> {
        let objects = Fixture::with(&[("secrets", secret)]);
        authenticate(token, &objects, Timestamp::from_second(second).unwrap()).await
    }

    #[tokio::test]
    async fn a_bootstrap_token_names_its_user_and_groups() {
        let user = ask(secret(&[]), TOKEN, 1199).await.unwrap();
        assert_eq!(user.name, "system:bootstrap:abcdef");
        let expected =
            ["system:bootstrappers", "system:bootstrappers:kubeadm:default-node-token", "system:authenticated"];
        assert_eq!(user.groups, expected);
        assert!(ask(secret(&[("expiration", "")]), TOKEN, 9999).await.is_some());
    }

    #[tokio::test]
    async fn a_bootstrap_token_that_may_not_be_used_is_refused() {
        let changed = |path: &str, value: Value| {
            let mut secret = secret(&[]);
            *secret.pointer_mut(path).unwrap() = value;
            secret
        };
        let deleted = {
            let mut secret = secret(&[]);
            secret["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:00Z".into();
            secret
        };
        for (what, secret, token) in [
            ("expired", secret(&[("expiration", "1970-01-01T00:16:40Z")]), TOKEN),
            ("a time that cannot be read", secret(&[("expiration", "soon")]), TOKEN),
            ("another secret", secret(&[]), "abcdef.fedcba9876543210"),
            ("not for authentication", secret(&[("usage-bootstrap-authentication", "yes")]), TOKEN),
            ("of another id", secret(&[("token-id", "fedcba")]), TOKEN),
            ("a group beyond bootstrappers", secret(&[("auth-extra-groups", "system:masters")]), TOKEN),
            ("another type", changed("/type", "Opaque".into()), TOKEN),
            ("being deleted", deleted, TOKEN),
            ("unknown", secret(&[]), "fedcba.0123456789abcdef"),
            ("upper case", secret(&[]), "ABCDEF.0123456789abcdef"),
            ("too short", secret(&[]), "abcdef.0123"),
        ] {
            assert_eq!(ask(secret, token, 1000).await, None, "{what}");
        }
    }
}
