//! Keys and certificates in memory: the authority, and the certificates that it issues.

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, SanType,
};
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::parse_x509_certificate;
use x509_parser::pem::Pem;

use super::Error;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// As long as kubeadm's.
const AUTHORITY_LIFETIME: Duration = DAY.saturating_mul(3650);
/// As long as kubeadm's.
const LEAF_LIFETIME: Duration = DAY.saturating_mul(365);
/// A leaf that expires within this time is issued again on start.
const LEAF_RENEWAL: Duration = DAY.saturating_mul(30);
/// An authority is replaced before a leaf that it issues could outlive it.
const AUTHORITY_RENEWAL: Duration = LEAF_LIFETIME;
/// Certificates are valid from an hour before their creation, for clients whose clock is slow: machines without a time
/// server are further apart than kubeadm's five minutes.
const CLOCK_SKEW: Duration = Duration::from_secs(60 * 60);

/// A certificate with its private key, both as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// The private key (PKCS #8).
    pub key: String,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Identity(…)")
    }
}

/// The subject alternative names of the server: the names that clients may use for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Host names.
    pub hosts: Vec<String>,
    /// Addresses.
    pub addresses: Vec<IpAddr>,
}

impl Names {
    /// The names that every server has, the host name of the machine, and the cluster IP of the `kubernetes` service.
    pub fn standard(hostname: Option<&str>, service_address: IpAddr) -> Self {
        let cluster =
            ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"];
        let mut hosts: Vec<String> = ["localhost"].into_iter().chain(cluster).map(str::to_owned).collect();
        // A host name that a certificate cannot contain is left out.
        if let Some(name) = hostname.filter(|name| is_dns_name(name) && !hosts.iter().any(|host| host == name)) {
            hosts.push(name.to_owned());
        }
        Names { hosts, addresses: vec![[127, 0, 0, 1].into(), std::net::Ipv6Addr::LOCALHOST.into(), service_address] }
    }
}

/// All keys and certificates of a cluster.
#[derive(Clone, Debug)]
pub struct Pki {
    /// The authority.
    pub authority: Identity,
    /// The API server's serving identity.
    pub server: Identity,
    /// The administrator, group `system:masters`.
    pub admin: Identity,
    /// User `system:kube-scheduler`.
    pub scheduler: Identity,
    /// User `system:kube-controller-manager`.
    pub controller_manager: Identity,
    /// Signs service account tokens (PKCS #8 PEM, ECDSA P-256).
    pub service_account_key: String,
}

/// What one leaf certificate is for.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    pub(super) common_name: &'static str,
    pub(super) organization: Option<&'static str>,
    /// `Some` for a server certificate.
    pub(super) names: Option<Names>,
}

impl Leaf {
    pub(super) fn server(names: &Names) -> Self {
        Leaf { common_name: "bayplan-apiserver", organization: None, names: Some(names.clone()) }
    }
}

pub(super) const ADMIN: Leaf =
    Leaf { common_name: "kubernetes-admin", organization: Some("system:masters"), names: None };
pub(super) const SCHEDULER: Leaf = Leaf { common_name: "system:kube-scheduler", organization: None, names: None };
pub(super) const CONTROLLER_MANAGER: Leaf =
    Leaf { common_name: "system:kube-controller-manager", organization: None, names: None };

impl Pki {
    /// New keys and certificates that exist only in this process.
    pub fn in_memory(names: &Names, now: Timestamp) -> Result<Self, Error> {
        let authority = new_authority(now)?;
        Ok(Pki {
            server: issue(&authority, &Leaf::server(names), now)?,
            admin: issue(&authority, &ADMIN, now)?,
            scheduler: issue(&authority, &SCHEDULER, now)?,
            controller_manager: issue(&authority, &CONTROLLER_MANAGER, now)?,
            service_account_key: new_key("service account key")?.serialize_pem(),
            authority,
        })
    }

    /// The same authority and keys of accounts, with new certificates in place of those that expire soon; none if none
    /// does.
    pub fn renewed(&self, names: &Names, now: Timestamp) -> Result<Option<Self>, Error> {
        let mut pki = self.clone();
        let authority = &self.authority;
        for (identity, leaf) in [
            (&mut pki.server, &Leaf::server(names)),
            (&mut pki.admin, &ADMIN),
            (&mut pki.scheduler, &SCHEDULER),
            (&mut pki.controller_manager, &CONTROLLER_MANAGER),
        ] {
            let broken = |why| Error::Broken { what: leaf.common_name.to_owned(), why };
            if leaf_state(identity, leaf, authority, now).map_err(broken)? == CertificateState::Renew {
                *identity = issue(authority, leaf, now)?;
            }
        }
        let changed = pki.server != self.server
            || pki.admin != self.admin
            || pki.scheduler != self.scheduler
            || pki.controller_manager != self.controller_manager;
        Ok(changed.then_some(pki))
    }
}

pub(super) fn new_key(what: &str) -> Result<KeyPair, Error> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(generate(what))
}

/// The certificate of a new authority (PEM) whose key nobody has, so that it vouches for nobody.
pub fn authority_of_nobody(now: Timestamp) -> Result<String, Error> {
    new_authority(now).map(|authority| authority.certificate)
}

pub(super) fn new_authority(now: Timestamp) -> Result<Identity, Error> {
    let what = "certificate authority";
    let key = new_key(what)?;
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "bayplan-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::CrlSign];
    set_validity(&mut params, now, AUTHORITY_LIFETIME);
    let certificate = params.self_signed(&key).map_err(generate(what))?;
    Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
}

