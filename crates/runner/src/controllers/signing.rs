//! The authorities that sign certificates for the cluster: keys in memory, certificates as DER.
//!
//! rcgen makes certificates of parameters, and keeps one organization of a subject only. Those of users have one for
//! each of their groups, so the subject is taken from the request as it is, and the certificate is written here.

use std::collections::BTreeMap;
use std::net::IpAddr;

use bayplan_controllers::{SignCertificate, SigningRequest};
use bayplan_model::certificate_request::Authority;
use bayplan_model::pem;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use rcgen::{KeyPair, PublicKeyData, SigningKey};

/// The signers of Kubernetes itself.
pub const SIGNERS: [&str; 4] = [
    "kubernetes.io/kubelet-serving",
    "kubernetes.io/kube-apiserver-client-kubelet",
    "kubernetes.io/kube-apiserver-client",
    "kubernetes.io/legacy-unknown",
];

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OBJECT_ID: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Algorithm identifiers: ECDSA with SHA-256, SHA-384 and SHA-512, RSA with SHA-256, Ed25519.
const ECDSA_SHA256: &[u8] = &[0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
const ECDSA_SHA384: &[u8] = &[0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03];
const ECDSA_SHA512: &[u8] = &[0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x04];
const RSA_SHA256: &[u8] = &[0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b, 0x05, 0x00];
const ED25519: &[u8] = &[0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70];

/// Kubernetes' words for the bits of the extension, in its order; two words mean the first.
const KEY_USAGES: [(&str, u16); 10] = [
    ("signing", 0),
    ("digital signature", 0),
    ("content commitment", 1),
    ("key encipherment", 2),
    ("data encipherment", 3),
    ("key agreement", 4),
    ("cert sign", 5),
    ("crl sign", 6),
    ("encipher only", 7),
    ("decipher only", 8),
];

/// Kubernetes' words for extended usages, in Go's order, with the content of their object identifiers.
const EXTENDED_USAGES: [(&str, &[u8]); 13] = [
    ("any", &[0x55, 0x1d, 0x25, 0x00]),
    ("server auth", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01]),
    ("client auth", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02]),
    ("code signing", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x03]),
    ("email protection", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x04]),
    ("s/mime", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x04]),
    ("ipsec end system", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x05]),
    ("ipsec tunnel", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x06]),
    ("ipsec user", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x07]),
    ("timestamping", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x08]),
    ("ocsp signing", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x09]),
    ("microsoft sgc", &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x82, 0x37, 0x0a, 0x03, 0x03]),
    ("netscape sgc", &[0x60, 0x86, 0x48, 0x01, 0x86, 0xf8, 0x42, 0x04, 0x01]),
];

/// A certificate and its key, both as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningKeyPair {
    /// The certificate of an authority.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

impl std::fmt::Debug for SigningKeyPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SigningKeyPair(…)")
    }
}

/// The authority of each signer.
#[derive(Default)]
pub(super) struct Authorities(BTreeMap<String, CertificateAuthority>);

struct CertificateAuthority {
    authority: Authority,
    key: KeyPair,
    algorithm: &'static [u8],
}

impl CertificateAuthority {
    fn open(pair: &SigningKeyPair) -> Result<Self, String> {
        let authority = Authority::parse(pair.certificate.as_bytes())?;
        let key = KeyPair::from_pem(&pair.key).map_err(|error| format!("its key cannot be read: {error}"))?;
        if key.subject_public_key_info() != authority.public_key {
            return Err("its key does not belong to its certificate".to_owned());
        }
        let algorithm = match key.algorithm() {
            it if *it == rcgen::PKCS_ECDSA_P256_SHA256 => ECDSA_SHA256,
            it if *it == rcgen::PKCS_ECDSA_P384_SHA384 => ECDSA_SHA384,
            it if *it == rcgen::PKCS_ECDSA_P521_SHA512 => ECDSA_SHA512,
            it if *it == rcgen::PKCS_RSA_SHA256 => RSA_SHA256,
            it if *it == rcgen::PKCS_ED25519 => ED25519,
            _ => return Err("its key is of a kind that cannot sign here".to_owned()),
        };
        Ok(CertificateAuthority { authority, key, algorithm })
    }
}

/// What is wrong with an authority, if it cannot sign.
pub fn check(pair: &SigningKeyPair) -> Result<(), String> {
    CertificateAuthority::open(pair).map(drop)
}

impl Authorities {
    /// The authorities that can be used; others were refused when flags were read.
    pub(super) fn new(pairs: &BTreeMap<String, SigningKeyPair>) -> Self {
        let open = |(signer, pair): (&String, &SigningKeyPair)| match CertificateAuthority::open(pair) {
            Ok(authority) => Some((signer.clone(), authority)),
            Err(why) => {
                tracing::error!(signer, "cannot sign certificates: {why}");
                None
            }
        };
        Authorities(pairs.iter().filter_map(open).collect())
    }
}

