//! Answers in protobuf say what answers in JSON say: for each kind, one object, lists, metadata and watches.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod support;

use bayplan_kinds::codec::{self, Encoding, FieldValidation};
use bayplan_kinds::{GroupVersionKind, Kind, Verb, served};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use support::{Client, bytes, cluster, config_map, objects};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const PARTIAL: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn accepting(
    client: &Client,
    method: &str,
    path: &str,
    accept: &str,
) -> Response<bayplan_apiserver::ResponseBody> {
    let request = Request::builder().method(method).uri(path).header("Accept", accept);
    client.call(request.body(Full::default()).unwrap()).await
}

/// The fields of a message: numbers and contents; numbers of 64 bits are left out.
fn fields(mut message: &[u8]) -> Vec<(u64, Bytes)> {
    let varint = |message: &mut &[u8]| {
        let (mut value, mut shift) = (0, 0);
        loop {
            let (byte, rest) = message.split_first().unwrap();
            *message = rest;
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                return value;
            }
        }
    };
    let mut fields = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message);
        match tag & 7 {
            0 => drop(varint(&mut message)),
            2 => {
                let length = usize::try_from(varint(&mut message)).unwrap();
                let (content, rest) = message.split_at(length);
                fields.push((tag >> 3, Bytes::copy_from_slice(content)));
                message = rest;
            }
            other => panic!("wire type {other}"),
        }
    }
    fields
}

fn field(message: &[u8], number: u64) -> Bytes {
    fields(message).into_iter().find(|(found, _)| *found == number).unwrap().1
}

/// Type and message of an envelope.
fn unwrapped(body: &[u8]) -> ((String, String), Bytes) {
    let (version, kind) = codec::protobuf_kind(body).unwrap();
    ((version.to_owned(), kind.to_owned()), field(&body[4..], 2))
}

