//! Client certificates: the common name is the user, the organizations are the groups.

use x509_parser::parse_x509_certificate;

use crate::discovery::sha256;
use crate::user::User;

/// The extra key that names the credential of a user.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The user of a client certificate (DER) that TLS has verified; `None` if it has no common name.
pub(crate) fn identify(der: &[u8]) -> Option<User> {
    let (_, certificate) = parse_x509_certificate(der).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok().filter(|name| !name.is_empty())?;
    let groups = subject.iter_organization().filter_map(|organization| organization.as_str().ok());
    let mut user = User::new(name, groups);
    let fingerprint: String = sha256(der).iter().map(|byte| format!("{byte:02x}")).collect();
    user.extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={fingerprint}")]);
    Some(user)
}