impl SignCertificate for Authorities {
    fn signs(&self, signer: &str) -> bool {
        self.0.contains_key(signer)
    }

    fn sign(&self, signer: &str, request: &SigningRequest, now: Timestamp) -> Result<String, String> {
        let by = self.0.get(signer).ok_or_else(|| format!("there is no authority for {signer}"))?;
        if by.authority.not_after <= now.as_second() {
            return Err("the signer has expired".to_owned());
        }
        let end = Timestamp::from_second(by.authority.not_after).unwrap_or(Timestamp::MAX).min(request.not_after);
        let to_sign = unsigned(by, request, end, rand::random())?;
        let signature = by.key.sign(&to_sign).map_err(|error| error.to_string())?;
        let certificate = sequence([to_sign, by.algorithm.to_vec(), bits(0, &signature)]);
        Ok(pem::encode("CERTIFICATE", &certificate))
    }
}

/// The part of a certificate that is signed.
fn unsigned(
    by: &CertificateAuthority,
    request: &SigningRequest,
    not_after: Timestamp,
    random: [u8; 16],
) -> Result<Vec<u8>, String> {
    const VERSION_3: [u8; 3] = [INTEGER, 1, 2];
    let mut serial = random;
    // Positive, and never with a leading zero that DER forbids.
    serial[0] = (serial[0] & 0x7f) | 0x40;
    let asked = &request.request;
    Ok(sequence([
        tlv(0xa0, &VERSION_3),
        tlv(INTEGER, &serial),
        by.algorithm.to_vec(),
        by.authority.subject.clone(),
        sequence([time(request.not_before), time(not_after)]),
        asked.subject.clone(),
        asked.public_key.clone(),
        tlv(0xa3, &sequence(extensions(by, request)?)),
    ]))
}

fn extensions(by: &CertificateAuthority, request: &SigningRequest) -> Result<Vec<Vec<u8>>, String> {
    const KEY_USAGE: u8 = 15;
    const ALTERNATIVE_NAMES: u8 = 17;
    const BASIC_CONSTRAINTS: u8 = 19;
    const AUTHORITY_KEY: u8 = 35;
    const EXTENDED_KEY_USAGE: u8 = 37;
    let known = |usage: &&String| {
        KEY_USAGES.iter().any(|(word, _)| word == usage) || EXTENDED_USAGES.iter().any(|(word, _)| word == usage)
    };
    if let Some(usage) = request.usages.iter().find(|usage| !known(usage)) {
        return Err(format!("unrecognized usage values: [{usage:?}]"));
    }
    let is_asked = |word: &str| request.usages.iter().any(|usage| usage == word);
    let flags = KEY_USAGES.iter().filter(|(word, _)| is_asked(word)).fold(0_u16, |set, (_, bit)| set | (0x8000 >> bit));
    let mut extended: Vec<Vec<u8>> =
        EXTENDED_USAGES.iter().filter(|(word, _)| is_asked(word)).map(|(_, id)| tlv(OBJECT_ID, id)).collect();
    extended.dedup();
    let mut all = Vec::new();
    if flags != 0 {
        let octets = flags.to_be_bytes();
        let used = if octets[1] == 0 { &octets[..1] } else { &octets[..] };
        let unused = used.last().map_or(0, |last| last.trailing_zeros().min(7));
        all.push(extension(KEY_USAGE, true, &bits(u8::try_from(unused).unwrap_or(0), used)));
    }
    if !extended.is_empty() {
        all.push(extension(EXTENDED_KEY_USAGE, false, &sequence(extended)));
    }
    all.push(extension(BASIC_CONSTRAINTS, true, &sequence([])));
    if let Some(id) = &by.authority.key_id {
        all.push(extension(AUTHORITY_KEY, false, &sequence([tlv(0x80, id)])));
    }
    let names = names(request);
    if !names.is_empty() {
        // A subject without a name is named by these alone.
        let is_critical = request.request.subject == sequence([]);
        all.push(extension(ALTERNATIVE_NAMES, is_critical, &sequence(names)));
    }
    Ok(all)
}

fn names(request: &SigningRequest) -> Vec<Vec<u8>> {
    let asked = &request.request;
    let dns = asked.dns_names.iter().map(|name| tlv(0x82, name.as_bytes()));
    let emails = asked.emails.iter().map(|name| tlv(0x81, name.as_bytes()));
    let addresses = asked.addresses.iter().map(|address| match address {
        IpAddr::V4(v4) => tlv(0x87, &v4.octets()),
        IpAddr::V6(v6) => tlv(0x87, &v6.octets()),
    });
    let uris = asked.uris.iter().map(|name| tlv(0x86, name.as_bytes()));
    dns.chain(emails).chain(addresses).chain(uris).collect()
}

