//! The fast engine and the plain cycle on random histories: same feasible nodes, same scores, same victims, at every step.
//!
//! `BAYPLAN_HISTORIES` sets the number of histories; the long form has 10,000.

mod stock;

use std::sync::Arc;

use bayplan_model::pod::Pod;
use bayplan_scheduler::cluster::{Object, PodInfo};
use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::cycle::Attempt;
use bayplan_scheduler::cycle::filter::Search;
use bayplan_scheduler::cycle::tie_break::{Rng, TieBreak};
use bayplan_scheduler::effect::Effect;
use bayplan_scheduler::engine::{DecisionInput, Engine};
use bayplan_scheduler::framework::{PostFilter, Registry};
use bayplan_scheduler::scheduler::{Input, Scheduler};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

const HISTORIES: u64 = 150;
const STEPS: usize = 60;

/// A small generator of numbers; the seed is in every failure.
struct Luck(u64);

impl Luck {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % n.max(1)
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}

const ZONES: [&str; 3] = ["a", "b", "c"];
const APPS: [&str; 3] = ["x", "y", "z"];
const NAMESPACES: [&str; 3] = ["default", "team", "other"];
const KEYS: [&str; 4] = ["topology.kubernetes.io/zone", "kubernetes.io/hostname", "rack", "missing-almost-everywhere"];

