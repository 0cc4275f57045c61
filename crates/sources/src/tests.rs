//! Documents in, objects out.

use crate::{ClusterObjects, Given, SourceReader, manifests};

fn read(files: &[(&str, &str)]) -> ClusterObjects {
    let mut reader = SourceReader::default();
    for (name, text) in files {
        reader.read(name, &mut text.as_bytes(), Given::Directly);
    }
    reader.finish()
}

/// `kind namespace/name` of each object, in order.
fn shown(objects: &ClusterObjects) -> Vec<String> {
    let line = |object: &crate::SourceObject| format!("{} {}/{}", object.resource.kind, object.namespace, object.name);
    objects.objects.iter().map(line).collect()
}

fn json(objects: &ClusterObjects, at: usize) -> serde_json::Value {
    serde_json::from_str(objects.objects[at].json.get()).unwrap()
}

const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"a","name":"p"}}"#;

/// Reads each text and compares `kind namespace/name` of its objects.
fn check_forms(cases: &[(&str, &str, &[&str])]) {
    for (name, text, expected) in cases {
        let objects = read(&[("x", text)]);
        assert_eq!(shown(&objects), *expected, "{name}: {:?}", objects.notes);
        for at in 0..objects.objects.len() {
            assert!(json(&objects, at)["kind"].is_string() && json(&objects, at)["apiVersion"].is_string(), "{name}");
        }
    }
}

