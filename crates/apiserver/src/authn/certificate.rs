//! Client certificates: the common name is the user, the organizations are the groups.

use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::der_parser::{Oid, oid};
use x509_parser::parse_x509_certificate;
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

use crate::discovery::sha256;
use crate::user::User;

/// The extra key that names the credential of a user.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
/// The part of a subject that is the user's uid, as upstream.
const UID: Oid<'static> = oid!(1.3.6.1.4.1.57683.2);

/// Who is at the other end of a connection.
#[derive(Clone, Debug)]
pub(crate) enum Peer {
    /// A caller in this process.
    Caller(User),
    /// A client with a certificate that TLS has verified.
    Certificate {
        /// The user it names; none without a common name.
        user: Result<Option<User>, Refused>,
        /// In seconds since 1970, the last one included. A connection may last longer than its certificate, so each
        /// request looks again.
        not_before: i64,
        not_after: i64,
    },
}

/// A certificate that names nobody who could be trusted: it is unreadable, expired, or not valid yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused;

impl Peer {
    /// The peer with this chain of certificates, its own first.
    pub(crate) fn of_chain(chain: &[CertificateDer<'_>], now: Timestamp) -> Self {
        let mut validity = (i64::MIN, i64::MAX);
        let mut user = Err(Refused);
        for (at, der) in chain.iter().enumerate() {
            let Ok((_, certificate)) = parse_x509_certificate(der) else { continue };
            let dates = certificate.validity();
            let (not_before, not_after) = (dates.not_before.timestamp(), dates.not_after.timestamp());
            if at == 0 {
                user = identify(der, &certificate);
            } else if !is_valid(not_before, not_after, now) {
                // TLS cannot have relied on it.
                continue;
            }
            validity = (validity.0.max(not_before), validity.1.min(not_after));
        }
        Peer::Certificate { user, not_before: validity.0, not_after: validity.1 }
    }

    /// The user, as long as the certificate is valid.
    pub(crate) fn user(&self, now: Timestamp) -> Result<Option<&User>, Refused> {
        match self {
            Peer::Caller(user) => Ok(Some(user)),
            Peer::Certificate { not_before, not_after, .. } if !is_valid(*not_before, *not_after, now) => Err(Refused),
            Peer::Certificate { user, .. } => user.as_ref().map(Option::as_ref).map_err(|refused| *refused),
        }
    }
}

fn is_valid(not_before: i64, not_after: i64, now: Timestamp) -> bool {
    let (from, until) = (not_before.saturating_mul(1000), not_after.saturating_mul(1000));
    (from..=until).contains(&now.as_millisecond())
}

/// The user of a client certificate. A part that cannot be read is never left out: a group or name that is missing may
/// mean more rights, or another user.
fn identify(der: &[u8], certificate: &X509Certificate<'_>) -> Result<Option<User>, Refused> {
    let subject = certificate.subject();
    let names = texts(subject.iter_common_name())?;
    let groups = texts(subject.iter_organization())?;
    let uid = uid(subject)?;
    // Of several names the last counts, as in Go.
    let Some(name) = names.last().filter(|name| !name.is_empty()) else { return Ok(None) };
    let mut user = User::new(*name, groups);
    user.uid = uid.to_owned();
    let fingerprint: String = sha256(der).iter().map(|byte| format!("{byte:02x}")).collect();
    user.extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={fingerprint}")]);
    Ok(Some(user))
}

fn texts<'a>(parts: impl Iterator<Item = &'a AttributeTypeAndValue<'a>>) -> Result<Vec<&'a str>, Refused> {
    parts.map(|part| part.as_str().map_err(|_| Refused)).collect()
}

/// Empty without one; one that is empty and a second one are refused.
fn uid<'a>(subject: &'a X509Name<'a>) -> Result<&'a str, Refused> {
    match *texts(subject.iter_by_oid(&UID))? {
        [] => Ok(""),
        [one] if !one.is_empty() => Ok(one),
        _ => Err(Refused),
    }
}

#[cfg(test)]
mod tests {
    use rcgen::string::BmpString;
    use rcgen::{CertificateParams, DnType, DnValue, KeyPair};

