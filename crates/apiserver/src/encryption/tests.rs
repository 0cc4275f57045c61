use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::*;

const SECRET: &str = "/registry/secrets/ns/s";
const PLAIN: &str = "{\"kind\":\"Secret\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"s\",\"namespace\":\"ns\"},\
    \"data\":{\"a\":\"YQ==\"},\"type\":\"Opaque\"}";
/// 32 bytes.
const KEY: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

/// A Secret and a ConfigMap `default/vector` with `a: b`, as kube-apiserver v1.36 stored them with that key.
const RECORDED_AESGCM: &str = "\
    azhzOmVuYzphZXNnY206djE6azE66tMXoPcSAToKOL4N+wIOYmxB4u/WG2RqfLR5tVlZvlBAMXSCGxM80hi8E+oI6f3SWzhC3tIjdC4/KNWs4k\
    NLFc4hsZ+GPzHIY3Snl53nCqUDoPjYTvcKpfBrxkZk9+2+z7iy77y84arpVFXmhwXuwPb+gUYsH95ai1lku9mwotwPEqG6p1zhXDvDpMjbHOsS\
    8TpSWkpDGG6pCVb1UCIy7WuvuQ7x44AVsEWNIfhHhuBfj1/v+DcsC2XL1RLQdeuF4zbc7sazGLBFGZe/BYfCRi5wRRphMzrbrvpmCxOCTCzSmc\
    THomNIadnmCo4kcYDEaMQ=";
const RECORDED_AESCBC: &str = "\
    azhzOmVuYzphZXNjYmM6djE6azE6AwkbhuDC8JTzrtpeMoTrm4hWF2PKLQr+HT5XIRO7kcZwW5S+CS1e2NeWbHb9H6zU5yjK4nDx5OLC7ekHgi\
    IISQXZL3fhP/HR6drQNpMuMxrDcxFdiLJ/OOek7E+qqFqj18/OtpwgAMlPLK8ACIWIFdMNFK7peGHuoWRE/As0UL82Q51lSEyAjEK/wLUbhNMH\
    4jTOb5WqWRQPIyvakhXu93poIEViCvPXQ4vmiAZbGtIkRpWUdsrwuJE9llzwS7m5BEMSdD2hbpR10jr6E2uK1ROtN65VpEJDn92SevKmYhE=";

/// A Secret `default/vector` with `a: b`, sealed with that key by the library that kube-apiserver seals with
/// (golang.org/x/crypto/nacl/secretbox).
const SEALED_SECRETBOX: &str = "\
    azhzOmVuYzpzZWNyZXRib3g6djE6azE6AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYmAUHrxaPnir04hGGogK9Ez7t8JlP3W7oGkQvW0JAYhrtW9\
    sa0eMbjD39bZ+xM+3kGUlvmnNHITs3wX42PmE5AsYSMGau5vSDvpzb1rKtAmsMkwzem8UmNJZIv9c+YeExo7nZbaWHPPO5rtaKCnKl8zuLaiJ7\
    kVRrwbaUA3ou+SyRpBbVnDT1VKeC";

fn codec(providers: &str) -> Result<StoredCodec, EncryptionConfigError> {
    let text = format!(
        "{{apiVersion: apiserver.config.k8s.io/v1, kind: EncryptionConfiguration, \
         resources: [{{resources: [secrets], providers: [{providers}]}}]}}"
    );
    StoredCodec::new(StoredForm::Protobuf, "/registry").with_encryption(&text)
}

/// The secret as it is read.
fn canonical() -> Bytes {
    let plain = StoredCodec::new(StoredForm::Protobuf, "/registry");
    plain.read(SECRET, plain.write(SECRET, PLAIN.into()).unwrap()).unwrap()
}

fn keyed(provider: &str, name: &str) -> String {
    format!("{{{provider}: {{keys: [{{name: {name}, secret: \"{KEY}\"}}]}}}}")
}

#[test]
fn each_provider_reads_what_it_wrote_and_only_under_its_key() {
    for provider in ["aesgcm", "aescbc", "secretbox"] {
        let codec = codec(&keyed(provider, "k1")).unwrap();
        let stored = codec.write(SECRET, PLAIN.into()).unwrap();
        assert!(stored.starts_with(format!("k8s:enc:{provider}:v1:k1:").as_bytes()), "{stored:?}");
        assert_ne!(codec.write(SECRET, PLAIN.into()).unwrap(), stored, "no two are equal");
        assert_eq!(codec.read(SECRET, stored.clone()).unwrap(), canonical());
        let elsewhere = codec.read("/registry/secrets/ns/other", stored.clone());
        assert_eq!(elsewhere.is_err(), provider == "aesgcm", "the key is authenticated by aesgcm");
        let mut damaged = stored.to_vec();
        *damaged.last_mut().unwrap() ^= 1;
        // A damaged block of aescbc may decrypt to something, as upstream's.
        assert!(provider == "aescbc" || codec.read(SECRET, damaged.into()).is_err());
        let pod = Bytes::from_static(b"{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"c\"}}");
        let other = codec.write("/registry/configmaps/ns/c", pod).unwrap();
        assert!(other.starts_with(b"k8s\0"), "another resource is not encrypted");
    }
}