fn envelope(resource: &Kind, message: &[u8]) -> Vec<u8> {
    let mut length = Vec::new();
    let mut rest = message.len();
    while rest >= 0x80 {
        length.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    length.push(rest as u8);
    let (version, kind) = (resource.api_version(), resource.kind);
    let mut names = vec![0x0a, version.len() as u8];
    names.extend_from_slice(version.as_bytes());
    names.extend_from_slice(&[0x12, kind.len() as u8]);
    names.extend_from_slice(kind.as_bytes());
    [b"k8s\0\x0a".as_slice(), &[names.len() as u8], &names, &[0x12], &length, message].concat()
}

fn read(resource: &Kind, body: &[u8]) -> Value {
    let read = codec::decode(resource.group_version_kind(), Encoding::Protobuf, body, FieldValidation::Strict);
    read.unwrap_or_else(|status| panic!("{}: {status}", resource.kind)).object
}

fn canonical(kind: GroupVersionKind<'_>, object: &Value) -> Value {
    codec::canonical(kind, object.clone(), FieldValidation::Ignore).unwrap().object
}

/// The field of `ObjectMeta`.
const ANNOTATIONS: u64 = 12;

async fn one_kind(admin: &Client, resource: &'static Kind) {
    let collection = objects::collection(resource);
    let kind = resource.group_version_kind();
    let created = admin.create(&collection, objects::object(resource, "answered")).await;
    let expected = canonical(kind, &created);
    let path = format!("{collection}/{}", objects::name(resource, "answered"));

    let response = accepting(admin, "GET", &path, PROTOBUF).await;
    assert_eq!(response.headers()["content-type"], PROTOBUF);
    let (_, body) = bytes(response).await;
    assert_eq!(read(resource, &body), expected, "{path}");
    let whole = body;

    let (_, body) = bytes(accepting(admin, "GET", &format!("{collection}?labelSelector=made"), PROTOBUF).await).await;
    let (named, list) = unwrapped(&body);
    assert_eq!(named, (resource.api_version(), resource.list_kind()));
    let items: Vec<_> = fields(&list).into_iter().filter(|(number, _)| *number == 2).collect();
    assert_eq!(items.len(), 1, "{collection}");
    assert_eq!(read(resource, &envelope(resource, &items[0].1)), expected, "the list of {collection}");

    let (_, body) = bytes(accepting(admin, "GET", &path, PARTIAL).await).await;
    let (named, partial) = unwrapped(&body);
    assert_eq!(named, ("meta.k8s.io/v1".to_owned(), "PartialObjectMetadata".to_owned()));
    // Upstream converts a DaemonSet before it shows the metadata alone, and an annotation that stands for a field of
    // the converted form goes with that.
    let is_shown = |(number, _): &(u64, Bytes)| resource.kind != "DaemonSet" || *number != ANNOTATIONS;
    let metadata = |object: &[u8]| fields(&field(object, 1)).into_iter().filter(is_shown).collect::<Vec<_>>();
    assert_eq!(metadata(&partial), metadata(&unwrapped(&whole).1), "the metadata of {path}");

    let path = format!("{collection}?watch=1&labelSelector=made");
    let response = accepting(admin, "GET", &path, PROTOBUF).await;
    assert_eq!(response.headers()["content-type"], "application/vnd.kubernetes.protobuf;stream=watch");
    let frame = response.into_body().frame().await.unwrap().unwrap().into_data().unwrap();
    let event = Frames::default().add(&frame).remove(0);
    assert_eq!((event.0.as_str(), read(resource, &event.1)), ("ADDED", expected), "{path}");
}

/// Frames as they come in.
#[derive(Default)]
struct Frames(Vec<u8>);

impl Frames {
    /// Types and objects of the events that are complete.
    fn add(&mut self, bytes: &[u8]) -> Vec<(String, Bytes)> {
        self.0.extend_from_slice(bytes);
        let mut events = Vec::new();
        while let Some(length) = self.0.first_chunk::<4>() {
            let length = u32::from_be_bytes(*length) as usize;
            if self.0.len() < 4 + length {
                break;
            }
            let event: Vec<u8> = self.0.drain(..4 + length).skip(4).collect();
            let event_type = String::from_utf8(field(&event, 1).to_vec()).unwrap();
            events.push((event_type, field(&field(&event, 2), 1)));
        }
        events
    }
}

#[tokio::test]
async fn every_kind_has_the_same_answers_in_protobuf() {
    let cluster = cluster().await;
    let creatable = |kind: &&Kind| kind.stored() && kind.verbs.contains(&Verb::Create);
    let mut asked = 0;
    for resource in served().filter(creatable).filter(|kind| std::ptr::eq(*kind, kind.storage())) {
        one_kind(&cluster.admin, resource).await;
        asked += 1;
    }
    assert!(asked > 40, "{asked}");
}

#[tokio::test]
async fn a_protobuf_watch_carries_changes_bookmarks_and_failures() {
    let cluster = cluster().await;
    let admin = &cluster.admin;
    let maps = bayplan_kinds::find("", "v1", "configmaps").unwrap();
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let path = format!("{MAPS}?{query}&labelSelector=a");
    let response = accepting(admin, "GET", &path, "application/vnd.kubernetes.protobuf, */*").await;
    let (mut body, mut frames) = (response.into_body(), Frames::default());
    let mut next = async || frames.add(&body.frame().await.unwrap().unwrap().into_data().unwrap()).remove(0);
    let (event_type, object) = next().await;
    assert_eq!(event_type, "BOOKMARK");
    assert_eq!(read(maps, &object)["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    let created = admin.create(MAPS, config_map("m", json!({"a": "b"}))).await;
    let (event_type, object) = next().await;
    assert_eq!(event_type, "ADDED");
    assert_eq!(read(maps, &object), canonical(maps.group_version_kind(), &created));
    admin.json("DELETE", &format!("{MAPS}/m"), Value::Null).await;
    let (event_type, object) = next().await;
    assert_eq!((event_type.as_str(), &read(maps, &object)["data"]), ("DELETED", &json!({"k": "v"})));
}

#[tokio::test]
async fn writes_and_failures_are_answered_in_protobuf_and_tables_are_not() {
    let cluster = cluster().await;
    let admin = &cluster.admin;
    let maps = bayplan_kinds::find("", "v1", "configmaps").unwrap();
    let request = Request::post(MAPS).header("Accept", PROTOBUF).header("Content-Type", "application/json");
    let body = Full::from(config_map("m", json!({})).to_string());
    let (code, body) = bytes(admin.call(request.body(body).unwrap()).await).await;
    assert_eq!((code, &read(maps, &body)["data"]), (201, &json!({"k": "v"})));

    let status = GroupVersionKind { group: "", version: "v1", kind: "Status" };
    let told = |body: &[u8]| codec::decode(status, Encoding::Protobuf, body, FieldValidation::Strict).unwrap().object;
    for (method, path, code, message) in
        [("DELETE", format!("{MAPS}/m"), 200, ""), ("GET", format!("{MAPS}/m"), 404, "configmaps \"m\" not found")]
    {
        let response = accepting(admin, method, &path, "application/vnd.kubernetes.protobuf,application/json").await;
        assert_eq!(response.headers()["content-type"], PROTOBUF);
        let (found, body) = bytes(response).await;
        assert_eq!(found, code);
        assert_eq!(told(&body)["message"].as_str().unwrap_or_default(), message);
    }
    let table = "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1";
    assert_eq!(accepting(admin, "GET", MAPS, table).await.status(), 406);
    let either = format!("{table},application/json;as=Table;g=meta.k8s.io;v=v1");
    let (_, answer) = support::read(accepting(admin, "GET", MAPS, &either).await).await;
    assert_eq!(answer["kind"], "Table");
    let yaml = accepting(admin, "GET", &format!("{MAPS}?watch=1"), "application/yaml").await;
    assert_eq!(yaml.status(), 406);
}

#[tokio::test]
async fn a_large_list_is_compressed_for_a_client_that_accepts_it() {
    let cluster = cluster().await;
    let admin = &cluster.admin;
    let mut map = config_map("m", json!({}));
    map["data"]["k"] = "text ".repeat(40_000).into();
    admin.create(MAPS, map).await;
    for (accept, media) in [("application/json", 0), (PROTOBUF, 0), ("application/json", 1)] {
        let request = Request::get(MAPS).header("Accept", accept);
        let request = if media == 0 { request.header("Accept-Encoding", "gzip") } else { request };
        let response = admin.call(request.body(Full::default()).unwrap()).await;
        assert_eq!(response.headers().get("content-encoding").is_some(), media == 0);
        let (_, body) = bytes(response).await;
        assert_eq!(body.len() < 10_000, media == 0, "{accept}: {}", body.len());
    }
}
