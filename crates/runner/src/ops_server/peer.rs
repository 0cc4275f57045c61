//! The client certificate of a connection: the common name is the user, the organizations are the groups.

use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::parse_x509_certificate;
use x509_parser::x509::AttributeTypeAndValue;

use super::access::Identity;

/// A client with a certificate that TLS has verified.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The user it names; none without a common name.
    user: Result<Option<Identity>, Refused>,
    /// In seconds since 1970, the last one included. A connection may last longer than its certificate, so each
    /// request looks again.
    not_before: i64,
    not_after: i64,
}

/// A certificate that names nobody who could be trusted: it is unreadable, expired, or not valid yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

impl Peer {
    /// The peer with this chain of certificates, its own first.
    pub fn of_chain(chain: &[CertificateDer<'_>], now: Timestamp) -> Self {
        let mut peer = Peer { user: Err(Refused), not_before: i64::MIN, not_after: i64::MAX };
        for (at, der) in chain.iter().enumerate() {
            let Ok((_, certificate)) = parse_x509_certificate(der) else { continue };
            let dates = certificate.validity();
            let (not_before, not_after) = (dates.not_before.timestamp(), dates.not_after.timestamp());
            if at == 0 {
                peer.user = identify(&certificate);
            } else if !is_valid(not_before, not_after, now) {
                // TLS cannot have relied on it.
                continue;
            }
            peer.not_before = peer.not_before.max(not_before);
            peer.not_after = peer.not_after.min(not_after);
        }
        peer
    }

    /// The user, as long as the certificate is valid.
    pub fn user(&self, now: Timestamp) -> Result<Option<&Identity>, Refused> {
        if !is_valid(self.not_before, self.not_after, now) {
            return Err(Refused);
        }
        self.user.as_ref().map(Option::as_ref).map_err(|refused| *refused)
    }
}

fn is_valid(not_before: i64, not_after: i64, now: Timestamp) -> bool {
    let (from, until) = (not_before.saturating_mul(1000), not_after.saturating_mul(1000));
    (from..=until).contains(&now.as_millisecond())
}

/// A part that cannot be read is never left out: a group or name that is missing may mean more rights, or another user.
fn identify(certificate: &X509Certificate<'_>) -> Result<Option<Identity>, Refused> {
    let subject = certificate.subject();
    let (names, groups) = (texts(subject.iter_common_name())?, texts(subject.iter_organization())?);
    // Of several names the last counts, as in Go.
    let Some(name) = names.last().filter(|name| !name.is_empty()) else { return Ok(None) };
    let groups = groups.into_iter().chain(["system:authenticated"]).map(str::to_owned).collect();
    Ok(Some(Identity { name: (*name).to_owned(), groups, ..Identity::default() }))
}

fn texts<'a>(parts: impl Iterator<Item = &'a AttributeTypeAndValue<'a>>) -> Result<Vec<&'a str>, Refused> {
    parts.map(|part| part.as_str().map_err(|_| Refused)).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::string::BmpString;
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};

    use super::*;

    const START: u64 = 1_790_000_000;

    fn certificate(subject: &[(DnType, DnValue)], seconds: u64) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in subject {
            params.distinguished_name.push(kind.clone(), value.clone());
        }
        let start = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(START);
        (params.not_before, params.not_after) = (start, start + Duration::from_secs(seconds));
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(START as i64 + second).unwrap()
    }

    #[test]
    fn a_certificate_counts_as_long_as_it_is_valid_and_can_be_read() {
        let text = |text: &str| DnValue::Utf8String(text.into());
        let unreadable = || DnValue::BmpString(BmpString::try_from("system:masters").unwrap());
        let name = |value| (DnType::CommonName, value);
        let group = |value| (DnType::OrganizationName, value);
        for (what, subject, second, expected) in [
            ("a name", vec![name(text("bob"))], 100, Ok(Some("bob system:authenticated"))),
            ("a group", vec![name(text("b")), group(text("ops"))], 0, Ok(Some("b ops system:authenticated"))),
            ("too late", vec![name(text("bob"))], 101, Err(Refused)),
            ("too early", vec![name(text("bob"))], -1, Err(Refused)),
            ("no name", vec![group(text("ops"))], 0, Ok(None)),
            ("no name, too late", vec![group(text("ops"))], 101, Err(Refused)),
            ("an unreadable name", vec![name(unreadable())], 0, Err(Refused)),
            ("an unreadable group", vec![name(text("bob")), group(unreadable())], 0, Err(Refused)),
        ] {
            let peer = Peer::of_chain(&[certificate(&subject, 100)], at(0));
            let got = peer.user(at(second)).map(|user| user.map(|u| format!("{} {}", u.name, u.groups.join(" "))));
            assert_eq!(got, expected.map(|user| user.map(str::to_owned)), "{what}");
        }
        // The shortest of a chain counts, except for what had expired before.
        let bob = [name(text("bob"))];
        let chain = |end| [certificate(&bob, 100), certificate(&bob, end)];
        assert_eq!(Peer::of_chain(&chain(50), at(20)).user(at(51)), Err(Refused));
        assert!(Peer::of_chain(&chain(10), at(20)).user(at(100)).is_ok());
    }
}
