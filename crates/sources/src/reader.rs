//! Reads sources of any form; what a source is shows in its first bytes, not in its name.

use std::io::{Cursor, Read};

use crate::cluster_objects::{ClusterObjects, Origin};
use crate::collector::Collector;
use crate::detect::{Form, HEAD_BYTES, form_of};
use crate::{json, yaml};

/// How a file came to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// Somebody named it: when it cannot be read, that is worth a line.
    Directly,
    /// It lay in a folder or an archive among others: what holds no objects is passed over.
    Within,
}

/// Reads one source after the other.
#[derive(Debug, Default)]
pub struct SourceReader {
    collector: Collector,
}

impl SourceReader {
    /// Reads a file or a stream. What cannot be read of it becomes a note.
    pub fn read(&mut self, name: &str, input: &mut dyn Read, given: Given) {
        let before = self.collector.seen();
        let mut head = Vec::new();
        let peeked = (&mut *input).take(HEAD_BYTES).read_to_end(&mut head);
        let form = form_of(&head, given);
        let mut whole = Cursor::new(head).chain(input);
        let done = match (peeked, form) {
            (Err(error), _) => Err(error.to_string()),
            (_, Form::Empty) => Ok(()),
            (_, Form::Json) => json::read(&mut whole, &mut self.collector),
            (_, Form::Yaml) => yaml::read(&mut whole, &mut self.collector),
            (_, Form::Unknown) => Err("it is none of the forms that can be read".to_owned()),
        };
        let read = self.collector.seen() - before;
        let worth_a_line = given == Given::Directly || read > 0 || has_name_of_objects(name);
        match done {
            Err(_) if !worth_a_line => {}
            Err(error) if read == 0 => self.collector.notes.add(format!("{name} is left out: {error}")),
            Err(error) => {
                let before = format!("{read} objects before that are used");
                self.collector.notes.add(format!("{name} is not read to its end: {error}; {before}"));
            }
            Ok(()) => {}
        }
    }

    /// Adds a line about something that the caller could not read.
    pub fn note(&mut self, line: String) {
        self.collector.notes.add(line);
    }

    /// Says where everything came from.
    pub fn set_origin(&mut self, origin: Origin) {
        self.collector.origin = origin;
    }

    /// How many objects, of any kind, there were so far.
    pub fn seen(&self) -> usize {
        self.collector.seen()
    }

    /// Everything that was read.
    pub fn finish(self) -> ClusterObjects {
        self.collector.finish()
    }
}

/// Whether a name promises objects, so that a file without any is worth a line.
fn has_name_of_objects(name: &str) -> bool {
    [".json", ".yaml", ".yml"].iter().any(|ending| name.ends_with(ending))
}
