//! Connecting: with TLS and without, and one clear line when it cannot be.

use std::path::Path;

use bayplan_etcd::{ConnectError, EtcdStore, Options, Tls};
use bayplan_store::Store;
use bayplan_testkit::{Etcd, free_ports};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

use crate::block_on;

/// A CA and a certificate of it for 127.0.0.1, good for servers and clients; all in PEM.
struct Pki {
    ca: String,
    certificate: String,
    key: String,
}

impl Pki {
    fn new() -> Pki {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_key = KeyPair::generate().unwrap();
        let ca = params.self_signed(&ca_key).unwrap().pem();
        let issuer = Issuer::new(params, ca_key);
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap().pem();
        Pki { ca, certificate, key: key.serialize_pem() }
    }

    fn flags(&self, folder: &Path) -> Vec<String> {
        let file = |name: &str, text: &str| {
            std::fs::write(folder.join(name), text).unwrap();
            folder.join(name).display().to_string()
        };
        vec![
            format!("--cert-file={}", file("server.pem", &self.certificate)),
            format!("--key-file={}", file("server.key", &self.key)),
            format!("--trusted-ca-file={}", file("ca.pem", &self.ca)),
            "--client-cert-auth".to_owned(),
        ]
    }

    fn tls(&self) -> Tls {
        let identity = (self.certificate.clone().into_bytes(), self.key.clone().into_bytes());
        Tls { ca_pem: Some(self.ca.clone().into_bytes()), identity_pem: Some(identity) }
    }
}

/// The one line that a failed connection says.
async fn line(options: Options) -> String {
    let error = EtcdStore::connect(options).await.unwrap_err().to_string();
    assert!(!error.contains('\n') && error.len() < 300, "{error}");
    error
}

#[test]
fn tls_with_a_client_certificate_works_and_everything_else_is_named() {
    let (pki, other) = (Pki::new(), Pki::new());
    let test = "tls_with_a_client_certificate_works_and_everything_else_is_named";
    let Some(etcd) = Etcd::start_with(test, |folder| pki.flags(folder)) else { return };
    block_on(async move {
        let with = |tls: Tls| Options { tls: Some(tls), ..Options::new([etcd.url()]) };
        let store = EtcdStore::connect(with(pki.tls())).await.unwrap();
        let revision = store.create("/registry/a", "1".into()).await.unwrap();
        assert_eq!(store.get("/registry/a").await.unwrap().unwrap().mod_revision, revision);
        assert!(store.describe().contains("3."), "{}", store.describe());
        let wrong_ca = line(with(Tls { ca_pem: other.tls().ca_pem, ..pki.tls() })).await;
        assert!(wrong_ca.contains("signed by another CA"), "{wrong_ca}");
        let wrong_client = line(with(Tls { identity_pem: other.tls().identity_pem, ..pki.tls() })).await;
        assert!(wrong_client.contains("client certificate"), "{wrong_client}");
        let no_client = line(with(Tls { identity_pem: None, ..pki.tls() })).await;
        assert!(no_client.contains("client certificate"), "{no_client}");
        let no_pem = line(with(Tls { ca_pem: Some(b"nonsense".to_vec()), ..pki.tls() })).await;
        assert!(no_pem.contains("certificate"), "{no_pem}");
        let plain = line(Options::new([etcd.url().replace("https", "http")])).await;
        assert!(plain.contains("https://"), "{plain}");
    });
}

#[test]
fn what_cannot_be_reached_is_named_in_one_line() {
    block_on(async {
        let [port] = free_ports();
        let refused = line(Options::new([format!("http://127.0.0.1:{port}")])).await;
        assert!(refused.contains(&format!("http://127.0.0.1:{port}")) && refused.contains("refused"), "{refused}");
        for (address, why) in [
            ("localhost:2379", "http://"),
            ("http://localhost", "port"),
            ("ftp://localhost:1", "http://"),
            ("", "cannot be used"),
        ] {
            let said = line(Options::new([address])).await;
            assert!(said.contains(why) && said.contains(address), "{said}");
        }
        assert_eq!(line(Options::new([""; 0])).await, ConnectError::NoAddress.to_string());
        let prefix = Options { prefix: "/".to_owned(), ..Options::new(["http://127.0.0.1:1"]) };
        assert!(line(prefix).await.contains("prefix '/'"));
    });
}

#[test]
fn one_member_that_answers_is_enough() {
    let Some(etcd) = Etcd::start("one_member_that_answers_is_enough") else { return };
    block_on(async move {
        let [port] = free_ports();
        let options = Options::new([format!("http://127.0.0.1:{port}"), etcd.url()]);
        let store = EtcdStore::connect(options).await.unwrap();
        assert_eq!(store.create("/registry/a", "".into()).await, Ok(2));
        let tls_to_plain = line(Options::new([etcd.url().replace("http", "https")])).await;
        assert!(tls_to_plain.contains("begins with http://"), "{tls_to_plain}");
    });
}
