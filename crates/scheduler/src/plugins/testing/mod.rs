//! Tables of cases for plugins: a pod and a small cluster as text, and what the plugin answers at an extension point.
//!
//! A case goes through the product's own path: a [`Profile`] in which the plugin is enabled, a [`Cluster`] that stores
//! the objects, and an [`Attempt`] that runs the extension points. Objects are written one per line, as
//! `Kind name {fields}`, with the fields as YAML:
//!
//! ```text
//! Node a {labels: {zone: a}, allocatable: {cpu: 4, pods: 10}}
//! Pod web {nodeName: a, requests: {cpu: 1}}
//! Pod team/other {labels: {app: db}}
//! ```
//!
//! Fields may leave out `metadata`, `spec` and `status`: [`objects`] puts each where it belongs. Names without a
//! namespace are in `default`; the UID of an object is its name, and its version is 1.

mod objects;
mod pre_bind;

use std::sync::Arc;

use bayplan_model::api::Request;
use bayplan_model::delta::Delta;
use bayplan_model::status::Status as ApiStatus;
use bayplan_testkit::{FakeApi, VirtualClock, request_line};
use futures::FutureExt;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Object, PodInfo};
use crate::config::Configuration;
use crate::cycle::Attempt;
use crate::cycle::filter::Search;
use crate::framework::*;
use crate::nominator::Nominator;
use crate::profile::Profile;
use crate::queue::{Backoff, ClusterChange, Queue, QueuePlugins, QueueingStrategy};
use crate::scheduler::{ProfilePlugins, Profiles};
use objects::{lines, object, yaml};
pub(super) use pre_bind::{ObjectApi, PlacedPod, StoredObjects};

/// A sentence, a pod, objects beside those given to all cases, and the lines expected.
pub(super) type Case<'a> = (&'a str, &'a str, &'a str, &'a [&'a str]);

/// A sentence, a pod that the plugin rejected, a change in the cluster, and `Queue` or `Skip`.
pub(super) type HintCase<'a> = (&'a str, &'a str, &'a str, &'a str);

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// A test of one plugin: its profile, its arguments and the objects of all cases.
pub(super) struct PluginTest {
    plugin: &'static str,
    beside: Vec<&'static str>,
    args: Value,
    objects: String,
}

/// What one case is about.
struct Scene {
    profile: Profile,
    cluster: Cluster,
    pod: PodInfo,
}

/// Tests the plugin of this name, as the registry makes it.
pub(super) fn plugin(name: &'static str) -> PluginTest {
    PluginTest { plugin: name, beside: Vec::new(), args: Value::Null, objects: String::new() }
}

impl PluginTest {
    /// Configures the plugin with these arguments, in YAML.
    pub(super) fn args(mut self, args: &str) -> Self {
        self.args = yaml(args);
        self
    }

    /// Enables another plugin after this one.
    pub(super) fn beside(mut self, other: &'static str) -> Self {
        self.beside.push(other);
        self
    }

    /// Adds objects to the cluster of all cases.
    pub(super) fn given(mut self, objects: &str) -> Self {
        self.objects.push_str(objects);
        self.objects.push('\n');
        self
    }

