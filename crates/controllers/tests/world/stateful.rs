//! The life of a StatefulSet, what it asks for as a predicate, and what two of its worlds must agree on in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use bayplan_controllers::revisions;
use serde_json::{Value, json};

use super::server::Server;
use super::{World, is_ready};

/// How a set goes about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Manner {
    /// `OrderedReady` or `Parallel`.
    pub(crate) policy: &'static str,
    /// `Retain` or `Delete`, for claims of pods that are too many.
    pub(crate) when_scaled: &'static str,
}

pub(crate) const MANNERS: [Manner; 4] = [
    Manner { policy: "OrderedReady", when_scaled: "Retain" },
    Manner { policy: "Parallel", when_scaled: "Delete" },
    Manner { policy: "OrderedReady", when_scaled: "Delete" },
    Manner { policy: "Parallel", when_scaled: "Retain" },
];

pub(crate) fn stateful_set(manner: Manner) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "db"},
        "spec": {
            "replicas": 3,
            "serviceName": "db",
            "selector": {"matchLabels": {"app": "db"}},
            "podManagementPolicy": manner.policy,
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": manner.when_scaled},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
            "revisionHistoryLimit": 1,
            "minReadySeconds": 2,
            "ordinals": {"start": 1},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}],
            "template": {
                "metadata": {"labels": {"app": "db"}},
                "spec": {"containers": [{"name": "c", "image": "db:1"}]},
            },
        },
        "status": {"replicas": 0, "availableReplicas": 0},
    })
}

pub(crate) fn edit(server: &Server, edit: impl FnOnce(&mut Value)) {
    server.edit("statefulsets", "db", |set| edit(&mut set["spec"]));
}

pub(crate) fn roll(server: &Server, image: &str) {
    edit(server, |spec| spec["template"]["spec"]["containers"][0]["image"] = json!(image));
}

/// The user creates a set of three, rolls to a second image, makes it five while it rolls to a third of which two keep
/// the old one, ends that and goes back to the second with two pods, and makes it four while one fails and one is
/// deleted.
pub(crate) const STAGES: usize = 5;

pub(crate) fn begin(stage: usize, manner: Manner, server: &Server) {
    match stage {
        0 => server.put("statefulsets", stateful_set(manner)),
        1 => roll(server, "db:2"),
        2 => edit(server, |spec| {
            spec["replicas"] = json!(5);
            spec["updateStrategy"]["rollingUpdate"]["partition"] = json!(2);
            spec["template"]["spec"]["containers"][0]["image"] = json!("db:3");
        }),
        3 => edit(server, |spec| {
            spec["replicas"] = json!(2);
            spec["updateStrategy"]["rollingUpdate"]["partition"] = json!(0);
            spec["template"]["spec"]["containers"][0]["image"] = json!("db:2");
        }),
        _ => {
            server.end_pod("db-1", "Failed");
            server.delete_pod("db-2");
            edit(server, |spec| spec["replicas"] = json!(4));
        }
    }
}

