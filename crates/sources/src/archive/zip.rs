//! Reads ZIP archives as they come: names and bytes, one file after the other.
//!
//! ```text
//!   PK34 header, name, extra ─ content ─ (PK78 sizes, when the header did not know them) ─ PK34 … ─ PK12 the index
//! ```

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::DeflateDecoder;

use super::{Budget, Inflated};
use crate::limits::ENTRIES_MAX;

const FILE: u32 = 0x0403_4b50;
const DESCRIPTOR: u32 = 0x0807_4b50;

/// The bit of a header whose sizes stand after the content.
const SIZES_FOLLOW: u16 = 1 << 3;

/// The bit of a file that is encrypted.
const ENCRYPTED: u16 = 1;

struct Header {
    flags: u16,
    method: u16,
    compressed: u64,
    name: String,
}

/// Hands each file of an archive to `take`. The error says where the archive is broken.
pub(crate) fn read(
    input: &mut dyn Read,
    budget: &Budget,
    take: &mut dyn FnMut(&str, &mut dyn Read),
) -> Result<(), String> {
    let mut input = BufReader::with_capacity(1 << 16, input);
    for _ in 0..ENTRIES_MAX {
        let Some(header) = next_header(&mut input).map_err(|error| broken(&error))? else { return Ok(()) };
        let name = header.name;
        let known = header.flags & SIZES_FOLLOW == 0;
        match (header.method, known) {
            _ if header.flags & ENCRYPTED != 0 => return Err(format!("{name} in the archive is encrypted")),
            (0, true) => {
                let mut content = (&mut input).take(header.compressed);
                take(&name, &mut content);
                io::copy(&mut content, &mut io::sink()).map_err(|error| broken(&error))?;
            }
            (8, _) => {
                let mut content = Inflated::new(&mut input, budget, DeflateDecoder::new);
                take(&name, &mut content);
                io::copy(&mut content, &mut io::sink()).map_err(|error| broken(&error))?;
            }
            (method, _) => {
                return Err(format!("{name} in the archive is packed by method {method}, which is not read"));
            }
        }
        if !known {
            skip_descriptor(&mut input).map_err(|error| broken(&error))?;
        }
    }
    Err(format!("the archive has more than {ENTRIES_MAX} files"))
}

fn broken(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the archive was cut".to_owned(),
        _ => format!("the archive is broken: {error}"),
    }
}

/// The next file; none where the index begins.
fn next_header(input: &mut impl BufRead) -> io::Result<Option<Header>> {
    let mut fixed = [0; 30];
    input.read_exact(&mut fixed[..4])?;
    if u32::from_le_bytes([fixed[0], fixed[1], fixed[2], fixed[3]]) != FILE {
        return Ok(None);
    }
    input.read_exact(&mut fixed[4..])?;
    let short = |at: usize| u16::from_le_bytes([fixed[at], fixed[at + 1]]);
    let mut name = vec![0; usize::from(short(26))];
    input.read_exact(&mut name)?;
    let mut extra = vec![0; usize::from(short(28))];
    input.read_exact(&mut extra)?;
    let compressed = u64::from(u32::from_le_bytes([fixed[18], fixed[19], fixed[20], fixed[21]]));
    let name = String::from_utf8_lossy(&name).into_owned();
    Ok(Some(Header { flags: short(6), method: short(8), compressed, name }))
}

/// Passes over the sizes that follow a content: checksum and two sizes of four bytes, perhaps with a signature.
fn skip_descriptor(input: &mut impl BufRead) -> io::Result<()> {
    let mut bytes = [0; 12];
    input.read_exact(&mut bytes)?;
    if u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) == DESCRIPTOR {
        input.read_exact(&mut bytes[..4])?;
    }
    Ok(())
}