    /// Checks PreFilter and Filter: a line `node: code: message` for each node by name, or one line for a pod that
    /// PreFilter rejects. `Skip` marks nodes for which PreFilter skips the plugin.
    pub(super) fn filters(&self, cases: &[Case<'_>]) {
        self.each(cases, |attempt, scene| match attempt.find(Search::ALL) {
            Err(status) => vec![format!("pod: {}", shown(&status))],
            Ok(found) => match &found.diagnosis.pre_filter {
                Some(status) => vec![format!("pod: {}", shown(status))],
                None => {
                    let is_skipped = attempt.skipped().0.contains(&self.plugin);
                    by_name(scene.cluster.nodes(), |node| {
                        let is_feasible = found.feasible.iter().any(|feasible| feasible.name == node.name);
                        match (is_feasible, is_skipped) {
                            (true, true) => "Skip".to_owned(),
                            (true, false) => "Success".to_owned(),
                            (false, _) => match found.diagnosis.statuses.get(&node.name) {
                                status if status.is_success() => "not looked at".to_owned(),
                                status => shown(status),
                            },
                        }
                    })
                }
            },
        });
    }

    /// Checks PreScore, Score and NormalizeScore: a line `node: raw -> normalised` for each feasible node by name, or
    /// `Skip` when PreScore leaves the plugin out.
    pub(super) fn scores(&self, cases: &[Case<'_>]) {
        self.each(cases, |attempt, _| {
            let found = attempt.find(Search::ALL).expect("filters answer");
            let scores = match attempt.score(&found.nodes()) {
                Ok(scores) => scores,
                Err(status) => return vec![shown(&status)],
            };
            let Some(own) = scores.plugins.iter().find(|scores| scores.plugin == self.plugin) else {
                return vec!["Skip".to_owned()];
            };
            let of = |at: usize| format!("{} -> {}", own.raw[at], own.weighted[at]);
            let mut lines: Vec<String> =
                scores.nodes.iter().enumerate().map(|(at, node)| format!("{node}: {}", of(at))).collect();
            lines.sort();
            lines
        });
    }

    /// Checks PostFilter of a pod that fits nowhere: the status, then what is nominated, evicted and written.
    pub(super) fn post_filters(&self, cases: &[Case<'_>]) {
        self.each(cases, |attempt, _| {
            let mut found = attempt.find(Search::ALL).expect("filters answer");
            assert!(found.nodes().is_empty(), "PostFilter runs only for a pod that fits nowhere");
            let answer = attempt.post_filter(&mut found.diagnosis, 0);
            let mut lines = vec![shown(&answer.status)];
            if let Nomination::Override(node) = &answer.nomination {
                lines.push(format!("nominated: {node:?}"));
            }
            if let Some(preemption) = &answer.preemption {
                let victims: Vec<&str> = preemption.victims.iter().map(|pod| pod.metadata.name.as_str()).collect();
                lines.push(format!("evicted from {}: {}", preemption.node, victims.join(" ")));
            }
            lines.extend(answer.calls.iter().map(shown_request));
            lines
        });
    }

    /// Checks PreEnqueue: one line with the status.
    pub(super) fn pre_enqueues(&self, cases: &[Case<'_>]) {
        self.each(cases, |attempt, _| vec![shown(&attempt.pre_enqueue())]);
    }

    /// Checks Bind on node `node`: the requests, then the status. The API server answers with `failure`, if given.
    pub(super) fn binds(&self, failure: Option<ApiStatus>, cases: &[Case<'_>]) {
        self.each(cases, |attempt, scene| {
            let answer = failure.clone().map_or(Ok(json!({})), Err);
            let (api, timer) = (FakeApi::new(move |_| answer.clone()), VirtualClock::at(NOW));
            let at = scene.profile.plugins().iter().position(|plugin| plugin.name() == self.plugin);
            let at = at.expect("the profile enables the plugin");
            let waits = &scene.profile.waits;
            let cx = BindContext { pod: &scene.pod, node: "node", api: &api, recorder: &api, timer: &timer, waits };
            let status = attempt.states.get(at).bind(cx).now_or_never().expect("nothing here really waits");
            api.calls().iter().map(shown_request).chain([shown(&status)]).collect()
        });
    }

    /// Checks whether a change wakes a pod that the plugin rejected, registration and queueing hint together.
    ///
    /// A change is `add OBJECT`, `delete OBJECT` or `update OBJECT => {fields}`, with the fields after the update.
    pub(super) fn hints(&self, cases: &[HintCase<'_>]) {
        let profiles = Profiles::from(vec![self.profile()]);
        for (sentence, pod, change, expected) in cases {
            let mut cluster = self.cluster("");
            let changes = apply(&mut cluster, change);
            let plugins = ProfilePlugins { profiles: &profiles, cluster: &cluster, now: NOW };
            let mut queued = queued(pod_info(pod), NOW);
            queued.unschedulable_plugins = [self.plugin].into();
            let wakes =
                changes.iter().any(|change| plugins.queueing_strategy(&queued, change) != QueueingStrategy::Skip);
            assert_eq!(if wakes { "Queue" } else { "Skip" }, *expected, "{}: {sentence}", self.plugin);
        }
    }

    /// Checks QueueSort: pods as `name priority seconds`, where the seconds say when each joined the queue, against
    /// their names in the order in which they leave it.
    pub(super) fn orders(&self, cases: &[(&str, &[&str], &str)]) {
        let profiles = Profiles::from(vec![self.profile()]);
        let cluster = Cluster::new();
        let plugins = ProfilePlugins { profiles: &profiles, cluster: &cluster, now: NOW };
        for (sentence, pods, expected) in cases {
            let mut pods: Vec<QueuedPod> = pods
                .iter()
                .map(|pod| {
                    let [name, priority, seconds] = pod.split(' ').collect::<Vec<_>>()[..] else { panic!("{pod}") };
                    let priority = if priority == "-" { "null" } else { priority };
                    let info = pod_info(&format!("{{name: {name}, uid: {name}, priority: {priority}}}"));
                    queued(info, NOW + SignedDuration::from_secs(seconds.parse().unwrap()))
                })
                .collect();
            let names = |pods: &[QueuedPod]| {
                let names: Vec<&str> = pods.iter().map(|pod| pod.info.metadata.name.as_str()).collect();
                names.join(" ")
            };
            pods.sort_by(|a, b| plugins.less(b, a).cmp(&plugins.less(a, b)));
            assert_eq!(names(&pods), *expected, "{}: {sentence}", self.plugin);
            pods.sort_by_key(|pod| plugins.sort_key(pod));
            assert_eq!(names(&pods), *expected, "{} by its sort key: {sentence}", self.plugin);
        }
    }

    /// Checks that the plugin refuses arguments with this message; an empty one means that it accepts them.
    pub(super) fn refuses(&self, cases: &[(&str, &str)]) {
        let registry = Registry::default();
        for (args, expected) in cases {
            let made = registry.get(self.plugin).expect("the registry has the plugin")(&yaml(args));
            assert_eq!(made.err().unwrap_or_default(), *expected, "{}: {args}", self.plugin);
        }
    }

    fn each(&self, cases: &[Case<'_>], mut ask: impl FnMut(&mut Attempt<'_>, &Scene) -> Vec<String>) {
        let nominator = Nominator::default();
        for (sentence, pod, objects, expected) in cases {
            let scene = Scene { profile: self.profile(), cluster: self.cluster(objects), pod: pod_info(pod) };
            let mut attempt = Attempt::new(&scene.profile, &scene.cluster, &nominator, &scene.pod, NOW);
            let lines = ask(&mut attempt, &scene);
            assert_eq!(lines.join("\n"), expected.join("\n"), "{}: {sentence}", self.plugin);
        }
    }

    /// A profile with this plugin, those beside it, and what every profile needs.
    fn profile(&self) -> Profile {
        let mut names = vec![self.plugin];
        names.extend(&self.beside);
        // Without a plugin that scores, the search ends at the first node that does.
        for needed in ["PrioritySort", "ImageLocality", "DefaultBinder"] {
            if !names.contains(&needed) {
                names.push(needed);
            }
        }
        let enabled: Value = names.iter().map(|name| json!({"name": name})).collect();
        let mut profile = json!({"plugins": {"multiPoint": {"enabled": enabled, "disabled": [{"name": "*"}]}}});
        if !self.args.is_null() {
            profile["pluginConfig"] = json!([{"name": self.plugin, "args": self.args}]);
        }
        let configuration = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "profiles": [profile],
        });
        let configuration = Configuration::from_value(configuration).expect("the arguments are valid");
        Profile::build(&configuration.profiles[0], &Registry::default()).expect("the plugins are registered")
    }

    fn cluster(&self, more: &str) -> Cluster {
        let mut cluster = Cluster::new();
        lines(&self.objects).chain(lines(more)).for_each(|line| cluster.store(object(line)));
        cluster
    }
}

/// `code: message`, as upstream's statuses are printed.
fn shown(status: &Status) -> String {
    match status.message() {
        message if message.is_empty() => status.code.name().to_owned(),
        message => format!("{}: {message}", status.code.name()),
    }
}

fn by_name<'a>(
    nodes: impl Iterator<Item = &'a crate::cluster::NodeInfo>,
    line: impl Fn(&crate::cluster::NodeInfo) -> String,
) -> Vec<String> {
    let mut lines: Vec<String> = nodes.map(|node| format!("{}: {}", node.name, line(node))).collect();
    lines.sort();
    lines
}

fn pod_info(fields: &str) -> PodInfo {
    match object(&format!("Pod pod {fields}")) {
        Object::Pod(pod) => PodInfo::new(pod),
        _ => unreachable!("the line begins with Pod"),
    }
}

/// The pod as the queue keeps it since `since`.
fn queued(pod: PodInfo, since: Timestamp) -> QueuedPod {
    let second = SignedDuration::from_secs(1);
    let mut queue = Queue::new(Backoff { initial: second, max: second });
    let no_plugins = ProfilePlugins { profiles: &Profiles::from(vec![]), cluster: &Cluster::new(), now: since };
    queue.add(Arc::new(pod), since, &no_plugins);
    queue.pods().next().expect("the pod is in the queue").clone()
}

/// Makes a change in the cluster and returns the events it amounts to, as the scheduler's event handlers do.
fn apply(cluster: &mut Cluster, change: &str) -> Vec<ClusterChange> {
    let (verb, rest) = change.split_once(' ').expect("a verb and an object");
    let (old, new) = match verb {
        "add" => (None, Some(object(rest))),
        "delete" => (Some(object(rest)), None),
        "update" => {
            let (old, fields) = rest.split_once(" => ").expect("the object and its new fields");
            let name: Vec<&str> = old.split(' ').take(2).collect();
            (Some(object(old)), Some(object(&format!("{} {fields}", name.join(" ")))))
        }
        other => panic!("nothing is called {other}"),
    };
    if let Some(new) = &new {
        cluster.store(new.clone());
    }
    let resource = match new.as_ref().or(old.as_ref()).expect("one of them is there") {
        Object::Pod(pod) if pod.is_assigned() || new.is_none() => EventResource::AssignedPod,
        Object::Pod(_) => EventResource::UnschedulablePod,
        other => EventResource::of(other).expect("plugins register for this kind"),
    };
    let events = match (&old, &new) {
        (Some(Object::Node(old)), Some(Object::Node(new))) => node_updates(old, new),
        (Some(Object::Pod(old)), Some(Object::Pod(new))) => pod_updates(old, new),
        (Some(_), Some(_)) => vec![ClusterEvent::new(resource, action::UPDATE)],
        (None, _) => vec![ClusterEvent::new(resource, action::ADD)],
        (_, None) => vec![ClusterEvent::new(resource, action::DELETE)],
    };
    let delta = match (old, new) {
        (Some(old), Some(new)) => Delta::Updated { old, new },
        (None, Some(new)) => Delta::Added(new),
        (Some(old), None) => Delta::Deleted(old),
        (None, None) => unreachable!("one of them is there"),
    };
    events.into_iter().map(|event| ClusterChange::of_object(event, delta.clone())).collect()
}

/// `VERB namespace/resource/name body`.
fn shown_request(request: &Request) -> String {
    let (line, body) = request_line(request);
    if body.is_null() { line } else { format!("{line} {body}") }
}
