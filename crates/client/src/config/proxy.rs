//! Proxies between us and an API server: the kubeconfig's `proxy-url`, or the one that the environment names for it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Uri};

use super::Error;

/// The port of a SOCKS proxy that names none.
const SOCKS_PORT: u16 = 1080;

/// How a proxy is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// `CONNECT` over plain HTTP or over TLS, as the address says.
    Connect,
    /// SOCKS version 5; the proxy looks names up.
    Socks5,
}

/// A proxy that connections to the API server go through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    pub(crate) protocol: Protocol,
    /// Its address, without user and password.
    pub(crate) address: Uri,
    pub(crate) user: Option<(String, String)>,
}

impl Proxy {
    /// Reads the URL of a proxy. `origin` says where it stands, for whoever reads the error.
    pub fn parse(origin: &'static str, url: &str) -> Result<Self, Error> {
        let shown = without_user(url);
        let wrong = |reason: &str| Error::Proxy { origin, url: shown.clone(), reason: reason.to_owned() };
        // Go reads a proxy without a scheme as one of HTTP, but only in the environment.
        let whole = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let uri: Uri = whole.parse().map_err(|_| wrong("it is no URL"))?;
        let protocol = match uri.scheme_str() {
            Some("http" | "https") => Protocol::Connect,
            Some("socks5" | "socks5h") => Protocol::Socks5,
            _ => return Err(wrong("its scheme is none of http, https and socks5")),
        };
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| wrong("it names no host"))?;
        let user = uri.authority().and_then(|authority| authority.as_str().rsplit_once('@')).map(|(user, _)| {
            let (name, password) = user.split_once(':').unwrap_or((user, ""));
            (decoded(name), decoded(password))
        });
        let authority = match (uri.port_u16(), protocol) {
            (Some(port), _) => format!("{host}:{port}"),
            (None, Protocol::Socks5) => format!("{host}:{SOCKS_PORT}"),
            (None, Protocol::Connect) => host.to_owned(),
        };
        let address =
            Uri::builder().scheme(uri.scheme_str().unwrap_or("http")).authority(authority).path_and_query("/");
        Ok(Proxy { protocol, address: address.build().map_err(|_| wrong("it is no URL"))?, user })
    }

    /// The header by which the proxy knows us.
    pub(crate) fn authorization(&self) -> Result<Option<HeaderValue>, Error> {
        let Some((name, password)) = &self.user else { return Ok(None) };
        let text = format!("Basic {}", STANDARD.encode(format!("{name}:{password}")));
        let mut value = HeaderValue::from_str(&text).map_err(|_| Error::Header("the proxy's user"))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

/// A URL as errors may show it.
fn without_user(url: &str) -> String {
    match url.split_once("://") {
        Some((scheme, rest)) => format!("{scheme}://{}", rest.rsplit_once('@').map_or(rest, |(_, host)| host)),
        None => url.rsplit_once('@').map_or(url, |(_, host)| host).to_owned(),
    }
}

/// Text with its percent-encoded bytes; what is not UTF-8 then stays as it was.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, others @ ..] = rest {
        let hex = others.get(..2).and_then(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok());
        match hex.filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &others[2..];
            }
            None => {
                bytes.push(*first);
                rest = others;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

/// The proxy that the environment names for a server: `HTTPS_PROXY` or `HTTP_PROXY` by its scheme, unless `NO_PROXY` or
/// a local address exempts it.
pub(super) fn of_environment(server: &Uri, variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Proxy>, Error> {
    let either =
        |upper: &str, lower: &str| variable(upper).or_else(|| variable(lower)).filter(|value| !value.is_empty());
    let (origin, url) = match server.scheme_str() {
        Some("https") => ("HTTPS_PROXY", either("HTTPS_PROXY", "https_proxy")),
        _ => ("HTTP_PROXY", either("HTTP_PROXY", "http_proxy")),
    };
    let Some(url) = url else { return Ok(None) };
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']);
    let exempt = either("NO_PROXY", "no_proxy").unwrap_or_default();
    let default_port = if server.scheme_str() == Some("https") { 443 } else { 80 };
    let port = server.port_u16().unwrap_or(default_port);
    if is_local(host) || exempt.split(',').any(|entry| exempts(entry.trim(), host, port)) {
        return Ok(None);
    }
    Proxy::parse(origin, &url).map(Some)
}

fn is_local(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Whether an entry of `NO_PROXY` covers a host: `*`, an address, a network, or a name and all below it.
fn exempts(entry: &str, host: &str, port: u16) -> bool {
    if entry == "*" {
        return true;
    }
    if let Some((network, bits)) = entry.split_once('/') {
        return in_network(network, bits, host).unwrap_or(false);
    }
    let (entry, wanted) = match entry.rsplit_once(':') {
        Some((name, number)) if !name.contains(':') => (name, number.parse().ok()),
        _ => (entry, None),
    };
    let name = entry.trim_start_matches("*.").trim_start_matches('.');
    let covers = !name.is_empty()
        && (host.eq_ignore_ascii_case(name)
            || host.to_ascii_lowercase().ends_with(&format!(".{}", name.to_ascii_lowercase())));
    covers && wanted.is_none_or(|wanted: u16| port == wanted)
}

fn in_network(network: &str, bits: &str, host: &str) -> Option<bool> {
    use std::net::IpAddr::{V4, V6};
    let bits: u32 = bits.parse().ok()?;
    let (network, host, width) = match (network.parse().ok()?, host.parse().ok()?) {
        (V4(network), V4(host)) => (u128::from(network.to_bits()), u128::from(host.to_bits()), 32),
        (V6(network), V6(host)) => (network.to_bits(), host.to_bits(), 128),
        _ => return Some(false),
    };
    let ignored = width - bits.min(width);
    Some(ignored == 128 || network >> ignored == host >> ignored)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proxy_of_the_environment_is_used_unless_the_server_is_exempt() {
        for (server, exempt, direct) in [
            ("https://api.example:6443", "", false),
            ("http://api.example:8080", "", true),
            ("https://127.0.0.1:6443", "", true),
            ("https://[::1]:6443", "", true),
            ("https://localhost:6443", "", true),
            ("https://api.example:6443", "*", true),
            ("https://api.example:6443", "other, .example", true),
            ("https://api.example:6443", "example", true),
            ("https://api.example:6443", "ample", false),
            ("https://api.example:6443", "api.example:6443", true),
            ("https://api.example:6443", "api.example:443", false),
            ("https://10.1.2.3:6443", "10.0.0.0/8", true),
            ("https://11.1.2.3:6443", "10.0.0.0/8", false),
            ("https://10.1.2.3:6443", "10.1.2.3", true),
            ("https://[fd00::1]:6443", "fd00::/8", true),
        ] {
            let variable = |name: &str| match name {
                "HTTPS_PROXY" => Some("http://proxy:3128".to_owned()),
                "NO_PROXY" => Some(exempt.to_owned()),
                _ => None,
            };
            let proxy = of_environment(&server.parse().unwrap(), &variable).unwrap();
            assert_eq!(proxy.is_none(), direct, "{server} {exempt}");
        }
    }

    #[test]
    fn the_urls_of_proxies_are_read_as_go_reads_them() {
        for (url, address, user) in [
            ("http://proxy:3128", "http://proxy:3128/", None),
            ("https://proxy", "https://proxy/", None),
            ("proxy:3128", "http://proxy:3128/", None),
            ("http://jane:p%40ss@proxy:3128/", "http://proxy:3128/", Some(("jane", "p@ss"))),
            ("http://jane@proxy", "http://proxy/", Some(("jane", ""))),
            ("socks5://proxy", "socks5://proxy:1080/", None),
            ("socks5h://[::1]:9", "socks5h://[::1]:9/", None),
        ] {
            let proxy = Proxy::parse("the kubeconfig", url).unwrap();
            assert_eq!(proxy.address.to_string(), address, "{url}");
            let user = user.map(|(name, password)| (name.to_owned(), password.to_owned()));
            assert_eq!(proxy.user, user, "{url}");
        }
        for (url, reason) in [
            ("ftp://jane:secret@proxy", "its scheme is none of http, https and socks5"),
            ("http://jane:secret@", "it is no URL"),
            ("http://", "it is no URL"),
            ("http://a b", "it is no URL"),
        ] {
            let error = Proxy::parse("the kubeconfig", url).unwrap_err().to_string();
            let start = "the kubeconfig names the proxy ";
            assert!(error.starts_with(start) && error.ends_with(reason) && !error.contains("secret"), "{error}");
        }
    }
}
