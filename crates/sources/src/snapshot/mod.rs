//! `bayplan snapshot`: one compressed file of what decisions depend on.
//!
//! ```text
//!   gzip( {"kind":"Snapshot", …}          what it is, when it was taken, what was listed
//!         {"kind":"Node", …}              an object in each line, pruned
//!         {"kind":"SnapshotEnd", …} )     how many there are, so that a cut shows
//! ```

mod fields;
mod prune;
mod read;
mod redact;
#[cfg(test)]
mod tests;

pub use prune::prune;
pub(crate) use read::{is_snapshot, read};

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cluster_objects::{ClusterObjects, OriginKind};
use redact::Names;

/// The version of the form; a reader refuses later ones.
const FORMAT: u32 = 1;

const API_VERSION: &str = "bayplan.dev/v1";
const KIND: &str = "Snapshot";
const END_KIND: &str = "SnapshotEnd";

/// How the first line begins, whatever else is in it.
const BEGINNING: &str = "{\"apiVersion\":\"bayplan.dev/v1\",\"kind\":\"Snapshot\",";

/// The first line.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Header {
    api_version: String,
    kind: String,
    format: u32,
    /// Which Bayplan wrote it.
    #[serde(default)]
    written_by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    time: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resource_version: Option<String>,
    /// What kind of source it was taken of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<OriginKind>,
    #[serde(default)]
    redacted: bool,
    /// The resources whose objects are all here, even if there are none.
    #[serde(default)]
    listed: Vec<String>,
    /// The resources that decisions read and that could not be read.
    #[serde(default)]
    missing: Vec<String>,
    /// What was said about the source.
    #[serde(default)]
    notes: Vec<String>,
}

/// The last line.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct End {
    api_version: String,
    kind: String,
    objects: usize,
}

/// Whether names are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redaction {
    /// Names stay.
    None,
    /// Names become pseudonyms.
    Names,
}

/// Writes a snapshot and returns how many objects it holds. An object that cannot be read is left out, as it is
/// whenever a cluster is loaded.
pub fn write_snapshot(objects: &ClusterObjects, redaction: Redaction, output: impl Write) -> io::Result<usize> {
    let mut output = GzEncoder::new(output, Compression::default());
    write_line(&mut output, &header(objects, redaction))?;
    let pseudonyms = (redaction == Redaction::Names).then(|| {
        let mut names = Names::default();
        pruned(objects).for_each(|(kind, mut object)| names.collect(kind, &mut object));
        names.pseudonyms()
    });
    let mut count = 0;
    for (kind, mut object) in pruned(objects) {
        if let Some(pseudonyms) = &pseudonyms {
            pseudonyms.apply(kind, &mut object);
        }
        write_line(&mut output, &object)?;
        count += 1;
    }
    let end = End { api_version: API_VERSION.into(), kind: END_KIND.into(), objects: count };
    write_line(&mut output, &end)?;
    output.finish()?.flush()?;
    Ok(count)
}

fn header(objects: &ClusterObjects, redaction: Redaction) -> Header {
    let missing = objects.missing();
    let seen = objects.objects.iter().map(|object| object.resource.name);
    let listed: std::collections::BTreeSet<&str> = objects.listed.iter().copied().chain(seen).collect();
    Header {
        api_version: API_VERSION.into(),
        kind: KIND.into(),
        format: FORMAT,
        written_by: concat!("bayplan ", env!("CARGO_PKG_VERSION")).into(),
        time: objects.origin.time,
        resource_version: objects.origin.resource_version.clone(),
        source: Some(objects.origin.kind),
        redacted: redaction == Redaction::Names,
        listed: listed.into_iter().map(str::to_owned).collect(),
        missing: missing.into_iter().map(str::to_owned).collect(),
        // Notes name objects.
        notes: if redaction == Redaction::Names { Vec::new() } else { objects.notes.clone() },
    }
}

/// Each object with nothing in it but what a snapshot holds, and one event for each pod that was tried in vain.
fn pruned(objects: &ClusterObjects) -> impl Iterator<Item = (&'static str, Value)> {
    let events = objects.failed_attempts.iter().map(|attempts| ("Event", attempts.as_event()));
    let written = objects
        .objects
        .iter()
        .filter_map(|object| Some((object.resource.kind, serde_json::from_str::<Value>(object.json.get()).ok()?)));
    written.chain(events).filter_map(|(kind, mut value)| {
        prune(kind, &mut value)?;
        Some((kind, value))
    })
}

/// Writes a line at once: the encoder clears its whole buffer for each write, however small.
fn write_line(output: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    output.write_all(&line)
}
