//! The committed schema is what the generator makes of its inputs, and loses nothing of them.

use std::io::Read as _;

use bayplan_model::schema::Schema;
use flate2::read::GzDecoder;
use serde_json::{Map, Value};

#[path = "../examples/generate_schema.rs"]
#[expect(dead_code, reason = "the example's main writes the file that this test compares")]
mod generator;

#[test]
fn the_committed_schema_is_what_the_generator_makes() {
    let committed = include_str!("../src/schema/generated/schema.txt");
    let made = generator::generate();
    let differs = committed.lines().zip(made.lines()).find(|(committed, made)| committed != made);
    assert_eq!(differs, None, "run `cargo run -p bayplan-model --example generate_schema`");
    assert_eq!(committed.len(), made.len(), "run `cargo run -p bayplan-model --example generate_schema`");
}

#[test]
fn the_openapi_definitions_are_those_of_the_input() {
    let mut text = String::new();
    let facts = include_bytes!("../schema/schema-facts.json.gz");
    GzDecoder::new(&facts[..]).read_to_string(&mut text).unwrap();
    let facts: Map<String, Value> = serde_json::from_str(&text).unwrap();
    for (name, fact) in &facts {
        assert_eq!(Schema::openapi_definitions().get(name), Some(fact), "{name}");
    }
    assert_eq!(Schema::openapi_definitions().len(), facts.len());
}
