//! Extenders in the cycle, in preemption, in binding and in the queue, with fakes that answer as the test says.

#![allow(clippy::unwrap_used)] // Helpers of tests, not the product.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bayplan_scheduler::config::{Configuration, ExtenderConfig};
use bayplan_scheduler::extender::{Error, Extender, ExtenderFilterResult, HostPriority, MetaVictims, PassedNodes};
use bayplan_scheduler::inspect::QueueStage;
use bayplan_scheduler::{Candidate, Effect, Input, NodeInfo, Object, PodInfo, Registry, Scheduler, Shell, TieBreak};
use bayplan_testkit::{FakeApi, VirtualClock};
use futures::executor::block_on;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

type Preemption = BTreeMap<String, MetaVictims>;

/// An extender that answers as the test says and records its calls.
struct Fake {
    config: ExtenderConfig,
    filter: fn(&[&NodeInfo]) -> Result<ExtenderFilterResult, Error>,
    prioritize: fn(&[&NodeInfo]) -> Result<Vec<HostPriority>, Error>,
    preempt: fn(&[Candidate]) -> Result<Preemption, Error>,
    bind: Result<(), Error>,
    asked: Mutex<Vec<String>>,
}

fn fails<T>() -> Result<T, Error> {
    Err(Error::Failed("out of order".into()))
}

impl Fake {
    fn new(config: Value) -> Self {
        Fake {
            config: serde_json::from_value(config).unwrap(),
            filter: |_| fails(),
            prioritize: |_| fails(),
            preempt: |_| fails(),
            bind: fails(),
            asked: Mutex::default(),
        }
    }

    fn note(&self, what: &str, names: impl Iterator<Item = String>) {
        self.asked.lock().unwrap().push(format!("{what} {}", names.collect::<Vec<_>>().join(" ")));
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

impl Extender for Fake {
    fn config(&self) -> &ExtenderConfig {
        &self.config
    }

    fn filter(&self, _pod: &PodInfo, nodes: &[&NodeInfo]) -> Result<ExtenderFilterResult, Error> {
        self.note("filter", nodes.iter().map(|node| node.name.to_string()));
        (self.filter)(nodes)
    }

    fn prioritize(&self, _pod: &PodInfo, nodes: &[&NodeInfo]) -> Result<Vec<HostPriority>, Error> {
        self.note("prioritize", nodes.iter().map(|node| node.name.to_string()));
        (self.prioritize)(nodes)
    }

    fn process_preemption(&self, _pod: &PodInfo, candidates: &[Candidate]) -> Result<Preemption, Error> {
        self.note("preempt", candidates.iter().map(|candidate| candidate.node.to_string()));
        (self.preempt)(candidates)
    }

    fn bind<'a>(&'a self, pod: &'a PodInfo, node: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        self.note("bind", [pod.key(), node.to_owned()].into_iter());
        let answer = self.bind.clone();
        Box::pin(async { answer })
    }
}

/// A scheduler with three nodes: `a`, `b` and `c`.
fn scheduler(extenders: Vec<&Arc<Fake>>) -> Scheduler {
    let configs = extenders.iter().map(|extender| extender.config.clone()).collect();
    let configuration = Configuration { extenders: configs, ..Configuration::default() };
    let extenders = extenders.into_iter().map(|extender| Arc::clone(extender) as Arc<dyn Extender>).collect();
    let registry = Registry::default();
    let mut scheduler =
        Scheduler::with_extenders(&configuration, &registry, extenders, TieBreak::SmallestName).unwrap();
    for name in ["a", "b", "c"] {
        let node = json!({"metadata": {"name": name}, "status": {"allocatable": {"cpu": "4", "pods": "9"}}});
        let node = Object::Node(Arc::new(serde_json::from_value(node).unwrap()));
        scheduler.handle(Input::upsert(node), NOW);
    }
    scheduler
}

fn pod(name: &str, more: Value) -> Object {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "d", "uid": name},
        "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "c"}]},
    });
    for (field, value) in more.as_object().unwrap() {
        pod["spec"][field] = value.clone();
    }
    Object::Pod(Arc::new(serde_json::from_value(pod).unwrap()))
}

fn requests(resource: &str, quantity: &str) -> Value {
    json!([{"name": "c", "resources": {"requests": {resource: quantity}}}])
}

/// The node of the next pod, or the note of its FailedScheduling event.
fn outcome(scheduler: &mut Scheduler) -> String {
    assert!(scheduler.schedule_one(NOW));
    let effects = scheduler.take_effects().into_iter();
    let text = |effect| match effect {
        Effect::Bind(binding) => Some(format!("-> {}", binding.node())),
        Effect::Record { event, .. } => Some(event.note),
        Effect::Preempt(preemption) => {
            let names: Vec<&str> = preemption.victims.iter().map(|victim| victim.uid()).collect();
            Some(format!("evicts {} from {}", names.join(" "), preemption.node))
        }
        _ => None,
    };
    effects.filter_map(text).collect::<Vec<_>>().join("; ")
}

