//! Which cipher suites and key exchanges a server offers.

use rustls::NamedGroup;
use rustls::crypto::{CryptoProvider, aws_lc_rs};

/// A cipher suite or key exchange that cannot be offered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// A cipher suite that is unknown or not supported.
    #[error("cipher suite {0} is not supported")]
    CipherSuite(String),
    /// A key exchange that is unknown or not supported.
    #[error("curve {0} is not supported")]
    Curve(u16),
}

/// Offers these cipher suites of TLS 1.2, in IANA's names, and key exchanges, by IANA's numbers; all when empty.
pub fn crypto_provider(cipher_suites: &[String], curves: &[u16]) -> Result<CryptoProvider, Unsupported> {
    let mut provider = aws_lc_rs::default_provider();
    if !cipher_suites.is_empty() {
        let name = |suite: &rustls::SupportedCipherSuite| format!("{:?}", suite.suite()).replacen("TLS13_", "TLS_", 1);
        for asked in cipher_suites {
            if !provider.cipher_suites.iter().any(|suite| name(suite) == *asked) {
                return Err(Unsupported::CipherSuite(asked.clone()));
            }
        }
        // As in Go, the cipher suites of TLS 1.3 cannot be chosen.
        provider
            .cipher_suites
            .retain(|suite| suite.tls13().is_some() || cipher_suites.iter().any(|asked| *asked == name(suite)));
    }
    if !curves.is_empty() {
        let known =
            |curve: u16| provider.kx_groups.iter().copied().find(|group| group.name() == NamedGroup::from(curve));
        let chosen = curves.iter().map(|&curve| known(curve).ok_or(Unsupported::Curve(curve)));
        provider.kx_groups = chosen.collect::<Result<_, _>>()?;
    }
    Ok(provider)
}
