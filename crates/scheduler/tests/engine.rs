//! Compares the engine with the plain cycle on random histories: the same feasible nodes, scores and victims at every
//! step, in clusters of any size down to none.
//!
//! `BAYPLAN_HISTORIES` sets the number of histories; the long form has 10,000.

mod random_objects;

use std::sync::Arc;

use bayplan_model::pod::Pod;
use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::inspect::{Attempt, Decision, DecisionInput, Engine, Search};
use bayplan_scheduler::{Effect, Input, Object, PodInfo, PostFilter, Registry, Scheduler, TieBreak};
use bayplan_testkit::Rng;
use jiff::{SignedDuration, Timestamp};
use random_objects::pods::template;
use random_objects::{APPS, KEYS, NAMESPACES, ZONES, namespaces, storage_and_devices};
use serde_json::{Value, json};

const HISTORIES: u64 = 150;
const STEPS: usize = 60;

struct History {
    rng: Rng,
    scheduler: Scheduler,
    engine: Engine,
    templates: Vec<Value>,
    nodes: Vec<Value>,
    pods: Vec<Value>,
    /// Gated pods that are nominated to a node, which may not exist.
    nominated: Vec<Value>,
    made: usize,
    now: Timestamp,
    /// Questions while no pod is nominated, and how many of them the engine answered.
    asked: usize,
    answered: usize,
    /// Answers of the engine while pods are nominated.
    answered_with_nominated: usize,
    /// Answers of the engine for pods that fit nowhere.
    unschedulable: usize,
    /// Answers with nodes for pods that use volumes or devices.
    equipped: usize,
    /// Questions by the number of nodes: none, one, more.
    asked_with_nodes: [usize; 3],
    /// Questions about pods that PreFilter rejects.
    rejected_by_pre_filter: usize,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let configuration = configuration(&mut rng);
        let ties = TieBreak::Random(bayplan_scheduler::Rng::new(seed));
        let scheduler = Scheduler::new(&configuration, &Registry::default(), ties).expect("a valid configuration");
        let templates = (0..6).map(|_| template(&mut rng)).collect();
        let mut history = History {
            rng,
            scheduler,
            engine: Engine::default(),
            templates,
            nodes: Vec::new(),
            pods: Vec::new(),
            nominated: Vec::new(),
            made: 0,
            now: Timestamp::UNIX_EPOCH,
            asked: 0,
            answered: 0,
            answered_with_nominated: 0,
            unschedulable: 0,
            equipped: 0,
            asked_with_nodes: [0; 3],
            rejected_by_pre_filter: 0,
        };
        namespaces().for_each(|namespace| history.upsert(namespace));
        for object in storage_and_devices::basics(&mut history.rng) {
            history.upsert(object);
        }
        let nodes = if history.rng.one_in(8) { history.rng.below(3) } else { 6 };
        for _ in 0..nodes {
            history.add_node();
        }
        history
    }

    fn decode(json: &Value) -> Object {
        Object::decode(json).expect("a known kind").expect("a readable object")
    }

    fn upsert(&mut self, json: Value) {
        self.scheduler.handle(Input::upsert(Self::decode(&json)), self.now);
    }

    fn delete(&mut self, json: &Value) {
        self.scheduler.handle(Input::delete(Self::decode(json)), self.now);
    }

    fn version(&mut self) -> String {
        self.made += 1;
        self.made.to_string()
    }

    fn add_node(&mut self) {
        let version = self.version();
        let name = format!("n{version}");
        let mut labels = json!({"kubernetes.io/hostname": name.clone(), "disk": self.rng.pick(&["ssd", "hdd"])});
        if !self.rng.one_in(5) {
            labels["topology.kubernetes.io/zone"] = (*self.rng.pick(&ZONES)).into();
        }
        if self.rng.one_in(2) {
            labels["rack"] = (*self.rng.pick(&["r1", "r2", "r3", "r4", "r5"])).into();
        }
        if self.rng.one_in(9) {
            labels["missing-almost-everywhere"] = "here".into();
        }
        let mut node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name.clone(), "resourceVersion": version, "labels": labels},
            "spec": {"taints": []},
            "status": {"allocatable": {
                "cpu": (2 + self.rng.below(6)).to_string(), "memory": format!("{}Gi", 4 + self.rng.below(8)),
                "pods": (4 + self.rng.below(20)).to_string(), "example.com/gpu": self.rng.below(3).to_string(),
            }, "images": []},
        });
        self.vary(&mut node);
        self.nodes.push(node.clone());
        self.upsert(node);
        for object in storage_and_devices::of_node(&name, &mut self.rng) {
            self.upsert(object);
        }
    }

    fn vary(&mut self, node: &mut Value) {
        match self.rng.below(8) {
            0 => {
                let effect = *self.rng.pick(&["NoSchedule", "PreferNoSchedule", "NoExecute"]);
                node["spec"]["taints"] = json!([{"key": self.rng.pick(&["a", "b"]), "effect": effect}]);
            }
            1 => node["spec"]["taints"] = json!([]),
            2 => node["spec"]["unschedulable"] = self.rng.one_in(2).into(),
            3 => node["metadata"]["labels"]["topology.kubernetes.io/zone"] = (*self.rng.pick(&ZONES)).into(),
            4 => node["metadata"]["labels"]["disk"] = (*self.rng.pick(&["ssd", "hdd"])).into(),
            5 => node["status"]["images"] = json!([{"names": ["big:latest"], "sizeBytes": 900_000_000}]),
            6 => node["status"]["allocatable"]["cpu"] = (1 + self.rng.below(9)).to_string().into(),
            _ => node["status"]["declaredFeatures"] = json!(["UserNamespacesHostNetworkSupport"]),
        }
    }

    fn pod(&mut self) -> Value {
        let mut pod = self.templates[self.rng.below(self.templates.len())].clone();
        let version = self.version();
        pod["metadata"]["name"] = format!("p{version}").into();
        pod["metadata"]["uid"] = format!("u{version}").into();
        pod["metadata"]["resourceVersion"] = version.into();
        pod
    }

    /// One random change of the cluster.
    fn step(&mut self) {
        match self.rng.below(21) {
            0 => self.add_node(),
            1 if !self.nodes.is_empty() => self.remove_nodes(),
            2 | 3 if !self.nodes.is_empty() => self.change_node(),
            4..=6 if !self.nodes.is_empty() => self.place_pod(),
            7 if !self.pods.is_empty() => {
                let pod = self.pods.swap_remove(self.rng.below(self.pods.len()));
                self.delete(&pod);
            }
            8 if !self.pods.is_empty() => self.change_pod(),
            9 => self.change_owner(),
            10 => {
                let version = self.version();
                let (name, kind) = (self.rng.pick(&NAMESPACES), self.rng.pick(&NAMESPACES));
                self.upsert(json!({"apiVersion": "v1", "kind": "Namespace",
                    "metadata": {"name": name, "resourceVersion": version, "labels": {"kind": kind}}}));
            }
            11 | 12 if !self.nodes.is_empty() => {
                let names: Vec<&str> = self.nodes.iter().filter_map(|node| node["metadata"]["name"].as_str()).collect();
                let (mut object, gone) = storage_and_devices::change(&names, &mut self.rng);
                object["metadata"]["resourceVersion"] = self.version().into();
                if gone { self.delete(&object) } else { self.upsert(object) }
            }
            13 | 14 => self.nominate(),
            15 => {
                let version = self.version();
                let (app, namespace) = (self.rng.pick(&APPS), self.rng.pick(&NAMESPACES));
                let allowed = self.rng.below(3);
                self.upsert(json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {
                    "name": app, "namespace": namespace, "resourceVersion": version},
                    "spec": {"selector": {"matchLabels": {"app": app}}},
                    "status": {"disruptionsAllowed": allowed}}));
            }
            _ => self.schedule(),
        }
    }

    /// One node goes, or all but a few of them.
    fn remove_nodes(&mut self) {
        let left = if self.rng.one_in(12) { self.rng.below(2) } else { self.nodes.len() - 1 };
        while self.nodes.len() > left {
            let node = self.nodes.swap_remove(self.rng.below(self.nodes.len()));
            self.delete(&node);
        }
    }

    fn change_node(&mut self) {
        let at = self.rng.below(self.nodes.len());
        let mut node = self.nodes[at].clone();
        node["metadata"]["resourceVersion"] = self.version().into();
        self.vary(&mut node);
        self.nodes[at] = node.clone();
        self.upsert(node);
    }

    /// A pod appears on a node without having been scheduled.
    fn place_pod(&mut self) {
        let mut pod = self.pod();
        if self.rng.one_in(2) {
            pod["status"]["startTime"] = format!("1970-01-01T00:0{}:00Z", self.rng.below(3)).into();
        }
        pod["spec"]["nodeName"] = self.nodes[self.rng.below(self.nodes.len())]["metadata"]["name"].clone();
        self.pods.push(pod.clone());
        self.upsert(pod);
    }

    /// A placed pod gets another label, or is being deleted.
    fn change_pod(&mut self) {
        let at = self.rng.below(self.pods.len());
        let mut pod = self.pods[at].clone();
        pod["metadata"]["resourceVersion"] = self.version().into();
        if self.rng.one_in(2) {
            pod["metadata"]["labels"]["app"] = (*self.rng.pick(&APPS)).into();
        } else {
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        self.pods[at] = pod.clone();
        self.upsert(pod);
    }

    /// A service or controller, from which default spreading takes its selector, comes, changes or goes.
    fn change_owner(&mut self) {
        let version = self.version();
        let app = self.rng.pick(&APPS);
        let labels = json!({"app": self.rng.pick(&APPS)});
        let (api, kind, selector) = match self.rng.below(4) {
            0 => ("apps/v1", "ReplicaSet", json!({"matchLabels": labels})),
            1 => ("v1", "ReplicationController", labels),
            _ => ("v1", "Service", labels),
        };
        let object = json!({"apiVersion": api, "kind": kind, "metadata": {
            "name": app, "namespace": self.rng.pick(&NAMESPACES), "resourceVersion": version},
            "spec": {"selector": selector}});
        if self.rng.one_in(3) { self.delete(&object) } else { self.upsert(object) }
    }

    /// A nomination comes, goes, or moves to another node.
    fn nominate(&mut self) {
        let node = match self.rng.below(6) {
            0 => "nowhere".into(),
            _ if self.nodes.is_empty() => "nowhere".into(),
            _ => self.nodes[self.rng.below(self.nodes.len())]["metadata"]["name"].clone(),
        };
        let known = self.rng.below(self.nominated.len().max(1));
        match self.rng.below(4) {
            0 if !self.nominated.is_empty() => {
                let pod = self.nominated.swap_remove(known);
                self.delete(&pod);
            }
            1 if !self.nominated.is_empty() => {
                let version = self.version();
                let pod = &mut self.nominated[known];
                pod["metadata"]["resourceVersion"] = version.into();
                pod["status"]["nominatedNodeName"] = node;
                let pod = pod.clone();
                self.upsert(pod);
            }
            _ => {
                let mut pod = self.pod();
                pod["spec"]["schedulingGates"] = json!([{"name": "wait"}]);
                pod["status"]["nominatedNodeName"] = node;
                self.nominated.push(pod.clone());
                self.upsert(pod);
            }
        }
    }

    /// Pods come and are scheduled; the API server confirms most bindings and evictions at once.
    fn schedule(&mut self) {
        for _ in 0..=self.rng.below(4) {
            let pod = self.pod();
            self.upsert(pod);
        }
        self.now += SignedDuration::from_secs(2);
        self.scheduler.tick(self.now);
        while self.scheduler.schedule_one(self.now) {}
        for effect in self.scheduler.take_effects() {
            match effect {
                Effect::Bind(binding) => {
                    let (namespace, name) =
                        binding.pod_key().split_once('/').map(|(a, b)| (a.to_owned(), b.to_owned())).expect("a key");
                    let node = binding.node().to_owned();
                    if self.rng.one_in(6) {
                        continue;
                    }
                    let known = self.scheduler.cluster().objects.pods.get(&namespace, &name).cloned();
                    let Some(known) = known else { continue };
                    let mut bound = Pod::clone(&known);
                    bound.spec.node_name = node;
                    bound.metadata.resource_version = self.version();
                    self.scheduler.handle(Input::upsert(Object::Pod(Arc::new(bound))), self.now);
                }
                Effect::Preempt(preemption) => {
                    for victim in &preemption.victims {
                        if !self.rng.one_in(4) {
                            let input = Input::delete(Object::Pod(victim.pod.clone()));
                            self.scheduler.handle(input, self.now);
                        }
                    }
                    let uid = preemption.preemptor.uid().to_owned();
                    self.scheduler.handle(Input::Preempted { uid, result: Ok(()) }, self.now);
                }
                _ => {}
            }
        }
    }

    /// Asks both about a pod of each template.
    fn compare(&mut self, seed: u64, step: usize) {
        for template in self.templates.clone() {
            let mut json = template;
            json["metadata"]["name"] = "asked".into();
            json["metadata"]["uid"] = "asked".into();
            if !self.nominated.is_empty() && self.rng.one_in(3) {
                // A pod does not count its own nomination.
                let at = self.rng.below(self.nominated.len());
                json["metadata"]["uid"] = self.nominated[at]["metadata"]["uid"].clone();
            }
            let Object::Pod(pod) = Self::decode(&json) else { unreachable!("templates are pods") };
            let pod = PodInfo::new(pod);
            let (cluster, nominator) = (self.scheduler.cluster(), &self.scheduler.queue().nominator);
            let profile = self.scheduler.profile("default-scheduler").expect("the profile is there");
            let input = DecisionInput::new(profile, cluster, nominator, &pod, self.now);
            self.asked_with_nodes[cluster.node_count().min(2)] += 1;
            let fast = self.engine.scores(input);
            if let Some(is_pre_filter) = exit_before_filtering(input) {
                self.rejected_by_pre_filter += usize::from(is_pre_filter);
                assert!(fast.is_none(), "seed {seed}, step {step}: the engine answers for {json:#}");
                continue;
            }
            // While pods are nominated, the engine leaves pods that count by domain to the plain cycle.
            let alone = self.nominated.is_empty();
            self.asked += usize::from(alone);
            let Some(fast) = fast else { continue };
            self.answered += usize::from(alone);
            self.answered_with_nominated += usize::from(!alone);
            let mut attempt = Attempt::new(profile, cluster, nominator, &pod, self.now);
            let found = attempt.find(Search::ALL);
            let found = found.unwrap_or_else(|error| panic!("seed {seed}, step {step}: {error}"));
            let names: Vec<_> = fast.iter().map(|(name, _)| name.clone()).collect();
            let mut plain: Vec<_> = found.feasible.iter().map(|node| node.name.clone()).collect();
            plain.sort();
            assert_eq!(names, plain, "seed {seed}, step {step}: feasible nodes of {json:#}");
            if found.feasible.is_empty()
                && let Some((message, answer)) = self.engine.why_not(input)
            {
                let mut diagnosis = found.diagnosis;
                let plain = attempt.post_filter(&mut diagnosis, 0);
                assert_eq!(message, diagnosis.message(), "seed {seed}, step {step}: {json:#}");
                let evicted = |answer: &PostFilter| {
                    answer.preemption.as_ref().map(|preemption| {
                        let victims = preemption.victims.iter().map(|victim| victim.uid().to_owned());
                        (preemption.node.clone(), victims.collect::<Vec<_>>())
                    })
                };
                assert_eq!(evicted(&answer), evicted(&plain), "seed {seed}, step {step}: {json:#}");
                assert_eq!(answer.nomination, plain.nomination, "seed {seed}, step {step}: {json:#}");
                self.unschedulable += 1;
                continue;
            }
            if found.feasible.len() > 1 {
                self.equipped += usize::from(storage_and_devices::is_equipped(&json["spec"]));
                let scores = attempt.score(&found.feasible).expect("scores");
                let mut plain: Vec<_> = scores.nodes.iter().cloned().zip(scores.totals.iter().copied()).collect();
                plain.sort();
                assert_eq!(fast, plain, "seed {seed}, step {step}: scores of {json:#}\n{scores:#?}");
            }
        }
    }
}