fn place(scheduler: &mut Scheduler, name: &str, more: Value) -> String {
    scheduler.handle(Input::upsert(pod(name, more)), NOW);
    outcome(scheduler)
}

fn names(passed: &[&str]) -> Result<ExtenderFilterResult, Error> {
    let passed = PassedNodes::Names(passed.iter().map(|name| (*name).to_owned()).collect());
    Ok(ExtenderFilterResult { passed, ..ExtenderFilterResult::default() })
}

fn because(reasons: &[(&str, &str)]) -> BTreeMap<String, String> {
    reasons.iter().map(|(node, reason)| ((*node).to_owned(), (*reason).to_owned())).collect()
}

fn filter(url: &str) -> Fake {
    Fake::new(json!({"urlPrefix": url, "filterVerb": "filter"}))
}

#[test]
fn extenders_filter_one_after_the_other_what_the_plugins_let_pass() {
    let first = Arc::new(Fake { filter: |_| names(&["c", "b"]), ..filter("first") });
    let ignorable = json!({"urlPrefix": "shaky", "filterVerb": "filter", "ignorable": true});
    let shaky = Arc::new(Fake::new(ignorable));
    let second = Arc::new(Fake { filter: |_| names(&["c"]), ..filter("second") });
    // The ignorable extender is called last, wherever it is listed, and its failure changes nothing.
    let mut scheduler = scheduler(vec![&shaky, &first, &second]);
    assert_eq!(place(&mut scheduler, "p", json!({})), "-> c");
    assert_eq!(
        (first.asked(), second.asked(), shaky.asked()),
        (vec!["filter a b c".into()], vec!["filter c b".into()], vec!["filter c".into()])
    );
}

#[test]
fn a_rejection_by_an_extender_is_reported_and_any_event_wakes_the_pod() {
    let extender = Arc::new(Fake {
        filter: |_| {
            Ok(ExtenderFilterResult {
                failed: because(&[("a", "no licence"), ("b", "no licence")]),
                failed_and_unresolvable: because(&[("b", "wrong rack"), ("c", "wrong rack")]),
                ..ExtenderFilterResult::default()
            })
        },
        ..filter("e")
    });
    let mut scheduler = scheduler(vec![&extender]);
    let note = place(&mut scheduler, "p", json!({}));
    let expected = "0/3 nodes are available: 1 no licence, 2 wrong rack. no new claims to deallocate, preemption: 0/3 \
                    nodes are available: 1 No preemption victims found for incoming pod, 2 Preemption is not helpful \
                    for scheduling.";
    assert_eq!(note, expected);
    assert_eq!(scheduler.queue().stage("p"), Some(QueueStage::Unschedulable));
    // The claim does not concern the pod, but the scheduler cannot know what the extender reads.
    let claim =
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "x", "namespace": "d"}});
    scheduler.handle(Input::upsert(Object::decode(&claim).unwrap().unwrap()), NOW);
    assert_eq!(scheduler.queue().stage("p"), Some(QueueStage::Backoff));
}

#[test]
fn a_failing_extender_fails_the_pod_in_its_own_words() {
    for (extender, expected) in [
        (filter("e"), "out of order"),
        (
            Fake { filter: |_| names(&["a", "z"]), ..filter("http://e") },
            "extender \"http://e\" claims a filtered node \"z\" which is not found in the input node list",
        ),
    ] {
        let mut scheduler = scheduler(vec![&Arc::new(extender)]);
        assert_eq!(place(&mut scheduler, "p", json!({})), expected);
        assert_eq!(scheduler.queue().stage("p"), Some(QueueStage::Backoff), "errors are retried");
    }
}

#[test]
fn nodes_an_extender_answers_with_are_scored_as_answered_and_without_their_pods() {
    let same = Arc::new(Fake { filter: |nodes| names(&[&nodes[0].name, &nodes[1].name]), ..filter("e") });
    let whole = Arc::new(Fake {
        filter: |nodes| {
            let copy = |node: &&NodeInfo| Arc::new(node.node().clone());
            Ok(ExtenderFilterResult {
                passed: PassedNodes::Nodes(nodes[..2].iter().map(copy).collect()),
                ..ExtenderFilterResult::default()
            })
        },
        ..filter("e")
    });
    for (extender, expected) in [(same, "-> b"), (whole, "-> a")] {
        let mut scheduler = scheduler(vec![&extender]);
        let more = json!({"nodeName": "a", "containers": requests("cpu", "2")});
        scheduler.handle(Input::upsert(pod("heavy", more)), NOW);
        assert_eq!(place(&mut scheduler, "p", json!({})), expected);
    }
}

