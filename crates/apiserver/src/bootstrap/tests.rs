use super::*;
use crate::authz::policy::Policy;
use crate::authz::{Action, Attributes, rbac};
use crate::request::Verb;
use crate::serviceaccounts::tests::Fixture;
use crate::user::User;

const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);

fn options() -> BootstrapOptions {
    BootstrapOptions {
        advertise_address: [127, 0, 0, 1].into(),
        advertise_port: 6443,
        client_authority: "CA".into(),
        front_proxy: None,
        nobodys_authority: None,
        aggregate_roles: true,
        shared_store: false,
    }
}

#[tokio::test]
async fn a_second_start_writes_nothing() {
    let objects = Fixture::default();
    let first = ensure(&objects, ADDRESS, &options()).await.unwrap();
    assert_eq!(first, objects.objects.lock().unwrap().len());
    assert_eq!(ensure(&objects, ADDRESS, &options()).await.unwrap(), 0);
    for (plural, namespace, name) in [
        ("namespaces", "", "kube-node-lease"),
        ("priorityclasses", "", "system-node-critical"),
        ("clusterroles", "", "cluster-admin"),
        ("roles", "kube-system", "extension-apiserver-authentication-reader"),
        ("services", "default", "kubernetes"),
        ("endpoints", "default", "kubernetes"),
        ("configmaps", "kube-system", "extension-apiserver-authentication"),
        ("apiservices", "", "v1."),
        ("flowschemas", "", "probes"),
        ("prioritylevelconfigurations", "", "catch-all"),
    ] {
        assert!(objects.one(plural, namespace, name).is_some(), "{plural} {name}");
    }
}

#[tokio::test]
async fn a_start_reconciles_its_own_fields_and_keeps_the_others() {
    let objects = Fixture::default();
    ensure(&objects, ADDRESS, &options()).await.unwrap();
    let edit = |plural: &str, namespace: &str, name: &str, change: &dyn Fn(&mut Value)| {
        let mut object = Value::clone(&objects.one(plural, namespace, name).unwrap());
        change(&mut object);
        objects.put(plural, object);
    };
    let own = json!({"verbs": ["use"], "apiGroups": ["x"], "resources": ["y"]});
    edit("clusterroles", "", "system:basic-user", &|role| role["rules"] = json!([own]));
    edit("clusterroles", "", "system:discovery", &|role| {
        role["rules"] = json!([]);
        role["metadata"]["annotations"][AUTOUPDATE] = "false".into();
    });
    edit("clusterrolebindings", "", "system:discovery", &|binding| binding["subjects"] = json!([]));
    edit("namespaces", "", "default", &|namespace| namespace["metadata"]["labels"]["mine"] = "1".into());
    let moved = BootstrapOptions { advertise_port: 7443, ..options() };
    edit("configmaps", "kube-system", "extension-apiserver-authentication", &|map| {
        map["data"] = json!({"client-ca-file": "OTHER", "requestheader-client-ca-file": "PROXY"});
    });
    // One role, one binding and the authorities: the address is not of these objects.
    assert_eq!(ensure(&objects, ADDRESS, &moved).await.unwrap(), 3);
    assert_eq!(ensure(&objects, ADDRESS, &moved).await.unwrap(), 0);
    let published = objects.one("configmaps", "kube-system", "extension-apiserver-authentication").unwrap();
    assert_eq!(published["data"], json!({"client-ca-file": "OTHER\nCA\n", "requestheader-client-ca-file": "PROXY"}));
    let role = objects.one("clusterroles", "", "system:basic-user").unwrap();
    assert_eq!((role["rules"].as_array().unwrap().len(), &role["rules"][0]), (3, &own));
    assert_eq!(objects.one("clusterroles", "", "system:discovery").unwrap()["rules"], json!([]));
}

#[tokio::test]
async fn an_authority_of_front_proxies_is_published_unless_there_is_one() {
    let published = async |before: Value, options: &BootstrapOptions| {
        let objects = Fixture::default();
        let name = "extension-apiserver-authentication";
        ensure(&objects, ADDRESS, &self::options()).await.unwrap();
        let mut map = Value::clone(&objects.one("configmaps", "kube-system", name).unwrap());
        map["data"] = before;
        objects.put("configmaps", map);
        ensure(&objects, ADDRESS, options).await.unwrap();
        let data = objects.one("configmaps", "kube-system", name).unwrap()["data"].clone();
        (data["requestheader-client-ca-file"].clone(), data["requestheader-username-headers"].clone())
    };
    let nobodys = BootstrapOptions { nobodys_authority: Some("NOBODY".to_owned()), ..options() };
    let known =
        BootstrapOptions { front_proxy: Some(("KNOWN".to_owned(), RequestHeaders::usual())), ..nobodys.clone() };
    let other = json!({"client-ca-file": "CA", "requestheader-client-ca-file": "OTHER"});
    let usual = json!("[\"X-Remote-User\"]");
    assert_eq!(published(json!({}), &nobodys).await, (json!("NOBODY"), usual.clone()));
    assert_eq!(published(other.clone(), &nobodys).await, (json!("OTHER"), Value::Null));
    assert_eq!(published(other, &known).await, (json!("KNOWN"), usual));
}