/// Whether the plain cycle ends before any filter is asked, and then whether PreFilter ended it. There is nothing to
/// cache then, and only the plain cycle has the texts.
fn exit_before_filtering(input: DecisionInput<'_>) -> Option<bool> {
    let DecisionInput { profile, cluster, nominator, pod, now, .. } = input;
    let mut attempt = Attempt::new(profile, cluster, nominator, pod, now);
    match attempt.decide(Search::ALL, &mut TieBreak::SmallestName).0 {
        Decision::NoNodes | Decision::Failed(_) => Some(false),
        Decision::Unschedulable(why) => why.diagnosis.pre_filter.is_some().then_some(true),
        Decision::Node(_) => None,
    }
}

/// The default configuration, or one with other weights and arguments.
fn configuration(rng: &mut Rng) -> Configuration {
    if !rng.one_in(3) {
        return Configuration::default();
    }
    let strategy = *rng.pick(&["LeastAllocated", "MostAllocated"]);
    let args = |name: &str, args: Value| json!({"name": name, "args": args});
    let value = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "profiles": [{
            "schedulerName": "default-scheduler",
            "plugins": {"multiPoint": {"enabled": [{"name": "InterPodAffinity", "weight": 1 + rng.below(9)}]}},
            "pluginConfig": [
                args("NodeResourcesFit", json!({"scoringStrategy": {"type": strategy,
                    "resources": [{"name": "cpu", "weight": 2}, {"name": "memory", "weight": 1}]}})),
                args("InterPodAffinity", json!({"hardPodAffinityWeight": rng.below(101),
                    "ignorePreferredTermsOfExistingPods": rng.one_in(2)})),
                args("PodTopologySpread", json!({"defaultingType": "List", "defaultConstraints": [
                    {"maxSkew": 1, "topologyKey": rng.pick(&KEYS[..3]), "whenUnsatisfiable": "ScheduleAnyway"},
                    {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"},
                ]})),
            ],
        }],
    });
    Configuration::from_value(value).expect("a valid configuration")
}

