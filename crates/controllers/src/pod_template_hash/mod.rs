//! Upstream's hash of a pod template, which names ReplicaSets and the revisions of DaemonSets.
//!
//! Upstream hashes a text that shows the template as it lies in Go's memory. The fields of every type are therefore
//! part of the hash: `layout.txt` has those of v1.36. Nothing depends on the value but names; whether two templates are
//! the same is decided by comparing them.

mod dump;
mod layout;
mod quantity;
#[cfg(test)]
mod tests;

use serde_json::Value;

/// The hash of a template, as a name's suffix and a label's value: 32-bit FNV-1a over the template's dump and the
/// collision count.
pub fn hash(template: &Value, collision_count: Option<i32>) -> String {
    let mut hash = fnv_1a(FNV_OFFSET, dump::dump(template).as_bytes());
    if let Some(count) = collision_count {
        // Eight bytes of which only four are ever written, as upstream does.
        hash = fnv_1a(hash, &count.to_le_bytes());
        hash = fnv_1a(hash, &[0; 4]);
    }
    safe_encode(&hash.to_string())
}

/// Spells a text in letters and digits that make no words; upstream's `SafeEncodeString`.
pub fn safe_encode(text: &str) -> String {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    text.bytes().map(|byte| char::from(ALPHABET[usize::from(byte) % ALPHABET.len()])).collect()
}

/// What FNV of 32 bits begins with.
pub(crate) const FNV_OFFSET: u32 = 0x811c_9dc5;
/// What FNV of 32 bits multiplies by.
pub(crate) const FNV_PRIME: u32 = 0x0100_0193;

fn fnv_1a(hash: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(FNV_PRIME))
}
