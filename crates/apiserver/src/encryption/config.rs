//! The `EncryptionConfiguration` file.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;

use super::provider::Provider;

/// Why an encryption configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum EncryptionConfigError {
    /// The file is not an `EncryptionConfiguration`.
    #[error("the encryption configuration cannot be read: {0}")]
    Syntax(String),
    /// Something in it is wrong or not supported; the text says where.
    #[error("the encryption configuration is refused: {0}")]
    Refused(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    api_version: String,
    kind: String,
    resources: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    resources: Vec<String>,
    providers: Vec<ProviderEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProviderEntry {
    identity: Option<Identity>,
    aesgcm: Option<Keys>,
    aescbc: Option<Keys>,
    secretbox: Option<Keys>,
    kms: Option<serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Identity {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    keys: Vec<Key>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Key {
    name: String,
    secret: String,
}

/// Which resources have which providers.
#[derive(Debug)]
pub(super) struct ResourceProviders {
    resources: Vec<String>,
    pub(super) providers: Vec<Provider>,
}

impl ResourceProviders {
    /// Whether an entry is for a resource: `secrets`, `deployments.apps`, `*.apps`, `*.` (core), `*.*` (all).
    pub(super) fn names(&self, group: &str, resource: &str) -> bool {
        self.resources.iter().any(|named| {
            let (named_resource, named_group) = named.split_once('.').unwrap_or((named, ""));
            match (named_resource, named_group) {
                ("*", "*") => true,
                ("*", of) => of == group,
                (name, of) => name == resource && of == group,
            }
        })
    }
}

fn refused(message: impl Into<String>) -> EncryptionConfigError {
    EncryptionConfigError::Refused(message.into())
}

pub(super) fn parse(text: &str) -> Result<Vec<ResourceProviders>, EncryptionConfigError> {
    let file: File = serde_saphyr::from_str(text).map_err(|error| EncryptionConfigError::Syntax(error.to_string()))?;
    if file.kind != "EncryptionConfiguration" || file.api_version != "apiserver.config.k8s.io/v1" {
        return Err(refused(format!(
            "it is a {} of {}, not an EncryptionConfiguration of apiserver.config.k8s.io/v1",
            file.kind, file.api_version
        )));
    }
    file.resources.into_iter().enumerate().map(|(at, entry)| providers_of(at, entry)).collect()
}

fn providers_of(at: usize, entry: Entry) -> Result<ResourceProviders, EncryptionConfigError> {
    let place = format!("resources[{at}]");
    if entry.resources.is_empty() || entry.providers.is_empty() {
        return Err(refused(format!("{place} needs resources and providers")));
    }
    if let Some(bad) = entry.resources.iter().find(|name| *name == "*" || name.starts_with("*.") && name.contains('/'))
    {
        return Err(refused(format!("{place}.resources: {bad:?} is no resource: use '*.<group>', '*.' or '*.*'")));
    }
    let mut providers = Vec::new();
    for (index, provider) in entry.providers.into_iter().enumerate() {
        let place = format!("{place}.providers[{index}]");
        let ProviderEntry { identity, aesgcm, aescbc, secretbox, kms } = provider;
        if kms.is_some() {
            return Err(refused(format!("{place}: the provider kms is not supported")));
        }
        match (identity, aesgcm, aescbc, secretbox) {
            (Some(Identity {}), None, None, None) => providers.push(Provider::Identity),
            (None, Some(keys), None, None) => providers.extend(keyed(&place, keys, Provider::aes_gcm)?),
            (None, None, Some(keys), None) => providers.extend(keyed(&place, keys, Provider::aes_cbc)?),
            (None, None, None, Some(keys)) => providers.extend(keyed(&place, keys, Provider::secretbox)?),
            _ => return Err(refused(format!("{place} needs exactly one provider"))),
        }
    }
    Ok(ResourceProviders { resources: entry.resources, providers })
}

fn keyed(
    place: &str,
    keys: Keys,
    make: fn(&str, &[u8]) -> Result<Provider, String>,
) -> Result<Vec<Provider>, EncryptionConfigError> {
    if keys.keys.is_empty() {
        return Err(refused(format!("{place} needs a key")));
    }
    let one = |key: Key| {
        if key.name.is_empty() || key.name.contains(':') {
            return Err(refused(format!("{place}: a key needs a name without ':'")));
        }
        // Never the secret itself.
        let secret = BASE64.decode(&key.secret);
        let secret = secret.map_err(|_| refused(format!("{place}: the secret of {:?} is not base64", key.name)))?;
        make(&key.name, &secret).map_err(|error| refused(format!("{place}: key {:?}: {error}", key.name)))
    };
    keys.keys.into_iter().map(one).collect()
}
