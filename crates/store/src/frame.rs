//! Frames: the checked envelopes around everything the store writes to files.
//!
//! ```text
//!   u32 body length | u32 CRC-32 of length and body, started from the file's salt | body
//! ```
//!
//! The salt is random for each file and never leaves the store, so no client can store a value that looks like a frame.

use std::hash::{BuildHasher, RandomState};

use crc32fast::Hasher;

/// The bytes of a frame before its body.
pub(crate) const ENVELOPE_BYTES: usize = 8;
/// The most bytes of key and value together: ten times etcd's default request limit of 1.5 MiB.
pub(crate) const WRITE_BYTES_MAX: usize = 16 << 20;
/// The longest body: a write and the fixed fields around it.
pub(crate) const BODY_BYTES_MAX: usize = WRITE_BYTES_MAX + 64;

/// Why bytes are no frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    #[error("only {0} bytes are left")]
    Incomplete(usize),
    #[error("a length of {0}")]
    Length(usize),
    #[error("the checksum {found:08x} over data that gives {computed:08x}")]
    Checksum { found: u32, computed: u32 },
}

/// A new file's salt.
pub(crate) fn salt() -> u32 {
    RandomState::new().hash_one(0) as u32
}

/// Appends a frame whose body the closure writes.
pub(crate) fn push(buffer: &mut Vec<u8>, salt: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = buffer.len();
    buffer.extend_from_slice(&[0; ENVELOPE_BYTES]);
    body(buffer);
    let len = buffer.len() - start - ENVELOPE_BYTES;
    assert!(0 < len && len <= BODY_BYTES_MAX, "what is written must be readable: {len} bytes");
    let len = (len as u32).to_le_bytes();
    let crc = checksum(salt, len, &buffer[start + ENVELOPE_BYTES..]);
    buffer[start..start + 4].copy_from_slice(&len);
    buffer[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
}

/// The body length that an envelope announces, if it can be one.
pub(crate) fn body_len(envelope: [u8; ENVELOPE_BYTES]) -> Result<usize, Fault> {
    let len = u32_at(&envelope, 0) as usize;
    if (1..=BODY_BYTES_MAX).contains(&len) { Ok(len) } else { Err(Fault::Length(len)) }
}

/// Whether a body is the one its envelope was made for.
pub(crate) fn verify(envelope: [u8; ENVELOPE_BYTES], body: &[u8], salt: u32) -> Result<(), Fault> {
    let found = u32_at(&envelope, 4);
    let computed = checksum(salt, (body.len() as u32).to_le_bytes(), body);
    if found == computed { Ok(()) } else { Err(Fault::Checksum { found, computed }) }
}

/// The body of the frame at the start of `bytes`.
pub(crate) fn body(bytes: &[u8], salt: u32) -> Result<&[u8], Fault> {
    let (envelope, rest) = bytes.split_first_chunk().ok_or(Fault::Incomplete(bytes.len()))?;
    let len = body_len(*envelope)?;
    let body = rest.get(..len).ok_or(Fault::Incomplete(bytes.len()))?;
    verify(*envelope, body, salt)?;
    Ok(body)
}

fn checksum(salt: u32, len: [u8; 4], body: &[u8]) -> u32 {
    let mut hasher = Hasher::new_with_initial(salt);
    hasher.update(&len);
    hasher.update(body);
    hasher.finalize()
}

/// The little-endian number at an offset that the caller knows to be inside.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// The little-endian number at an offset that the caller knows to be inside.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The first bytes of a file: what it is, in which format, its salt and the revision it starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) magic: [u8; 8],
    pub(crate) salt: u32,
    pub(crate) revision: u64,
}

/// Why a file's first bytes are no header.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeaderFault {
    #[error("format version {0}")]
    Newer(u32),
    #[error("{0}")]
    Invalid(&'static str),
}

/// The format this build writes and the newest it reads.
pub(crate) const FORMAT_VERSION: u32 = 1;
/// magic 8 | version 4 | salt 4 | revision 8 | CRC-32 of these 4
pub(crate) const HEADER_BYTES: usize = 28;

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&self.magic);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.salt.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.revision.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..24]);
        bytes[24..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Magic and version never move, so that every build can name a format that is too new for it.
    pub(crate) fn decode(bytes: &[u8], magic: [u8; 8]) -> Result<Self, HeaderFault> {
        if bytes.len() < 12 {
            return Err(HeaderFault::Invalid("a file shorter than that"));
        }
        if bytes[..8] != magic {
            return Err(HeaderFault::Invalid("another magic number"));
        }
        let version = u32_at(bytes, 8);
        if version > FORMAT_VERSION {
            return Err(HeaderFault::Newer(version));
        }
        if bytes.len() < HEADER_BYTES {
            return Err(HeaderFault::Invalid("a file shorter than that"));
        }
        if crc32fast::hash(&bytes[..24]) != u32_at(bytes, 24) {
            return Err(HeaderFault::Invalid("a header whose checksum does not match"));
        }
        Ok(Header { magic, salt: u32_at(bytes, 12), revision: u64_at(bytes, 16) })
    }
}
