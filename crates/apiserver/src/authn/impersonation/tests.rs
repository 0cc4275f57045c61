use bayplan_store::{LogStore, Store};
use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use serde_json::{Value, json};

use super::requested::{EXTRA_PREFIX, GROUP, USER};
use super::*;
use crate::request::Query;
use crate::user::GROUP_MASTERS;

fn headers(pairs: &[(&str, &[u8])]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(HeaderName::try_from(*name).unwrap(), HeaderValue::from_bytes(value).unwrap());
    }
    headers
}

/// The headers of a request, and what comes of them.
type Case<'a> = (&'a [(&'a str, &'a [u8])], &'a str);

fn list_of_pods() -> RequestInfo {
    RequestInfo::parse(&http::Method::GET, "/api/v1/namespaces/ns/pods", &Query::default())
}

/// Rights of `alice`: rules of a cluster role.
async fn authorizer(rules: Value) -> Authorizer {
    let store = LogStore::in_memory().unwrap();
    let role = json!({"metadata": {"name": "r"}, "rules": rules});
    let binding = json!({"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "r"},
        "subjects": [{"kind": "User", "name": "alice"},
                     {"kind": "ServiceAccount", "name": "agent", "namespace": "ns"}]});
    for (key, object) in [("clusterroles/r", role), ("clusterrolebindings/b", binding)] {
        store.create(&format!("/registry/{key}"), Bytes::from(object.to_string())).await.unwrap();
    }
    let authorizer = Authorizer::default();
    authorizer.index.load(&store).await.unwrap();
    authorizer
}

fn show(user: &User) -> String {
    format!("{} [{}]", user.name, user.groups.join(" "))
}

#[test]
fn a_master_acts_as_others() {
    let admin = || User::new("admin", [GROUP_MASTERS]);
    let as_who = |pairs: &[(&str, &[u8])]| {
        impersonate(admin(), &headers(pairs), &list_of_pods(), &Authorizer::default(), &LastModes::default()).unwrap()
    };
    assert_eq!(as_who(&[]), admin());
    assert_eq!(as_who(&[(USER, b"")]), admin());
    let cases: [Case<'_>; 9] = [
        (&[(USER, b"bob")], "bob [system:authenticated]"),
        (&[(USER, "bøb".as_bytes())], "bøb [system:authenticated]"),
        (&[(USER, b"bob"), (GROUP, b"a"), (GROUP, b"b")], "bob [a b system:authenticated]"),
        (&[(USER, b"bob"), (GROUP, b"system:unauthenticated")], "bob [system:unauthenticated]"),
        (&[(USER, b"bob"), (GROUP, b"system:masters")], "bob [system:masters system:authenticated]"),
        (
            &[(USER, b"system:serviceaccount:ns:robot")],
            "system:serviceaccount:ns:robot [system:serviceaccounts system:serviceaccounts:ns system:authenticated]",
        ),
        (&[(USER, b"system:serviceaccount:NS:robot")], "system:serviceaccount:NS:robot [system:authenticated]"),
        (&[(USER, b"system:node:n1")], "system:node:n1 [system:nodes system:authenticated]"),
        (&[(USER, b"system:anonymous")], "system:anonymous [system:unauthenticated]"),
    ];
    for (pairs, expected) in cases {
        assert_eq!(show(&as_who(pairs)), expected);
    }
    for (key, decoded) in [("example.com%2fscopes", "example.com/scopes"), ("a%2fb%zz", "a%2fb%zz"), ("a%2", "a%2")] {
        let name = format!("{EXTRA_PREFIX}{key}");
        let extra = as_who(&[(USER, b"bob"), (&name, b"x"), (&name, b"y")]).extra;
        assert_eq!(extra[decoded], ["x", "y"], "{key}");
    }
}

#[test]
fn what_cannot_be_read_is_refused_to_everybody() {
    let scopes = format!("{EXTRA_PREFIX}scopes");
    let bad_key = format!("{EXTRA_PREFIX}%ff");
    let cases: [&[(&str, &[u8])]; 7] = [
        &[(USER, b"b\xffb")],
        &[(USER, b"\xff")],
        &[(USER, b"bob"), (GROUP, b"\xff")],
        &[(USER, b"bob"), (GROUP, b"ops"), (GROUP, b"\xff")],
        &[(USER, b"bob"), ("impersonate-uid", b"\xff")],
        &[(USER, b"bob"), (&scopes, b"\xff")],
        &[(USER, b"bob"), (&bad_key, b"x")],
    ];
    for pairs in cases {
        for user in [User::new("admin", [GROUP_MASTERS]), User::new("alice", [""; 0])] {
            let refusal = impersonate(
                user.clone(),
                &headers(pairs),
                &list_of_pods(),
                &Authorizer::default(),
                &LastModes::default(),
            );
            assert_eq!(refusal.map_err(|status| status.code), Err(403), "{pairs:?} by {}", user.name);
        }
    }
}

