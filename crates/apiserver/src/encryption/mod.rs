//! Encryption of stored values, as kube-apiserver's `--encryption-provider-config` has it.
//!
//! ```text
//!   read    k8s:enc:<provider>:v1:<key>:… ─ the provider and key it names ─▶ protobuf or JSON ─▶ the registry's JSON
//!   write   the registry's JSON ─▶ protobuf ─ the first provider of the resource ─▶ k8s:enc:…
//! ```
//!
//! A value that no key reads is an error that names its provider and key: it is never served, and because every write
//! begins with a read, never overwritten.

mod config;
mod provider;
#[cfg(test)]
mod tests;

use bayplan_kinds::stored_value::{ENCRYPTED, StoredForm, StoredValues, kind_of_key};
use bayplan_store::ValueCodec;
use bytes::Bytes;

pub use config::EncryptionConfigError;
use config::ResourceProviders;
use provider::Provider;

/// What a value that should be encrypted anew ends with: white space, so that it is the same JSON, yet not the bytes
/// that the registry would write. A write that changes nothing then still writes, as upstream's does.
const STALE: u8 = b' ';

/// Reads and writes stored values as kube-apiserver does: their form, and their encryption.
#[derive(Debug, Default)]
pub struct StoredCodec {
    values: StoredValues,
    /// What stands for `/registry` in the keys of the store: part of what some providers authenticate.
    prefix: String,
    resources: Vec<ResourceProviders>,
}

impl StoredCodec {
    /// A codec that writes this form under a key prefix (`--etcd-prefix`, `/registry` by default), unencrypted.
    pub fn new(form: StoredForm, prefix: &str) -> StoredCodec {
        let prefix = format!("/{}", prefix.trim_matches('/'));
        StoredCodec { values: StoredValues::new(form), prefix, resources: Vec::new() }
    }

    /// Encrypts as an `EncryptionConfiguration` says (YAML or JSON).
    pub fn with_encryption(mut self, configuration: &str) -> Result<StoredCodec, EncryptionConfigError> {
        self.resources = config::parse(configuration)?;
        Ok(self)
    }

    /// The providers of the first entry that names a resource.
    fn providers(&self, group: &str, resource: &str) -> &[Provider] {
        let entry = self.resources.iter().find(|entry| entry.names(group, resource));
        entry.map_or(&[], |entry| &entry.providers)
    }

    /// The key as the store has it.
    fn stored_key(&self, key: &str) -> String {
        format!("{}{}", self.prefix, key.strip_prefix("/registry").unwrap_or(key))
    }
}

impl ValueCodec for StoredCodec {
    fn read(&self, key: &str, stored: Bytes) -> Result<Bytes, String> {
        let Some(kind) = kind_of_key(key).filter(|_| stored.starts_with(ENCRYPTED) || !self.resources.is_empty())
        else {
            return self.values.read(key, stored);
        };
        let providers = self.providers(kind.group, kind.plural);
        for (at, provider) in providers.iter().enumerate() {
            if let Some(plain) = provider.read(&self.stored_key(key), &stored) {
                let mut read = self.values.read(key, plain?.into())?.to_vec();
                if at > 0 {
                    read.push(STALE);
                }
                return Ok(Bytes::from(read));
            }
        }
        if providers.is_empty() || stored.starts_with(ENCRYPTED) {
            return self.values.read(key, stored);
        }
        Err("it is not encrypted, and no identity provider is configured for its resource".to_owned())
    }

    fn write(&self, key: &str, value: Bytes) -> Result<Bytes, String> {
        let written = self.values.write(key, value)?;
        let Some(kind) = kind_of_key(key) else { return Ok(written) };
        match self.providers(kind.group, kind.plural).first() {
            None | Some(Provider::Identity) => Ok(written),
            Some(provider) => provider.write(&self.stored_key(key), &written).map(Bytes::from),
        }
    }
}