#[test]
fn every_form_of_json_gives_its_objects_in_order() {
    let node = r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"}}"#;
    let list = format!(r#"{{"apiVersion":"v1","items":[{POD},{node}],"kind":"List"}}"#);
    check_forms(&[
        ("an object", POD, &["Pod a/p"]),
        ("lines of objects", &format!("{POD}\n{POD}\n"), &["Pod a/p"]),
        ("a list", &list, &["Pod a/p", "Node /n1"]),
        ("an array", &format!("[{POD}]"), &["Pod a/p"]),
        (
            "a typed list that names its kind last",
            r#"{"items":[{"metadata":{"namespace":"a","name":"p"}}],"apiVersion":"v1","kind":"PodList"}"#,
            &["Pod a/p"],
        ),
        (
            "a typed list that names its kind first",
            r#"{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"namespace":"a","name":"p"}}]}"#,
            &["Pod a/p"],
        ),
        (
            "an item that says its kind only",
            r#"{"kind":"PodList","apiVersion":"v1","items":[{"kind":"Pod","metadata":{"namespace":"a","name":"p"}}]}"#,
            &["Pod a/p"],
        ),
        (
            "the simulator's export",
            concat!(
                r#"{"pods":[{"metadata":{"namespace":"a","name":"p"}}],"nodes":[{"metadata":{"name":"n1"}}],"#,
                r#""pvs":null,"schedulerConfig":{}}"#
            ),
            &["Pod a/p", "Node /n1"],
        ),
        (
            "KAI's objects",
            r#"{"config":{},"rawObjects":{"pods":[{"metadata":{"namespace":"a","name":"p"}}],"queues":[]}}"#,
            &["Pod a/p"],
        ),
        ("other kinds", r#"{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"a","name":"s"}}"#, &[]),
    ]);
}

#[test]
fn every_form_of_yaml_gives_its_objects_in_order() {
    let node = r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"}}"#;
    check_forms(&[
        ("YAML", "apiVersion: v1\nkind: Pod\nmetadata: {namespace: a, name: p}\n", &["Pod a/p"]),
        ("YAML without a namespace", "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n", &["Pod default/p"]),
        (
            "YAML documents",
            concat!(
                "# one\n---\napiVersion: v1\nkind: Pod\nmetadata: {namespace: a, name: p}\n---\n---\n",
                "apiVersion: v1\nkind: Node\nmetadata:\n  name: n1\n"
            ),
            &["Pod a/p", "Node /n1"],
        ),
        ("YAML with JSON in it", &format!("---\n{POD}\n--- {POD}\n"), &["Pod a/p"]),
        (
            "YAML of kubectl get",
            concat!(
                "apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata:\n    name: p\n",
                "    namespace: a\n- apiVersion: v1\n  kind: Node\n  metadata:\n    name: n1\n",
                "kind: List\nmetadata:\n  resourceVersion: \"\"\n"
            ),
            &["Pod a/p", "Node /n1"],
        ),
        (
            "YAML of must-gather",
            "---\napiVersion: v1\nitems:\n- metadata:\n    name: p\n    namespace: a\nkind: PodList\n",
            &["Pod a/p"],
        ),
        (
            "YAML of another writer",
            concat!(
                "kind: List\nitems:\n  - apiVersion: v1\n    kind: Pod\n    metadata:\n      name: p\n",
                "      namespace: a\napiVersion: v1\n"
            ),
            &["Pod a/p"],
        ),
        ("YAML on one line", "{kind: List, apiVersion: v1}\n", &[]),
        ("a flow mapping", "{apiVersion: v1, kind: Node, metadata: {name: n1}}\n", &["Node /n1"]),
        ("a flow mapping with quotes", "{\"apiVersion\": v1, 'kind': Node,\n metadata: {name: n1},}\n", &["Node /n1"]),
        (
            "a flow list and another document",
            concat!(
                "[{apiVersion: v1, kind: Node, metadata: {name: n1}}]\n---\n",
                "{apiVersion: v1, kind: Node, metadata: {name: m}}"
            ),
            &["Node /n1", "Node /m"],
        ),
        ("JSON documents as YAML ones", &format!("{POD}\n---\n{node}\n"), &["Pod a/p", "Node /n1"]),
        (
            "a dash in a text",
            concat!(
                "apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Node\n  metadata:\n",
                "    annotations:\n      a: |\n        x\n\n        - y\n    name: n1\nkind: List\n"
            ),
            &["Node /n1"],
        ),
        (
            "with lines of Windows",
            concat!(
                "\u{feff}apiVersion: v1\r\nitems:\r\n- apiVersion: v1\r\n  kind: Node\r\n",
                "  metadata:\r\n    name: n1\r\nkind: List\r\n"
            ),
            &["Node /n1"],
        ),
    ]);
}

#[test]
fn an_empty_list_says_that_there_are_none() {
    let objects = read(&[
        ("a", r#"{"kind":"PodDisruptionBudgetList","apiVersion":"policy/v1","items":[]}"#),
        ("b", "apiVersion: v1\nitems: []\nkind: ServiceList\n"),
        ("c", "apiVersion: apps/v1\nitems: null\nkind: ReplicaSetList\n"),
    ]);
    let missing = objects.missing();
    for name in ["poddisruptionbudgets.policy", "services", "replicasets.apps"] {
        assert!(!missing.contains(&name), "{missing:?}");
    }
    assert!(missing.contains(&"pods"));
}

#[test]
fn what_cannot_be_read_is_one_line_and_the_rest_is_used() {
    let cut = format!(r#"{{"kind":"List","apiVersion":"v1","items":[{POD},{{"apiVersion":"v1","ki"#);
    let cut_yaml = concat!(
        "apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Node\n  metadata:\n    name: n1\n",
        "- apiVersion: v1\n  kind: Node\n  metadata:\n    name: \"unfini"
    );
    let broken_yaml = concat!(
        "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n---\na: [\n---\napiVersion: v1\n",
        "kind: Node\nmetadata: {name: m}\n"
    );
    let old = r#"{"apiVersion":"policy/v1beta1","kind":"PodDisruptionBudget","metadata":{"namespace":"a","name":"b"}}"#;
    let cases: &[(&str, &[&str], &str)] = &[
        (
            &cut,
            &["Pod a/p"],
            "x is not read to its end: it ends in the middle of an object, in line 1; 1 objects before that are used",
        ),
        (cut_yaml, &["Node /n1"], "x is not read to its end: "),
        (broken_yaml, &["Node /n1", "Node /m"], "x is not read to its end: "),
        (old, &[], "1 objects of kind PodDisruptionBudget are left out: policy/v1beta1 is not read, policy/v1 is"),
        (r#"{"metadata":{"name":"x"}}"#, &[], "1 objects are left out that do not say their apiVersion and kind"),
        (r#"{"apiVersion":"v1","kind":"Node","metadata":{}}"#, &[], "1 objects are left out that have no name"),
        (r#"{"apiVersion":"v1","kind":"Node""#, &[], "x is left out: it ends in the middle of an object, in line 1"),
        (r#"{"apiVersion":"v1","kind":"Node",,}"#, &[], "x is left out: key must be a string at line 1 column 34"),
        ("{apiVersion: v1, kind: [}", &[], "x is left out: "),
        ("\u{1}\u{0}\u{2}", &[], "x is left out: it is none of the forms that can be read"),
        ("\u{7f}ELF: [", &[], "x is left out: "),
    ];
    for (text, expected, note) in cases {
        let objects = read(&[("x", text)]);
        assert_eq!(shown(&objects), *expected, "{text}");
        assert_eq!(objects.notes.len(), 1, "{text}: {:?}", objects.notes);
        assert!(objects.notes[0].starts_with(note), "{text}: {:?}", objects.notes);
    }
}

#[test]
fn versions_with_the_same_fields_are_read_as_the_one_that_decides() {
    let objects = read(&[(
        "x",
        r#"{"apiVersion":"resource.k8s.io/v1beta2","kind":"DeviceClass","metadata":{"name":"d"},"spec":{}}"#,
    )]);
    assert_eq!(json(&objects, 0)["apiVersion"], "resource.k8s.io/v1");
    assert!(objects.notes.is_empty());
}

#[test]
fn an_object_without_end_is_refused_before_memory_is() {
    use std::io::Read;
    for (start, filler) in
        [(r#"{"apiVersion":""#, b'x'), ("{", b' '), ("[{\"a\":[", b'['), ("a: \"", b'x'), ("items:\n- a: ", b'x')]
    {
        let mut reader = SourceReader::default();
        let mut endless = start.as_bytes().chain(std::io::repeat(filler));
        reader.read("x", &mut endless, Given::Directly);
        let notes = reader.finish().notes;
        assert!(notes[0].contains("one object takes more than 32 MiB"), "{start}: {notes:?}");
    }
}

#[test]
fn other_files_of_a_folder_are_passed_over() {
    let files = [
        ("dump/logs.txt", "E0101 it: failed\nagain\n"),
        ("dump/log.json.txt", "{\"ts\":1}\n{\"ts\""),
        ("a.png", "\u{1}\0"),
    ];
    let mut reader = SourceReader::default();
    for (name, text) in files {
        reader.read(name, &mut text.as_bytes(), Given::Within);
    }
    assert_eq!(reader.finish().notes, Vec::<String>::new());
}

#[test]
fn manifests_are_all_objects_of_any_kind_or_an_error() {
    let text = concat!(
        "apiVersion: v1\nkind: List\nitems:\n",
        "- {apiVersion: apps/v1, kind: Deployment, metadata: {name: d}}\n",
        "- {apiVersion: example.com/v1, kind: Any}\n---\napiVersion: v1\nkind: Secret\n"
    );
    let kinds: Vec<_> = manifests(text.as_bytes()).unwrap().iter().map(|object| object["kind"].clone()).collect();
    assert_eq!(kinds, ["Deployment", "Any", "Secret"]);
    for (text, expected) in [
        ("a: [", "not"),
        ("{\"apiVersion\":", "it ends in the middle"),
        ("spec: {}\n", "object 1 of it says no apiVersion and kind"),
        ("\u{0}", "it is neither JSON nor YAML"),
    ] {
        let error = manifests(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(expected) || expected == "not", "{text}: {error}");
    }
}

#[test]
fn copies_are_left_out_and_the_newest_version_counts() {
    let pod = |version: &str, node: &str| {
        let metadata = format!(r#"{{"namespace":"a","name":"p","resourceVersion":"{version}"}}"#);
        format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{metadata},"spec":{{"nodeName":"{node}"}}}}"#)
    };
    for (pods, expected, notes) in [
        (vec![("5", "n1"), ("5", "n1")], vec!["n1"], 0),
        (vec![("5", "n1"), ("7", "n2")], vec!["n2"], 1),
        (vec![("7", "n2"), ("5", "n1")], vec!["n2"], 1),
        (vec![("5", "n1"), ("7", "n2"), ("6", "n3")], vec!["n2"], 1),
        // Versions that cannot be compared are for whoever asks to choose from.
        (vec![("", "n1"), ("", "n2")], vec!["n1", "n2"], 0),
    ] {
        let text: String = pods.iter().map(|(version, node)| pod(version, node)).collect();
        let objects = read(&[("x", &text)]);
        let nodes: Vec<_> =
            (0..objects.objects.len()).map(|at| json(&objects, at)["spec"]["nodeName"].clone()).collect();
        assert_eq!(nodes, expected, "{pods:?}");
        assert_eq!(objects.notes.len(), notes, "{pods:?}");
    }
}
