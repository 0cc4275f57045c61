//! Strategic merge over random objects and patches.

use bayplan_model::schema::{Definition, Schema};
use bayplan_patch::strategic;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn pod() -> &'static Definition {
    Schema::get().definition("", "v1", "Pod").expect("pods are served")
}

/// JSON with the fields, directives and kinds of value that strategic merge looks at.
fn tangle() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        Just(json!("delete")),
        Just(json!("replace")),
        Just(json!("a")),
        Just(json!(1)),
        Just(json!(1.5)),
        Just(json!(true)),
    ];
    let key = prop::sample::select(vec![
        "metadata",
        "spec",
        "containers",
        "volumes",
        "finalizers",
        "labels",
        "name",
        "env",
        "$patch",
        "$retainKeys",
        "$setElementOrder/containers",
        "$setElementOrder/finalizers",
        "$deleteFromPrimitiveList/finalizers",
        "$deleteFromPrimitiveList/containers",
    ]);
    scalar.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::btree_map(key.clone(), inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().map(|(key, value)| (key.to_string(), value)).collect())),
        ]
    })
}

fn containers() -> impl Strategy<Value = Vec<Value>> {
    prop::collection::btree_map("[a-e]", "[xyz]", 0..5)
        .prop_map(|map| map.into_iter().map(|(name, image)| json!({"name": name, "image": image})).collect())
        .prop_shuffle()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_makes_it_panic(original in tangle(), patch in tangle()) {
        let _ = strategic::apply(original, &patch, pod()).map_err(|error| error.to_string());
    }

    #[test]
    fn an_empty_patch_changes_nothing(metadata in tangle(), spec in tangle()) {
        let original = json!({"metadata": metadata, "spec": spec});
        prop_assert_eq!(strategic::apply(original.clone(), &Value::Object(Map::new()), pod()), Ok(original));
    }

    #[test]
    fn merged_containers_are_the_union_by_name_and_a_second_time_changes_nothing(
        live in containers(),
        wanted in containers(),
    ) {
        let patch = json!({"spec": {"containers": wanted}});
        let once = strategic::apply(json!({"spec": {"containers": live}}), &patch, pod()).unwrap();
        let merged = once["spec"]["containers"].as_array().unwrap();
        for container in &wanted {
            prop_assert!(merged.contains(container));
        }
        for container in &live {
            prop_assert_eq!(merged.iter().filter(|own| own["name"] == container["name"]).count(), 1);
        }
        let position = |container: &Value| merged.iter().position(|own| own["name"] == container["name"]);
        prop_assert!(wanted.iter().map(position).is_sorted(), "the patch's order is kept: {:?}", merged);
        let twice = strategic::apply(once.clone(), &patch, pod()).unwrap();
        let names = |pod: &Value| {
            let containers = pod["spec"]["containers"].as_array().unwrap();
        let mut names: Vec<String> = containers.iter().map(Value::to_string).collect();
            names.sort();
            names
        };
        prop_assert_eq!(names(&twice), names(&once));
    }
}
