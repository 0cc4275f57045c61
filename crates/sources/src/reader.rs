//! Reads sources of any form; what a source is shows in its first bytes, not in its name.

use std::io::{self, Cursor, Read, Seek};

use flate2::read::MultiGzDecoder;

use crate::archive::{Budget, Inflated, climbs_out, kind_by_path, tar, zip};
use crate::cluster_objects::{ClusterObjects, Origin, OriginKind};
use crate::collector::Collector;
use crate::detect::{Form, HEAD_BYTES, form_of};
use crate::document::Sink as _;
use crate::limits::{DATABASE_BYTES_MAX, NESTING_MAX};
use crate::{etcd, json_or_yaml, snapshot, yaml};

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
    /// What compressed files may still grow to.
    budget: Budget,
}

impl SourceReader {
    /// Reads a file or a stream. What cannot be read of it becomes a note.
    pub fn read(&mut self, name: &str, input: &mut dyn Read, given: Given) {
        self.read_nested(name, input, given, 0);
    }

    /// Reads a file in which one can go back: a database of etcd's then needs no room in memory. An error is one of
    /// going back.
    pub fn read_seekable(&mut self, name: &str, file: &mut (impl Read + Seek), given: Given) -> io::Result<()> {
        let mut head = Vec::new();
        file.by_ref().take(HEAD_BYTES).read_to_end(&mut head)?;
        file.rewind()?;
        if form_of(&head, given) == Form::Etcd {
            let before = self.collector.seen();
            let done = etcd::read(file, &mut self.collector);
            self.conclude(name, given, before, done);
        } else {
            self.read(name, file, given);
        }
        Ok(())
    }

    fn read_nested(&mut self, name: &str, input: &mut dyn Read, given: Given, depth: usize) {
        let before = self.collector.seen();
        let outer = std::mem::replace(&mut self.collector.implied, kind_by_path(name));
        let done = self.read_form(name, input, given, depth);
        if let (Ok(()), Some((api_version, kind))) = (&done, self.collector.implied) {
            self.collector.listed(api_version, kind);
        }
        self.collector.implied = outer;
        self.conclude(name, given, before, done);
    }

    /// Says what became of a file.
    fn conclude(&mut self, name: &str, given: Given, before: usize, done: Result<(), String>) {
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

    fn read_form(&mut self, name: &str, input: &mut dyn Read, given: Given, depth: usize) -> Result<(), String> {
        let mut head = Vec::new();
        let problem = (&mut *input).take(HEAD_BYTES).read_to_end(&mut head).err();
        let form = form_of(&head, given);
        // What came before a cut is used, so the problem comes after it.
        let mut whole = Cursor::new(head).chain(Problem(problem)).chain(input);
        if matches!(form, Form::Gzip | Form::Tar | Form::Zip) && depth >= NESTING_MAX {
            return Err(format!("archives lie in each other more than {NESTING_MAX} deep"));
        }
        match form {
            Form::Empty => Ok(()),
            Form::Json => json_or_yaml::read(whole, &mut self.collector),
            Form::Yaml => yaml::read(whole, &mut self.collector),
            Form::Snapshot => snapshot::read(whole, &mut self.collector),
            Form::Etcd => {
                let mut database = Vec::new();
                let count = whole.take(DATABASE_BYTES_MAX + 1).read_to_end(&mut database);
                if count.map_err(|error| error.to_string())? as u64 > DATABASE_BYTES_MAX {
                    let limit = DATABASE_BYTES_MAX >> 30;
                    return Err(format!("it is a database of more than {limit} GiB: decompress it into a file first"));
                }
                etcd::read(&mut Cursor::new(database), &mut self.collector)
            }
            Form::Gzip => {
                let mut inflated = Inflated::new(whole, &self.budget, MultiGzDecoder::new);
                self.read_form(name, &mut inflated, given, depth + 1)
            }
            Form::Tar => {
                self.collector.origin.kind = OriginKind::Bundle;
                tar::read(&mut whole, &mut |path, content| self.read_member(name, path, content, depth))
            }
            Form::Zip => {
                self.collector.origin.kind = OriginKind::Bundle;
                let budget = self.budget.clone();
                zip::read(&mut whole, &budget, &mut |path, content| self.read_member(name, path, content, depth))
            }
            Form::Unknown => Err("it is none of the forms that can be read".to_owned()),
        }
    }

    /// Reads a file of an archive.
    fn read_member(&mut self, archive: &str, path: &str, content: &mut dyn Read, depth: usize) {
        if climbs_out(path) {
            let line = format!("{archive} holds names that lead out of it, such as {path:?}; nothing is unpacked");
            self.collector.notes.add_once(line, "holds names that lead out of it");
        }
        self.read_nested(&format!("{archive}:{path}"), content, Given::Within, depth + 1);
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

/// A reader with nothing in it but an error, once.
struct Problem(Option<io::Error>);

impl Read for Problem {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

/// Whether a name promises objects, so that a file without any is worth a line.
fn has_name_of_objects(name: &str) -> bool {
    let name = name.strip_suffix(".gz").unwrap_or(name);
    [".json", ".yaml", ".yml"].iter().any(|ending| name.ends_with(ending))
}