/// An extension of X.509 itself, by the last number of its identifier.
fn extension(number: u8, is_critical: bool, value: &[u8]) -> Vec<u8> {
    const TRUE: [u8; 3] = [0x01, 1, 0xff];
    let mut parts = vec![tlv(OBJECT_ID, &[0x55, 0x1d, number])];
    if is_critical {
        parts.push(TRUE.to_vec());
    }
    parts.push(tlv(OCTET_STRING, value));
    sequence(parts)
}

/// A time to the second: with two digits of the year before 2050, with four from then on.
fn time(time: Timestamp) -> Vec<u8> {
    let text = time.to_zoned(TimeZone::UTC).strftime("%Y%m%d%H%M%SZ").to_string();
    if text.as_str() < "2050" { tlv(UTC_TIME, &text.as_bytes()[2..]) } else { tlv(GENERALIZED_TIME, text.as_bytes()) }
}

fn bits(unused: u8, octets: &[u8]) -> Vec<u8> {
    let mut content = vec![unused];
    content.extend_from_slice(octets);
    tlv(BIT_STRING, &content)
}

fn sequence(parts: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    tlv(SEQUENCE, &parts.into_iter().flatten().collect::<Vec<u8>>())
}

/// Tag, length, value.
fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match u8::try_from(content.len()) {
        Ok(short) if short < 0x80 => out.push(short),
        _ => {
            let octets = content.len().to_be_bytes();
            let used = &octets[octets.iter().take_while(|octet| **octet == 0).count()..];
            // At most eight octets.
            out.push(0x80 | u8::try_from(used.len()).unwrap_or(8));
            out.extend_from_slice(used);
        }
    }
    out.extend_from_slice(content);
    out
}

#[cfg(test)]
mod tests {
    use bayplan_model::certificate_request::CertificateRequest;
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa};

    use super::*;

    fn authority() -> SigningKeyPair {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_after = rcgen::date_time_ymd(2060, 1, 1);
        SigningKeyPair { certificate: params.self_signed(&key).unwrap().pem(), key: key.serialize_pem() }
    }

    #[test]
    fn a_certificate_has_what_was_asked_for_and_its_authoritys_signature() {
        let pair = authority();
        let mut params = CertificateParams::new(["n1.example".to_owned(), "10.0.0.7".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.distinguished_name.push(DnType::CommonName, "system:node:n1");
        let request = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
        let now = Timestamp::from_second(1_780_000_000).unwrap();
        let asked = SigningRequest {
            request: CertificateRequest::parse(request.as_bytes()).unwrap(),
            usages: ["digital signature", "key encipherment", "server auth"].map(str::to_owned).into(),
            not_before: now,
            not_after: now + jiff::SignedDuration::from_hours(1),
        };
        assert_eq!(asked.request.unproven, None);
        let authorities = Authorities::new(&[("s".to_owned(), pair.clone())].into());
        assert!(authorities.signs("s") && !authorities.signs("t"));
        let certificate = authorities.sign("s", &asked, now).unwrap();
        let der = &pem::blocks(certificate.as_bytes())[0].der;
        let ca = &pem::blocks(pair.certificate.as_bytes())[0].der;
        let trusted = rustls::pki_types::CertificateDer::from(ca.clone());
        let mut roots = rustls::RootCertStore::empty();
        roots.add(trusted).unwrap();
        let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier =
            rustls::client::WebPkiServerVerifier::builder_with_provider(roots.into(), provider).build().unwrap();
        let verify = |name: &str, seconds: u64| {
            use rustls::client::danger::ServerCertVerifier as _;
            let leaf = rustls::pki_types::CertificateDer::from(der.clone());
            let name = rustls::pki_types::ServerName::try_from(name.to_owned()).unwrap();
            let at = rustls::pki_types::UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
            verifier.verify_server_cert(&leaf, &[], &name, &[], at).is_ok()
        };
        assert!(verify("n1.example", 1_780_000_001) && verify("10.0.0.7", 1_780_003_599));
        assert!(!verify("n2.example", 1_780_000_001) && !verify("n1.example", 1_780_003_601));
        assert_eq!(bayplan_model::certificate_request::not_after(certificate.as_bytes()), Some(1_780_003_600));
    }

    #[test]
    fn an_authority_that_cannot_sign_says_why() {
        let (one, other) = (authority(), authority());
        assert_eq!(check(&one), Ok(()));
        let mixed = SigningKeyPair { key: other.key, ..one.clone() };
        assert_eq!(check(&mixed), Err("its key does not belong to its certificate".to_owned()));
        let none = SigningKeyPair { certificate: String::new(), ..one };
        assert_eq!(check(&none), Err("it has no certificate".to_owned()));
    }
}
