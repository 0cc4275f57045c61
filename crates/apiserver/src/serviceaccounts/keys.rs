//! The keys of service account tokens: one signs, several verify; RSA (RS256) and ECDSA (ES256, ES384).

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm, KeyPair,
    RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey};
use serde_json::{Value, json};
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

use crate::discovery::sha256;

/// A smaller RSA key can be computed from its public half; Go's library refuses to sign with it, too.
const RSA_BITS_MIN: usize = 2048;

/// A key that cannot sign or verify tokens.
#[derive(Debug, thiserror::Error)]
#[error("the service account key is not usable: {0}")]
pub struct KeyError(pub(super) String);

/// Signs tokens.
pub(super) struct SigningKey {
    pub(super) encoding: EncodingKey,
    pub(super) public: VerificationKey,
}

/// Verifies tokens.
#[derive(Clone)]
pub(super) struct VerificationKey {
    /// As upstream's: the hash of the public key.
    pub(super) id: String,
    pub(super) algorithm: Algorithm,
    pub(super) decoding: DecodingKey,
    /// As the key set (`/openid/v1/jwks`) shows it.
    pub(super) shown: Value,
}

/// Checks that a PEM file holds a private key that can sign tokens.
pub fn check_signing_key(pem: &str) -> Result<(), KeyError> {
    SigningKey::read(pem).map(drop)
}

/// Checks that a PEM file holds keys that can verify tokens, and nothing else but certificates.
pub fn check_verification_keys(pem: &str) -> Result<(), KeyError> {
    VerificationKey::read_all(pem).map(drop)
}

impl SigningKey {
    /// The first private key of a PEM file: RSA (PKCS #1 or #8) or ECDSA (SEC 1 or PKCS #8).
    pub(super) fn read(pem: &str) -> Result<Self, KeyError> {
        let blocks = blocks(pem)?;
        let private = blocks.iter().find(|block| block.label.ends_with("PRIVATE KEY"));
        let Some(block) = private else { return Err(KeyError("it holds no private key".to_owned())) };
        let pair = Pair::read(block)?;
        let public = VerificationKey::of(&pair.public()?)?;
        let encoding = match &pair {
            Pair::Rsa(_) => {
                let text = rewritten(block);
                EncodingKey::from_rsa_pem(text.as_bytes()).map_err(|error| KeyError(error.to_string()))?
            }
            Pair::Ecdsa(pair) => {
                let der = pair.to_pkcs8v1().map_err(|error| KeyError(error.to_string()))?;
                EncodingKey::from_ec_der(der.as_ref())
            }
        };
        Ok(SigningKey { encoding, public })
    }
}

impl VerificationKey {
    /// Every key of a PEM file: public keys, private ones (their public half) and certificates, as upstream takes them.
    pub(super) fn read_all(pem: &str) -> Result<Vec<Self>, KeyError> {
        let mut keys = Vec::new();
        for block in blocks(pem)? {
            let public = match block.label.as_str() {
                "PUBLIC KEY" => block.contents,
                "CERTIFICATE" => match x509_parser::parse_x509_certificate(&block.contents) {
                    Ok((_, certificate)) => certificate.public_key().raw.to_vec(),
                    Err(error) => return Err(KeyError(format!("its certificate cannot be read ({error})"))),
                },
                label if label.ends_with("PRIVATE KEY") => Pair::read(&block)?.public()?,
                // Parameters of curves, for example.
                _ => continue,
            };
            keys.push(Self::of(&public)?);
        }
        if keys.is_empty() { Err(KeyError("it holds no key".to_owned())) } else { Ok(keys) }
    }

    /// The key with this `SubjectPublicKeyInfo`.
    fn of(public: &[u8]) -> Result<Self, KeyError> {
        let unreadable = |error: &dyn std::fmt::Display| KeyError(format!("its public key cannot be read ({error})"));
        let (_, info) = SubjectPublicKeyInfo::from_der(public).map_err(|error| unreadable(&error))?;
        let id = URL_SAFE_NO_PAD.encode(sha256(public));
        let encoded = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let (algorithm, decoding, mut shown) = match info.parsed().map_err(|error| unreadable(&error))? {
            PublicKey::RSA(rsa) => {
                let (n, e) = (without_zeros(rsa.modulus), without_zeros(rsa.exponent));
                if n.len() * 8 < RSA_BITS_MIN {
                    return Err(KeyError(format!("it is an RSA key of less than {RSA_BITS_MIN} bits")));
                }
                let shown = json!({"kty": "RSA", "alg": "RS256", "n": encoded(n), "e": encoded(e)});
                (Algorithm::RS256, DecodingKey::from_rsa_raw_components(n, e), shown)
            }
            PublicKey::EC(point) => {
                let (algorithm, name, curve, size) = match point.data().len() {
                    65 => (Algorithm::ES256, "ES256", "P-256", 32),
                    97 => (Algorithm::ES384, "ES384", "P-384", 48),
                    _ => return Err(KeyError("its curve is neither P-256 nor P-384".to_owned())),
                };
                let (x, y) = point.data()[1..].split_at(size);
                let shown = json!({"kty": "EC", "alg": name, "crv": curve, "x": encoded(x), "y": encoded(y)});
                (algorithm, DecodingKey::from_ec_der(point.data()), shown)
            }
            _ => return Err(KeyError("it is neither an RSA nor an ECDSA key".to_owned())),
        };
        shown["use"] = "sig".into();
        shown["kid"] = id.as_str().into();
        Ok(VerificationKey { id, algorithm, decoding, shown })
    }
}