#[test]
fn what_kube_apiserver_encrypted_is_read() {
    let text = format!(
        "{{apiVersion: apiserver.config.k8s.io/v1, kind: EncryptionConfiguration, resources: [\
         {{resources: [secrets], providers: [{}]}}, {{resources: [configmaps], providers: [{}]}}]}}",
        keyed("aesgcm", "k1"),
        keyed("aescbc", "k1")
    );
    let codec = StoredCodec::new(StoredForm::Protobuf, "/registry").with_encryption(&text).unwrap();
    for (key, recorded, value) in [
        ("/registry/secrets/default/vector", RECORDED_AESGCM, "Yg=="),
        ("/registry/configmaps/default/vector", RECORDED_AESCBC, "b"),
    ] {
        let stored = BASE64.decode(recorded).unwrap();
        let read: Value = serde_json::from_slice(&codec.read(key, stored.into()).unwrap()).unwrap();
        assert_eq!((&read["metadata"]["name"], &read["data"]["a"]), (&json!("vector"), &json!(value)));
        assert_eq!(read["metadata"]["managedFields"][0]["manager"], "kubectl-create");
    }
}

#[test]
fn what_the_library_of_kube_apiserver_sealed_is_read() {
    let sealed = BASE64.decode(SEALED_SECRETBOX).unwrap();
    let read =
        codec(&keyed("secretbox", "k1")).unwrap().read("/registry/secrets/default/vector", sealed.clone().into());
    let read: Value = serde_json::from_slice(&read.unwrap()).unwrap();
    assert_eq!((&read["metadata"]["name"], &read["data"]["a"]), (&json!("vector"), &json!("Yg==")));
    // A box that is cut anywhere is no value.
    let reader = codec(&keyed("secretbox", "k1")).unwrap();
    for length in "k8s:enc:secretbox:v1:k1:".len()..sealed.len() {
        assert!(reader.read(SECRET, Bytes::copy_from_slice(&sealed[..length])).is_err(), "{length}");
    }
}

#[test]
fn a_value_without_its_key_is_named_and_one_of_an_older_key_is_written_anew() {
    let old = codec(&keyed("aescbc", "old")).unwrap();
    let stored = old.write(SECRET, PLAIN.into()).unwrap();
    for other in [StoredCodec::new(StoredForm::Protobuf, "/registry"), codec(&keyed("aesgcm", "k2")).unwrap()] {
        let error = other.read(SECRET, stored.clone()).unwrap_err();
        assert_eq!(error, "it is encrypted (k8s:enc:aescbc:v1:old), and no key for it is configured");
    }
    let rotated =
        codec(&format!("{}, {}, {{identity: {{}}}}", keyed("aesgcm", "new"), keyed("aescbc", "old"))).unwrap();
    let read = rotated.read(SECRET, stored).unwrap();
    assert_ne!(read, canonical(), "what the registry would write differs, so that it writes");
    assert_eq!(read.trim_ascii_end(), canonical());
    assert!(rotated.write(SECRET, PLAIN.into()).unwrap().starts_with(b"k8s:enc:aesgcm:v1:new:"));
    let plain = StoredCodec::new(StoredForm::Protobuf, "/registry").write(SECRET, PLAIN.into()).unwrap();
    assert!(rotated.read(SECRET, plain.clone()).is_ok());
    let strict = codec(&keyed("aesgcm", "new")).unwrap().read(SECRET, plain).unwrap_err();
    assert!(strict.contains("no identity provider"), "{strict}");
}

#[test]
fn the_prefix_of_the_store_is_authenticated() {
    let written = codec(&keyed("aesgcm", "k")).unwrap().write(SECRET, PLAIN.into()).unwrap();
    let mut other = codec(&keyed("aesgcm", "k")).unwrap();
    other.prefix = "/other".to_owned();
    assert!(other.read(SECRET, written).is_err());
}

#[test]
fn resources_are_named_as_upstream_names_them() {
    let names = |named: &str, group: &str, resource: &str| {
        let text = format!(
            "{{apiVersion: apiserver.config.k8s.io/v1, kind: EncryptionConfiguration, \
             resources: [{{resources: [\"{named}\"], providers: [{{identity: {{}}}}]}}]}}"
        );
        config::parse(&text).unwrap()[0].names(group, resource)
    };
    for (named, group, resource, expected) in [
        ("secrets", "", "secrets", true),
        ("secrets", "x", "secrets", false),
        ("deployments.apps", "apps", "deployments", true),
        ("*.apps", "apps", "deployments", true),
        ("*.apps", "", "pods", false),
        ("*.", "", "pods", true),
        ("*.", "apps", "deployments", false),
        ("*.*", "apps", "deployments", true),
        ("leases.coordination.k8s.io", "coordination.k8s.io", "leases", true),
    ] {
        assert_eq!(names(named, group, resource), expected, "{named} {resource}.{group}");
    }
}

#[test]
fn what_is_wrong_or_not_supported_is_said() {
    for (providers, expected) in [
        ("{kms: {name: k}}", "resources[0].providers[0]: the provider kms is not supported"),
        ("{secretbox: {keys: []}}", "needs a key"),
        ("{secretbox: {keys: [{name: a, secret: YQ==}]}}", "has 32 bytes, not 1"),
        ("{aesgcm: {keys: [{name: a, secret: YQ==}]}}", "has 16 or 32 bytes, not 1"),
        ("{aescbc: {keys: [{name: a, secret: \"?\"}]}}", "the secret of \"a\" is not base64"),
        ("{aescbc: {keys: []}}", "needs a key"),
        ("{identity: {}, aescbc: {keys: []}}", "needs exactly one provider"),
        ("{other: {}}", "cannot be read"),
    ] {
        let error = codec(providers).unwrap_err().to_string();
        assert!(error.contains(expected), "{providers}: {error}");
    }
}
