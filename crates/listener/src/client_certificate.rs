//! The certificate of a client: the common name is the user, the organizations are the groups.

use std::time::Duration;

use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::der_parser::{Oid, oid};
use x509_parser::parse_x509_certificate;
use x509_parser::x509::AttributeTypeAndValue;

/// The part of a subject that is the user's uid, as upstream.
const UID: Oid<'static> = oid!(1.3.6.1.4.1.57683.2);

/// A certificate that TLS has verified, and the user of type `U` whom it names.
#[derive(Clone, Debug)]
pub struct ClientCertificate<U> {
    /// None without a common name.
    user: Result<Option<U>, Refused>,
    /// In seconds since 1970, the last one included. A connection may last longer than its certificate, so each
    /// request looks again.
    not_before: i64,
    not_after: i64,
}

/// A certificate that names nobody who could be trusted: it is unreadable, expired, or not valid yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// What a certificate says of its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject<'a> {
    /// The common name.
    pub name: &'a str,
    /// The organizations.
    pub groups: Vec<&'a str>,
    /// Empty without one.
    pub uid: &'a str,
    /// The whole certificate.
    pub der: &'a [u8],
}

impl<U> ClientCertificate<U> {
    /// The certificate of a user, valid from one second to another.
    pub fn new(user: Option<U>, not_before: i64, not_after: i64) -> Self {
        ClientCertificate { user: Ok(user), not_before, not_after }
    }

    /// The first certificate of a chain, valid as long as those that TLS has relied on at `now`.
    pub fn of_chain(chain: &[CertificateDer<'_>], now: Timestamp, user: impl FnOnce(Subject<'_>) -> U) -> Self {
        let mut certificate = ClientCertificate { user: Err(Refused), not_before: i64::MIN, not_after: i64::MAX };
        let Some((own, issuers)) = chain.split_first() else { return certificate };
        let Ok((_, parsed)) = parse_x509_certificate(own) else { return certificate };
        certificate.user = subject(own, &parsed).map(|subject| subject.map(user));
        certificate.limit(validity(&parsed));
        for issuer in issuers {
            let Ok((_, parsed)) = parse_x509_certificate(issuer) else { continue };
            let dates = validity(&parsed);
            // TLS cannot have relied on one that is not valid.
            if is_valid(dates, now) {
                certificate.limit(dates);
            }
        }
        certificate
    }

    fn limit(&mut self, (not_before, not_after): (i64, i64)) {
        self.not_before = self.not_before.max(not_before);
        self.not_after = self.not_after.min(not_after);
    }

    /// How long it is still good; nothing once it has expired.
    pub fn life_left(&self, now: Timestamp) -> Duration {
        Duration::from_secs(u64::try_from(self.not_after.saturating_sub(now.as_second())).unwrap_or(0))
    }

    /// The user, as long as the certificate is valid.
    pub fn user(&self, now: Timestamp) -> Result<Option<&U>, Refused> {
        if !is_valid((self.not_before, self.not_after), now) {
            return Err(Refused);
        }
        self.user.as_ref().map(Option::as_ref).map_err(|refused| *refused)
    }
}

fn validity(certificate: &X509Certificate<'_>) -> (i64, i64) {
    let dates = certificate.validity();
    (dates.not_before.timestamp(), dates.not_after.timestamp())
}

fn is_valid((not_before, not_after): (i64, i64), now: Timestamp) -> bool {
    let (from, until) = (not_before.saturating_mul(1000), not_after.saturating_mul(1000));
    (from..=until).contains(&now.as_millisecond())
}

