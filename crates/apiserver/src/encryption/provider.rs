//! One key of one provider: how it reads and writes a value.

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, Algorithm, DecryptionContext, PaddedBlockDecryptingKey, PaddedBlockEncryptingKey,
    UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;
use bayplan_kinds::stored_value::ENCRYPTED;
use crypto_secretbox::aead::Aead;
use crypto_secretbox::{KeyInit, XSalsa20Poly1305};

/// The bytes of an AES block, and of the vector that a value of `aescbc` begins with.
const BLOCK: usize = 16;

/// The bytes of the nonce that a value of `secretbox` begins with: random ones never meet.
const SECRETBOX_NONCE: usize = 24;

/// One key of one provider; several keys of a provider are several of these.
pub(super) enum Provider {
    /// Values as they are.
    Identity,
    /// AES-GCM, with the key in the store as additional data.
    AesGcm { prefix: Vec<u8>, key: LessSafeKey },
    /// AES-CBC with padding as in PKCS #7.
    AesCbc { prefix: Vec<u8>, algorithm: &'static Algorithm, key: Vec<u8> },
    /// NaCl's secretbox: XSalsa20 and Poly1305.
    Secretbox { prefix: Vec<u8>, key: Box<XSalsa20Poly1305> },
}

impl std::fmt::Debug for Provider {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shown())
    }
}

impl Provider {
    pub(super) fn aes_gcm(name: &str, secret: &[u8]) -> Result<Provider, String> {
        let algorithm = match secret.len() {
            16 => &AES_128_GCM,
            32 => &AES_256_GCM,
            24 => return Err("aesgcm with a key of 24 bytes is not supported: use 32".to_owned()),
            length => return Err(format!("a key of aesgcm has 16 or 32 bytes, not {length}")),
        };
        let key = UnboundKey::new(algorithm, secret).map_err(|error| error.to_string())?;
        Ok(Provider::AesGcm { prefix: prefix("aesgcm", name), key: LessSafeKey::new(key) })
    }

    pub(super) fn aes_cbc(name: &str, secret: &[u8]) -> Result<Provider, String> {
        let algorithm = match secret.len() {
            16 => &AES_128,
            24 => &AES_192,
            32 => &AES_256,
            length => return Err(format!("a key of aescbc has 16, 24 or 32 bytes, not {length}")),
        };
        Ok(Provider::AesCbc { prefix: prefix("aescbc", name), algorithm, key: secret.to_vec() })
    }

    pub(super) fn secretbox(name: &str, secret: &[u8]) -> Result<Provider, String> {
        let key = XSalsa20Poly1305::new_from_slice(secret)
            .map_err(|_| format!("a key of secretbox has 32 bytes, not {}", secret.len()))?;
        Ok(Provider::Secretbox { prefix: prefix("secretbox", name), key: Box::new(key) })
    }

    fn shown(&self) -> String {
        match self {
            Provider::Identity => "identity".to_owned(),
            Provider::AesGcm { prefix, .. } | Provider::AesCbc { prefix, .. } | Provider::Secretbox { prefix, .. } => {
                String::from_utf8_lossy(prefix).into_owned()
            }
        }
    }

    /// The plain value; `None` if it was written by another provider or key.
    pub(super) fn read(&self, stored_key: &str, stored: &[u8]) -> Option<Result<Vec<u8>, String>> {
        let broken = || format!("it cannot be decrypted: {} does not fit it", self.shown());
        match self {
            Provider::Identity => (!stored.starts_with(ENCRYPTED)).then(|| Ok(stored.to_vec())),
            Provider::AesGcm { prefix, key } => {
                let body = stored.strip_prefix(prefix.as_slice())?;
                let open = || {
                    let (nonce, sealed) = body.split_at_checked(NONCE_LEN)?;
                    let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
                    let mut buffer = sealed.to_vec();
                    let plain = key.open_in_place(nonce, Aad::from(stored_key.as_bytes()), &mut buffer).ok()?;
                    Some(plain.to_vec())
                };
                Some(open().ok_or_else(broken))
            }
            Provider::AesCbc { prefix, algorithm, key } => {
                let body = stored.strip_prefix(prefix.as_slice())?;
                let open = || {
                    let (vector, sealed) = body.split_first_chunk::<BLOCK>()?;
                    let key = UnboundCipherKey::new(algorithm, key).ok()?;
                    let key = PaddedBlockDecryptingKey::cbc_pkcs7(key).ok()?;
                    let mut buffer = sealed.to_vec();
                    let context = DecryptionContext::Iv128(FixedLength::from(*vector));
                    Some(key.decrypt(&mut buffer, context).ok()?.to_vec())
                };
                Some(open().ok_or_else(broken))
            }
            Provider::Secretbox { prefix, key } => {
                let body = stored.strip_prefix(prefix.as_slice())?;
                let opened = body
                    .split_first_chunk::<SECRETBOX_NONCE>()
                    .and_then(|(nonce, sealed)| key.decrypt(nonce.into(), sealed).ok());
                Some(opened.ok_or_else(broken))
            }
        }
    }

    /// The value as it is stored.
    pub(super) fn write(&self, stored_key: &str, plain: &[u8]) -> Result<Vec<u8>, String> {
        let failed = |_| format!("it cannot be encrypted with {}", self.shown());
        match self {
            Provider::Identity => Ok(plain.to_vec()),
            Provider::AesGcm { prefix, key } => {
                let mut nonce = [0; NONCE_LEN];
                aws_lc_rs::rand::fill(&mut nonce).map_err(failed)?;
                let mut sealed = plain.to_vec();
                let unique = Nonce::assume_unique_for_key(nonce);
                key.seal_in_place_append_tag(unique, Aad::from(stored_key.as_bytes()), &mut sealed).map_err(failed)?;
                Ok([prefix.as_slice(), &nonce, &sealed].concat())
            }
            Provider::AesCbc { prefix, algorithm, key } => {
                let key = UnboundCipherKey::new(algorithm, key).map_err(failed)?;
                let key = PaddedBlockEncryptingKey::cbc_pkcs7(key).map_err(failed)?;
                let mut sealed = plain.to_vec();
                let context = key.encrypt(&mut sealed).map_err(failed)?;
                let vector = <&[u8]>::try_from(&context).map_err(failed)?;
                Ok([prefix.as_slice(), vector, &sealed].concat())
            }
            Provider::Secretbox { prefix, key } => {
                let mut nonce = [0; SECRETBOX_NONCE];
                aws_lc_rs::rand::fill(&mut nonce).map_err(failed)?;
                let sealed = key.encrypt(&nonce.into(), plain);
                let sealed = sealed.map_err(|_| format!("it cannot be encrypted with {}", self.shown()))?;
                Ok([prefix.as_slice(), &nonce, &sealed].concat())
            }
        }
    }
}

fn prefix(provider: &str, name: &str) -> Vec<u8> {
    format!("k8s:enc:{provider}:v1:{name}:").into_bytes()
}