#[test]
fn scores_of_extenders_are_weighted_and_added_and_failures_count_nothing() {
    let config = |weight: i64| json!({"urlPrefix": "e", "prioritizeVerb": "prioritize", "weight": weight});
    let likes_b = Arc::new(Fake {
        prioritize: |_| {
            Ok(vec![HostPriority { host: "b".into(), score: 10 }, HostPriority { host: "z".into(), score: 99 }])
        },
        ..Fake::new(config(1))
    });
    let likes_c = Arc::new(Fake {
        prioritize: |_| Ok(vec![HostPriority { host: "c".into(), score: 6 }]),
        ..Fake::new(config(2))
    });
    let broken = Arc::new(Fake::new(config(1)));
    let panics = Arc::new(Fake { prioritize: |_| panic!("poison"), ..Fake::new(config(1)) });
    let idle = Arc::new(Fake::new(json!({"urlPrefix": "e", "bindVerb": "bind"})));
    for (extenders, expected) in [
        (vec![&idle], "-> a"),
        (vec![&broken], "-> a"),
        (vec![&likes_b], "-> b"),
        (vec![&likes_b, &likes_c, &broken, &panics], "-> c"),
    ] {
        let mut scheduler = scheduler(extenders);
        assert_eq!(place(&mut scheduler, "p", json!({})), expected);
    }
    assert_eq!(likes_c.asked(), ["prioritize a b c"]);
}

#[test]
fn a_pod_whose_nominated_node_an_extender_rejects_may_go_elsewhere() {
    let extender = Arc::new(Fake { filter: |nodes| names(if nodes.len() == 1 { &[] } else { &["a"] }), ..filter("e") });
    let mut scheduler = scheduler(vec![&extender]);
    let Object::Pod(mut nominated) = pod("p", json!({})) else { unreachable!() };
    Arc::make_mut(&mut nominated).status.nominated_node_name = "b".into();
    scheduler.handle(Input::upsert(Object::Pod(nominated)), NOW);
    assert_eq!(outcome(&mut scheduler), "-> a");
    assert_eq!(extender.asked(), ["filter b", "filter a b c"]);
}

fn preempting(ignorable: bool, preempt: fn(&[Candidate]) -> Result<Preemption, Error>) -> Fake {
    let config = json!({"urlPrefix": "http://e", "preemptVerb": "preempt", "ignorable": ignorable});
    Fake { preempt, ..Fake::new(config) }
}

fn victims(list: &[(&str, &[&str])]) -> Result<Preemption, Error> {
    let one = |(node, uids): &(&str, &[&str])| {
        let uids = uids.iter().map(|uid| (*uid).to_owned()).collect();
        ((*node).to_owned(), MetaVictims { uids, pdb_violations: 0 })
    };
    Ok(list.iter().map(one).collect())
}

#[test]
fn extenders_may_change_the_victims_of_a_preemption() {
    let full = "0/3 nodes are available: 3 Insufficient cpu. ";
    let cases: [(Fake, String); 9] = [
        (preempting(false, |_| victims(&[("b", &["b2", "b1"])])), "evicts b2 b1 from b".into()),
        (preempting(false, |_| fails()), format!("{full}preemption: out of order")),
        (preempting(true, |_| fails()), "evicts a1 from a".into()),
        (
            preempting(false, |_| victims(&[("b", &[])])),
            format!("{full}preemption: expected at least one victim pod on node \"b\""),
        ),
        (preempting(true, |_| victims(&[("a", &[]), ("c", &["c1"])])), "evicts c1 from c".into()),
        (
            preempting(false, |_| victims(&[])),
            format!("{full}no new claims to deallocate, preemption: no candidate node for preemption"),
        ),
        (
            preempting(false, |_| victims(&[("a", &["b1"])])),
            format!(
                "{full}preemption: extender: http://e claims to preempt pod (UID: b1) on node: a, but the pod is not \
                 found on that node"
            ),
        ),
        (preempting(true, |_| victims(&[("a", &["b1"])])), "evicts a1 from a".into()),
        (
            preempting(false, |_| victims(&[("z", &["b1"])])),
            format!("{full}preemption: nodeinfo not found for node name \"z\""),
        ),
    ];
    for (extender, expected) in cases {
        let extender = Arc::new(extender);
        let mut scheduler = scheduler(vec![&extender]);
        for (node, name) in [("a", "a1"), ("b", "b1"), ("b", "b2"), ("c", "c1")] {
            let cpu = if node == "b" { "2" } else { "4" };
            let more = json!({"nodeName": node, "containers": requests("cpu", cpu)});
            scheduler.handle(Input::upsert(pod(name, more)), NOW);
        }
        let note = place(&mut scheduler, "p", json!({"priority": 5, "containers": requests("cpu", "4")}));
        assert!(note.ends_with(&expected), "{note}\nshould end with\n{expected}");
        assert_eq!(extender.asked(), ["preempt a b c"]);
    }
}

