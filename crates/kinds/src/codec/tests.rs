//! The codec against upstream's words and canonical forms.

use serde_json::{Value, json};

use super::*;

const POD: GroupVersionKind<'static> = GroupVersionKind { group: "", version: "v1", kind: "Pod" };
const DEPLOYMENT: GroupVersionKind<'static> = GroupVersionKind { group: "apps", version: "v1", kind: "Deployment" };

fn decode_text(kind: GroupVersionKind<'_>, body: &str, validation: FieldValidation) -> Result<Decoded, String> {
    decode(kind, Encoding::Json, body.as_bytes(), validation).map_err(|status| status.message)
}

#[test]
fn objects_take_their_canonical_form() {
    let body = json!({
        "metadata": { "name": "p", "labels": {}, "creationTimestamp": null, "annotations": { "a": null } },
        "spec": {
            "hostNetwork": false,
            "automountServiceAccountToken": false,
            "nodeSelector": {},
            "containers": [
                { "name": "c", "image": "", "resources": { "requests": { "cpu": 0.25, "memory": "1024Mi" } } },
            ],
        },
    });
    let decoded = decode_text(POD, &body.to_string(), FieldValidation::Warn).expect("it decodes");
    assert_eq!(
        decoded.object,
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "p", "annotations": { "a": "" } },
            "spec": {
                "automountServiceAccountToken": false,
                "containers": [{ "name": "c", "resources": { "requests": { "cpu": "250m", "memory": "1Gi" } } }],
            },
            "status": {},
        })
    );
}

#[test]
fn always_written_fields_are_there_when_nothing_was_given() {
    let decoded = decode_text(DEPLOYMENT, "{}", FieldValidation::Warn).expect("it decodes");
    let template = json!({ "metadata": {}, "spec": { "containers": null } });
    assert_eq!(
        decoded.object,
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {}, "status": {},
            "spec": { "selector": null, "strategy": {}, "template": template },
        })
    );
}

