use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bayplan_kinds::Kind;
use bayplan_store::{LogStore, Store};
use jiff::{SignedDuration, Timestamp};

use super::super::decode::Sent;
use super::super::{Objects, SystemObjects, SystemWrite, UpdatedObject};
use super::repair::Leaks;
use super::*;
use crate::admission::AdmissionPlugins;
use crate::authz::Authorizer;
use crate::request::{DeleteOptions, Preconditions};
use crate::user::User;
use crate::warnings::Warnings;

/// Servers on one store, and their clock in seconds.
struct Cluster {
    servers: Vec<Arc<Registry>>,
    seconds: Arc<AtomicI64>,
    admin: User,
    warnings: Warnings,
}

fn cluster(count: usize, range: &str) -> Cluster {
    let store: Arc<dyn Store> = Arc::new(LogStore::in_memory().unwrap());
    let seconds = Arc::new(AtomicI64::new(0));
    let server = |_| {
        let clock = seconds.clone();
        let now = move || Timestamp::UNIX_EPOCH + SignedDuration::from_secs(clock.load(Ordering::Relaxed));
        let plugins = AdmissionPlugins::default();
        Arc::new(Registry::new(store.clone(), Arc::new(now), plugins, range.parse().unwrap(), Authorizer::default()))
    };
    let (servers, admin) = ((0..count).map(server).collect(), User::new("admin", ["system:masters"]));
    Cluster { servers, seconds, admin, warnings: Warnings::default() }
}

fn kind(plural: &str) -> &'static Kind {
    bayplan_kinds::find("", "v1", plural).unwrap()
}

impl Cluster {
    fn call<'a>(&'a self, name: &'a str) -> Call<'a> {
        let resource = kind("services");
        Call {
            resource,
            subresource: "",
            namespace: "default",
            name,
            user: &self.admin,
            dry_run: false,
            shares_labels: false,
            manager: "test",
            warnings: &self.warnings,
        }
    }

    async fn namespace(&self) {
        let object = json!({
            "kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "default"}, "status": {"phase": "Active"},
        });
        let created = self.servers[0].create_unchecked(SystemWrite::Bootstrap, kind("namespaces"), "", object).await;
        created.unwrap();
    }

    async fn create(&self, server: usize, name: &str, spec: Value) -> Result<Value, Status> {
        let mut object = json!({
            "kind": "Service", "apiVersion": "v1", "metadata": {"name": name, "namespace": "default"}, "spec": spec,
        });
        kind("services").default(&mut object);
        self.servers[server].create(self.call(""), Sent::plain(object)).await?;
        Ok(self.get(name).await)
    }

    async fn get(&self, name: &str) -> Value {
        Value::clone(&Objects::get(&*self.servers[0], kind("services"), "default", name).await.unwrap().unwrap())
    }

    async fn addresses(&self) -> Vec<String> {
        let list = Objects::list(&*self.servers[0], addresses::kind(), "").await.unwrap();
        list.iter().map(|address| metadata::text(address, "name").to_owned()).collect()
    }

    async fn ports(&self) -> Vec<i64> {
        self.servers[0].port_bitmap().await.unwrap().1.ports().iter().copied().collect()
    }
}

fn node_port(number: i64) -> Value {
    json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": number}]})
}

#[tokio::test]
async fn two_servers_never_give_one_twice_and_a_full_range_says_so() {
    let cluster = cluster(2, "10.0.0.0/28");
    cluster.namespace().await;
    let create = |number: usize| {
        let cluster = &cluster;
        async move { cluster.create(number % 2, &format!("s{number}"), node_port(0)).await }
    };
    let created: Vec<Value> =
        futures::future::try_join_all((0..13).map(create)).await.unwrap_or_else(|status| panic!("{status}"));
    let mut given: Vec<&str> = created.iter().map(|s| s["spec"]["clusterIP"].as_str().unwrap()).collect();
    given.sort_unstable();
    given.dedup();
    assert_eq!((given.len(), cluster.addresses().await.len()), (13, 13));
    let ports: BTreeSet<i64> = created.iter().map(|s| s["spec"]["ports"][0]["nodePort"].as_i64().unwrap()).collect();
    assert_eq!((ports.len(), cluster.ports().await), (13, ports.into_iter().collect()));
    let full = create(13).await.unwrap_err();
    assert!(full.message.contains("range is full"), "{full}");
    assert_eq!(cluster.ports().await.len(), 13, "a service that was not stored holds nothing");
    let taken = cluster.create(1, "again", json!({"clusterIP": given[0], "ports": [{"port": 80}]})).await.unwrap_err();
    assert!(taken.message.contains("provided IP is already allocated"), "{taken}");
}