/// A part that cannot be read is never left out: a group or name that is missing may mean more rights, or another user.
fn subject<'a>(der: &'a [u8], certificate: &'a X509Certificate<'_>) -> Result<Option<Subject<'a>>, Refused> {
    let subject = certificate.subject();
    let names = texts(subject.iter_common_name())?;
    let groups = texts(subject.iter_organization())?;
    // An empty uid and a second one are refused.
    let uid = match *texts(subject.iter_by_oid(&UID))? {
        [] => "",
        [one] if !one.is_empty() => one,
        _ => return Err(Refused),
    };
    // Of several names the last counts, as in Go.
    let name = names.last().filter(|name| !name.is_empty());
    Ok(name.map(|name| Subject { name, groups, uid, der }))
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

    const START: i64 = 1_790_000_000;

    fn at(millisecond: i64) -> Timestamp {
        Timestamp::from_millisecond(START * 1000 + millisecond).unwrap()
    }

    fn certificate(subject: &[(DnType, DnValue)], seconds: u64) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in subject {
            params.distinguished_name.push(kind.clone(), value.clone());
        }
        let start = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(START as u64);
        (params.not_before, params.not_after) = (start, start + Duration::from_secs(seconds));
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    fn text(text: &str) -> DnValue {
        DnValue::Utf8String(text.into())
    }

    fn shown(subject: Subject<'_>) -> String {
        format!("{} {} {}", subject.name, subject.uid, subject.groups.join(" "))
    }

    #[test]
    fn a_subject_is_a_user_and_what_cannot_be_read_is_refused() {
        let unreadable = || DnValue::BmpString(BmpString::try_from("system:masters").unwrap());
        let name = |value| (DnType::CommonName, value);
        let group = |value| (DnType::OrganizationName, value);
        let uid = |value| (DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]), value);
        for (what, subject, expected) in [
            ("a name", vec![name(text("bob"))], Ok(Some("bob  "))),
            ("no ASCII, and a group", vec![name(text("bøb")), group(text("ops"))], Ok(Some("bøb  ops"))),
            ("no name", vec![group(text("ops"))], Ok(None)),
            ("an empty name", vec![name(text(""))], Ok(None)),
            ("an unreadable name", vec![name(unreadable())], Err(Refused)),
            ("an unreadable group", vec![name(text("bob")), group(unreadable())], Err(Refused)),
            ("a uid", vec![name(text("bob")), uid(text("u1"))], Ok(Some("bob u1 "))),
            ("an empty uid", vec![name(text("bob")), uid(text(""))], Err(Refused)),
            ("an unreadable uid", vec![name(text("bob")), uid(unreadable())], Err(Refused)),
        ] {
            let certificate = ClientCertificate::of_chain(&[certificate(&subject, 100)], at(0), shown);
            let expected = expected.map(|user| user.map(str::to_owned));
            assert_eq!(certificate.user(at(0)).map(Option::<&String>::cloned), expected, "{what}");
        }
        assert_eq!(ClientCertificate::of_chain(&[], at(0), shown).user(at(0)), Err(Refused));
        assert_eq!(ClientCertificate::of_chain(&[vec![1, 2].into()], at(0), shown).user(at(0)), Err(Refused));
    }

    #[test]
    fn a_certificate_counts_from_its_first_second_to_its_last() {
        let bob = ClientCertificate::of_chain(&[certificate(&[(DnType::CommonName, text("bob"))], 100)], at(0), shown);
        for (when, valid) in [(-1, false), (0, true), (100_000, true), (100_001, false)] {
            assert_eq!(bob.user(at(when)).is_ok(), valid, "{when}");
        }
    }

    #[test]
    fn a_chain_lasts_as_long_as_the_certificates_that_tls_relied_on() {
        let bob = [(DnType::CommonName, text("bob"))];
        let lasts = |issuer: u64, until: i64| {
            let chain = [certificate(&bob, 100), certificate(&bob, issuer)];
            ClientCertificate::of_chain(&chain, at(20_000), shown).user(at(until)).is_ok()
        };
        assert!(lasts(50, 50_000) && !lasts(50, 50_001));
        // Expired before the handshake.
        assert!(lasts(10, 100_000));
    }
}