#[test]
fn unknown_and_duplicate_fields_are_warnings_or_one_error() {
    let body = r#"{"bogus":1,"metadata":{"name":"a","bogusMeta":"q","labels":{"x":"1","x":"2"}},
        "spec":{"containers":[{"name":"c","nope":{}}]},"spec":{"containers":[{"name":"c"}]}}"#;
    let warnings = [
        r#"unknown field "bogus""#,
        r#"unknown field "metadata.bogusMeta""#,
        r#"duplicate field "metadata.labels.x""#,
        r#"unknown field "spec.containers[0].nope""#,
        r#"duplicate field "spec""#,
    ];
    let decoded = decode_text(POD, body, FieldValidation::Warn).expect("warnings do not refuse");
    assert_eq!(decoded.warnings, warnings);
    assert_eq!(decoded.object["metadata"]["labels"]["x"], "2", "the last one wins");
    let silent = decode_text(POD, body, FieldValidation::Ignore).expect("nor does ignoring");
    assert!(silent.warnings.is_empty());
    let refused = decode_text(POD, body, FieldValidation::Strict).expect_err("strict refuses");
    let list = warnings.join(", ");
    assert_eq!(refused, format!(r#"Pod in version "v1" cannot be handled as a Pod: strict decoding error: {list}"#));
}

#[test]
fn bodies_that_are_not_json_objects_are_refused_in_upstreams_words() {
    const TYPE_META: &str =
        r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
    let array = format!("json: cannot unmarshal array into Go value of type {TYPE_META} (5b5d)");
    for (body, want) in [
        (r#"{"apiVersion":"#, r#"unexpected end of JSON input ({"apiVersion":)"#),
        ("", "unexpected end of JSON input (<empty>)"),
        ("[]", &array),
        ("{a}", "invalid character 'a' looking for beginning of object key string ({a})"),
    ] {
        let refused = decode_text(POD, body, FieldValidation::Warn).expect_err(body);
        let (start, end) = refused.split_once(": couldn't get version/kind; json parse error: ").expect(body);
        assert_eq!((start, end), ("the object provided is unrecognized (must be of type Pod)", want));
    }
}

#[test]
fn objects_of_the_wrong_kind_or_type_are_refused_in_upstreams_words() {
    const REGISTERED: &str = r#"in scheme "pkg/api/legacyscheme/scheme.go:30""#;
    const INTO: &str = "into Go struct field";
    for (kind, body, given, want) in [
        (
            POD,
            r#"{"kind":"Bogus"}"#,
            r#"Bogus in version "v1""#,
            format!(r#"no kind "Bogus" is registered for version "v1" {REGISTERED}"#),
        ),
        (
            DEPLOYMENT,
            r#"{"apiVersion":"v9","kind":"Deployment"}"#,
            r#"Deployment in version "v9""#,
            format!(r#"no kind "Deployment" is registered for version "v9" {REGISTERED}"#),
        ),
        (
            DEPLOYMENT,
            r#"{"spec":{"replicas":"x"}}"#,
            r#"Deployment in version "v1""#,
            format!("json: cannot unmarshal string {INTO} DeploymentSpec.spec.replicas of type int32"),
        ),
        (
            DEPLOYMENT,
            r#"{"spec":{"replicas":99999999999}}"#,
            r#"Deployment in version "v1""#,
            format!("json: cannot unmarshal number 99999999999 {INTO} DeploymentSpec.spec.replicas of type int32"),
        ),
        (
            POD,
            r#"{"spec":{"containers":"x"}}"#,
            r#"Pod in version "v1""#,
            format!("json: cannot unmarshal string {INTO} PodSpec.spec.containers of type []v1.Container"),
        ),
        (
            POD,
            r#"{"spec":{"containers":[{"name":5}]}}"#,
            r#"Pod in version "v1""#,
            format!("json: cannot unmarshal number {INTO} Container.spec.containers.name of type string"),
        ),
        (
            POD,
            r#"{"spec":{"restartPolicy":true}}"#,
            r#"Pod in version "v1""#,
            format!("json: cannot unmarshal bool {INTO} PodSpec.spec.restartPolicy of type v1.RestartPolicy"),
        ),
        (
            POD,
            r#"{"metadata":{"creationTimestamp":"yesterday"}}"#,
            r#"Pod in version "v1""#,
            r#"parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006""#.to_owned(),
        ),
    ] {
        let refused = decode_text(kind, body, FieldValidation::Warn).expect_err(body);
        assert_eq!(refused, format!("{given} cannot be handled as a {}: {want}", kind.kind));
    }
}

#[test]
fn hostile_nesting_cannot_overflow_the_stack() {
    const DEPTH: usize = 100_000;
    let skipped = format!("{}1{}", r#"{"metadata":"#.repeat(DEPTH), "}".repeat(DEPTH));
    assert!(decode_text(POD, &skipped, FieldValidation::Warn).is_ok(), "unknown fields are skipped, however deep");
    let revision = GroupVersionKind { group: "apps", version: "v1", kind: "ControllerRevision" };
    let kept = format!(r#"{{"data":{}1{}}}"#, "[".repeat(DEPTH), "]".repeat(DEPTH));
    assert!(decode_text(revision, &kept, FieldValidation::Warn).is_err());
}

#[test]
fn media_types_name_the_encoding() {
    for (media_type, encoding) in [
        (None, Some(Encoding::Json)),
        (Some(""), Some(Encoding::Json)),
        (Some("application/json; charset=utf-8"), Some(Encoding::Json)),
        (Some("application/yaml"), Some(Encoding::Yaml)),
        (Some("application/vnd.kubernetes.protobuf"), Some(Encoding::Protobuf)),
        (Some("text/plain"), None),
    ] {
        assert_eq!(Encoding::of_media_type(media_type), encoding, "{media_type:?}");
    }
}

#[test]
fn yaml_bodies_decode_like_json() {
    let body = b"kind: Pod\nmetadata:\n  name: a\n  typo: 1\nspec:\n  containers:\n  - name: c\n    image: nginx\n";
    let decoded = decode(POD, Encoding::Yaml, body, FieldValidation::Warn).expect("it decodes");
    assert_eq!(decoded.object["spec"]["containers"][0]["image"], "nginx");
    assert_eq!(decoded.warnings, [r#"unknown field "metadata.typo""#]);
}

/// Writes protobuf by hand, the way a Go client would.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.0.push(number.to_le_bytes()[0]);
    }

    fn bytes(mut self, number: u64, bytes: &[u8]) -> Self {
        self.varint(number << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    fn text(self, number: u64, text: &str) -> Self {
        self.bytes(number, text.as_bytes())
    }

    fn number(mut self, number: u64, value: i64) -> Self {
        self.varint(number << 3);
        self.varint(value.cast_unsigned());
        self
    }

    fn message(self, number: u64, message: Message) -> Self {
        self.bytes(number, &message.0)
    }
}

fn envelope(api_version: &str, kind: &str, raw: Message) -> Vec<u8> {
    let unknown = Message::default()
        .message(1, Message::default().text(1, api_version).text(2, kind))
        .message(2, raw)
        .text(3, "")
        .text(4, "");
    [protobuf::MAGIC, &unknown.0].concat()
}

const PROTOBUF: Encoding = Encoding::Protobuf;

#[test]
fn protobuf_bodies_take_the_same_canonical_form() {
    let request = Message::default().text(1, "cpu").message(2, Message::default().text(1, "0.5"));
    let container = Message::default()
        .text(1, "nginx")
        .text(2, "nginx:1.25")
        .text(5, "")
        .message(8, Message::default().message(2, request))
        .number(16, 0);
    let metadata = Message::default()
        .text(1, "web")
        .text(2, "")
        .number(7, 0)
        .message(8, Message::default())
        .message(11, Message::default().text(1, "app").text(2, "web"));
    let template = Message::default()
        .message(1, Message::default().text(1, ""))
        .message(2, Message::default().message(2, container));
    let rolling = Message::default().message(1, Message::default().number(1, 1).number(2, 0).text(3, "25%"));
    let spec = Message::default()
        .number(1, 3)
        .message(3, template)
        .message(4, Message::default().text(1, "").message(2, rolling))
        .number(5, 0)
        .number(9, -1);
    let raw = Message::default().message(1, metadata).message(2, spec).message(3, Message::default().number(1, 0));
    let body = envelope("apps/v1", "Deployment", raw);
    let decoded = decode(DEPLOYMENT, PROTOBUF, &body, FieldValidation::Strict).expect("it decodes");
    let container = json!({ "name": "nginx", "image": "nginx:1.25", "resources": { "requests": { "cpu": "500m" } } });
    assert_eq!(
        decoded.object,
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "web", "labels": { "app": "web" } },
            "spec": {
                "replicas": 3, "selector": null, "progressDeadlineSeconds": -1,
                "strategy": { "rollingUpdate": { "maxUnavailable": "25%" } },
                "template": { "metadata": {}, "spec": { "containers": [container] } },
            },
            "status": {},
        })
    );
}

#[test]
fn inlined_messages_and_times_come_out_flat() {
    let secret = Message::default().text(1, "s");
    let volume = Message::default().text(1, "v").message(2, Message::default().message(6, secret));
    let probe = Message::default().message(
        1,
        Message::default().message(3, Message::default().message(1, Message::default().number(1, 0).number(2, 80))),
    );
    let container = Message::default().text(1, "c").message(10, probe);
    let spec = Message::default().message(1, volume).message(2, container);
    let metadata = Message::default().message(8, Message::default().number(1, 1_700_000_000));
    let body = envelope("v1", "Pod", Message::default().message(1, metadata).message(2, spec));
    let object = decode(POD, PROTOBUF, &body, FieldValidation::Warn).expect("it decodes").object;
    assert_eq!(object["metadata"]["creationTimestamp"], "2023-11-14T22:13:20Z");
    assert_eq!(object["spec"]["volumes"], json!([{ "name": "v", "secret": { "secretName": "s" } }]));
    let probe = &object["spec"]["containers"][0]["livenessProbe"];
    assert_eq!(*probe, json!({ "tcpSocket": { "port": 80 } }));
}

#[test]
fn broken_protobuf_is_an_error_whatever_the_bytes() {
    let status = decode(POD, PROTOBUF, b"zzz", FieldValidation::Warn).expect_err("no magic");
    assert_eq!(
        status.message,
        "the object provided is unrecognized (must be of type Pod): provided data does not appear to be a protobuf \
         message, expected prefix [107 56 115 0] (7a7a7a)"
    );
    let whole = envelope("v1", "Pod", Message::default().message(1, Message::default().text(1, "a")));
    for end in protobuf::MAGIC.len()..whole.len() {
        let _ = decode(POD, PROTOBUF, &whole[..end], FieldValidation::Warn);
    }
    let wrong = envelope("v1", "Node", Message::default());
    let status = decode(POD, PROTOBUF, &wrong, FieldValidation::Warn).expect_err("another kind");
    assert_eq!(status.code, 400);
}

#[test]
fn delete_options_of_any_group_version_are_accepted() {
    let body = envelope("apps/v1", "DeleteOptions", Message::default().number(1, 5).text(4, "Background"));
    let options = decode_delete_options(PROTOBUF, &body).expect("it decodes").expect("it is not empty");
    assert_eq!(options["gracePeriodSeconds"], 5);
    assert_eq!(options["propagationPolicy"], "Background");
    let plain =
        decode_delete_options(Encoding::Json, br#"{"propagationPolicy":"Background"}"#).expect("kubectl's own form");
    assert_eq!(plain.expect("it is not empty")["propagationPolicy"], Value::from("Background"));
    assert!(decode_delete_options(Encoding::Json, b"").expect("no body is fine").is_none());
}

#[test]
fn old_clients_evict_with_policy_v1beta1() {
    let eviction = GroupVersionKind { group: "policy", version: "v1", kind: "Eviction" };
    let body = br#"{"apiVersion":"policy/v1beta1","kind":"Eviction","metadata":{"name":"p"}}"#;
    let decoded = decode(eviction, Encoding::Json, body, FieldValidation::Strict).unwrap();
    assert_eq!(decoded.object["apiVersion"], "policy/v1");
    let body = br#"{"apiVersion":"policy/v1beta2","kind":"Eviction"}"#;
    assert!(decode(eviction, Encoding::Json, body, FieldValidation::Strict).is_err());
}

#[test]
fn a_version_that_is_served_no_more_is_refused_in_other_words_than_an_unknown_one() {
    let request = GroupVersionKind { group: "certificates.k8s.io", version: "v1", kind: "CertificateSigningRequest" };
    for (api_version, said) in [
        ("certificates.k8s.io/v1beta1", "does not match the expected API version (certificates.k8s.io/v1)"),
        ("certificates.k8s.io/v9", "is registered for version"),
    ] {
        let body = format!(r#"{{"apiVersion":"{api_version}","kind":"CertificateSigningRequest"}}"#);
        let refused = decode_text(request, &body, FieldValidation::Warn).expect_err(api_version);
        assert!(refused.contains(said), "{refused}");
    }
}

#[test]
fn an_object_has_a_bounded_number_of_structs() {
    let pod = |element: &str, count: usize| {
        let containers = vec![element; count].join(",");
        format!(r#"{{"apiVersion":"v1","kind":"Pod","spec":{{"containers":[{containers}]}}}}"#)
    };
    // A message of type Pod with a spec of that many empty containers, two bytes each.
    let message = |count: usize| {
        let length =
            |number: usize| (0..3).map(move |at| (number >> (7 * at)) as u8 & 0x7f | if at < 2 { 0x80 } else { 0 });
        let spec: Vec<u8> = [0x12, 0].repeat(count);
        let raw: Vec<u8> = [0x12].into_iter().chain(length(spec.len())).chain(spec).collect();
        let head = *b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod\x12";
        head.into_iter().chain(length(raw.len())).chain(raw).collect::<Vec<u8>>()
    };
    let read = |encoding, body: &[u8]| {
        let decoded =
            decode(POD, encoding, body, FieldValidation::Warn).map_err(|status| (status.code, status.message));
        decoded.map(|decoded| decoded.object["spec"]["containers"].as_array().map_or(0, Vec::len))
    };
    let too_large = (422, "Pod is too large: the elements of its lists are more than 50000 structs".to_owned());
    for element in ["{}", "null"] {
        assert_eq!(read(Encoding::Json, pod(element, 49_000).as_bytes()), Ok(49_000));
        assert_eq!(read(Encoding::Json, pod(element, 100_000).as_bytes()), Err(too_large.clone()));
    }
    assert_eq!(read(Encoding::Yaml, pod("{}", 100_000).as_bytes()), Err(too_large.clone()));
    assert_eq!(read(Encoding::Protobuf, &message(40_000)), Ok(40_000));
    assert_eq!(read(Encoding::Protobuf, &message(100_000)), Err(too_large));
}

#[test]
fn results_of_strategic_merge_patches_are_refused_in_the_words_of_upstreams_converter() {
    for (spec, error) in [
        (json!({"replicas": "many"}), "unrecognized type: int32"),
        (json!({"replicas": 1.5}), "cannot convert float64 to int32"),
        (json!({"replicas": true}), "unrecognized type: int32"),
        (json!({"paused": "yes"}), "unrecognized type: bool"),
        (json!({"selector": "a"}), "cannot restore struct from: string"),
        (json!({"selector": {"matchLabels": []}}), "cannot restore map from slice"),
        (json!({"selector": {"matchLabels": {"a": 1}}}), "cannot convert int64 to string"),
        (json!({"selector": {"matchLabels": {"a": 1.5}}}), "unrecognized type: string"),
        (json!({"selector": {"matchExpressions": {}}}), "cannot restore slice from map"),
        (json!({"template": {"spec": {"containers": [{"name": false}]}}}), "unrecognized type: string"),
    ] {
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": spec});
        let status = converted(DEPLOYMENT, object, Conversion::Restored, FieldValidation::Warn).unwrap_err();
        let expected = format!("Deployment in version \"v1\" cannot be handled as a Deployment: {error}");
        assert_eq!((status.code, status.message), (400, expected));
    }
}