#[tokio::test]
async fn the_objects_are_upstreams() {
    let cluster = cluster(1, "10.0.0.0/24");
    cluster.namespace().await;
    cluster.create(0, "a", json!({"clusterIP": "10.0.0.50", "ports": [{"port": 80}]})).await.unwrap();
    let address = Objects::get(&*cluster.servers[0], addresses::kind(), "", "10.0.0.50").await.unwrap().unwrap();
    let labels = json!({
        "ipaddress.kubernetes.io/ip-family": "IPv4", "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
    });
    assert_eq!(address["metadata"]["labels"], labels);
    let parent = json!({"resource": "services", "namespace": "default", "name": "a"});
    assert_eq!(address["spec"], json!({"parentRef": parent}));
}

#[tokio::test]
async fn what_a_service_no_longer_has_is_free() {
    let cluster = cluster(2, "10.0.0.0/24");
    cluster.namespace().await;
    cluster.create(0, "a", node_port(30_050)).await.unwrap();
    let taken = cluster.create(1, "b", node_port(30_050)).await.unwrap_err();
    assert!(taken.message.contains("spec.ports[0].nodePort"), "{taken}");
    // A port that is left out stays, as of a client that never saw it.
    let mut change = |service: &Value| {
        let mut service = service.clone();
        service["spec"]["ports"][0].as_object_mut().unwrap().remove("nodePort");
        Ok(Sent::plain(service))
    };
    let update = UpdatedObject::Compute(&mut change);
    cluster.servers[0].update(cluster.call("a"), update, Preconditions::default()).await.unwrap();
    assert_eq!(cluster.ports().await, [30_050]);
    let mut change = |service: &Value| {
        let mut service = service.clone();
        service["spec"]["ports"][0]["nodePort"] = json!(30_051);
        Ok(Sent::plain(service))
    };
    let update = UpdatedObject::Compute(&mut change);
    cluster.servers[1].update(cluster.call("a"), update, Preconditions::default()).await.unwrap();
    assert_eq!(cluster.ports().await, [30_051]);
    let mut change = |service: &Value| {
        let mut service = service.clone();
        service["spec"]["type"] = json!("ClusterIP");
        Ok(Sent::plain(service))
    };
    let update = UpdatedObject::Compute(&mut change);
    cluster.servers[1].update(cluster.call("a"), update, Preconditions::default()).await.unwrap();
    assert_eq!(cluster.ports().await, [0; 0]);
    assert_eq!(cluster.addresses().await.len(), 1);
    cluster.servers[0].delete(cluster.call("a"), &DeleteOptions::default()).await.unwrap();
    assert_eq!(cluster.addresses().await, [""; 0]);
}

#[tokio::test]
async fn a_dry_run_takes_nothing() {
    let cluster = cluster(1, "10.0.0.0/24");
    cluster.namespace().await;
    let mut object = json!({
        "kind": "Service", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "default"}, "spec": node_port(0),
    });
    kind("services").default(&mut object);
    let call = Call { dry_run: true, ..cluster.call("") };
    cluster.servers[0].create(call, Sent::plain(object)).await.unwrap();
    assert_eq!((cluster.addresses().await.len(), cluster.ports().await.len()), (0, 0));
}