#[test]
fn an_extender_binds_instead_of_plugins_unless_it_is_ignorable_and_fails() {
    let binder = |more: Value, bind| {
        let mut config = json!({"urlPrefix": "e", "bindVerb": "bind"});
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Arc::new(Fake { bind, ..Fake::new(config) })
    };
    let bound = || vec!["bind d/p a".to_owned()];
    for (extender, asked, called, message) in [
        (binder(json!({}), Ok(())), bound(), Vec::<&str>::new(), ""),
        (binder(json!({}), fails()), bound(), vec![], "out of order"),
        (binder(json!({"ignorable": true}), fails()), bound(), vec!["POST d/pods/p/binding"], ""),
        (binder(json!({"managedResources": [{"name": "x.io/y"}]}), Ok(())), vec![], vec!["POST d/pods/p/binding"], ""),
    ] {
        let mut scheduler = scheduler(vec![&extender]);
        scheduler.handle(Input::upsert(pod("p", json!({}))), NOW);
        assert!(scheduler.schedule_one(NOW));
        let (api, clock) = (FakeApi::default(), VirtualClock::default());
        let shell = Shell { api: &api, recorder: &api, timer: &clock };
        let Some(Input::Bound(outcome)) = block_on(scheduler.take_effects().pop().unwrap().run(shell)) else {
            panic!("a binding comes back");
        };
        assert_eq!(outcome.status.message(), message);
        assert_eq!(extender.asked(), asked);
        assert_eq!(api.lines(), called);
        scheduler.handle(Input::Bound(outcome), NOW);
        assert_eq!(scheduler.queue().stage("p"), (!message.is_empty()).then_some(QueueStage::Backoff));
    }
}

#[test]
fn extenders_are_called_for_pods_with_their_resources_which_node_resources_fit_may_ignore() {
    let config = |ignored: bool| {
        let managed = json!([{"name": "x.io/gpu", "ignoredByScheduler": ignored}]);
        json!({"urlPrefix": "e", "filterVerb": "filter", "managedResources": managed})
    };
    let limits = json!([{"name": "i", "resources": {"limits": {"x.io/gpu": "1"}}}]);
    let wants = json!({"containers": requests("x.io/gpu", "1")});
    for (ignored, more, expected, asked) in [
        (true, json!({}), "-> a", false),
        (true, wants.clone(), "-> c", true),
        (false, json!({"initContainers": limits}), "-> c", true),
        (false, wants, "0/3 nodes are available: 3 Insufficient x.io/gpu.", false),
    ] {
        let extender = Arc::new(Fake { filter: |_| names(&["c"]), ..Fake::new(config(ignored)) });
        let mut scheduler = scheduler(vec![&extender]);
        let note = place(&mut scheduler, "p", more);
        assert!(note.starts_with(expected), "{note}");
        assert_eq!(!extender.asked().is_empty(), asked, "{note}");
    }
}

#[test]
fn resources_cannot_be_ignored_by_a_plugin_that_has_no_arguments() {
    let text = "
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint:
      disabled:
      - name: NodeResourcesFit
extenders:
- urlPrefix: http://e
  managedResources:
  - name: x.io/gpu
    ignoredByScheduler: true
";
    let configuration = Configuration::from_yaml(text).unwrap();
    let error = Scheduler::new(&configuration, &Registry::default(), TieBreak::SmallestName).err().unwrap();
    assert_eq!(error.to_string(), "couldn't build extenders: can't find NodeResourcesFitArgs in plugin config");
}

#[test]
fn a_pod_rejected_by_an_extender_comes_back_after_its_backoff() {
    let extender = Arc::new(Fake { filter: |nodes| names(if nodes.len() > 3 { &["d"] } else { &[] }), ..filter("e") });
    let mut scheduler = scheduler(vec![&extender]);
    assert!(place(&mut scheduler, "p", json!({})).starts_with("0/3 nodes are available:"));
    let node = json!({"metadata": {"name": "d"}, "status": {"allocatable": {"cpu": "4", "pods": "9"}}});
    scheduler.handle(Input::upsert(Object::Node(Arc::new(serde_json::from_value(node).unwrap()))), NOW);
    let later = NOW + SignedDuration::from_secs(2);
    scheduler.tick(later);
    assert!(scheduler.schedule_one(later));
    assert!(scheduler.is_binding("p"));
}