/// The policy that the bootstrap objects make.
async fn policy() -> Policy {
    let objects = Fixture::default();
    ensure(&objects, ADDRESS, &options()).await.unwrap();
    let mut policy = Policy::default();
    for ((plural, namespace, name), object) in objects.objects.lock().unwrap().iter() {
        let (namespace, name, value) = (namespace.clone(), name.clone(), Value::clone(object));
        match plural.as_str() {
            "clusterroles" => _ = policy.cluster_roles.insert(name, serde_json::from_value(value).unwrap()),
            "clusterrolebindings" => {
                _ = policy.cluster_role_bindings.insert(name, serde_json::from_value(value).unwrap())
            }
            "roles" => {
                _ = policy.roles.entry(namespace).or_default().insert(name, serde_json::from_value(value).unwrap())
            }
            "rolebindings" => {
                _ = policy
                    .role_bindings
                    .entry(namespace)
                    .or_default()
                    .insert(name, serde_json::from_value(value).unwrap());
            }
            _ => {}
        }
    }
    policy
}

#[tokio::test]
async fn components_may_do_their_work_and_no_more() {
    let policy = policy().await;
    let scheduler = User::new("system:kube-scheduler", [""; 0]);
    let manager = User::new("system:kube-controller-manager", [""; 0]);
    // Upstream's, which have no counterpart here.
    let of_upstream = |name: &str| User::new(format!("system:serviceaccount:kube-system:{name}"), [""; 0]);
    let (signer, cleaner) = (of_upstream("bootstrap-signer"), of_upstream("legacy-service-account-token-cleaner"));
    let anybody = User::new("alice", ["devs"]);
    for (user, verb, group, resource, subresource, name, expected) in [
        (&scheduler, "create", "", "pods", "binding", "p", true),
        (&scheduler, "watch", "apps", "replicasets", "", "", true),
        (&scheduler, "watch", "storage.k8s.io", "storageclasses", "", "", true),
        (&scheduler, "update", "coordination.k8s.io", "leases", "", "kube-scheduler", true),
        // As upstream's: any lease of kube-system.
        (&scheduler, "update", "coordination.k8s.io", "leases", "", "other", true),
        (&scheduler, "delete", "coordination.k8s.io", "leases", "", "other", false),
        (&scheduler, "create", "", "pods", "", "", false),
        (&manager, "create", "", "pods", "", "", true),
        (&manager, "update", "apps", "deployments", "status", "d", true),
        (&manager, "deletecollection", "batch", "jobs", "", "", true),
        (&manager, "update", "", "namespaces", "finalize", "n", true),
        (&manager, "create", "", "events", "", "", true),
        (&manager, "create", "", "nodes", "", "", false),
        (&signer, "list", "", "secrets", "", "", true),
        (&signer, "update", "", "secrets", "", "s", false),
        (&cleaner, "get", "", "configmaps", "", "kube-apiserver-legacy-service-account-token-tracking", true),
        (&cleaner, "get", "", "configmaps", "", "other", false),
        (&anybody, "create", "authorization.k8s.io", "selfsubjectaccessreviews", "", "", true),
        (&anybody, "list", "", "pods", "", "", false),
    ] {
        let action = Action::Resource { group, resource, subresource, name, namespace: "kube-system" };
        let decision =
            rbac::authorize(&policy, &Attributes { user, verb: &Verb::from(verb), action, field_selector: "" });
        assert_eq!(decision.allowed, expected, "{} {verb} {resource}/{subresource} {name}", user.name);
    }
    let nobody = crate::authn::anonymous();
    for (user, path, expected) in
        [(&nobody, "/healthz", true), (&nobody, "/api", false), (&anybody, "/openapi/v3", true)]
    {
        let decision = rbac::authorize(
            &policy,
            &Attributes { user, verb: &Verb::Get, action: Action::Path(path), field_selector: "" },
        );
        assert_eq!(decision.allowed, expected, "{path}");
    }
}

#[tokio::test]
async fn greater_roles_include_the_lesser_ones() {
    let policy = policy().await;
    let rules = |name: &str| policy.cluster_roles[name].rules.clone();
    for (greater, lesser) in
        [("cluster-admin", "admin"), ("admin", "edit"), ("edit", "view"), ("view", "system:aggregate-to-view")]
    {
        let held = rules(greater);
        let missing = uncovered(&held.iter().collect::<Vec<_>>(), &rules(lesser));
        assert!(missing.is_empty() && !rules(lesser).is_empty(), "{greater} lacks {missing:?}");
    }
}

#[tokio::test]
async fn a_start_restores_the_configuration_that_is_its_own() {
    const AUTOUPDATE: &str = "apf.kubernetes.io/autoupdate-spec";
    let objects = Fixture::default();
    ensure(&objects, ADDRESS, &options()).await.unwrap();
    let change = |name: &str, annotation: Option<&str>, shares: u32| {
        let mut level = Value::clone(&objects.one("prioritylevelconfigurations", "", name).unwrap());
        level["metadata"]["generation"] = 2.into();
        level["metadata"]["annotations"] = annotation.map_or(json!({}), |value| json!({AUTOUPDATE: value}));
        level["spec"]["limited"]["nominalConcurrencyShares"] = shares.into();
        objects.put("prioritylevelconfigurations", level);
    };
    change("catch-all", Some("false"), 77);
    change("system", Some("true"), 77);
    change("node-high", Some("false"), 77);
    change("workload-low", None, 77);
    ensure(&objects, ADDRESS, &options()).await.unwrap();
    let level = |name: &str| {
        let level = objects.one("prioritylevelconfigurations", "", name).unwrap();
        let shares = level["spec"]["limited"]["nominalConcurrencyShares"].as_u64();
        (shares, level["metadata"]["generation"].as_u64(), level["metadata"]["annotations"][AUTOUPDATE] == "true")
    };
    assert_eq!(level("catch-all"), (Some(5), Some(3), true));
    assert_eq!(level("system"), (Some(30), Some(3), true));
    assert_eq!(level("node-high"), (Some(77), Some(2), false));
    assert_eq!(level("workload-low"), (Some(77), Some(2), false));
}