#[tokio::test]
async fn a_repair_frees_what_was_left_behind_and_adds_what_is_missing() {
    let cluster = cluster(1, "10.0.0.0/24");
    cluster.namespace().await;
    let server = &cluster.servers[0];
    // A service of before, without an address object; one that a server has claimed for and died; and a port.
    let service = json!({
        "kind": "Service", "apiVersion": "v1", "metadata": {"name": "old"},
        "spec": {"clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"], "ports": [{"port": 1, "nodePort": 30_007}]},
    });
    server.create_unchecked(SystemWrite::Bootstrap, kind("services"), "default", service).await.unwrap();
    let owner = Owner { namespace: "default", name: "gone", dry_run: false };
    assert!(server.claim_address("10.0.0.9", owner).await.unwrap());
    assert!(server.claim_ports(&[30_009], 0, false).await.is_ok());
    let mut leaks = Leaks::default();
    for (minutes, addresses, ports) in [
        (0, &["10.0.0.7", "10.0.0.9"][..], &[30_007, 30_009][..]),
        (2, &["10.0.0.7"], &[30_007, 30_009]),
        (5, &["10.0.0.7"], &[30_007]),
        (8, &["10.0.0.7"], &[30_007]),
    ] {
        cluster.seconds.store(minutes * 60, Ordering::Relaxed);
        server.repair_services(&mut leaks).await.unwrap();
        assert_eq!(cluster.addresses().await, addresses, "after {minutes} minutes");
        assert_eq!(cluster.ports().await, ports, "after {minutes} minutes");
    }
}

#[tokio::test]
async fn services_have_an_address_of_each_family_that_they_ask_for() {
    let cluster = cluster(1, "10.0.0.0/24,fd00:10::/112");
    cluster.namespace().await;
    let plain = json!({"ports": [{"port": 80}], "selector": {"app": "web"}});
    let with = |more: Value| {
        let mut spec = plain.clone();
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let shown = |spec: &Value| {
        let families = |address: &Value| match address.as_str().unwrap() {
            "None" => "None",
            address if address.starts_with("fd00:10::") => "IPv6",
            _ => "IPv4",
        };
        let addresses: Vec<&str> = spec["clusterIPs"].as_array().unwrap().iter().map(families).collect();
        assert_eq!(spec["clusterIP"], spec["clusterIPs"][0]);
        format!("{} {} {}", spec["ipFamilyPolicy"], spec["ipFamilies"], addresses.join(",")).replace('"', "")
    };
    for (name, more, expected) in [
        ("a", json!({}), "SingleStack [IPv4] IPv4"),
        ("b", json!({"ipFamilies": ["IPv6"]}), "SingleStack [IPv6] IPv6"),
        ("c", json!({"ipFamilyPolicy": "PreferDualStack"}), "PreferDualStack [IPv4,IPv6] IPv4,IPv6"),
        (
            "d",
            json!({"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6"]}),
            "RequireDualStack [IPv6,IPv4] IPv6,IPv4",
        ),
        (
            "e",
            json!({
                "ipFamilyPolicy": "RequireDualStack", "clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9", "fd00:10::9"],
            }),
            "RequireDualStack [IPv4,IPv6] IPv4,IPv6",
        ),
        ("f", json!({"clusterIP": "None", "clusterIPs": ["None"]}), "SingleStack [IPv4] None"),
        (
            "g",
            json!({"clusterIP": "None", "clusterIPs": ["None"], "selector": null}),
            "RequireDualStack [IPv4,IPv6] None",
        ),
    ] {
        let service = cluster.create(0, name, with(more)).await.unwrap();
        assert_eq!(shown(&service["spec"]), expected, "{name}");
    }
    let taken = json!({
        "ipFamilyPolicy": "RequireDualStack", "clusterIP": "10.0.0.8", "clusterIPs": ["10.0.0.8", "fd00:10::9"],
    });
    let refused = cluster.create(0, "h", with(taken)).await.unwrap_err().message;
    assert!(refused.contains("failed to allocate IP fd00:10::9: provided IP is already allocated"), "{refused}");
    let two = json!({"clusterIP": "10.0.0.8", "clusterIPs": ["10.0.0.8", "fd00:10::8"]});
    let refused = cluster.create(0, "h", with(two)).await.unwrap_err().message;
    assert!(refused.contains("when multiple cluster IPs are specified"), "{refused}");
    // What was claimed for the refused one is free again.
    let free = json!({"clusterIP": "10.0.0.8", "clusterIPs": ["10.0.0.8"]});
    assert_eq!(shown(&cluster.create(0, "h", with(free)).await.unwrap()["spec"]), "SingleStack [IPv4] IPv4");
}
