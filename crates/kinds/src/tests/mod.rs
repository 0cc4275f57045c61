//! What holds for all kinds, and for one that is new.

mod admission_policy;

use jiff::Timestamp;
use serde_json::json;

use crate::codec::{self, Encoding, FieldValidation};
use crate::table::KINDS;
use crate::{Kind, Scheme};

/// The built-in kinds and one line more.
fn scheme() -> Scheme {
    Scheme::new(KINDS.iter().copied().chain([&admission_policy::KIND]))
}

#[test]
fn a_new_kind_is_one_file_and_one_line() {
    let scheme = scheme();
    let found = scheme.by_resource("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies");
    let kind: &'static Kind = found.expect("its line is in the table");
    assert_eq!(scheme.by_kind(kind.group, kind.version, "ValidatingAdmissionPolicy"), Some(kind));
    assert!(scheme.served().any(|served| served == kind), "discovery shows it");

    let body = b"metadata: { name: health }\nspec: { matchConstraints: {}, validations: [{ expression: 'true' }] }\n";
    let decoded = codec::decode(kind.group_version_kind(), Encoding::Yaml, body, FieldValidation::Strict);
    let mut object = decoded.expect("the schema knows every type of the API").object;
    kind.default(&mut object);
    let now = Timestamp::UNIX_EPOCH;
    kind.prepare_for_create(&mut object, now);
    assert_eq!(kind.validate_create(&object), []);
    assert_eq!(object["metadata"]["generation"], 1);
    assert_eq!(object["spec"]["failurePolicy"], "Fail");
    let row = kind.row(&object, now);
    assert_eq!(row.cells, [json!("health"), json!(1), json!("Fail"), json!("<unknown>")]);

    let mut update = object.clone();
    update["metadata"]["resourceVersion"] = "1".into();
    update["spec"] = json!({ "failurePolicy": "Shrug" });
    kind.prepare_for_update(&mut update, &object, "", now);
    assert_eq!(update["metadata"]["generation"], 2);
    let errors: Vec<String> = kind.validate_update("", &update, &object).iter().map(ToString::to_string).collect();
    assert_eq!(
        errors,
        [
            "spec.failurePolicy: Unsupported value: \"Shrug\": supported values: \"Fail\", \"Ignore\"",
            "spec.matchConstraints: Required value",
        ]
    );
}

#[test]
fn every_kind_of_the_table_has_names_of_its_own_and_a_type_in_the_schema() {
    let mut names: Vec<_> = KINDS.iter().map(|kind| (kind.group, kind.version, kind.kind)).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), KINDS.len());
    for kind in KINDS {
        let decoded = codec::decode(kind.group_version_kind(), Encoding::Json, b"{}", FieldValidation::Strict);
        assert!(decoded.is_ok(), "{} {}", kind.api_version(), kind.kind);
        assert_eq!(kind.plural.is_empty(), kind.verbs.is_empty(), "{}: a URL has verbs", kind.kind);
        assert!(
            kind.verbs.iter().is_sorted_by_key(|verb| verb.as_str()),
            "{}: discovery lists verbs in order",
            kind.kind
        );
        assert!(kind.subresources.iter().is_sorted_by_key(|subresource| subresource.name), "{}", kind.kind);
    }
}

#[test]
fn annotations_and_data_have_a_largest_size() {
    let kind = crate::find("", "v1", "configmaps").expect("a row of the table");
    let refused = |annotations: usize, data: usize| {
        let metadata = json!({"name": "a", "namespace": "b", "annotations": {"k": "x".repeat(annotations)}});
        !kind.validate_create(&json!({"metadata": metadata, "data": {"k": "x".repeat(data)}})).is_empty()
    };
    // The key of an annotation counts, too; that of an entry does not.
    assert!(!refused((256 << 10) - 1, 1 << 20));
    assert!(refused(256 << 10, 0));
    assert!(refused(0, (1 << 20) + 1));
}

#[test]
fn a_body_that_breaks_off_inside_a_map_of_structs_is_refused() {
    let kind = crate::find("resource.k8s.io", "v1", "resourceslices").expect("a row of the table");
    let body = br#"{"spec":{"devices":[{"attributes":{"a":{"string" x"#;
    let refused = codec::decode(kind.group_version_kind(), Encoding::Json, body, FieldValidation::Strict);
    let message = refused.expect_err("it is not JSON").message;
    assert!(message.contains("json parse error: invalid character 'x' after object key"), "{message}");
}
