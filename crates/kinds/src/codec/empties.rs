//! The lists, maps and bytes that a client gave without anything in them.
//!
//! Canonical objects have none, as upstream's store has none. Until it stores an object upstream knows them, though: a
//! message quotes `[]` where it would quote `null`, and whoever sends a required list empty owns it.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

/// How many are kept of one object, and how many bytes of their paths: a body has room for a million.
const KEPT_MAX: usize = 1_000;
const PATH_BYTES_MAX: usize = 256 * 1024;

/// One step of the path from the root of an object to a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A field of a struct.
    Field(&'static str),
    /// A key of a map.
    Key(String),
    /// An element of a list.
    Index(usize),
}

impl Step {
    fn within<'v>(&self, value: &'v mut Value) -> Option<&'v mut Value> {
        match self {
            Step::Field(name) => value.get_mut(*name),
            Step::Key(key) => value.get_mut(key.as_str()),
            Step::Index(index) => value.get_mut(*index),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Step::Key(key) => size_of::<Step>() + key.len(),
            _ => size_of::<Step>(),
        }
    }
}

/// A step as somebody else names it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StepName<'a> {
    /// A field or a key.
    Name(&'a str),
    Index(usize),
}

impl PartialEq<StepName<'_>> for Step {
    fn eq(&self, other: &StepName<'_>) -> bool {
        match (self, other) {
            (Step::Field(own), StepName::Name(name)) => own == name,
            (Step::Key(own), StepName::Name(name)) => own == name,
            (Step::Index(own), StepName::Index(index)) => own == index,
            _ => false,
        }
    }
}

/// A place in an object, and what was given there.
#[derive(Clone, Debug, PartialEq)]
struct Place {
    path: Vec<Step>,
    given: Value,
}

impl Place {
    /// Puts what was given back into a value that stands below the first `skipped` steps, unless something else has
    /// come there since.
    fn restore(&self, value: &mut Value, skipped: usize) {
        let Some((last, parents)) = self.path[skipped..].split_last() else {
            if value.is_null() {
                *value = self.given.clone();
            }
            return;
        };
        let parent = parents.iter().try_fold(value, |value, step| step.within(value));
        if let (Some(Value::Object(parent)), Step::Field(name)) = (parent, last) {
            let slot = parent.entry(*name).or_insert(Value::Null);
            if slot.is_null() {
                *slot = self.given.clone();
            }
        }
    }

    /// Whether it is at a path or below it.
    fn is_at(&self, at: &[StepName<'_>]) -> bool {
        self.path.len() >= at.len() && self.path.iter().zip(at).all(|(step, name)| step == name)
    }

    /// Whether it is a required field, which is null where nothing else came.
    fn is_written(&self, object: &Value) -> bool {
        let step = |value, step: &Step| match step {
            Step::Field(name) => Value::get(value, *name),
            Step::Key(key) => value.get(key.as_str()),
            Step::Index(index) => value.get(*index),
        };
        self.path.iter().try_fold(object, step).is_some_and(Value::is_null)
    }
}

/// What a client gave empty, by place.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Empties(Option<Arc<Vec<Place>>>);

impl Empties {
    /// True if nothing was given empty, as in nearly every request.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    fn places(&self) -> &[Place] {
        self.0.as_deref().map_or(&[], Vec::as_slice)
    }

    /// The object with the required lists and maps that were given empty, which is how upstream writes it before it
    /// stores it.
    pub fn as_written<'v>(&self, object: &'v Value) -> Cow<'v, Value> {
        let mut written = Cow::Borrowed(object);
        for place in self.places().iter().filter(|place| place.is_written(object)) {
            place.restore(written.to_mut(), 0);
        }
        written
    }

    /// A part of the object, which stands at a path, as the client gave it.
    pub(crate) fn restored_at<'v>(&self, at: &[StepName<'_>], part: &'v Value) -> Cow<'v, Value> {
        let mut part = Cow::Borrowed(part);
        for place in self.places().iter().filter(|place| place.is_at(at)) {
            place.restore(part.to_mut(), at.len());
        }
        part
    }

    /// Whether something was given empty at a path or below it.
    pub(crate) fn any_at(&self, at: &[StepName<'_>]) -> bool {
        self.places().iter().any(|place| place.is_at(at))
    }
}

/// Collects them while an object is read.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    places: Vec<Place>,
    bytes: usize,
}

impl Collector {
    /// Notes a field of the struct at a path.
    pub(crate) fn note(&mut self, path: &[Step], field: &'static str, given: Value) {
        let bytes = path.iter().map(Step::bytes).sum::<usize>();
        self.bytes = self.bytes.saturating_add(bytes);
        if self.places.len() < KEPT_MAX && self.bytes <= PATH_BYTES_MAX {
            let path = path.iter().cloned().chain([Step::Field(field)]).collect();
            self.places.push(Place { path, given });
        }
    }

    pub(crate) fn finish(self) -> Empties {
        Empties((!self.places.is_empty()).then(|| Arc::new(self.places)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn empties() -> Empties {
        let mut collector = Collector::default();
        let container = [Step::Field("spec"), Step::Field("containers"), Step::Index(0)];
        collector.note(&container, "args", json!([]));
        collector.note(&container[..1], "nodeSelector", json!({}));
        collector.finish()
    }

    #[test]
    fn what_was_given_empty_comes_back_where_nothing_else_is() {
        let object = json!({"spec": {"containers": [{"name": "a", "args": null}]}});
        let as_given = json!({"spec": {"containers": [{"name": "a", "args": []}], "nodeSelector": {}}});
        let restored = |object: &Value| empties().restored_at(&[], object).into_owned();
        assert_eq!(restored(&object), as_given);
        let filled = json!({"spec": {"containers": [{"args": ["x"]}], "nodeSelector": {"a": "b"}}});
        assert_eq!(restored(&filled), filled);
        let gone = json!({"spec": {"containers": []}});
        assert_eq!(restored(&gone), json!({"spec": {"containers": [], "nodeSelector": {}}}));
        assert!(matches!(Empties::default().restored_at(&[], &object), Cow::Borrowed(_)));
        let written = json!({"spec": {"containers": [{"name": "a", "args": []}]}});
        assert_eq!(*empties().as_written(&object), written);
    }

    #[test]
    fn a_part_has_what_is_below_its_path() {
        let at = [StepName::Name("spec"), StepName::Name("containers"), StepName::Index(0)];
        assert_eq!(*empties().restored_at(&at, &json!({"name": "a"})), json!({"name": "a", "args": []}));
        let other = [at[0], at[1], StepName::Index(1)];
        assert!(empties().any_at(&at) && empties().any_at(&at[..1]) && !empties().any_at(&other));
        assert!(matches!(empties().restored_at(&other, &json!({})), Cow::Borrowed(_)));
        assert_eq!(*empties().restored_at(&[at[0], StepName::Name("nodeSelector")], &Value::Null), json!({}));
    }

    #[test]
    fn only_so_many_are_kept() {
        let mut collector = Collector::default();
        (0..KEPT_MAX + 5).for_each(|index| collector.note(&[Step::Index(index)], "args", json!([])));
        assert_eq!(collector.finish().places().len(), KEPT_MAX);
        let mut collector = Collector::default();
        collector.note(&[Step::Key("x".repeat(PATH_BYTES_MAX))], "args", json!([]));
        assert!(collector.finish().is_empty());
    }
}
