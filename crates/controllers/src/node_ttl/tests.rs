use serde_json::json;

use super::*;
use crate::script::{Script, refused};

fn add(cache: &Cache, controller: &NodeTtlController, number: usize) {
    let node = json!({"metadata": {"name": format!("n{number}")}});
    controller.observe(&cache.set(Kind::Node, node.to_string().as_bytes()).unwrap());
}

fn remove(cache: &Cache, controller: &NodeTtlController, number: usize) {
    controller.observe(&cache.remove(Kind::Node, "", &format!("n{number}"), "9").unwrap());
}

#[test]
fn the_time_grows_with_the_cluster_and_does_not_swing_at_the_edges() {
    let cache = Arc::new(Cache::default());
    let controller = NodeTtlController::new(cache.clone());
    let seconds = || SIZES[controller.size.load(Ordering::Relaxed)].2;
    let mut grown = Vec::new();
    for number in 0..501 {
        add(&cache, &controller, number);
        grown.push(seconds());
    }
    assert_eq!([grown[0], grown[99], grown[100], grown[499], grown[500]], [0, 0, 15, 15, 30]);
    for number in (89..501).rev() {
        remove(&cache, &controller, number);
        grown.push(seconds());
    }
    let of_size = |nodes: usize| grown[501 + 500 - nodes];
    assert_eq!([of_size(450), of_size(449), of_size(90), of_size(89)], [30, 15, 15, 0]);
}

#[test]
fn a_node_is_told_once_and_one_that_is_gone_is_not() {
    let cache = Arc::new(Cache::default());
    let controller = NodeTtlController::new(cache.clone());
    let told = json!({"metadata": {"name": "told", "annotations": {ANNOTATION: "0"}}});
    let other = json!({"metadata": {"name": "other", "annotations": {ANNOTATION: "15"}}});
    for node in [&told, &other] {
        let change = cache.set(Kind::Node, node.to_string().as_bytes()).unwrap();
        assert_eq!(controller.observe(&change).len(), 1);
    }
    let patch = json!({"metadata": {"annotations": {ANNOTATION: "0"}}});
    for (case, key, steps, is_done) in [
        ("told", "told", vec![], true),
        ("other", "other", vec![("STRATEGIC-PATCH nodes/other", patch.clone(), Ok(json!({"metadata": {}})))], true),
        ("gone", "other", vec![("STRATEGIC-PATCH nodes/other", patch.clone(), refused(404))], true),
        ("refused", "other", vec![("STRATEGIC-PATCH nodes/other", patch, refused(500))], false),
        ("absent", "absent", vec![], true),
    ] {
        assert_eq!(Script::new(case, steps).play(&controller, key).is_ok(), is_done, "{case}");
    }
}
