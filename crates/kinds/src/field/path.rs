//! The path of a field, written out only when something is wrong with it.

use std::fmt;

use crate::codec::StepName;

#[derive(Clone, Copy)]
enum Step<'a> {
    Field(&'a str),
    Index(usize),
    Key(&'a str),
}

/// A field's path, chained through the callers' stack frames so that valid objects pay nothing for it.
#[derive(Clone, Copy)]
pub(crate) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

impl<'a> Path<'a> {
    pub(crate) const fn root(name: &'a str) -> Self {
        Path { parent: None, step: Step::Field(name) }
    }

    pub(crate) const fn child(&'a self, name: &'a str) -> Self {
        Path { parent: Some(self), step: Step::Field(name) }
    }

    pub(crate) const fn index(&'a self, index: usize) -> Self {
        Path { parent: Some(self), step: Step::Index(index) }
    }

    pub(crate) const fn key(&'a self, key: &'a str) -> Self {
        Path { parent: Some(self), step: Step::Key(key) }
    }

    /// The steps from the root.
    pub(crate) fn steps(&self) -> Vec<StepName<'a>> {
        let mut steps = self.parent.map(Path::steps).unwrap_or_default();
        match self.step {
            // Some rules name two fields at once.
            Step::Field(names) => steps.extend(names.split('.').map(StepName::Name)),
            Step::Index(index) => steps.push(StepName::Index(index)),
            Step::Key(key) => steps.push(StepName::Name(key)),
        }
        steps
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            write!(f, "{parent}")?;
        }
        match self.step {
            Step::Field(name) if self.parent.is_some() => write!(f, ".{name}"),
            Step::Field(name) => f.write_str(name),
            Step::Index(index) => write!(f, "[{index}]"),
            Step::Key(key) => write!(f, "[{key}]"),
        }
    }
}
