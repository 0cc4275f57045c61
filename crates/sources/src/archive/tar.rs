//! Reads tar archives: names and bytes, one file after the other.
//!
//! ```text
//!   header (512 bytes) ─ content, filled up to a multiple of 512 ─ header ─ … ─ two blocks of zeros
//!   types: 0 file; L the next file's long name (GNU); x the next file's attributes, path among them (POSIX)
//! ```

use std::io::{self, Read};

use crate::limits::ENTRIES_MAX;

const BLOCK: usize = 512;

/// The longest name; the attributes of a file may be as long.
const NAME_BYTES_MAX: u64 = 64 << 10;

/// Whether a file begins with the header of an archive.
pub(crate) fn is_header(head: &[u8]) -> bool {
    head.get(257..262) == Some(b"ustar")
}

/// Hands each file of an archive to `take`. The error says where the archive is broken.
pub(crate) fn read(input: &mut dyn Read, take: &mut dyn FnMut(&str, &mut dyn Read)) -> Result<(), String> {
    let mut long_name: Option<String> = None;
    for _ in 0..ENTRIES_MAX {
        let mut header = [0; BLOCK];
        match fill(input, &mut header).map_err(|error| error.to_string())? {
            0 => return Ok(()),
            BLOCK if header.iter().all(|byte| *byte == 0) => return Ok(()),
            BLOCK => {}
            _ => return Err("the archive was cut".to_owned()),
        }
        if !is_header(&header) {
            return Err("the archive is broken: a header is none".to_owned());
        }
        let size = number(&header[124..136]).ok_or("the archive is broken: a size is none")?;
        let mut content = Entry { input, left: size };
        match header[156] {
            b'L' | b'x' => {
                let mut text = Vec::new();
                (&mut content).take(NAME_BYTES_MAX).read_to_end(&mut text).map_err(|error| error.to_string())?;
                let text = String::from_utf8_lossy(&text).into_owned();
                long_name = if header[156] == b'L' { Some(trimmed(text.as_bytes())) } else { path_of(&text) };
            }
            b'0' | 0 => {
                let name = long_name.take().unwrap_or_else(|| name_of(&header));
                take(&name, &mut content);
            }
            // Folders, links, devices and the attributes of all files hold nothing to read.
            _ => long_name = None,
        }
        let padding = (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64;
        let rest = content.left + padding;
        let skipped = io::copy(&mut (&mut *input).take(rest), &mut io::sink()).map_err(|error| error.to_string())?;
        if skipped < rest.saturating_sub(padding) {
            return Err("the archive was cut".to_owned());
        }
    }
    Err(format!("the archive has more than {ENTRIES_MAX} files"))
}

/// The content of a file.
struct Entry<'i> {
    input: &'i mut dyn Read,
    left: u64,
}

impl Read for Entry<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if room == 0 {
            return Ok(0);
        }
        let count = self.input.read(&mut buffer[..room])?;
        if count == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the archive was cut"));
        }
        self.left -= count as u64;
        Ok(count)
    }
}

/// Reads until the buffer is full or the input ends.
fn fill(input: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..])? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

/// A number in octal digits, or in binary when its first bit is set.
fn number(field: &[u8]) -> Option<u64> {
    if field.first()? & 0x80 != 0 {
        let (head, tail) = field.split_at_checked(field.len().checked_sub(8)?)?;
        let is_small = head.iter().enumerate().all(|(at, byte)| *byte == if at == 0 { 0x80 } else { 0 });
        return is_small.then(|| tail.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)));
    }
    let text = trimmed(field);
    let digits = text.trim();
    if digits.is_empty() { Some(0) } else { u64::from_str_radix(digits, 8).ok() }
}

/// The text before the first zero byte.
fn trimmed(field: &[u8]) -> String {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}

fn name_of(header: &[u8; BLOCK]) -> String {
    let (name, prefix) = (trimmed(&header[..100]), trimmed(&header[345..500]));
    // In GNU's form something else stands where the prefix is.
    let is_posix = header[257..263] == *b"ustar\0";
    if prefix.is_empty() || !is_posix { name } else { format!("{prefix}/{name}") }
}

/// The `path` among the attributes of a file: lines of `LENGTH KEY=VALUE`.
fn path_of(attributes: &str) -> Option<String> {
    let pairs = attributes.lines().filter_map(|line| line.split_once(' ')?.1.split_once('='));
    pairs.filter(|(key, _)| *key == "path").map(|(_, value)| value.to_owned()).next_back()
}
