//! What the simulation leaves out does not matter: on random histories, trying only the pods that may get another
//! answer, with the engine, places every pod where and when trying all of them in the plain cycle does.

#[path = "../../../scheduler/tests/random_objects/mod.rs"]
#[allow(dead_code)] // The histories of the engine use more of it.
mod random_objects;

use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::{Object, TieBreak};
use bayplan_testkit::{Rng, merge, node};
use jiff::Timestamp;
use random_objects::{APPS, NAMESPACES, ZONES, namespaces, pods, storage_and_devices, word};
use serde_json::{Value, json};

use super::world::{Retries, without_preemption};
use super::*;
use crate::{Completion, State};

/// How many seeds are tried, unless `BAYPLAN_RUNS` says otherwise; `BAYPLAN_SEED` repeats one.
const RUNS: u64 = 60;
/// How many events a history has.
const EVENTS: usize = 150;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn start() -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap()
}

fn random_node(name: &str, rng: &mut Rng) -> Value {
    let mut node = node(name)
        .allocatable("cpu", &format!("{}m", 500 + 250 * rng.below(8)))
        .allocatable("memory", &format!("{}Mi", 512 + 256 * rng.below(8)))
        .allocatable("pods", &(2 + rng.below(8)).to_string())
        .zone(word(rng, &ZONES));
    if rng.one_in(2) {
        node = node.label("disk", word(rng, &["ssd", "hdd"]));
    }
    if rng.one_in(3) {
        node = node.allocatable("example.com/gpu", &rng.below(3).to_string());
    }
    if rng.one_in(5) {
        node = node.taint(word(rng, &["a", "b"]), "", "NoSchedule");
    }
    node.json()
}

/// A small cluster in which pods of few templates come and go, more of them than there is room for.
fn random_history(rng: &mut Rng) -> History {
    let names: Vec<String> = (0..3 + rng.below(4)).map(|n| format!("n{}", 29 + n)).collect();
    let mut objects = storage_and_devices::basics(rng);
    objects.extend(namespaces());
    for name in &names {
        objects.push(random_node(name, rng));
        objects.extend(storage_and_devices::of_node(name, rng));
    }
    for app in APPS.iter().filter(|_| rng.one_in(3)).collect::<Vec<_>>() {
        objects.push(json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"namespace": rng.pick(&NAMESPACES), "name": app},
            "spec": {"selector": {"matchLabels": {"app": app}}}, "status": {"disruptionsAllowed": rng.below(2)}}));
    }
    let templates: Vec<Value> = (0..2 + rng.below(6)).map(|_| pods::template(rng)).collect();
    let mut arrivals = Arrivals::new(Completion::of(&State::default()), start(), true);
    for number in 0..EVENTS {
        let line = random_event(number, &names, &templates, rng);
        arrivals.line(&line.to_string());
    }
    let mut history = arrivals.finish().unwrap();
    history.objects = objects.iter().filter_map(|object| Object::decode(object)?.ok()).collect();
    history
}

fn random_event(number: usize, names: &[String], templates: &[Value], rng: &mut Rng) -> Value {
    let time = 7 * number;
    let name = rng.pick(names).as_str();
    match rng.below(12) {
        0 => json!({"time": time, "action": "create", "object": random_node(name, rng)}),
        1 if rng.one_in(3) => json!({"time": time, "action": "delete", "object": node(name).json()}),
        2..=5 => {
            // One that came before, or its like that did not.
            let pod = format!("{}/p{}", rng.pick(&NAMESPACES), rng.below(number + 1));
            json!({"time": time, "action": "delete", "pod": pod})
        }
        _ => {
            let mut pod = rng.pick(templates).clone();
            let name = format!("p{number}");
            merge(&mut pod, json!({"metadata": {"name": name, "uid": format!("u-{name}")}}));
            let mut event = json!({"time": time, "action": "create", "pod": pod});
            if rng.one_in(2) {
                event["runSeconds"] = (20 + rng.below(400)).into();
            }
            event
        }
    }
}

/// Pods of a service are kept even over the zones although they ask for nothing.
fn spreading_by_default() -> Configuration {
    Configuration::from_yaml(
        "apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - name: PodTopologySpread
    args:
      defaultingType: List
      defaultConstraints:
      - {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule}
",
    )
    .unwrap()
}

fn services() -> impl Iterator<Item = Object> {
    let service = |namespace: &str, app: &str| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": namespace, "name": app},
            "spec": {"selector": {"app": app}}})
    };
    let all = NAMESPACES.iter().flat_map(move |namespace| APPS.iter().map(move |app| service(namespace, app)));
    all.filter_map(|object| Object::decode(&object)?.ok())
}

#[test]
fn trying_the_hopeful_pods_places_all_where_and_when_trying_every_pod_in_the_plain_cycle_does() {
    let seeds = match number("BAYPLAN_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("BAYPLAN_RUNS").unwrap_or(RUNS),
    };
    let (mut waited, mut preemptions, mut never) = (0, 0, 0);
    for seed in seeds {
        let mut rng = Rng::new(seed);
        let mut history = random_history(&mut rng);
        let mut engine = Configuration::default();
        if rng.one_in(3) {
            engine = spreading_by_default();
            history.objects.extend(services());
        }
        if rng.one_in(4) {
            engine = without_preemption(&engine);
        }
        // A percentage is the plain cycle's, and of so few nodes it is all.
        let plain = Configuration { percentage_of_nodes_to_score: Some(99), ..engine.clone() };
        let by_name = TieBreak::SmallestName;
        let (truth, truth_figures) = run(&history, &plain, by_name.clone(), Retries::All).unwrap();
        let (fast, fast_figures) = run(&history, &engine, by_name, Retries::Hopeful).unwrap();
        let differs = truth.iter().zip(&fast).position(|(truth, fast)| truth != fast);
        let at = differs.unwrap_or(truth.len().min(fast.len()));
        assert_eq!(truth.get(at), fast.get(at), "seed {seed}, placement {at}");
        assert_eq!(truth_figures, fast_figures, "seed {seed}");
        waited += usize::from(truth_figures.pending_pod_minutes > 0.0);
        preemptions += truth_figures.preemptions;
        never += truth_figures.pods_never_placed;
    }
    if number("BAYPLAN_SEED").is_none() {
        assert!(waited > 10 && preemptions > 10 && never > 10, "{waited}, {preemptions}, {never}: nothing is tested");
    }
}
