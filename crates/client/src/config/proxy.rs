//! Proxies that the environment names. Go's clients would use them; connecting around them in silence would surprise.

use http::Uri;

use super::Error;

/// Refuses a server behind the proxy of `HTTPS_PROXY`, unless `NO_PROXY` or a local address exempts it.
pub(super) fn refuse(server: &Uri, variable: &dyn Fn(&str) -> Option<String>) -> Result<(), Error> {
    let either =
        |upper: &str, lower: &str| variable(upper).or_else(|| variable(lower)).filter(|value| !value.is_empty());
    if server.scheme_str() != Some("https") {
        return Ok(());
    }
    let Some(url) = either("HTTPS_PROXY", "https_proxy") else { return Ok(()) };
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']);
    let exempt = either("NO_PROXY", "no_proxy").unwrap_or_default();
    if is_local(host) || exempt.split(',').any(|entry| exempts(entry.trim(), host, server.port_u16())) {
        return Ok(());
    }
    let advice = format!(": add {host} to NO_PROXY to connect directly");
    Err(Error::Proxy { origin: "HTTPS_PROXY", url, advice })
}

fn is_local(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Whether an entry of `NO_PROXY` covers a host: `*`, an address, a network, or a name and all below it.
fn exempts(entry: &str, host: &str, port: Option<u16>) -> bool {
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
    covers && wanted.is_none_or(|wanted: u16| port.unwrap_or(443) == wanted)
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
    fn a_proxy_of_the_environment_is_refused_unless_the_server_is_exempt() {
        for (server, exempt, allowed) in [
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
            let refused = refuse(&server.parse().unwrap(), &variable);
            assert_eq!(refused.is_ok(), allowed, "{server} {exempt}");
        }
        let https_only = |name: &str| (name == "https_proxy").then(|| "http://proxy:3128".to_owned());
        assert_eq!(
            refuse(&"https://api.example".parse().unwrap(), &https_only).unwrap_err().to_string(),
            "HTTPS_PROXY names the proxy http://proxy:3128; connections through a proxy are not supported: add \
             api.example to NO_PROXY to connect directly"
        );
    }
}
