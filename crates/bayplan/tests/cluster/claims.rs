//! Claims whose selectors cost much, and devices to try them on.

#![allow(dead_code, reason = "each of the tests that share it uses a part")]

use bayplan_model::api::Resource;
use serde_json::{Value, json};

use super::Cluster;

const SLICES: Resource = Resource::new("resource.k8s.io", "v1", "resourceslices");
const CLASSES: Resource = Resource::new("resource.k8s.io", "v1", "deviceclasses");

/// Loops around a pattern, which is another one in each round.
pub(crate) const ATTACK: &str = r#"[0,1,2,3,4,5,6,7,8,9].exists(a, [0,1,2,3,4,5,6,7,8,9].exists(b,
    [0,1,2,3,4,5,6,7,8,9].exists(e, [0,1,2,3,4,5,6,7,8,9].exists(f,
        device.attributes["d.example"].t.matches("(a{0,60}){0,30}c" + string(a+b+e+f))))))"#;

/// What is left of it within the estimate that the API server allows: one pattern in loops, or loops without one.
pub(crate) const ALLOWED: [&str; 2] = [
    r#"[0,1,2,3,4,5,6,7,8,9].exists(a, [0,1,2,3,4,5,6,7,8,9].exists(b, [0,1,2,3,4,5,6,7,8,9].exists(e,
        device.attributes["d.example"].t.matches("(a{0,60}){0,15}c"))))"#,
    r#"[0,1,2,3,4,5,6,7,8,9].exists(a, [0,1,2,3,4,5,6,7,8,9].exists(b, [0,1,2,3,4,5,6,7,8,9].exists(e,
        [0,1,2,3,4,5,6,7,8,9].exists(f, string(a + b + e + f) == device.attributes["d.example"].t))))"#,
];

/// A claim with such a selector.
pub(crate) fn claim(name: &str, selector: &str) -> Value {
    let exactly = json!({"deviceClassName": "c", "selectors": [{"cel": {"expression": selector}}]});
    json!({"metadata": {"name": name}, "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}})
}

/// 512 devices, which every node can use.
pub(crate) async fn create_devices(cluster: &Cluster) {
    cluster.create(&CLASSES, "", json!({"metadata": {"name": "c"}})).await;
    for slice in 0..4 {
        let device = |i: i32| json!({"name": format!("d{i}"), "attributes": {"t": {"string": "a".repeat(64)}}});
        let devices: Vec<Value> = (0..128).map(device).collect();
        let pool = json!({"name": format!("p{slice}"), "generation": 1, "resourceSliceCount": 1});
        let spec = json!({"driver": "d.example", "allNodes": true, "pool": pool, "devices": devices});
        cluster.create(&SLICES, "", json!({"metadata": {"name": format!("s{slice}")}, "spec": spec})).await;
    }
}
