//! Client certificates: the common name is the user, the organizations are the groups.

use x509_parser::parse_x509_certificate;

use crate::user::User;

/// The user of a client certificate (DER) that the TLS layer has verified; `None` when it names nobody.
pub fn identify(certificate: &[u8]) -> Option<User> {
    let (_, certificate) = parse_x509_certificate(certificate).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok().filter(|name| !name.is_empty())?;
    let groups = subject.iter_organization().filter_map(|organization| organization.as_str().ok());
    Some(User::new(name, groups))
}
