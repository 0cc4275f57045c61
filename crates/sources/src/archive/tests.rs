//! Archives that support tools write, and archives that nobody should send.

use std::io::Write;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder};

use crate::{ClusterObjects, Given, OriginKind, SourceReader};

const NODES: &str = "apiVersion: v1\nkind: NodeList\nitems:\n- metadata:\n    name: n1\n";
const PODS: &str = r#"{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"namespace":"a","name":"p"}}]}"#;

fn read(bytes: &[u8]) -> ClusterObjects {
    let mut reader = SourceReader::default();
    reader.read("x", &mut &*bytes, Given::Directly);
    reader.finish()
}

fn names(objects: &ClusterObjects) -> Vec<&str> {
    objects.objects.iter().map(|object| &*object.name).collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn entry(name: &str, kind: u8, content: &[u8]) -> Vec<u8> {
    let mut header = [0; 512];
    header[..name.len().min(100)].copy_from_slice(&name.as_bytes()[..name.len().min(100)]);
    header[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
    header[156] = kind;
    header[257..265].copy_from_slice(b"ustar\x0000");
    let mut out = header.to_vec();
    out.extend_from_slice(content);
    out.resize(out.len().next_multiple_of(512), 0);
    out
}

fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out: Vec<u8> = files.iter().flat_map(|(name, content)| entry(name, b'0', content)).collect();
    out.extend_from_slice(&[0; 1024]);
    out
}

/// A ZIP as Go's writer makes it: sizes after the content.
fn zip(name: &str, content: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content).unwrap();
    let packed = encoder.finish().unwrap();
    let mut out = b"PK\x03\x04\x14\0\x08\0\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0".to_vec();
    out.extend_from_slice(&u16::try_from(name.len()).unwrap().to_le_bytes());
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(&packed);
    out.extend_from_slice(b"PK\x07\x08");
    out.extend_from_slice(&[0; 12]);
    out.extend_from_slice(b"PK\x01\x02and the rest of the index");
    out
}

#[test]
fn archives_are_read_whatever_they_lie_in() {
    let bundle = tar(&[
        ("must-gather/cluster-scoped-resources/core/nodes.yaml", NODES.as_bytes()),
        ("must-gather/version", b"must-gather 4.16"),
        ("must-gather/pods/logs/current.log", b"{\"level\":\"info\"}\n{\"level\""),
        ("bundle/cluster-resources/pods/a.json", PODS.as_bytes()),
    ]);
    for (name, bytes) in [
        ("tar", bundle.clone()),
        ("tar.gz", gzip(&bundle)),
        ("gz in tar.gz", gzip(&tar(&[("a.yaml.gz", &gzip(NODES.as_bytes())), ("b.json", PODS.as_bytes())]))),
        ("zip", zip("b.tar", &bundle)),
    ] {
        let objects = read(&bytes);
        assert_eq!(names(&objects), ["n1", "p"], "{name}");
        assert_eq!(objects.notes, Vec::<String>::new(), "{name}");
        assert_eq!(objects.origin.kind, OriginKind::Bundle);
        assert!(objects.listed.contains("pods"));
    }
    assert_eq!(names(&read(&gzip(PODS.as_bytes()))), ["p"]);
}

/// The layout of OpenShift's must-gather: single objects and lists, pods twice, and an archive for a large namespace.
#[test]
fn a_must_gather_is_read_as_oc_writes_it() {
    let root = "must-gather.local.1/quay-io-openshift-release-dev-sha256-0/";
    let node = "---\napiVersion: v1\nkind: Node\nmetadata:\n  name: n1\n  resourceVersion: \"7\"\n";
    let pod = "---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: p\n  namespace: a\n  resourceVersion: \"8\"\n";
    let pods = "---\napiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata:\n    name: p\n    \
        namespace: a\n    resourceVersion: \"8\"\nkind: PodList\nmetadata:\n  resourceVersion: \"9\"\n";
    let budgets = "---\napiVersion: policy/v1\nitems: []\nkind: PodDisruptionBudgetList\n";
    let events = "---\napiVersion: v1\nitems:\n- involvedObject:\n    kind: Pod\n    name: p\n    namespace: a\n  \
        metadata:\n    name: e\n    namespace: a\n  reason: FailedScheduling\n  series:\n    count: 6\n\
        kind: EventList\n";
    let class = "---\napiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata:\n  name: fast\n";
    let large = gzip(&tar(&[("b/core/pods.yaml", pods.replace("namespace: a", "namespace: b").as_bytes())]));
    let files: Vec<(String, &[u8])> = [
        ("cluster-scoped-resources/core/nodes/n1.yaml", node.as_bytes()),
        ("cluster-scoped-resources/storage.k8s.io/storageclasses/fast.yaml", class.as_bytes()),
        ("namespaces/a/a.yaml", b"---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n"),
        ("namespaces/a/core/pods.yaml", pods.as_bytes()),
        ("namespaces/a/core/events.yaml", events.as_bytes()),
        ("namespaces/a/core/configmaps.yaml", b"---\napiVersion: v1\nitems: []\nkind: ConfigMapList\n"),
        ("namespaces/a/policy/poddisruptionbudgets.yaml", budgets.as_bytes()),
        ("namespaces/a/pods/p/p.yaml", pod.as_bytes()),
        ("namespaces/a/pods/p/main/main/logs/current.log", b"2026-01-01T00:00:00Z kind: of a log\n"),
        ("namespaces/b.tar.gz", &large),
        ("event-filter.html", b"<html>kind: none</html>"),
        ("timestamp", b"2026-01-01 00:00:00\n"),
    ]
    .map(|(path, content): (&str, &[u8])| (format!("{root}{path}"), content))
    .into();
    let files: Vec<(&str, &[u8])> = files.iter().map(|(path, content)| (path.as_str(), *content)).collect();
    let objects = read(&gzip(&tar(&files)));
    assert_eq!(objects.notes, Vec::<String>::new());
    let mut shown: Vec<String> = objects
        .objects
        .iter()
        .map(|object| format!("{} {}/{}", object.resource.kind, object.namespace, object.name))
        .collect();
    shown.sort();
    assert_eq!(shown, ["Namespace /a", "Node /n1", "Pod a/p", "Pod b/p", "StorageClass /fast"]);
    assert!(!objects.missing().contains(&"poddisruptionbudgets.policy"));
    assert_eq!(objects.failed_attempts.iter().map(|of| (&*of.name, of.count)).collect::<Vec<_>>(), [("p", 6)]);
}

