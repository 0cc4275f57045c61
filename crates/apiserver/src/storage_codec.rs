//! What stands in a store that others read too: values in upstream's form.

use bayplan_kinds::stored_value::StoredValues;
use bayplan_store::ValueCodec;
use bytes::Bytes;

/// Values as kube-apiserver stores them.
#[derive(Clone, Copy, Debug, Default)]
pub struct StorageCodec {
    values: StoredValues,
}

impl ValueCodec for StorageCodec {
    fn read(&self, key: &str, stored: Bytes) -> Result<Bytes, String> {
        self.values.read(key, stored)
    }

    fn write(&self, key: &str, value: Bytes) -> Result<Bytes, String> {
        self.values.write(key, value)
    }
}
