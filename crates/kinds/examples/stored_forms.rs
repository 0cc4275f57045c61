//! What it costs to store objects as JSON and as protobuf: reads lines of `{"object": …}` and prints a table.
//!
//! `zcat crates/sources/tests/etcd/objects.jsonl.gz | cargo run --release -p bayplan-kinds --example stored_forms`
#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]
#![allow(clippy::print_stdout, reason = "it prints a table")]

use std::hint::black_box;
use std::io::BufRead;
use std::time::Instant;

use bayplan_kinds::Scheme;
use bayplan_kinds::stored_value::{StoredForm, StoredValues};
use bytes::Bytes;
use serde_json::Value;

/// How often each object is written and read.
const ROUNDS: usize = 300;

fn main() {
    let protobuf = StoredValues::new(StoredForm::Protobuf);
    let mut pods: Vec<(String, Bytes)> = Vec::new();
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let Ok(mut line) = serde_json::from_str::<Value>(&line) else { continue };
        let object = line["object"].take();
        let text = |at: &str| object.pointer(at).and_then(Value::as_str).unwrap_or_default();
        if Scheme::built_in().by_kind("", text("/apiVersion"), text("/kind")).is_some_and(|kind| kind.kind == "Pod") {
            let key = format!("/registry/pods/{}/{}", text("/metadata/namespace"), text("/metadata/name"));
            let stored = protobuf.read(&key, object.to_string().into());
            pods.extend(stored.map(|stored| (key, stored)));
        }
    }
    println!("{} pods", pods.len());
    for form in [StoredForm::Json, StoredForm::Protobuf] {
        let values = StoredValues::new(form);
        let written: Vec<(&str, Bytes)> = pods
            .iter()
            .filter_map(|(key, value)| Some((key.as_str(), values.write(key, value.clone()).ok()?)))
            .collect();
        let bytes: usize = written.iter().map(|(_, stored)| stored.len()).sum();
        let write = timed(pods.len(), || {
            for (key, value) in &pods {
                _ = black_box(values.write(key, value.clone()));
            }
        });
        let read = timed(pods.len(), || {
            for (key, stored) in &written {
                _ = black_box(values.read(key, stored.clone()));
            }
        });
        println!("{form:?}: {} bytes, write {write:.0} ns, read {read:.0} ns", bytes / pods.len().max(1));
    }
}

/// Nanoseconds for each object.
fn timed(objects: usize, mut round: impl FnMut()) -> f64 {
    round();
    let start = Instant::now();
    (0..ROUNDS).for_each(|_| round());
    start.elapsed().as_secs_f64() * 1e9 / (ROUNDS * objects.max(1)) as f64
}
