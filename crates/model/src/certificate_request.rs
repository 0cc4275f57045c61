//! What somebody asks to be certified: a PKCS #10 request, as CertificateSigningRequests carry it.

use std::net::IpAddr;

use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer;
use x509_parser::x509::AttributeTypeAndValue;

use crate::pem;

/// The label of a request's PEM block.
pub const LABEL: &str = "CERTIFICATE REQUEST";

/// A request that could be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateRequest {
    /// The common name: the user.
    pub common_name: String,
    /// The organizations: the groups.
    pub organizations: Vec<String>,
    /// Host names.
    pub dns_names: Vec<String>,
    /// Addresses of mail.
    pub emails: Vec<String>,
    /// Addresses of hosts.
    pub addresses: Vec<IpAddr>,
    /// URIs.
    pub uris: Vec<String>,
    /// The subject, as DER.
    pub subject: Vec<u8>,
    /// The public key with its algorithm, as DER.
    pub public_key: Vec<u8>,
    /// Why the signature does not prove that the sender has the key; none if it does.
    pub unproven: Option<&'static str>,
}

impl CertificateRequest {
    /// Reads the first PEM block; the error is in the words of Go where it has some.
    pub fn parse(text: &[u8]) -> Result<CertificateRequest, String> {
        let block = pem::blocks(text).into_iter().next().filter(|block| block.label == LABEL);
        let block = block.ok_or("PEM block type must be CERTIFICATE REQUEST")?;
        let (rest, request) = X509CertificationRequest::from_der(&block.der).map_err(|_| unreadable(&block.der))?;
        if !rest.is_empty() {
            return Err("asn1: syntax error: trailing data".to_owned());
        }
        let info = &request.certification_request_info;
        let text = |attribute: &AttributeTypeAndValue<'_>| {
            let text = attribute.as_str().map(str::to_owned);
            text.map_err(|_| "x509: invalid RDNSequence: invalid attribute value".to_owned())
        };
        let mut read = CertificateRequest {
            subject: info.subject.as_raw().to_vec(),
            public_key: info.subject_pki.raw.to_vec(),
            organizations: info.subject.iter_organization().map(text).collect::<Result<_, _>>()?,
            ..CertificateRequest::default()
        };
        // Of several names the last one counts.
        if let Some(name) = info.subject.iter_common_name().last() {
            read.common_name = text(name)?;
        }
        for extension in request.requested_extensions().into_iter().flatten() {
            match extension {
                ParsedExtension::SubjectAlternativeName(names) => {
                    names.general_names.iter().try_for_each(|name| read.add_name(name))?;
                }
                ParsedExtension::ParseError { .. } => return Err("x509: invalid extension".to_owned()),
                _ => {}
            }
        }
        if request.verify_signature().is_err() {
            // Go names the algorithm.
            read.unproven = Some(match info.subject_pki.algorithm.algorithm.to_id_string().as_str() {
                "1.2.840.113549.1.1.1" => "crypto/rsa: verification error",
                "1.3.101.112" => "x509: Ed25519 verification failure",
                _ => "x509: ECDSA verification failure",
            });
        }
        Ok(read)
    }

    fn add_name(&mut self, name: &GeneralName<'_>) -> Result<(), String> {
        match name {
            GeneralName::DNSName(name) => self.dns_names.push((*name).to_owned()),
            GeneralName::RFC822Name(name) => self.emails.push((*name).to_owned()),
            GeneralName::URI(name) => self.uris.push((*name).to_owned()),
            GeneralName::IPAddress(octets) => {
                let v4 = <[u8; 4]>::try_from(*octets).map(IpAddr::from);
                let address = v4.or_else(|_| <[u8; 16]>::try_from(*octets).map(IpAddr::from));
                let unreadable = |_| format!("x509: cannot parse IP address of length {}", octets.len());
                self.addresses.push(address.map_err(unreadable)?);
            }
            _ => {}
        }
        Ok(())
    }
}

/// What Go says of bytes that are no request: it names the first tag if that is not a sequence's.
fn unreadable(der: &[u8]) -> String {
    const SEQUENCE: u8 = 0x30;
    match *der {
        [] => "asn1: syntax error: sequence truncated".to_owned(),
        // One octet for the tag and one for the length.
        [tag, length, ..] if tag != SEQUENCE && tag & 0x1f != 0x1f && length < 0x80 => format!(
            "asn1: structure error: tags don't match (16 vs {{class:{} tag:{} length:{length} isCompound:{}}}) \
             {{optional:false explicit:false application:false private:false defaultValue:<nil> tag:<nil> \
             stringType:0 timeType:0 set:false omitEmpty:false}} certificateRequest @2",
            tag >> 6,
            tag & 0x1f,
            tag & 0x20 != 0
        ),
        _ => "asn1: structure error: the request cannot be read".to_owned(),
    }
}

/// The time until which the first certificate of a PEM text is valid, in seconds since the epoch.
pub fn not_after(text: &[u8]) -> Option<i64> {
    let block = pem::blocks(text).into_iter().next()?;
    let (_, certificate) = x509_parser::parse_x509_certificate(&block.der).ok()?;
    Some(certificate.validity().not_after.timestamp())
}

/// What is wrong with a text that should be certificates.
pub fn certificates_error(text: &[u8]) -> Option<String> {
    let blocks = pem::blocks(text);
    if blocks.is_empty() {
        return Some("must contain at least one CERTIFICATE PEM block".to_owned());
    }
    blocks.iter().find_map(|block| {
        if block.label != "CERTIFICATE" {
            return Some(format!("only CERTIFICATE PEM blocks are allowed, found {:?}", block.label));
        }
        if block.has_headers {
            return Some("no PEM block headers are permitted".to_owned());
        }
        match x509_parser::parse_x509_certificate(&block.der) {
            Ok(_) => None,
            Err(_) => Some("x509: malformed certificate".to_owned()),
        }
    })
}

/// A certificate authority, as far as its certificates need to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// Its name, as DER.
    pub subject: Vec<u8>,
    /// Its public key with the algorithm, as DER.
    pub public_key: Vec<u8>,
    /// How its certificates name its key.
    pub key_id: Option<Vec<u8>>,
    /// Until when it is valid, in seconds since the epoch.
    pub not_after: i64,
}

impl Authority {
    /// Reads the first certificate of a PEM text, which must be an authority's.
    pub fn parse(text: &[u8]) -> Result<Authority, String> {
        let block = pem::blocks(text).into_iter().find(|block| block.label == "CERTIFICATE");
        let block = block.ok_or("it has no certificate")?;
        let (_, certificate) =
            x509_parser::parse_x509_certificate(&block.der).map_err(|error| format!("it cannot be read: {error}"))?;
        if !certificate.is_ca() {
            return Err("it is not an authority's certificate".to_owned());
        }
        let key_id = certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
            _ => None,
        });
        Ok(Authority {
            subject: certificate.subject().as_raw().to_vec(),
            public_key: certificate.public_key().raw.to_vec(),
            key_id,
            not_after: certificate.validity().not_after.timestamp(),
        })
    }
}
