//! Objects that somebody wrote for a question: all of them, whatever their kind, in their order.

use serde_json::Value;
use serde_json::value::RawValue;

use crate::detect::{Form, form_of};
use crate::document::Sink;
use crate::reader::Given;
use crate::{json_or_yaml, yaml};

/// Why manifests cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// Neither JSON nor YAML.
    #[error("it is neither JSON nor YAML")]
    NotText,
    /// Broken in the middle.
    #[error("{0}")]
    Broken(String),
    /// An object that does not say what it is.
    #[error("object {0} of it says no apiVersion and kind")]
    Untyped(usize),
}

#[derive(Default)]
struct Everything(Vec<Value>);

impl Sink for Everything {
    fn object(&mut self, json: Box<RawValue>) {
        // What nests too deep to be a value is noticed as an object without a kind.
        self.0.push(serde_json::from_str(json.get()).unwrap_or_default());
    }

    fn listed(&mut self, _: &str, _: &str) {}

    fn ignores(&self, _: &str, _: &str) -> bool {
        false
    }

    fn note(&mut self, _: String) {}
}

/// The objects of JSON or YAML documents, with those of lists in their places. Nothing is left out: what cannot be
/// read is an error.
pub fn manifests(text: &[u8]) -> Result<Vec<Value>, ManifestError> {
    let mut everything = Everything::default();
    match form_of(text, Given::Directly) {
        Form::Empty => Ok(()),
        Form::Json => json_or_yaml::read(text, &mut everything),
        Form::Yaml => yaml::read(text, &mut everything),
        _ => return Err(ManifestError::NotText),
    }
    .map_err(ManifestError::Broken)?;
    let says = |object: &Value, field: &str| object.get(field).and_then(Value::as_str).is_some_and(|s| !s.is_empty());
    match everything.0.iter().position(|object| !says(object, "apiVersion") || !says(object, "kind")) {
        Some(at) => Err(ManifestError::Untyped(at + 1)),
        None => Ok(everything.0),
    }
}