    use super::*;

    const START: i64 = 1_790_000_000;

    fn at(millisecond: i64) -> Timestamp {
        Timestamp::from_millisecond(START * 1000 + millisecond).unwrap()
    }

    fn params(subject: &[(DnType, DnValue)]) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in subject {
            params.distinguished_name.push(kind.clone(), value.clone());
        }
        let start = rcgen::date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(START as u64);
        (params.not_before, params.not_after) = (start, start + std::time::Duration::from_secs(100));
        params
    }

    fn certificate(params: &CertificateParams) -> CertificateDer<'static> {
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    fn text(text: &str) -> DnValue {
        DnValue::Utf8String(text.into())
    }

    #[test]
    fn a_subject_is_a_user_and_what_cannot_be_read_is_refused() {
        let unreadable = || DnValue::BmpString(BmpString::try_from("system:masters").unwrap());
        let uid = || DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]);
        let (name, group) = (DnType::CommonName, DnType::OrganizationName);
        type Case = (&'static str, Vec<(DnType, DnValue)>, Result<Option<&'static str>, Refused>);
        let cases: Vec<Case> = vec![
            ("a name", vec![(name.clone(), text("bob"))], Ok(Some("bob  system:authenticated"))),
            (
                "a name that is not ASCII, and a group",
                vec![(name.clone(), text("bøb")), (group.clone(), text("ops"))],
                Ok(Some("bøb  ops system:authenticated")),
            ),
            ("no name", vec![(group.clone(), text("ops"))], Ok(None)),
            ("an empty name", vec![(name.clone(), text(""))], Ok(None)),
            ("an unreadable name", vec![(name.clone(), unreadable())], Err(Refused)),
            ("an unreadable group", vec![(name.clone(), text("bob")), (group.clone(), unreadable())], Err(Refused)),
            ("a uid", vec![(name.clone(), text("bob")), (uid(), text("u1"))], Ok(Some("bob u1 system:authenticated"))),
            ("an empty uid", vec![(name.clone(), text("bob")), (uid(), text(""))], Err(Refused)),
            ("an unreadable uid", vec![(name.clone(), text("bob")), (uid(), unreadable())], Err(Refused)),
        ];
        for (what, subject, expected) in cases {
            let peer = Peer::of_chain(&[certificate(&params(&subject))], at(0));
            let got = peer.user(at(0)).map(|user| user.map(|u| format!("{} {} {}", u.name, u.uid, u.groups.join(" "))));
            assert_eq!(got, expected.map(|user| user.map(str::to_owned)), "{what}");
        }
    }

    #[test]
    fn a_certificate_counts_from_its_first_second_to_its_last() {
        let subject = [(DnType::CommonName, text("bob"))];
        let peer = Peer::of_chain(&[certificate(&params(&subject))], at(0));
        for (when, valid) in [(-1, false), (0, true), (100_000, true), (100_001, false)] {
            assert_eq!(peer.user(at(when)).is_ok(), valid, "{when}");
        }
        assert!(Peer::Caller(User::new("bob", [""; 0])).user(at(i64::from(u32::MAX))).is_ok());
    }

    #[test]
    fn a_chain_lasts_as_long_as_the_certificates_that_tls_relied_on() {
        let subject = [(DnType::CommonName, text("bob"))];
        let with_end = |seconds: u64| {
            let mut params = params(&subject);
            params.not_after = params.not_before + std::time::Duration::from_secs(seconds);
            certificate(&params)
        };
        let chain = |ends: &[u64]| -> Vec<_> { ends.iter().map(|end| with_end(*end)).collect() };
        let lasts = |ends: &[u64], until: i64| Peer::of_chain(&chain(ends), at(20_000)).user(at(until)).is_ok();
        assert!(lasts(&[100, 50], 50_000) && !lasts(&[100, 50], 50_001));
        // Expired before the handshake.
        assert!(lasts(&[100, 10], 100_000));
    }
}