pub(super) fn issue(authority: &Identity, leaf: &Leaf, now: Timestamp) -> Result<Identity, Error> {
    let what = leaf.common_name;
    let key = new_key(what)?;
    let ca_key = KeyPair::from_pem(&authority.key).map_err(generate("certificate authority"))?;
    let issuer = Issuer::from_ca_cert_pem(&authority.certificate, ca_key).map_err(generate("certificate authority"))?;
    let mut params = CertificateParams::default();
    if let Some(organization) = leaf.organization {
        params.distinguished_name.push(DnType::OrganizationName, organization);
    }
    params.distinguished_name.push(DnType::CommonName, leaf.common_name);
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![match leaf.names {
        Some(_) => ExtendedKeyUsagePurpose::ServerAuth,
        None => ExtendedKeyUsagePurpose::ClientAuth,
    }];
    if let Some(names) = &leaf.names {
        params.subject_alt_names = alternative_names(names).map_err(generate(what))?;
    }
    set_validity(&mut params, now, LEAF_LIFETIME);
    let certificate = params.signed_by(&key, &issuer).map_err(generate(what))?;
    Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
}

fn is_dns_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.')
}

fn alternative_names(names: &Names) -> Result<Vec<SanType>, rcgen::Error> {
    let hosts = names.hosts.iter().map(|host| Ok(SanType::DnsName(host.as_str().try_into()?)));
    let addresses = names.addresses.iter().map(|address| Ok(SanType::IpAddress(*address)));
    hosts.chain(addresses).collect()
}

fn set_validity(params: &mut CertificateParams, now: Timestamp, lifetime: Duration) {
    let seconds = u64::try_from(now.as_second()).unwrap_or(0);
    let now = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds);
    params.not_before = now - CLOCK_SKEW;
    params.not_after = now + lifetime;
}

fn generate(what: &str) -> impl FnOnce(rcgen::Error) -> Error {
    let what = what.to_owned();
    move |source| Error::Generate { what, source }
}

/// Whether a stored certificate can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CertificateState {
    Valid,
    /// It expires soon, another authority issued it, or it lacks a name of the server.
    Renew,
}

/// Checks a stored authority; fails if it cannot be read, or if key and certificate do not belong together.
pub(super) fn authority_state(authority: &Identity, now: Timestamp) -> Result<CertificateState, String> {
    inspect(authority, |certificate| {
        if !certificate.is_ca() {
            return Err("it is not an authority's certificate".to_owned());
        }
        Ok(lasts(certificate, now, AUTHORITY_RENEWAL))
    })
}

/// Checks a stored leaf; fails if it cannot be read, or if key and certificate do not belong together.
pub(super) fn leaf_state(
    identity: &Identity,
    leaf: &Leaf,
    authority: &Identity,
    now: Timestamp,
) -> Result<CertificateState, String> {
    let issuer_key = inspect(authority, |certificate| Ok(subject_key_identifier(certificate)))?;
    inspect(identity, |certificate| {
        let ours = authority_key_identifier(certificate) == issuer_key;
        let named = leaf.names.as_ref().is_none_or(|names| has_names(certificate, names));
        Ok(if ours && named { lasts(certificate, now, LEAF_RENEWAL) } else { CertificateState::Renew })
    })
}

type Certificate<'a> = x509_parser::certificate::X509Certificate<'a>;

fn inspect<T>(identity: &Identity, look: impl FnOnce(&Certificate<'_>) -> Result<T, String>) -> Result<T, String> {
    let key = KeyPair::from_pem(&identity.key).map_err(|error| format!("its key cannot be read ({error})"))?;
    let (pem, _) = Pem::read(std::io::Cursor::new(identity.certificate.as_bytes()))
        .map_err(|error| format!("its certificate cannot be read ({error})"))?;
    let (_, certificate) =
        parse_x509_certificate(&pem.contents).map_err(|error| format!("its certificate cannot be read ({error})"))?;
    if certificate.public_key().subject_public_key.data.as_ref() != key.public_key_raw() {
        return Err("its key does not belong to its certificate".to_owned());
    }
    look(&certificate)
}

fn lasts(certificate: &Certificate<'_>, now: Timestamp, margin: Duration) -> CertificateState {
    let left = certificate.validity().not_after.timestamp() - now.as_second();
    if left > i64::try_from(margin.as_secs()).unwrap_or(i64::MAX) {
        CertificateState::Valid
    } else {
        CertificateState::Renew
    }
}

fn subject_key_identifier(certificate: &Certificate<'_>) -> Option<Vec<u8>> {
    certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
        _ => None,
    })
}

fn authority_key_identifier(certificate: &Certificate<'_>) -> Option<Vec<u8>> {
    certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::AuthorityKeyIdentifier(id) => id.key_identifier.as_ref().map(|id| id.0.to_vec()),
        _ => None,
    })
}

fn has_names(certificate: &Certificate<'_>, names: &Names) -> bool {
    let Ok(Some(extension)) = certificate.subject_alternative_name() else { return false };
    let has = |wanted: &GeneralName<'_>| extension.value.general_names.contains(wanted);
    names.hosts.iter().all(|host| has(&GeneralName::DNSName(host)))
        && names.addresses.iter().all(|address| match address {
            IpAddr::V4(v4) => has(&GeneralName::IPAddress(&v4.octets())),
            IpAddr::V6(v6) => has(&GeneralName::IPAddress(&v6.octets())),
        })
}
