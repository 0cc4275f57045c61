//! Reserve, PreBind and Unreserve of a pod that has been placed, against an API server with the same objects.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use bayplan_model::api::{Api, Event, Recorder, Request, Verb};
use bayplan_model::status::{Status as ApiStatus, reason};
use bayplan_testkit::merge;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::objects::{lines, manifest};
use super::{NOW, PluginTest, pod_info};
use crate::cluster::{Cluster, Object, PodInfo};
use crate::cycle::Attempt;
use crate::cycle::filter::Search;
use crate::framework::*;
use crate::nominator::Nominator;

/// A pod for which Filter has passed a node, with the states of the plugins.
pub(in crate::plugins) struct PlacedPod {
    pub(in crate::plugins) cluster: Cluster,
    pod: PodInfo,
    node: &'static str,
    states: CycleStates,
    /// The plugin under test, as the states number it.
    plugin: usize,
    waits: ClusterWaits,
}

impl PluginTest {
    /// Runs PreFilter and Filter of a pod, which must pass the node.
    pub(in crate::plugins) fn place(&self, pod: &str, node: &'static str) -> PlacedPod {
        let (profile, cluster, pod) = (self.profile(), self.cluster(""), pod_info(pod));
        let nominator = Nominator::default();
        let mut attempt = Attempt::new(&profile, &cluster, &nominator, &pod, NOW);
        let found = attempt.find(Search::ALL).expect("filters answer");
        assert!(found.feasible.iter().any(|feasible| &*feasible.name == node), "{node} is feasible");
        let plugin = profile.plugins().iter().position(|plugin| plugin.name() == self.plugin);
        let states = attempt.into_reserve().states;
        let plugin = plugin.expect("the profile enables the plugin");
        PlacedPod { pod, node, states, plugin, cluster, waits: ClusterWaits::default() }
    }

    /// An API server with the objects of all cases and the pod. `script` runs at every tick, a second after the last.
    pub(in crate::plugins) fn api(&self, pod: &str, script: fn(u32, &mut StoredObjects)) -> ObjectApi {
        let pod = format!("Pod pod {pod}");
        let objects = lines(&self.objects).chain([pod.as_str()]).map(manifest);
        ObjectApi {
            objects: Mutex::new(objects.map(|object| (key(&object), object)).collect()),
            events: Mutex::default(),
            ticks: Mutex::default(),
            reads: Mutex::default(),
            script,
        }
    }
}

impl PlacedPod {
    pub(in crate::plugins) fn reserve(&mut self) -> Status {
        self.states.get_mut(self.plugin).reserve(&mut self.cluster, &self.pod, self.node)
    }

    /// Runs PreBindPreFlight, and PreBind unless that skips it. While PreBind waits for the cluster, the API server's
    /// script runs and the informers show what it did.
    pub(in crate::plugins) fn pre_bind(&mut self, api: &ObjectApi) -> Status {
        let PlacedPod { cluster, pod, node, states, plugin, waits } = self;
        let state = states.get(*plugin);
        let flight = state.pre_bind_pre_flight(pod, node);
        if !flight.status.is_success() {
            return flight.status;
        }
        let mut shown = api.objects.lock().unwrap().clone();
        cluster.store(decode(&shown["pods/pod"]));
        let cx = BindContext { pod, node, api, recorder: api, timer: api, waits };
        let (mut running, mut now) = (state.pre_bind(cx), NOW);
        loop {
            if let Some(status) = (&mut running).now_or_never() {
                return status;
            }
            assert_eq!(waits.len(), 1, "it waits for the cluster");
            api.tick();
            let objects = api.objects.lock().unwrap().clone();
            show(cluster, &shown, &objects);
            shown = objects;
            now += SignedDuration::from_secs(1);
            waits.ask(cluster, now);
        }
    }

    pub(in crate::plugins) fn unreserve(&mut self) -> Vec<Request> {
        self.states.get_mut(self.plugin).unreserve(&mut self.cluster, &self.pod, self.node)
    }
}

/// Shows the cluster state what an API server changed.
fn show(cluster: &mut Cluster, before: &StoredObjects, after: &StoredObjects) {
    for (_, gone) in before.iter().filter(|(key, _)| !after.contains_key(*key)) {
        match decode(gone) {
            Object::Node(node) => drop(cluster.remove_node(&node.metadata.name)),
            other => drop(cluster.objects.remove(&other)),
        }
    }
    for (_, changed) in after.iter().filter(|(key, object)| before.get(*key) != Some(*object)) {
        cluster.store(decode(changed));
    }
}

fn decode(object: &Value) -> Object {
    Object::decode(object).expect("a known kind").expect("a readable object")
}

/// `resource/name`.
fn key(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_lowercase();
    let kind = text(&object["kind"]);
    let plural = if kind.ends_with('s') { format!("{kind}es") } else { format!("{kind}s") };
    format!("{plural}/{}", text(&object["metadata"]["name"]))
}

/// Objects by `resource/name`, as [`ObjectApi`] keeps them.
pub(in crate::plugins) type StoredObjects = BTreeMap<String, Value>;

/// An API server with a few objects, for PreBind: it reads and patches them. At every tick a script changes them as
/// controllers and drivers would. Sleeps end at once.
pub(in crate::plugins) struct ObjectApi {
    pub(in crate::plugins) objects: Mutex<StoredObjects>,
    pub(in crate::plugins) events: Mutex<Vec<Event>>,
    pub(in crate::plugins) ticks: Mutex<u32>,
    pub(in crate::plugins) reads: Mutex<u32>,
    script: fn(u32, &mut StoredObjects),
}

impl Api for ObjectApi {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Bytes, ApiStatus>> {
        let key = format!("{}/{}", request.resource.plural, request.name);
        let mut objects = self.objects.lock().unwrap();
        let answer = match (request.verb, objects.get_mut(&key)) {
            (_, None) => Err(ApiStatus::failure(404, reason::NOT_FOUND, format!("{key} not found"))),
            (Verb::Get, Some(object)) => {
                *self.reads.lock().unwrap() += 1;
                Ok(object.to_string().into())
            }
            (Verb::Patch(_, patch), Some(object)) => patched(object, &patch),
            (verb, _) => panic!("PreBind does not ask for {verb:?}"),
        };
        async { answer }.boxed()
    }
}

/// Applies a merge patch that names the current version, and makes a new one.
fn patched(object: &mut Value, patch: &[u8]) -> Result<Bytes, ApiStatus> {
    let mut patch: Value = serde_json::from_slice(patch).unwrap();
    let version = object["metadata"]["resourceVersion"].clone();
    if patch["metadata"]["resourceVersion"] != version {
        return Err(ApiStatus::failure(409, reason::CONFLICT, "the object has been modified"));
    }
    patch["metadata"]["resourceVersion"] = format!("{}1", version.as_str().unwrap()).into();
    merge(object, patch);
    Ok(object.to_string().into())
}

impl Recorder for ObjectApi {
    fn record(&self, event: Event) {
        self.events.lock().unwrap().push(event);
    }
}

impl Timer for ObjectApi {
    fn now(&self) -> Timestamp {
        NOW
    }

    fn sleep(&self, _duration: Duration) -> BoxFuture<'static, ()> {
        async {}.boxed()
    }
}

impl ObjectApi {
    fn tick(&self) {
        let mut ticks = self.ticks.lock().unwrap();
        *ticks += 1;
        (self.script)(*ticks, &mut self.objects.lock().unwrap());
    }
}
