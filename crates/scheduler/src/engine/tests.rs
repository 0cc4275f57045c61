//! What the engine keeps, and for how long.

use serde_json::{Value, json};

use super::*;
use crate::cluster::Object;
use crate::config::Configuration;
use crate::framework::Registry;

fn pod(name: &str, keys: impl Iterator<Item = String>) -> PodInfo {
    let constraint = |key: String| {
        json!({
            "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": "a"}},
        })
    };
    let pod = json!({
        "metadata": {"name": name, "namespace": "d", "uid": name, "labels": {"app": name}},
        "spec": {"topologySpreadConstraints": keys.map(constraint).collect::<Value>()},
    });
    PodInfo::new(Arc::new(serde_json::from_value(pod).unwrap()))
}

#[test]
fn made_up_topology_keys_do_not_make_the_engine_forget_others_again_and_again() {
    let profile = Profile::build(&Configuration::default().profiles[0], &Registry::default()).unwrap();
    let (mut cluster, nominator) = (Cluster::new(), Nominator::default());
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": {"zone": "z"}},
        "status": {"allocatable": {"cpu": "4", "pods": "9"}},
    });
    cluster.store(Object::decode(&node).unwrap().unwrap());
    let (mut engine, mut losses) = (Engine::default(), 0);
    let decide = |engine: &mut Engine, pod: &PodInfo| {
        let input = DecisionInput::new(&profile, &cluster, &nominator, pod, Timestamp::MIN);
        drop(engine.decide(input, &mut TieBreak::SmallestName));
    };
    let ordinary = pod("ordinary", ["zone".to_owned()].into_iter());
    decide(&mut engine, &ordinary);
    for made_up in 0..50 {
        let name = format!("made-up-{made_up}");
        decide(&mut engine, &pod(&name, (0..60).map(|key| format!("{name}-{key}"))));
        losses += usize::from(!engine.signatures.contains_key(&ordinary.signature_hash.base));
        decide(&mut engine, &ordinary);
        assert!(engine.shared.topologies.len() <= LABELS_MAX);
    }
    assert_eq!(losses, 1, "once, when there was no more room");
}
