//! Reads a snapshot line by line; what came before a cut is used.

use std::io::{BufRead, BufReader, Read};

use serde_json::value::RawValue;

use super::{BEGINNING, END_KIND, End, FORMAT, Header};
use crate::cluster_objects::{Origin, OriginKind};
use crate::collector::Collector;
use crate::document::Sink;
use crate::limits::OBJECT_BYTES_MAX;
use crate::resources::RESOURCES;

/// Whether a file that begins like this is a snapshot, once it is decompressed.
pub(crate) fn is_snapshot(head: &[u8]) -> bool {
    head.starts_with(BEGINNING.as_bytes())
}

/// Reads the lines of a snapshot. The error says where it ended and why; what came before is collected.
pub(crate) fn read(input: impl Read, collector: &mut Collector) -> Result<(), String> {
    let mut input = BufReader::with_capacity(1 << 18, input);
    let mut line = String::new();
    let header = next_line(&mut input, &mut line)?;
    let header: Header = serde_json::from_str(header).map_err(|error| format!("its first line is broken: {error}"))?;
    if header.format > FORMAT {
        let Header { format, written_by, .. } = header;
        return Err(format!(
            "it has form {format}, which {written_by} wrote, and this program reads {FORMAT}: update it"
        ));
    }
    collector.origin =
        Origin { kind: OriginKind::Snapshot, time: header.time, resource_version: header.resource_version };
    let before = collector.seen();
    for note in header.notes {
        collector.notes.add(note);
    }
    loop {
        let text = next_line(&mut input, &mut line)?;
        if text.is_empty() {
            return Err("it was cut".to_owned());
        }
        if text.contains(END_KIND)
            && let Ok(end) = serde_json::from_str::<End>(text)
            && end.kind == END_KIND
        {
            let read = collector.seen() - before;
            if read != end.objects {
                return Err(format!("it should hold {} objects and holds {read}", end.objects));
            }
            break;
        }
        let json = RawValue::from_string(text.to_owned()).map_err(|error| format!("a line is broken: {error}"))?;
        collector.object(json);
    }
    // Only a whole snapshot holds all of what it lists.
    for name in &header.listed {
        RESOURCES.iter().filter(|resource| resource.name == name).for_each(|resource| collector.list(resource));
    }
    Ok(())
}

/// The next line without its end; empty at the end of the file.
fn next_line<'l>(input: &mut impl BufRead, line: &'l mut String) -> Result<&'l str, String> {
    line.clear();
    let count = input.by_ref().take(OBJECT_BYTES_MAX as u64 + 1).read_line(line);
    let count = count.map_err(|error| format!("it is damaged or was cut: {error}"))?;
    if count > OBJECT_BYTES_MAX {
        return Err(format!("one object takes more than {} MiB", OBJECT_BYTES_MAX >> 20));
    }
    if count > 0 && !line.ends_with('\n') {
        return Err("it was cut".to_owned());
    }
    Ok(line.trim_end_matches('\n'))
}
