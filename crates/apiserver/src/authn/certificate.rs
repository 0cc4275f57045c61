//! The other end of a connection: a caller in this process, or a client with a certificate.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bayplan_listener::{ClientCertificate, Refused, Subject};
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use tokio::sync::watch;

use crate::certificates::tls::Serving;
use crate::discovery::sha256;
use crate::user::User;

/// The extra key that names the credential of a user.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Who is at the other end of a connection.
#[derive(Clone, Debug)]
pub(crate) enum Peer {
    /// A caller in this process.
    Caller(User),
    /// A client with a certificate that TLS has verified, by the only authority there is.
    Certificate(ClientCertificate<User>),
    /// A client with a certificate that is a user's, a front proxy's or both; which, the authorities of the moment say.
    Presented(Arc<Presented>),
}

impl Peer {
    /// The peer with this chain of certificates, its own first.
    pub(crate) fn of_chain(chain: &[CertificateDer<'_>], now: Timestamp) -> Self {
        Peer::Certificate(ClientCertificate::of_chain(chain, now, user))
    }

    /// The peer with this chain of certificates, judged by authorities that may be replaced.
    pub(crate) fn presenting(chain: &[CertificateDer<'_>], serving: watch::Receiver<Arc<Serving>>) -> Self {
        let chain = chain.iter().map(|certificate| certificate.clone().into_owned()).collect();
        Peer::Presented(Arc::new(Presented { chain, serving, judged: Mutex::default() }))
    }

    /// The user, as long as the certificate is valid.
    pub(crate) fn user(&self, now: Timestamp) -> Result<Option<User>, Refused> {
        match self {
            Peer::Caller(user) => Ok(Some(user.clone())),
            Peer::Certificate(certificate) => certificate.user(now).map(Option::<&User>::cloned),
            Peer::Presented(presented) => presented.judged(now).user?.user(now).map(Option::<&User>::cloned),
        }
    }

    /// How long the certificate is still good, if there is one that anybody trusts.
    pub(crate) fn life_left(&self, now: Timestamp) -> Option<Duration> {
        match self {
            Peer::Caller(_) => None,
            Peer::Certificate(certificate) => Some(certificate.life_left(now)),
            Peer::Presented(presented) => Some(presented.judged(now).user.ok()?.life_left(now)),
        }
    }

    /// The common name of a front proxy's certificate, as long as it is valid.
    pub(crate) fn front_proxy(&self, now: Timestamp) -> Option<String> {
        match self {
            Peer::Caller(_) | Peer::Certificate(_) => None,
            Peer::Presented(presented) => presented.judged(now).proxy?.user(now).ok()?.cloned(),
        }
    }
}

/// A chain of certificates, and what the authorities say of it. Those may be replaced while the connection lasts: whom
/// the new ones do not know is refused from its next request on, as upstream.
pub(crate) struct Presented {
    chain: Vec<CertificateDer<'static>>,
    serving: watch::Receiver<Arc<Serving>>,
    judged: Mutex<Option<(Arc<Serving>, Judged)>>,
}

#[derive(Clone)]
struct Judged {
    user: Result<ClientCertificate<User>, Refused>,
    proxy: Option<ClientCertificate<String>>,
}

impl Presented {
    fn judged(&self, now: Timestamp) -> Judged {
        let serving = self.serving.borrow().clone();
        let mut judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((by, judged)) = &*judged
            && Arc::ptr_eq(by, &serving)
        {
            return judged.clone();
        }
        let user = match serving.is_user(&self.chain, now) {
            true => Ok(ClientCertificate::of_chain(&self.chain, now, user)),
            false => Err(Refused),
        };
        let proxy = serving.is_front_proxy(&self.chain, now);
        let proxy = proxy.then(|| ClientCertificate::of_chain(&self.chain, now, |subject| subject.name.to_owned()));
        judged.insert((serving, Judged { user, proxy })).1.clone()
    }
}

impl std::fmt::Debug for Presented {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Presented(…)")
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
        let caller = Peer::Caller(bob);
        assert!(caller.user(Timestamp::MAX).is_ok() && caller.life_left(Timestamp::MIN).is_none());
    }
}
