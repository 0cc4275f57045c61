//! Every place of every kind where a value can stand, from the schema.

use std::collections::BTreeSet;

use bayplan_kinds::{Kind, served};
use bayplan_model::schema::{Definition, Schema, Type};
use serde_json::{Map, Value, json};

use super::objects;

/// One step from an object down to a place in it.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Field(&'static str),
    /// Into the first element of a list of this type.
    Element(&'static Type),
    /// Into an entry of a map.
    Entry,
}

/// A place in the objects of a kind.
#[derive(Clone, Debug)]
pub struct Place {
    pub kind: &'static Kind,
    pub steps: Vec<Step>,
    /// What stands there.
    pub ty: &'static Type,
}

/// The places of all stored kinds at which `wanted` finds a type of interest. Unless `everywhere`, a field of a type is
/// visited where it is met first: the pod template of a Deployment is that of a Pod.
pub fn places(everywhere: bool, wanted: impl Fn(&Type) -> bool) -> Vec<Place> {
    let mut walk = Walk { found: Vec::new(), seen: BTreeSet::new(), everywhere, wanted: &wanted };
    let mut kinds: Vec<&'static Kind> = served().filter(|kind| kind.stored()).collect();
    // Pods first: what other kinds share with them is tested as part of a pod.
    kinds.sort_by_key(|kind| (kind.kind != "Pod", kind.kind == "Event"));
    for kind in kinds {
        let definition = Schema::get().decoded(kind.group, kind.version, kind.kind).expect("a served kind has a type");
        walk.definition(kind, definition, &mut Vec::new(), &mut Vec::new());
    }
    walk.found
}

struct Walk<'w> {
    found: Vec<Place>,
    seen: BTreeSet<(usize, &'static str)>,
    everywhere: bool,
    wanted: &'w dyn Fn(&Type) -> bool,
}

impl Walk<'_> {
    fn definition(
        &mut self,
        kind: &'static Kind,
        definition: &'static Definition,
        steps: &mut Vec<Step>,
        within: &mut Vec<usize>,
    ) {
        if within.contains(&definition.id.index()) {
            return;
        }
        within.push(definition.id.index());
        for field in &definition.fields {
            // The client does not write these, and nothing follows from what it says.
            let of_server = steps.is_empty() && matches!(field.name, "apiVersion" | "kind");
            let new = self.seen.insert((definition.id.index(), field.name));
            if of_server || field.name == "managedFields" || !(new || self.everywhere) {
                continue;
            }
            steps.push(Step::Field(field.name));
            self.ty(kind, &field.ty, steps, within);
            steps.pop();
        }
        within.pop();
    }

    fn ty(&mut self, kind: &'static Kind, ty: &'static Type, steps: &mut Vec<Step>, within: &mut Vec<usize>) {
        if (self.wanted)(ty) {
            self.found.push(Place { kind, steps: steps.clone(), ty });
        }
        match ty {
            Type::Object(id) => self.definition(kind, Schema::get().at(*id), steps, within),
            Type::List(of, _) => self.inside(kind, of, Step::Element(of), steps, within),
            Type::Map(of, _) => self.inside(kind, of, Step::Entry, steps, within),
            _ => {}
        }
    }

    fn inside(
        &mut self,
        kind: &'static Kind,
        of: &'static Type,
        step: Step,
        steps: &mut Vec<Step>,
        within: &mut Vec<usize>,
    ) {
        steps.push(step);
        self.ty(kind, of, steps, within);
        steps.pop();
    }
}

impl Place {
    /// `Pod.spec.containers[].env`.
    pub fn name(&self) -> String {
        let mut name = self.kind.kind.to_owned();
        for step in &self.steps {
            match step {
                Step::Field(field) => name.push_str(&format!(".{field}")),
                Step::Element(_) => name.push_str("[]"),
                Step::Entry => name.push_str("{}"),
            }
        }
        name
    }

    /// The smallest object of the kind, with a value at the place.
    pub fn object(&self, name: &str, value: Value) -> Value {
        let mut object = objects::object(self.kind, name);
        put(&mut object, &self.steps, value);
        object
    }

    /// Only what leads to the place, and the value: a merge patch.
    pub fn part(&self, value: Value) -> Value {
        let mut part = json!({});
        put(&mut part, &self.steps, value);
        part
    }

    /// The JSON pointer of the place in [`object`](Self::object).
    pub fn pointer(&self) -> String {
        let steps = self.steps.iter().map(|step| match step {
            Step::Field(field) => format!("/{field}"),
            Step::Element(_) => "/0".to_owned(),
            Step::Entry => "/a".to_owned(),
        });
        steps.collect()
    }
}

fn put(into: &mut Value, steps: &[Step], value: Value) {
    let Some((step, rest)) = steps.split_first() else {
        *into = value;
        return;
    };
    match step {
        Step::Field(field) => {
            if !into.is_object() {
                *into = json!({});
            }
            put(&mut into[*field], rest, value);
        }
        Step::Entry => {
            if !into.is_object() {
                *into = json!({});
            }
            put(&mut into["a"], rest, value);
        }
        Step::Element(ty) => {
            if into.as_array().is_none_or(Vec::is_empty) {
                *into = json!([sample(ty, 0)]);
            }
            put(&mut into[0], rest, value);
        }
    }
}

/// A value of a type that has its required fields and what tells it apart from others, numbered.
pub fn sample(ty: &Type, number: usize) -> Value {
    match ty {
        Type::String(_) | Type::IntOrString => json!(format!("a{number}")),
        Type::Bytes => json!("YQ=="),
        Type::Int32 | Type::Int64 => json!(number % 60_000 + 1),
        Type::Double => json!(1.5),
        Type::Boolean => json!(true),
        Type::Quantity => json!("1"),
        Type::Time => json!("2026-05-28T12:00:00Z"),
        Type::MicroTime => json!("2026-05-28T12:00:00.000000Z"),
        Type::Map(of, _) => json!({ format!("a{number}"): sample(of, number) }),
        Type::List(of, _) => json!([sample(of, number)]),
        Type::Raw | Type::Fields => json!({}),
        Type::Object(id) => {
            let definition = Schema::get().at(*id);
            let telling = ["name", "key", "uid", "type", "mountPath", "devicePath", "path", "effect", "port", "ip"];
            let given = definition.fields.iter().filter(|field| field.required || telling.contains(&field.name));
            let value = |field: &bayplan_model::schema::Field| match field.values.first() {
                Some(first) => json!(first),
                None => sample(&field.ty, number),
            };
            Value::Object(given.map(|field| (field.name.to_owned(), value(field))).collect::<Map<_, _>>())
        }
    }
}
