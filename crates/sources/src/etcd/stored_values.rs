//! Every value of the recorded etcd, read and written back as the API server does.

use std::collections::BTreeMap;
use std::io::{Cursor, Read};

use bayplan_kinds::stored_value::{StoredForm, StoredValues, kind_of_key};
use bayplan_kinds::{Scheme, find};
use flate2::read::GzDecoder;
use serde_json::Value;

use super::tests::{SERVED, database};
use super::{CHECKSUM_BYTES, KeyValue, REVISION_BYTES, REVISIONS, bbolt, revision};

/// The latest value of each key, with the revision of its write.
fn stored() -> BTreeMap<String, (u64, Vec<u8>)> {
    let bytes = database();
    let length = bytes.len() as u64 - CHECKSUM_BYTES;
    let mut latest = BTreeMap::new();
    bbolt::walk(&mut Cursor::new(bytes), length, REVISIONS, &mut |key, value| {
        let (main, _) = revision(key).unwrap();
        let pair = KeyValue::decode(value).unwrap();
        let name = String::from_utf8(pair.key.to_vec()).unwrap();
        if key.len() > REVISION_BYTES {
            latest.remove(&name);
        } else {
            latest.insert(name, (main, pair.value.to_vec()));
        }
    })
    .unwrap();
    latest
}

/// The objects as the API served them, by the key of the store.
fn served() -> BTreeMap<String, Value> {
    let mut text = String::new();
    GzDecoder::new(SERVED).read_to_string(&mut text).unwrap();
    let mut objects = BTreeMap::new();
    for line in text.lines() {
        let object = serde_json::from_str::<Value>(line).unwrap()["object"].take();
        let text = |at: &str| object.pointer(at).and_then(Value::as_str).unwrap_or_default();
        let (group, version) = text("/apiVersion").split_once('/').unwrap_or(("", text("/apiVersion")));
        let Some(kind) = Scheme::built_in().by_kind(group, version, text("/kind")) else { continue };
        if !kind.stored() || kind != kind.storage() {
            continue;
        }
        let namespace = if kind.namespaced() { format!("{}/", text("/metadata/namespace")) } else { String::new() };
        let key = format!("/registry/{}/{namespace}{}", kind.storage_prefix, text("/metadata/name"));
        objects.insert(key, object);
    }
    objects
}

/// What an API server renews by itself, and may have since the snapshot.
fn renewed(key: &str) -> bool {
    key.starts_with("/registry/leases/kube-system/apiserver-")
        || ["/registry/endpointslices/default/kubernetes", "/registry/services/endpoints/default/kubernetes"]
            .contains(&key)
}

#[test]
fn every_recorded_value_is_read_as_the_api_served_it() {
    let (stored, mut served) = (stored(), served());
    let mut kinds = BTreeMap::new();
    for (key, (revision, value)) in &stored {
        let Some(kind) = kind_of_key(key) else { continue };
        let read = StoredValues::default().read(key, value.clone().into()).unwrap_or_else(|e| panic!("{key}: {e}"));
        let mut object: Value = serde_json::from_slice(&read).unwrap();
        object["metadata"]["resourceVersion"] = revision.to_string().into();
        let expected = served.remove(key).unwrap_or_else(|| panic!("{key} was not served"));
        if !renewed(key) {
            assert_eq!(object, expected, "{key}");
        }
        *kinds.entry(kind.kind).or_insert(0) += 1;
    }
    assert_eq!(served.keys().collect::<Vec<_>>(), Vec::<&String>::new(), "served, but not stored");
    assert!(kinds.len() > 25, "{kinds:?}");
    assert_eq!((kinds["Pod"], kinds["IPAddress"], kinds["ServiceCIDR"]), (107, 13, 1));
}

#[test]
fn every_recorded_value_is_written_back_byte_for_byte() {
    let values = StoredValues::new(StoredForm::Protobuf);
    let mut rewritten = 0;
    for (key, (_, value)) in stored() {
        // The aggregator stores its APIServices as JSON.
        let is_json = value.starts_with(b"{");
        if is_json
            || kind_of_key(&key).is_none()
                && !["/registry/ranges/", "/registry/masterleases/"].iter().any(|p| key.starts_with(p))
        {
            continue;
        }
        let read = values.read(&key, value.clone().into()).unwrap();
        let written = values.write(&key, read.clone()).unwrap();
        assert_eq!(values.read(&key, written.clone()).unwrap(), read, "{key}");
        if written != value {
            let at = written
                .iter()
                .zip(&value)
                .position(|(one, other)| one != other)
                .unwrap_or(written.len().min(value.len()));
            let near = |bytes: &[u8]| {
                String::from_utf8_lossy(&bytes[at.saturating_sub(80)..(at + 60).min(bytes.len())]).into_owned()
            };
            panic!("{key} differs at {at}: {:?} instead of {:?}", near(&written), near(&value));
        }
        rewritten += 1;
    }
    assert!(rewritten > 600, "{rewritten}");
}

#[test]
fn values_stored_as_json_are_read_the_same() {
    let (protobuf, json) = (StoredValues::new(StoredForm::Protobuf), StoredValues::new(StoredForm::Json));
    for (key, (_, value)) in stored() {
        let read = protobuf.read(&key, value.into()).unwrap();
        let written = json.write(&key, read.clone()).unwrap();
        assert_eq!(json.read(&key, written).unwrap(), read, "{key}");
    }
    assert!(find("networking.k8s.io", "v1", "ipaddresses").is_some());
}