#[test]
fn groups_without_a_name_are_a_bad_request() {
    let extra = format!("{EXTRA_PREFIX}a");
    let cases: [Case<'_>; 4] = [
        (&[(GROUP, b"g")], r#"Name:"", UID:"", Groups:[]string{"g"}, Extra:map[string][]string(nil)"#),
        (&[(GROUP, b"")], r#"Name:"", UID:"", Groups:[]string{""}, Extra:map[string][]string(nil)"#),
        (&[("impersonate-uid", b"u")], r#"Name:"", UID:"u", Groups:[]string(nil), Extra:map[string][]string(nil)"#),
        (
            &[(&extra, b"x"), (&extra, b"y")],
            r#"Name:"", UID:"", Groups:[]string(nil), Extra:map[string][]string{"a":[]string{"x", "y"}}"#,
        ),
    ];
    for (pairs, shown) in cases {
        let admin = User::new("admin", [GROUP_MASTERS]);
        let status =
            impersonate(admin, &headers(pairs), &list_of_pods(), &Authorizer::default(), &LastModes::default())
                .unwrap_err();
        let expected = format!("requested &user.DefaultInfo{{{shown}}} without impersonating a user name");
        assert_eq!((status.code, status.message), (400, expected));
    }
}

fn rule(verbs: &[&str], group: &str, resources: &[&str]) -> Value {
    json!({"verbs": verbs, "apiGroups": [group], "resources": resources})
}

#[tokio::test]
async fn each_part_of_a_user_needs_its_right() {
    let alice = || User::new("alice", [""; 0]);
    let on_pods = rule(&["impersonate-on:user-info:list"], "", &["pods"]);
    let info = |resource: &str| rule(&["impersonate:user-info"], "authentication.k8s.io", &[resource]);
    type Pairs = &'static [(&'static str, &'static [u8])];
    let bob: Pairs = &[(USER, b"bob")];
    let with_group: Pairs = &[(USER, b"bob"), (GROUP, b"ops")];
    let cases: Vec<(Value, Pairs, &str)> = vec![
        (
            json!([]),
            bob,
            "pods is forbidden: User \"alice\" cannot impersonate-on:user-info:list resource \"pods\" in API group \
             \"\" in the namespace \"ns\"",
        ),
        (json!([rule(&["impersonate"], "", &["users"])]), bob, "bob [system:authenticated]"),
        (
            json!([on_pods]),
            bob,
            "users.authentication.k8s.io \"bob\" is forbidden: User \"alice\" cannot impersonate:user-info resource \
             \"users\" in API group \"authentication.k8s.io\" at the cluster scope",
        ),
        (json!([on_pods, info("users")]), bob, "bob [system:authenticated]"),
        (
            json!([on_pods, info("users")]),
            with_group,
            "groups.authentication.k8s.io \"ops\" is forbidden: User \"alice\" cannot impersonate:user-info resource \
             \"groups\" in API group \"authentication.k8s.io\" at the cluster scope",
        ),
        (json!([on_pods, info("users"), info("groups")]), with_group, "bob [ops system:authenticated]"),
        (
            json!([on_pods, info("users"), info("groups")]),
            &[(USER, b"bob"), (GROUP, b"system:masters")],
            "groups.authentication.k8s.io \"system:masters\" is forbidden: User \"alice\" cannot impersonate:user-info \
             resource \"groups\" in API group \"authentication.k8s.io\" at the cluster scope: impersonating the \
             system:masters group is not allowed",
        ),
        (
            json!([on_pods, info("users")]),
            &[(USER, b"bob"), ("impersonate-extra-scopes", b"x")],
            "userextras.authentication.k8s.io is forbidden: User \"alice\" cannot impersonate:user-info resource \
             \"userextras\" in API group \"authentication.k8s.io\" at the cluster scope: impersonating an invalid key \
             in extra is not allowed: extra.key: Invalid value: \"scopes\": must be a domain-prefixed path (such as \
             \"acme.io/foo\")",
        ),
        (
            json!([rule(&["impersonate"], "", &["users"])]),
            &[(USER, b"system:serviceaccount:ns:robot")],
            "pods is forbidden: User \"alice\" cannot impersonate-on:serviceaccount:list resource \"pods\" in API \
             group \"\" in the namespace \"ns\"",
        ),
        (
            json!([
                rule(&["impersonate-on:arbitrary-node:list"], "", &["pods"]),
                rule(&["impersonate:arbitrary-node"], "authentication.k8s.io", &["nodes"])
            ]),
            &[(USER, b"system:node:n1")],
            "system:node:n1 [system:nodes system:authenticated]",
        ),
    ];
    for (rules, pairs, expected) in cases {
        let authorizer = authorizer(rules.clone()).await;
        let got = impersonate(alice(), &headers(pairs), &list_of_pods(), &authorizer, &LastModes::default());
        let got = got.map_or_else(|status| status.message, |user| show(&user));
        assert_eq!(got, expected, "{rules}");
    }
}

#[tokio::test]
async fn an_account_acts_as_the_node_of_its_pod_and_as_no_other() {
    let authorizer = authorizer(json!([
        {"verbs": ["impersonate-on:associated-node:list"], "apiGroups": [""], "resources": ["pods"]},
        {"verbs": ["impersonate:associated-node"], "apiGroups": ["authentication.k8s.io"], "resources": ["nodes"]},
    ]))
    .await;
    let mut agent = User::new("system:serviceaccount:ns:agent", [""; 0]);
    agent.extra.insert("authentication.kubernetes.io/node-name".into(), vec!["n1".into()]);
    let acts_as = |node: &[u8]| {
        impersonate(agent.clone(), &headers(&[(USER, node)]), &list_of_pods(), &authorizer, &LastModes::default())
    };
    assert_eq!(show(&acts_as(b"system:node:n1").unwrap()), "system:node:n1 [system:nodes system:authenticated]");
    assert_eq!(acts_as(b"system:node:n2").unwrap_err().code, 403);
}
