//! Who may ask: someone who was shown the URL, from a browser that shows this page.
//!
//! The server listens on loopback, where every program and every web page of the machine can reach it. The token keeps
//! other users out, the check of the host keeps out web pages that have their own name point here (DNS rebinding), and
//! the check of the origin keeps other web pages from asking in the user's name.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use http::{HeaderMap, Method, Uri, header};

use crate::query::parameter;

/// The names under which loopback is reached.
const LOOPBACK: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

/// The token, and where the page is served.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    token: String,
    port: u16,
}

/// What becomes of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// It is answered.
    Allowed,
    /// The token was in the URL: it moves into a cookie, so that it stays in no history and no screenshot.
    SetCookie(String),
    /// It is refused, and why.
    Refused(&'static str),
}

impl Access {
    pub(crate) fn new(token: String, port: u16) -> Self {
        Access { token, port }
    }

    /// Decides about a request by its head.
    pub(crate) fn check(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Entry {
        let text = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let Some(host) = text(header::HOST).filter(|host| self.is_ours(host)) else {
            return Entry::Refused("this page is served to 127.0.0.1, localhost and [::1] alone");
        };
        let is_same_origin = text(header::ORIGIN).is_some_and(|origin| origin.strip_prefix("http://") == Some(host));
        let is_same_site = headers.get("sec-fetch-site").is_none_or(|site| site == "same-origin");
        if method != Method::GET && method != Method::HEAD && !(is_same_origin && is_same_site) {
            return Entry::Refused("a change is tried from the page itself alone");
        }
        if uri.path() == "/"
            && let Some(token) = parameter(uri.query().unwrap_or_default(), "token")
            && self.is_token(&token)
        {
            let Access { token, port } = self;
            return Entry::SetCookie(format!("bayplan-page-{port}={token}; Path=/; HttpOnly; SameSite=Strict"));
        }
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut values = cookies.flat_map(|line| line.split(';')).filter_map(|cookie| cookie.trim().split_once('='));
        // Cookies know no ports: the name tells several pages on one machine apart.
        let name = format!("bayplan-page-{}", self.port);
        match values.any(|(key, value)| key == name && self.is_token(value)) {
            true => Entry::Allowed,
            false => Entry::Refused("open the page with the URL that bayplan printed: it has the token"),
        }
    }

    /// True for loopback with our port. Port 80 is not written in a URL.
    fn is_ours(&self, host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => (port == self.port.to_string()).then_some(name),
            _ => (self.port == 80).then_some(host),
        };
        name.is_some_and(|name| LOOPBACK.iter().any(|ours| ours.eq_ignore_ascii_case(name)))
    }

    /// Takes as long for a wrong token as for the right one.
    fn is_token(&self, given: &str) -> bool {
        verify_slices_are_equal(given.as_bytes(), self.token.as_bytes()).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn check(method: &str, uri: &str, headers: &[(&str, &str)]) -> Entry {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name.parse::<header::HeaderName>().unwrap(), value.parse().unwrap());
        }
        Access::new(TOKEN.into(), 4000).check(&method.parse().unwrap(), &uri.parse().unwrap(), &map)
    }

    const HOST: (&str, &str) = ("host", "127.0.0.1:4000");
    const COOKIE: (&str, &str) = ("cookie", "a=b; bayplan-page-4000=0123456789abcdef");

    #[test]
    fn the_token_in_the_url_moves_into_a_cookie_and_the_cookie_is_enough() {
        let cookie = "bayplan-page-4000=0123456789abcdef; Path=/; HttpOnly; SameSite=Strict";
        assert_eq!(check("GET", "/?token=0123456789abcdef", &[HOST]), Entry::SetCookie(cookie.into()));
        assert_eq!(check("GET", "/api/nodes", &[HOST, COOKIE]), Entry::Allowed);
        assert_eq!(check("GET", "/main.js", &[("host", "LOCALHOST:4000"), COOKIE]), Entry::Allowed);
        assert_eq!(check("GET", "/", &[("host", "[::1]:4000"), COOKIE]), Entry::Allowed);
    }

    #[test]
    fn nobody_enters_without_the_token_or_with_a_wrong_one() {
        for (uri, cookie) in [
            ("/", ""),
            ("/?token=", ""),
            ("/?token=0123456789abcdeg", ""),
            ("/api/nodes?token=0123456789abcdef", ""),
            ("/", "bayplan-page-4001=0123456789abcdef"),
            ("/", "bayplan-page-4000=0123456789abcde"),
        ] {
            let entry = check("GET", uri, &[HOST, ("cookie", cookie)]);
            assert!(matches!(entry, Entry::Refused(why) if why.contains("token")), "{uri} {cookie}");
        }
    }

    #[test]
    fn a_name_that_somebody_points_to_loopback_is_refused() {
        for host in ["evil.example:4000", "127.0.0.1", "127.0.0.1:4001", "127.0.0.1.evil.example:4000", "[::1]", ""] {
            let entry = check("GET", "/api/nodes", &[("host", host), COOKIE]);
            assert!(matches!(entry, Entry::Refused(why) if why.contains("alone")), "{host}");
        }
        assert!(matches!(check("GET", "/", &[COOKIE]), Entry::Refused(_)));
    }

    #[test]
    fn only_the_page_itself_may_post() {
        let own = [HOST, COOKIE, ("origin", "http://127.0.0.1:4000"), ("sec-fetch-site", "same-origin")];
        assert_eq!(check("POST", "/api/try", &own), Entry::Allowed);
        for (origin, site) in [
            ("http://evil.example", "cross-site"),
            ("http://127.0.0.1:4001", "same-site"),
            ("http://127.0.0.1:4000", "cross-site"),
            ("null", "none"),
        ] {
            let headers = [HOST, COOKIE, ("origin", origin), ("sec-fetch-site", site)];
            assert!(matches!(check("POST", "/api/try", &headers), Entry::Refused(_)), "{origin} {site}");
        }
        assert!(matches!(check("POST", "/api/try", &[HOST, COOKIE]), Entry::Refused(_)));
    }
}
