//! How values are kept in a shared store: the seam between what this process works with and what others read and write.

use bytes::Bytes;

/// Translates values at the boundary to a shared store. Called for every value that is read or written, by many threads
/// at once; it must not block.
pub trait ValueCodec: Send + Sync {
    /// The value as this process works with it; the error says why the stored bytes cannot be read.
    fn read(&self, key: &str, stored: Bytes) -> Result<Bytes, String>;
    /// The bytes to store; the error says why the value cannot be written.
    fn write(&self, key: &str, value: Bytes) -> Result<Bytes, String>;
}

/// Stores values as they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdentityCodec;

impl ValueCodec for IdentityCodec {
    fn read(&self, _key: &str, stored: Bytes) -> Result<Bytes, String> {
        Ok(stored)
    }

    fn write(&self, _key: &str, value: Bytes) -> Result<Bytes, String> {
        Ok(value)
    }
}
