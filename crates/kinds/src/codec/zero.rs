//! What is written for values that were not given.
//!
//! Upstream's objects pass through typed structs on every request, so an answer always shows the same fields whatever
//! the client left out. The schema tells which fields those are.

use std::sync::LazyLock;

use bayplan_model::schema::{Definition, Field, Schema, Type};
use serde_json::{Map, Value};

static ALWAYS_WRITTEN: LazyLock<AlwaysWritten> = LazyLock::new(|| AlwaysWritten::new(Schema::get()));

/// What is written for an element or map value of this type when null was given.
pub(super) fn zero(of: &Type) -> Value {
    ALWAYS_WRITTEN.zero(of)
}

/// Adds the fields that are written even when nothing was given for them.
pub(super) fn complete(definition: &Definition, object: &mut Map<String, Value>) {
    ALWAYS_WRITTEN.complete(definition, object);
}

/// By definition: the fields that are written even when nothing was given for them, with what is written.
struct AlwaysWritten(Vec<Vec<(&'static str, Value)>>);

impl AlwaysWritten {
    fn new(schema: &'static Schema) -> AlwaysWritten {
        let count = schema.definitions().len();
        let mut always = AlwaysWritten(vec![Vec::new(); count]);
        let mut done = vec![false; count];
        for definition in schema.definitions() {
            always.fill(schema, definition, &mut done);
        }
        always
    }

    /// Fills in a definition after those it holds.
    fn fill(&mut self, schema: &'static Schema, definition: &'static Definition, done: &mut [bool]) {
        if std::mem::replace(&mut done[definition.id.index()], true) {
            return;
        }
        for field in definition.fields.iter().filter(|field| !field.optional) {
            if let Type::Object(inner) = field.ty {
                self.fill(schema, schema.at(inner), done);
            }
        }
        let fields = definition.fields.iter().filter_map(|field| Some((field.name, self.written(field)?)));
        self.0[definition.id.index()] = fields.collect();
    }

    /// What is written for a field that was not given, if anything is.
    fn written(&self, field: &Field) -> Option<Value> {
        // Structs are never empty to upstream's JSON encoder.
        let never_empty = matches!(
            field.ty,
            Type::Object(_) | Type::Quantity | Type::IntOrString | Type::Time | Type::MicroTime | Type::Raw
        );
        match field {
            Field { omit_zero: true, .. } => None,
            Field { optional: true, omit_empty, .. } => (!omit_empty).then_some(Value::Null),
            Field { omit_empty: true, .. } if !never_empty => None,
            _ => Some(self.zero(&field.ty)),
        }
    }

    fn zero(&self, of: &Type) -> Value {
        match of {
            Type::String(_) => Value::String(String::new()),
            Type::Boolean => Value::Bool(false),
            Type::Int32 | Type::Int64 | Type::IntOrString => Value::from(0),
            Type::Quantity => Value::from("0"),
            Type::Object(id) => {
                let mut object = Map::new();
                self.complete(Schema::get().at(*id), &mut object);
                Value::Object(object)
            }
            _ => Value::Null,
        }
    }

    fn complete(&self, definition: &Definition, object: &mut Map<String, Value>) {
        for (name, zero) in &self.0[definition.id.index()] {
            if !object.contains_key(*name) {
                object.insert((*name).to_owned(), zero.clone());
            }
        }
    }
}