/// The layout of troubleshoot's support bundles, whose earlier versions leave the kinds out.
#[test]
fn a_support_bundle_is_read_with_and_without_kinds() {
    let bare = |items: &[&str]| format!("[{}]", items.join(","));
    let list =
        |kind: &str, items: &[&str]| format!(r#"{{"kind":"{kind}","apiVersion":"v1","items":[{}]}}"#, items.join(","));
    let (node, pod) = (r#"{"metadata":{"name":"n1"}}"#, r#"{"metadata":{"namespace":"a","name":"p"}}"#);
    let event = r#"{"metadata":{"namespace":"a","name":"e"},"involvedObject":{"kind":"Pod","namespace":"a","name":"p"},
        "reason":"FailedScheduling","count":3}"#;
    for (nodes, pods, events) in [
        (bare(&[node]), bare(&[pod]), bare(&[event])),
        (list("NodeList", &[node]), list("PodList", &[pod]), list("EventList", &[event])),
    ] {
        let files = [
            ("cluster-info/cluster_version.json", r#"{"info":{"major":"1"},"string":"v1.36.0"}"#),
            ("cluster-resources/nodes.json", nodes.as_str()),
            ("cluster-resources/nodes-errors.json", "null"),
            ("cluster-resources/pods/a.json", pods.as_str()),
            ("cluster-resources/pods/b.json", "[]"),
            ("cluster-resources/pods-errors.json", "{}"),
            ("cluster-resources/pods/logs/a/p/main.log", "{\"level\":\"info\"}\n{\"level\""),
            ("cluster-resources/pod-disruption-budgets/a.json", "[]"),
            ("cluster-resources/events/a.json", events.as_str()),
            ("cluster-resources/auth-cani-list/a.json", r#"[{"verbs":["*"],"resources":["*"]}]"#),
            ("cluster-resources/groups.json", r#"[{"kind":"APIGroup","apiVersion":"v1","name":"apps"}]"#),
            (
                "version.yaml",
                "apiVersion: troubleshoot.sh/v1beta2\nkind: SupportBundle\nspec:\n  versionNumber: v0.1\n",
            ),
        ];
        let files: Vec<(String, &str)> =
            files.map(|(path, text)| (format!("support-bundle-2026-01-01T00_00_00/{path}"), text)).into();
        let files: Vec<(&str, &[u8])> = files.iter().map(|(path, text)| (path.as_str(), text.as_bytes())).collect();
        let objects = read(&gzip(&tar(&files)));
        assert_eq!(names(&objects), ["n1", "p"]);
        assert_eq!(objects.notes, Vec::<String>::new());
        assert_eq!(objects.failed_attempts[0].count, 3);
        for listed in ["nodes", "pods", "poddisruptionbudgets.policy"] {
            assert!(!objects.missing().contains(&listed), "{listed}");
        }
    }
}

/// KAI's snapshot as its scheduler serves it: one deflated file, with the sizes after its content.
#[test]
fn a_snapshot_of_kai_gives_the_objects_in_it() {
    let snapshot = r#"{"config":{"actions":"allocate"},"schedulerParams":{"schedulerName":"kai"},"rawObjects":{
        "pods":[{"metadata":{"namespace":"a","name":"p"}}],"nodes":[{"metadata":{"name":"n1"}}],
        "queues":[{"metadata":{"name":"q"}}],"podGroups":null,"bindRequests":[],
        "priorityClasses":[{"metadata":{"name":"train"},"value":50}],"configMaps":[],
        "persistentVolumeClaims":[],"csiStorageCapacities":[],"storageClasses":[],"csiDrivers":[],
        "resourceClaims":[{"metadata":{"namespace":"a","name":"c"},
            "spec":{"devices":{"requests":[{"name":"gpu","deviceClassName":"g"}]}}}],
        "resourceSlices":[{"metadata":{"name":"s"},"spec":{"devices":[{"name":"d","attributes":{}}]}}],
        "deviceClasses":[],"topologies":[]}}"#;
    let objects = read(&zip("snapshot.json", snapshot.as_bytes()));
    assert_eq!(names(&objects), ["p", "n1", "train", "s"]);
    let note =
        "1 objects of kind ResourceClaim are left out: resource.k8s.io/v1beta1 is not read, resource.k8s.io/v1 is";
    assert_eq!(objects.notes, [note]);
}

#[test]
fn long_names_are_read_in_both_forms() {
    let long = format!("{}/nodes.yaml", "d".repeat(120));
    let mut gnu = entry("././@LongLink", b'L', format!("{long}\0").as_bytes());
    gnu.extend(entry(&long[..99], b'0', b"{\"apiVersion\":\"v1\",\"kind\":\"Node\""));
    let attributes = format!("{} path={long}\n", long.len() + 10);
    let mut posix = entry("PaxHeaders/x", b'x', attributes.as_bytes());
    posix.extend(entry("short", b'0', b"{\"apiVersion\":\"v1\",\"kind\":\"Node\""));
    for archive in [gnu, posix] {
        let notes = read(&archive).notes;
        assert!(notes[0].starts_with(&format!("x:{long} is left out: ")), "{notes:?}");
    }
}

#[test]
fn a_cut_archive_gives_what_came_before_the_cut() {
    let whole = tar(&[("n.yaml", NODES.as_bytes()), ("p.json", PODS.as_bytes())]);
    let cut = &whole[..1024 + 512 + 30];
    let objects = read(cut);
    assert_eq!(names(&objects), ["n1"]);
    assert!(objects.notes.iter().any(|note| note.contains("the archive was cut")), "{:?}", objects.notes);
    let packed = gzip(&whole);
    let objects = read(&packed[..packed.len() - 20]);
    assert!(!objects.notes.is_empty());
    let document = |n: usize| format!("apiVersion: v1\nkind: Node\nmetadata: {{name: n{n}}}\n---\n");
    let documents: String = (0..3).map(document).collect();
    let small = tar(&[("few.yaml", documents.as_bytes())]);
    let objects = read(&small[..512 + documents.len() - 20]);
    assert!(!objects.objects.is_empty(), "objects of a file that is cut within its first bytes: {:?}", objects.notes);
    assert!(!read(&zip("p.json", PODS.as_bytes())[..40]).notes.is_empty());
}

#[test]
fn names_that_climb_out_are_only_names() {
    let archive = tar(&[("../../etc/cron.d/n.yaml", NODES.as_bytes()), ("/root/p.json", PODS.as_bytes())]);
    let objects = read(&archive);
    assert_eq!(names(&objects), ["n1", "p"]);
    let expected = "x holds names that lead out of it, such as \"../../etc/cron.d/n.yaml\"; nothing is unpacked";
    assert_eq!(objects.notes, [expected]);
}

#[test]
fn bombs_are_refused_by_name() {
    let mut endless = GzEncoder::new(Vec::new(), Compression::best());
    let separators = "---\n".repeat(1 << 18);
    for _ in 0..80 {
        endless.write_all(separators.as_bytes()).unwrap();
    }
    let bomb = endless.finish().unwrap();
    let objects = read(&bomb);
    assert!(objects.notes[0].contains("more than 500 times as large"), "{:?}", objects.notes);
    let objects = read(&tar(&[("bomb.yaml.gz", &bomb), ("p.json", PODS.as_bytes())]));
    assert_eq!(names(&objects), ["p"], "what lies beside a bomb is read");

    let mut nested = PODS.as_bytes().to_vec();
    for _ in 0..8 {
        nested = gzip(&nested);
    }
    let objects = read(&nested);
    assert_eq!(objects.notes, ["x is left out: archives lie in each other more than 4 deep"]);
}

#[test]
fn broken_archives_are_refused_in_words() {
    let mut wrong_size = entry("a", b'0', b"x");
    wrong_size[124..136].copy_from_slice(b"zzzzzzzzzzz\0");
    let mut negative = entry("a", b'0', b"x");
    negative[124..136].copy_from_slice(&[0xff; 12]);
    let mut huge = entry("a.yaml", b'0', NODES.as_bytes());
    huge[124..136].copy_from_slice(&[0x80, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    let mut encrypted = zip("a", b"x");
    encrypted[6] |= 1;
    for (bytes, text) in [
        (wrong_size, "a size is none"),
        (negative, "a size is none"),
        (huge, "the archive was cut"),
        (encrypted, "is encrypted"),
        ([entry("a", b'0', b""), vec![7; 512]].concat(), "a header is none"),
    ] {
        let notes = read(&bytes).notes;
        assert!(notes.iter().any(|note| note.contains(text)), "{text}: {notes:?}");
    }
}