/// Lets the stages pass, each to its end.
pub(crate) fn live_through(stages: Range<usize>, manner: Manner, mut world: World) -> World {
    for stage in stages {
        begin(stage, manner, &world.server);
        world.settle();
    }
    world
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn name(object: &Value) -> String {
    text(&object["metadata"]["name"])
}

fn revision_of(pod: &Value) -> String {
    text(&pod["metadata"]["labels"]["controller-revision-hash"])
}

fn number(revision: &Value) -> i64 {
    revision["revision"].as_i64().unwrap()
}

fn by_name(objects: Vec<Value>) -> BTreeMap<String, Value> {
    objects.into_iter().map(|object| (name(&object), object)).collect()
}

impl World {
    fn stateful_set(&self) -> Value {
        let [set] = &self.server.objects("statefulsets")[..] else { panic!("there is one StatefulSet") };
        set.clone()
    }

    /// At any moment: no two pods have the same number, and no two the same claim.
    pub(crate) fn assert_identities(&self, when: &str) {
        let (mut numbers, mut claims) = (BTreeSet::new(), BTreeSet::new());
        for pod in self.server.objects("pods") {
            let (name, labels) = (name(&pod), &pod["metadata"]["labels"]);
            let index = text(&labels["apps.kubernetes.io/pod-index"]);
            assert_eq!(name, format!("db-{index}"), "{when}");
            assert_eq!(text(&labels["statefulset.kubernetes.io/pod-name"]), name, "{when}");
            assert!(numbers.insert(index.clone()), "{when}: two pods are number {index}");
            let claim = text(&pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"]);
            assert_eq!(claim, format!("data-{name}"), "{when}");
            assert!(claims.insert(claim), "{when}: two pods have the claim of {name}");
        }
    }

    /// Every pod that is asked for runs, of the revision that is asked for and with its claim; there is no other, and
    /// the status says so.
    pub(crate) fn assert_stateful(&self, when: &str) {
        self.assert_identities(when);
        let set = self.stateful_set();
        let (spec, status) = (&set["spec"], &set["status"]);
        let (replicas, start) = (spec["replicas"].as_i64().unwrap(), spec["ordinals"]["start"].as_i64().unwrap());
        let partition = spec["updateStrategy"]["rollingUpdate"]["partition"].as_i64().unwrap();
        let revisions = self.server.objects("controllerrevisions");
        let data = revisions::data(&spec["template"]);
        let update: Vec<&Value> = revisions.iter().filter(|revision| revision["data"] == data).collect();
        let [update] = update[..] else { panic!("{when}: {} revisions of the template", update.len()) };
        assert_eq!(Some(number(update)), revisions.iter().map(number).max(), "{when}: the newest revision");
        assert!(revisions.len() <= 3, "{when}: {} revisions are kept", revisions.len());
        assert_eq!(status["updateRevision"], update["metadata"]["name"], "{when}");
        let pods = by_name(self.server.objects("pods"));
        let wanted: BTreeSet<String> = (start..start + replicas).map(|ordinal| format!("db-{ordinal}")).collect();
        assert_eq!(pods.keys().cloned().collect::<BTreeSet<_>>(), wanted, "{when}");
        for (index, ordinal) in (start..start + replicas).enumerate() {
            let pod = &pods[&format!("db-{ordinal}")];
            assert!(is_ready(pod) && pod["metadata"]["deletionTimestamp"].is_null(), "{when}: db-{ordinal} runs");
            if i64::try_from(index).unwrap() >= partition {
                assert_eq!(revision_of(pod), name(update), "{when}: db-{ordinal}");
            }
        }
        self.assert_claims(&set, &wanted, when);
        for count in ["replicas", "readyReplicas", "availableReplicas"] {
            assert_eq!(status[count].as_i64().unwrap_or(0), replicas, "{when}: {count}");
        }
        assert_eq!(status["observedGeneration"], set["metadata"]["generation"], "{when}: observedGeneration");
    }

    /// Each pod's claim goes with the set. A claim whose pod the user deletes before the set gives it to the pod stays.
    fn assert_claims(&self, set: &Value, pods: &BTreeSet<String>, when: &str) {
        let claims = by_name(self.server.objects("persistentvolumeclaims"));
        for pod in pods {
            let claim = claims.get(&format!("data-{pod}")).unwrap_or_else(|| panic!("{when}: no claim of {pod}"));
            let owners = &claim["metadata"]["ownerReferences"];
            assert_eq!(owners.as_array().map(Vec::len), Some(1), "{when}: owners of the claim of {pod}");
            assert_eq!(owners[0]["uid"], set["metadata"]["uid"], "{when}: owner of the claim of {pod}");
        }
    }

    /// Everything but the accidents of how it came about.
    pub(crate) fn stateful(&self) -> Value {
        let mut revisions = self.server.objects("controllerrevisions");
        revisions.sort_by_key(number);
        let revisions: Vec<String> = revisions.iter().map(name).collect();
        let pods: Vec<(String, String)> =
            self.server.objects("pods").iter().map(|pod| (name(pod), revision_of(pod))).collect();
        let claims: Vec<String> = self.server.objects("persistentvolumeclaims").iter().map(name).collect();
        let mut status = self.stateful_set()["status"].clone();
        status.as_object_mut().unwrap().remove("observedGeneration");
        json!({"revisions": revisions, "pods": pods, "claims": claims, "status": status})
    }
}