struct History {
    luck: Luck,
    scheduler: Scheduler,
    engine: Engine,
    templates: Vec<Value>,
    nodes: Vec<Value>,
    pods: Vec<Value>,
    /// Pods that wait behind a gate and are nominated to a node, there or not.
    nominated: Vec<Value>,
    made: usize,
    now: Timestamp,
    fast: usize,
    compared: usize,
    heeded: usize,
    unfit: usize,
    /// Answers with nodes for pods that use volumes or devices.
    equipped: usize,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut luck = Luck(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let configuration = configuration(&mut luck);
        let ties = TieBreak::Random(Rng::new(seed));
        let scheduler = Scheduler::new(&configuration, &Registry::default(), ties).expect("a valid configuration");
        let templates = (0..6).map(|_| template(&mut luck)).collect();
        let mut history = History {
            luck,
            scheduler,
            engine: Engine::default(),
            templates,
            nodes: Vec::new(),
            pods: Vec::new(),
            nominated: Vec::new(),
            made: 0,
            now: Timestamp::UNIX_EPOCH,
            fast: 0,
            compared: 0,
            heeded: 0,
            unfit: 0,
            equipped: 0,
        };
        for namespace in NAMESPACES {
            history.upsert(json!({"apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": namespace, "labels": {"kind": namespace}}}));
        }
        for object in stock::basics(&mut history.luck) {
            history.upsert(object);
        }
        for _ in 0..6 {
            history.add_node();
        }
        history
    }

    fn decode(json: &Value) -> Object {
        Object::decode(json).expect("a known kind").expect("a readable object")
    }

    fn upsert(&mut self, json: Value) {
        self.scheduler.handle(Input::Upsert(Self::decode(&json)), self.now);
    }

    fn delete(&mut self, json: &Value) {
        self.scheduler.handle(Input::Delete(Self::decode(json)), self.now);
    }

    fn version(&mut self) -> String {
        self.made += 1;
        self.made.to_string()
    }

    fn add_node(&mut self) {
        let version = self.version();
        let name = format!("n{version}");
        let mut labels = json!({"kubernetes.io/hostname": name.clone(), "disk": self.luck.pick(&["ssd", "hdd"])});
        if !self.luck.one_in(5) {
            labels["topology.kubernetes.io/zone"] = self.luck.pick(&ZONES).into();
        }
        if self.luck.one_in(2) {
            labels["rack"] = self.luck.pick(&["r1", "r2", "r3", "r4", "r5"]).into();
        }
        if self.luck.one_in(9) {
            labels["missing-almost-everywhere"] = "here".into();
        }
        let mut node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name.clone(), "resourceVersion": version, "labels": labels},
            "spec": {"taints": []},
            "status": {"allocatable": {
                "cpu": (2 + self.luck.below(6)).to_string(), "memory": format!("{}Gi", 4 + self.luck.below(8)),
                "pods": (4 + self.luck.below(20)).to_string(), "example.com/gpu": self.luck.below(3).to_string(),
            }, "images": []},
        });
        self.vary(&mut node);
        self.nodes.push(node.clone());
        self.upsert(node);
        for object in stock::of_node(&name, &mut self.luck) {
            self.upsert(object);
        }
    }

    fn vary(&mut self, node: &mut Value) {
        match self.luck.below(8) {
            0 => {
                let effect = self.luck.pick(&["NoSchedule", "PreferNoSchedule", "NoExecute"]);
                node["spec"]["taints"] = json!([{"key": self.luck.pick(&["a", "b"]), "effect": effect}]);
            }
            1 => node["spec"]["taints"] = json!([]),
            2 => node["spec"]["unschedulable"] = self.luck.one_in(2).into(),
            3 => node["metadata"]["labels"]["topology.kubernetes.io/zone"] = self.luck.pick(&ZONES).into(),
            4 => node["metadata"]["labels"]["disk"] = self.luck.pick(&["ssd", "hdd"]).into(),
            5 => node["status"]["images"] = json!([{"names": ["big:latest"], "sizeBytes": 900_000_000}]),
            6 => node["status"]["allocatable"]["cpu"] = (1 + self.luck.below(9)).to_string().into(),
            _ => node["status"]["declaredFeatures"] = json!(["UserNamespacesHostNetworkSupport"]),
        }
    }

    fn pod(&mut self) -> Value {
        let mut pod = self.templates[self.luck.below(self.templates.len())].clone();
        let version = self.version();
        pod["metadata"]["name"] = format!("p{version}").into();
        pod["metadata"]["uid"] = format!("u{version}").into();
        pod["metadata"]["resourceVersion"] = version.into();
        pod
    }

    /// One thing that may happen to a cluster.
    fn step(&mut self) {
        match self.luck.below(21) {
            0 => self.add_node(),
            1 if self.nodes.len() > 2 => {
                let node = self.nodes.swap_remove(self.luck.below(self.nodes.len()));
                self.delete(&node);
            }
            2 | 3 if !self.nodes.is_empty() => {
                let at = self.luck.below(self.nodes.len());
                let mut node = self.nodes[at].clone();
                node["metadata"]["resourceVersion"] = self.version().into();
                self.vary(&mut node);
                self.nodes[at] = node.clone();
                self.upsert(node);
            }
            4..=6 if !self.nodes.is_empty() => {
                let mut pod = self.pod();
                if self.luck.one_in(2) {
                    pod["status"]["startTime"] = format!("1970-01-01T00:0{}:00Z", self.luck.below(3)).into();
                }
                pod["spec"]["nodeName"] = self.nodes[self.luck.below(self.nodes.len())]["metadata"]["name"].clone();
                self.pods.push(pod.clone());
                self.upsert(pod);
            }
            7 if !self.pods.is_empty() => {
                let pod = self.pods.swap_remove(self.luck.below(self.pods.len()));
                self.delete(&pod);
            }
            8 if !self.pods.is_empty() => {
                let at = self.luck.below(self.pods.len());
                let mut pod = self.pods[at].clone();
                pod["metadata"]["resourceVersion"] = self.version().into();
                if self.luck.one_in(2) {
                    pod["metadata"]["labels"]["app"] = self.luck.pick(&APPS).into();
                } else {
                    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
                }
                self.pods[at] = pod.clone();
                self.upsert(pod);
            }
            9 => {
                let version = self.version();
                let app = self.luck.pick(&APPS);
                let labels = json!({"app": self.luck.pick(&APPS)});
                let (api, kind, selector) = match self.luck.below(4) {
                    0 => ("apps/v1", "ReplicaSet", json!({"matchLabels": labels})),
                    1 => ("v1", "ReplicationController", labels),
                    _ => ("v1", "Service", labels),
                };
                let object = json!({"apiVersion": api, "kind": kind, "metadata": {
                    "name": app, "namespace": self.luck.pick(&NAMESPACES), "resourceVersion": version},
                    "spec": {"selector": selector}});
                if self.luck.one_in(3) { self.delete(&object) } else { self.upsert(object) }
            }
            10 => {
                let version = self.version();
                let name = self.luck.pick(&NAMESPACES);
                let kind = self.luck.pick(&NAMESPACES);
                self.upsert(json!({"apiVersion": "v1", "kind": "Namespace",
                    "metadata": {"name": name, "resourceVersion": version, "labels": {"kind": kind}}}));
            }
            11 | 12 if !self.nodes.is_empty() => {
                let names: Vec<&str> = self.nodes.iter().filter_map(|node| node["metadata"]["name"].as_str()).collect();
                let (mut object, gone) = stock::change(&names, &mut self.luck);
                object["metadata"]["resourceVersion"] = self.version().into();
                if gone { self.delete(&object) } else { self.upsert(object) }
            }
            13 | 14 => self.nominate(),
            15 => {
                let version = self.version();
                let (app, namespace) = (self.luck.pick(&APPS), self.luck.pick(&NAMESPACES));
                let allowed = self.luck.below(3);
                self.upsert(json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {
                    "name": app, "namespace": namespace, "resourceVersion": version},
                    "spec": {"selector": {"matchLabels": {"app": app}}},
                    "status": {"disruptionsAllowed": allowed}}));
            }
            _ => self.schedule(),
        }
    }

    /// A nomination comes, goes, or becomes another one.
    fn nominate(&mut self) {
        let node = match self.luck.below(6) {
            0 => "nowhere".into(),
            _ => self.nodes[self.luck.below(self.nodes.len())]["metadata"]["name"].clone(),
        };
        let known = self.luck.below(self.nominated.len().max(1));
        match self.luck.below(4) {
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

    /// Pods come and are placed; what the API server would say of it is said at once.
    fn schedule(&mut self) {
        for _ in 0..=self.luck.below(4) {
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
                    if self.luck.one_in(6) {
                        continue;
                    }
                    let known = self.scheduler.cluster().objects.pods.get(&namespace, &name).cloned();
                    let Some(known) = known else { continue };
                    let mut bound = Pod::clone(&known);
                    bound.spec.node_name = node;
                    bound.metadata.resource_version = self.version();
                    self.scheduler.handle(Input::Upsert(Object::Pod(Arc::new(bound))), self.now);
                }
                Effect::Preempt(preemption) => {
                    for victim in &preemption.victims {
                        if !self.luck.one_in(4) {
                            let input = Input::Delete(Object::Pod(victim.pod.clone()));
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

    /// Both forms on a pod of each template.
    fn compare(&mut self, seed: u64, step: usize) {
        for template in self.templates.clone() {
            let mut json = template;
            json["metadata"]["name"] = "asked".into();
            json["metadata"]["uid"] = "asked".into();
            if !self.nominated.is_empty() && self.luck.one_in(3) {
                // A pod is not in its own way.
                let at = self.luck.below(self.nominated.len());
                json["metadata"]["uid"] = self.nominated[at]["metadata"]["uid"].clone();
            }
            let Object::Pod(pod) = Self::decode(&json) else { unreachable!("templates are pods") };
            let pod = PodInfo::new(pod);
            let (cluster, nominator) = (self.scheduler.cluster(), &self.scheduler.queue().nominator);
            let profile = self.scheduler.profile("default-scheduler").expect("the profile is there");
            let input = DecisionInput { profile, cluster, nominator, pod: &pod, now: self.now };
            let fast = self.engine.scores(input);
            // Where pods are nominated, those that count by domain are left to the plain cycle.
            let alone = self.nominated.is_empty();
            self.compared += usize::from(alone);
            let Some(fast) = fast else { continue };
            self.fast += usize::from(alone);
            self.heeded += usize::from(!alone);
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
                self.unfit += 1;
                continue;
            }
            if found.feasible.len() > 1 {
                self.equipped += usize::from(stock::is_equipped(&json["spec"]));
                let scores = attempt.score(&found.feasible).expect("scores");
                let mut plain: Vec<_> = scores.nodes.iter().cloned().zip(scores.totals.iter().copied()).collect();
                plain.sort();
                assert_eq!(fast, plain, "seed {seed}, step {step}: scores of {json:#}\n{scores:#?}");
            }
        }
    }
}

/// The defaults, or other weights and arguments.
fn configuration(luck: &mut Luck) -> Configuration {
    if !luck.one_in(3) {
        return Configuration::default();
    }
    let strategy = luck.pick(&["LeastAllocated", "MostAllocated"]);
    let args = |name: &str, args: Value| json!({"name": name, "args": args});
    let value = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "profiles": [{
            "schedulerName": "default-scheduler",
            "plugins": {"multiPoint": {"enabled": [{"name": "InterPodAffinity", "weight": 1 + luck.below(9)}]}},
            "pluginConfig": [
                args("NodeResourcesFit", json!({"scoringStrategy": {"type": strategy,
                    "resources": [{"name": "cpu", "weight": 2}, {"name": "memory", "weight": 1}]}})),
                args("InterPodAffinity", json!({"hardPodAffinityWeight": luck.below(101),
                    "ignorePreferredTermsOfExistingPods": luck.one_in(2)})),
                args("PodTopologySpread", json!({"defaultingType": "List", "defaultConstraints": [
                    {"maxSkew": 1, "topologyKey": luck.pick(&KEYS[..3]), "whenUnsatisfiable": "ScheduleAnyway"},
                    {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"},
                ]})),
            ],
        }],
    });
    Configuration::from_value(value).expect("a valid configuration")
}

fn template(luck: &mut Luck) -> Value {
    let labels = json!({"app": luck.pick(&APPS)});
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": luck.pick(&NAMESPACES), "labels": labels},
        "spec": {"schedulerName": "default-scheduler", "priority": luck.below(3) * 10, "containers": [{
            "name": "c", "image": luck.pick(&["big", "small"]),
            "resources": {"requests": {"cpu": format!("{}m", 100 * luck.below(9)), "memory": format!("{}Mi", 128 * luck.below(9))}},
        }]},
    });
    if luck.one_in(3) {
        let (api, kind) = if luck.one_in(3) { ("v1", "ReplicationController") } else { ("apps/v1", "ReplicaSet") };
        let owner = json!({"apiVersion": api, "kind": kind, "name": luck.pick(&APPS), "uid": "o", "controller": true});
        pod["metadata"]["ownerReferences"] = json!([owner]);
    }
    let spec = &mut pod["spec"];
    if luck.one_in(4) {
        spec["tolerations"] = json!([{"key": luck.pick(&["a", "b"]), "operator": "Exists"}]);
    }
    if luck.one_in(4) {
        spec["nodeSelector"] = json!({"disk": luck.pick(&["ssd", "hdd"])});
    }
    if luck.one_in(6) {
        spec["containers"][0]["ports"] = json!([{"hostPort": 80 + luck.below(2)}]);
    }
    if luck.one_in(6) {
        spec["containers"][0]["resources"]["requests"]["example.com/gpu"] = "1".into();
    }
    if luck.one_in(8) {
        spec["hostNetwork"] = true.into();
        spec["hostUsers"] = false.into();
    }
    if luck.one_in(3) {
        let constraint = |luck: &mut Luck| {
            json!({
                "maxSkew": 1 + luck.below(2), "topologyKey": luck.pick(&KEYS[..3]),
                "whenUnsatisfiable": luck.pick(&["DoNotSchedule", "ScheduleAnyway"]),
                "labelSelector": {"matchLabels": {"app": luck.pick(&APPS)}},
                "nodeTaintsPolicy": luck.pick(&["Honor", "Ignore"]),
                "nodeAffinityPolicy": luck.pick(&["Honor", "Ignore"]),
            })
        };
        let all: Vec<Value> = (0..=luck.below(3)).map(|_| constraint(luck)).collect();
        spec["topologySpreadConstraints"] = all.into();
    }
    let mut affinity = json!({});
    if luck.one_in(4) {
        affinity["nodeAffinity"] = json!({"preferredDuringSchedulingIgnoredDuringExecution": [{
            "weight": 1 + luck.below(100),
            "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": [luck.pick(&["ssd", "hdd"])]}]},
        }]});
    }
    let term = |luck: &mut Luck| {
        let mut term = json!({
            "topologyKey": luck.pick(&KEYS), "labelSelector": {"matchLabels": {"app": luck.pick(&APPS)}},
        });
        match luck.below(4) {
            0 => term["namespaceSelector"] = json!({"matchLabels": {"kind": luck.pick(&NAMESPACES)}}),
            1 => term["namespaces"] = json!([luck.pick(&NAMESPACES)]),
            _ => {}
        }
        term
    };
    for kind in ["podAffinity", "podAntiAffinity"] {
        if luck.one_in(5) {
            affinity[kind]["requiredDuringSchedulingIgnoredDuringExecution"] = json!([term(luck)]);
        }
        if luck.one_in(5) {
            let weighted: Vec<Value> = (0..=luck.below(2))
                .map(|_| json!({"weight": 1 + luck.below(100), "podAffinityTerm": term(luck)}))
                .collect();
            affinity[kind]["preferredDuringSchedulingIgnoredDuringExecution"] = weighted.into();
        }
    }
    spec["affinity"] = affinity;
    stock::equip(spec, luck);
    pod
}

#[test]
fn the_fast_engine_and_the_plain_cycle_agree_at_every_step_of_random_histories() {
    let histories = std::env::var("BAYPLAN_HISTORIES").ok().and_then(|n| n.parse().ok()).unwrap_or(HISTORIES);
    let (mut fast, mut compared, mut heeded, mut unfit, mut equipped) = (0, 0, 0, 0, 0);
    for seed in 0..histories {
        let mut history = History::new(seed);
        for step in 0..STEPS {
            history.step();
            if history.luck.one_in(2) {
                history.compare(seed, step);
            }
        }
        fast += history.fast;
        compared += history.compared;
        heeded += history.heeded;
        unfit += history.unfit;
        equipped += history.equipped;
    }
    assert!(unfit > histories as usize, "the engine said why not only {unfit} times");
    assert!(equipped > 4 * histories as usize, "only {equipped} pods with volumes or devices found nodes");
    assert!(heeded > 10 * histories as usize, "the engine heeded nominations only {heeded} times");
    assert!(fast * 10 > compared * 8, "the engine answered only {fast} of {compared} questions");
}
