//! The other end of a connection: a caller in this process, or a client with a certificate.

use bayplan_listener::{ClientCertificate, Refused, Subject};
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;

use crate::discovery::sha256;
use crate::user::User;

/// The extra key that names the credential of a user.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Who is at the other end of a connection.
#[derive(Clone, Debug)]
pub(crate) enum Peer {
    /// A caller in this process.
    Caller(User),
    /// A client with a certificate that TLS has verified.
    Certificate(ClientCertificate<User>),
}

impl Peer {
    /// The peer with this chain of certificates, its own first.
    pub(crate) fn of_chain(chain: &[CertificateDer<'_>], now: Timestamp) -> Self {
        Peer::Certificate(ClientCertificate::of_chain(chain, now, user))
    }

    /// The user, as long as the certificate is valid.
    pub(crate) fn user(&self, now: Timestamp) -> Result<Option<&User>, Refused> {
        match self {
            Peer::Caller(user) => Ok(Some(user)),
            Peer::Certificate(certificate) => certificate.user(now),
        }
    }
}

fn user(subject: Subject<'_>) -> User {
    let mut user = User::new(subject.name, subject.groups);
    user.uid = subject.uid.to_owned();
    let fingerprint: String = sha256(subject.der).iter().map(|byte| format!("{byte:02x}")).collect();
    user.extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={fingerprint}")]);
    user
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_names_a_user_with_its_fingerprint_and_a_caller_never_expires() {
        let subject = Subject { name: "bob", groups: vec!["ops"], uid: "u1", der: b"" };
        let bob = user(subject);
        assert_eq!((&*bob.name, &*bob.uid, &*bob.groups.join(" ")), ("bob", "u1", "ops system:authenticated"));
        let of_nothing = "X509SHA256=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(bob.extra[CREDENTIAL_ID], [of_nothing]);
        assert!(Peer::Caller(bob).user(Timestamp::MAX).is_ok());
    }
}