/// A private key.
enum Pair {
    Rsa(RsaKeyPair),
    Ecdsa(EcdsaKeyPair),
}

impl Pair {
    fn read(block: &Pem) -> Result<Self, KeyError> {
        let der = block.contents.as_slice();
        let rsa = match block.label.as_str() {
            "RSA PRIVATE KEY" => RsaKeyPair::from_der(der).ok(),
            "PRIVATE KEY" => RsaKeyPair::from_pkcs8(der).ok(),
            _ => None,
        };
        if let Some(pair) = rsa {
            return Ok(Pair::Rsa(pair));
        }
        let curves: [&'static EcdsaSigningAlgorithm; 2] =
            [&ECDSA_P256_SHA256_FIXED_SIGNING, &ECDSA_P384_SHA384_FIXED_SIGNING];
        curves
            .into_iter()
            .find_map(|curve| EcdsaKeyPair::from_private_key_der(curve, der).ok())
            .map(Pair::Ecdsa)
            .ok_or_else(|| {
                KeyError(format!("it is neither RSA of {RSA_BITS_MIN} bits or more nor ECDSA on P-256 or P-384"))
            })
    }

    /// Its public half, as `SubjectPublicKeyInfo`.
    fn public(&self) -> Result<Vec<u8>, KeyError> {
        let der: Result<PublicKeyX509Der<'_>, _> = match self {
            Pair::Rsa(pair) => pair.public_key().as_der(),
            Pair::Ecdsa(pair) => pair.public_key().as_der(),
        };
        der.map(|der| der.as_ref().to_vec()).map_err(|error| KeyError(error.to_string()))
    }
}

fn blocks(pem: &str) -> Result<Vec<Pem>, KeyError> {
    let blocks: Result<Vec<Pem>, _> = Pem::iter_from_buffer(pem.as_bytes()).collect();
    match blocks {
        Ok(blocks) if !blocks.is_empty() => Ok(blocks),
        Ok(_) => Err(KeyError("it is not PEM".to_owned())),
        Err(error) => Err(KeyError(format!("it is not PEM ({error})"))),
    }
}

/// A block by itself, without what stands around it in its file.
fn rewritten(block: &Pem) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(&block.contents);
    let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN {0}-----\n{1}\n-----END {0}-----\n", block.label, lines.join("\n"))
}

fn without_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    &number[zeros..]
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An RSA key as kubeadm makes them (PKCS #1, 2048 bits), of nobody, and its public half.
    pub(crate) const RSA_PRIVATE: &str = include_str!("../../testdata/sa-rsa.key");
    pub(crate) const RSA_PUBLIC: &str = include_str!("../../testdata/sa-rsa.pub");
    pub(crate) const EC_SEC1: &str = include_str!("../../testdata/sa-ec.key");

    #[test]
    fn keys_are_read_in_the_forms_that_kubeadm_and_openssl_write() {
        let ecdsa = rcgen::KeyPair::generate().unwrap();
        let p384 = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
        for (pem, algorithms) in [
            (RSA_PRIVATE.to_owned(), vec![Algorithm::RS256]),
            (RSA_PUBLIC.to_owned(), vec![Algorithm::RS256]),
            (EC_SEC1.to_owned(), vec![Algorithm::ES256]),
            (ecdsa.serialize_pem(), vec![Algorithm::ES256]),
            (p384.serialize_pem(), vec![Algorithm::ES384]),
            (
                format!("# old\n{RSA_PUBLIC}\n# new\n{}", ecdsa.public_key_pem()),
                vec![Algorithm::RS256, Algorithm::ES256],
            ),
        ] {
            let keys = VerificationKey::read_all(&pem).unwrap();
            assert_eq!(keys.iter().map(|key| key.algorithm).collect::<Vec<_>>(), algorithms);
        }
        let (private, public) =
            (SigningKey::read(RSA_PRIVATE).unwrap(), VerificationKey::read_all(RSA_PUBLIC).unwrap());
        assert_eq!(private.public.id, public[0].id);
    }

    #[test]
    fn what_is_no_key_is_refused_with_its_reason() {
        let small = "-----BEGIN PUBLIC KEY-----\nMFwwDQYJKoZIhvcNAQEBBQADSwAwSAJBAKj34GkxFhD90vcNLYLInFEX6Ppy1tPf\n\
                     9Cnzj4p4WGeKLs1Pt8QuKUpRKfFLfRYC9AIKjbJTWit+CqvjWYzvQwECAwEAAQ==\n-----END PUBLIC KEY-----\n";
        for (pem, why) in [
            ("", "it is not PEM"),
            ("garbage", "it is not PEM"),
            ("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "cannot be read"),
            (small, "less than 2048 bits"),
            ("-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n", "neither RSA"),
        ] {
            let error = check_verification_keys(pem).unwrap_err().to_string();
            assert!(error.contains(why), "{pem}: {error}");
        }
        assert!(check_signing_key(RSA_PUBLIC).unwrap_err().to_string().contains("no private key"));
    }
}