#[test]
fn the_engine_and_the_plain_cycle_agree_at_every_step_of_random_histories() {
    let histories = std::env::var("BAYPLAN_HISTORIES").ok().and_then(|n| n.parse().ok()).unwrap_or(HISTORIES);
    let (mut asked, mut answered, mut answered_with_nominated, mut unschedulable, mut equipped) = (0, 0, 0, 0, 0);
    let (mut asked_with_nodes, mut rejected_by_pre_filter) = ([0; 3], 0);
    for seed in 0..histories {
        let mut history = History::new(seed);
        for step in 0..STEPS {
            history.step();
            if history.rng.one_in(2) {
                history.compare(seed, step);
            }
        }
        asked += history.asked;
        answered += history.answered;
        answered_with_nominated += history.answered_with_nominated;
        unschedulable += history.unschedulable;
        equipped += history.equipped;
        rejected_by_pre_filter += history.rejected_by_pre_filter;
        asked_with_nodes.iter_mut().zip(history.asked_with_nodes).for_each(|(all, own)| *all += own);
    }
    // The comparison means nothing where the engine does not answer.
    let histories = histories as usize;
    assert!(unschedulable > histories, "the engine answered for only {unschedulable} pods that fit nowhere");
    assert!(equipped > 3 * histories, "only {equipped} pods with volumes or devices found nodes");
    assert!(
        answered_with_nominated > 10 * histories,
        "the engine answered only {answered_with_nominated} times while pods were nominated"
    );
    assert!(
        asked_with_nodes.iter().all(|asked| *asked > 4 * histories),
        "questions with no node, one, and more: {asked_with_nodes:?}"
    );
    assert!(rejected_by_pre_filter > histories, "PreFilter rejected only {rejected_by_pre_filter} pods");
    assert!(answered * 10 > asked * 8, "the engine answered only {answered} of {asked} questions");
}
