//! URLs in expressions, read as Go reads them, with its errors.
//!
//! An escape can stand for a byte that is no text. Go keeps the byte; here it becomes U+FFFD, one for each byte, which
//! is as many characters as Go counts.

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_model::quoted::{Quoted, QuotedBytes};

use super::ip_literals;
use crate::Error;
use crate::value::{Key, Map, Value};

/// A query with more parameters is read as an empty one, as Go does.
const PARAMETERS_MAX: usize = 10_000;

/// A URL that was read.
#[derive(Debug)]
pub(crate) struct Url {
    scheme: Arc<str>,
    host: Arc<str>,
    escaped_path: Arc<str>,
    query: Arc<str>,
    /// All of it, written again: two URLs are equal if this is.
    text: String,
}

impl PartialEq for Url {
    fn eq(&self, other: &Url) -> bool {
        self.text == other.text
    }
}

/// A part of a URL, by which characters stand for themselves in it.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Path,
    Host,
    /// What follows the address in brackets.
    Zone,
    User,
    Query,
    Fragment,
}

impl Part {
    /// Whether a byte stands for itself.
    fn keeps(self, byte: u8) -> bool {
        let others: &[u8] = match self {
            Part::Path => b"$&+,/:;=@",
            Part::Host | Part::Zone => b"!$&'()*+,;=:[]<>\"",
            Part::User => b"$&+,;=",
            Part::Query => b"",
            Part::Fragment => b"$&+,/:;=?@!()*",
        };
        byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) || others.contains(&byte)
    }

    /// Whether a byte may be escaped: in a host only what is no ASCII, and the percent sign before a zone.
    fn may_escape(self, byte: u8) -> bool {
        match self {
            Part::Host => byte >= 0x80 || byte == b'%',
            Part::Zone => byte == b'%' || byte == b' ' || self.keeps(byte),
            _ => true,
        }
    }

    fn is_of_host(self) -> bool {
        matches!(self, Part::Host | Part::Zone)
    }

    fn unescape(self, text: &str) -> Result<Vec<u8>, String> {
        let mut plain = Vec::with_capacity(text.len());
        let mut rest = text.as_bytes();
        while let [first, after @ ..] = rest {
            rest = after;
            plain.push(match first {
                b'%' => {
                    let escape = &text.as_bytes()[text.len() - rest.len() - 1..];
                    let escape = &escape[..escape.len().min(3)];
                    let byte = escaped_byte(escape).filter(|byte| self.may_escape(*byte));
                    rest = &rest[rest.len().min(2)..];
                    byte.ok_or_else(|| format!("invalid URL escape {}", QuotedBytes(escape)))?
                }
                b'+' if self == Part::Query => b' ',
                byte if self.is_of_host() && byte.is_ascii() && !self.keeps(*byte) => {
                    return Err(format!("invalid character {} in host name", QuotedBytes(&[*byte])));
                }
                byte => *byte,
            });
        }
        Ok(plain)
    }

    fn escape(self, bytes: &[u8]) -> String {
        let mut text = String::with_capacity(bytes.len());
        for byte in bytes {
            if self.keeps(*byte) {
                text.push(char::from(*byte));
            } else {
                text.push_str(&format!("%{byte:02X}"));
            }
        }
        text
    }

    /// A text whose escapes are right, as it stands in a URL: unchanged if it can stand there.
    fn escaped(self, text: &str, plain: &[u8]) -> String {
        let stands = |byte: u8| self.keeps(byte) || b"!$&'()*+,;=:@[]%".contains(&byte);
        if text.bytes().all(stands) { text.to_owned() } else { self.escape(plain) }
    }
}

/// The byte that `%41` stands for.
fn escaped_byte(escape: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    match escape {
        [b'%', high, low] => u8::try_from(digit(*high)? << 4 | digit(*low)?).ok(),
        _ => None,
    }
}

/// Bytes as text.
fn text_of(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text
}

/// The scheme and what follows its colon, or all of it without one.
fn scheme(text: &str) -> Result<(&str, &str), String> {
    let is_of_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    match text.find(|c: char| !is_of_scheme(c)) {
        Some(at) if text.as_bytes()[at] == b':' => match text.as_bytes()[0] {
            b':' => Err("missing protocol scheme".to_owned()),
            first if first.is_ascii_alphabetic() => Ok((&text[..at], &text[at + 1..])),
            _ => Ok(("", text)),
        },
        _ => Ok(("", text)),
    }
}

/// Where a URL stands: it must be absolute in a request, and there has no fragment and no host without a scheme.
#[derive(Clone, Copy, PartialEq)]
enum Within {
    Request,
    Document,
}

/// The parts of a URL.
#[derive(Default)]
struct Parts<'t> {
    scheme: String,
    opaque: &'t str,
    /// Escaped.
    user: Option<String>,
    host: Vec<u8>,
    has_authority: bool,
    escaped_path: String,
    query: Option<&'t str>,
}

/// Reads a URL without a fragment.
fn parts(text: &str, within: Within) -> Result<Parts<'_>, String> {
    let mut parts = Parts::default();
    if text.bytes().any(|byte| byte.is_ascii_control()) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    match text {
        "" if within == Within::Request => return Err("empty url".to_owned()),
        "*" => return Ok(Parts { escaped_path: "*".to_owned(), ..parts }),
        _ => {}
    }
    let (scheme, rest) = scheme(text)?;
    parts.scheme = scheme.to_ascii_lowercase();
    let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
    parts.query = query;
    let has_scheme = !scheme.is_empty();
    if !rest.starts_with('/') {
        if has_scheme {
            return Ok(Parts { opaque: rest, ..parts });
        }
        if within == Within::Request {
            return Err("invalid URI for request".to_owned());
        }
    }
    let may_have_authority = has_scheme || (within == Within::Document && !rest.starts_with("///"));
    let mut path = rest;
    if let Some(authority) = rest.strip_prefix("//").filter(|_| may_have_authority) {
        let end = authority.find('/').unwrap_or(authority.len());
        path = &authority[end..];
        parts.read_authority(&authority[..end])?;
    }
    parts.escaped_path = Part::Path.escaped(path, &Part::Path.unescape(path)?);
    Ok(parts)
}

impl Parts<'_> {
    fn read_authority(&mut self, authority: &str) -> Result<(), String> {
        self.has_authority = true;
        let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
        self.host = read_host(&self.scheme, host)?;
        let Some(user) = user else { return Ok(()) };
        if !user.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte)) {
            return Err("net/url: invalid userinfo".to_owned());
        }
        let escaped = |text: &str| Ok::<_, String>(Part::User.escape(&Part::User.unescape(text)?));
        self.user = Some(match user.split_once(':') {
            Some((name, password)) => format!("{}:{}", escaped(name)?, escaped(password)?),
            None => escaped(user)?,
        });
        Ok(())
    }

    /// The URL, written again.
    fn text(&self, fragment: &str) -> String {
        let mut text = String::new();
        if !self.scheme.is_empty() {
            text.extend([&self.scheme, ":"]);
        }
        let is_empty = self.host.is_empty() && self.escaped_path.is_empty() && self.user.is_none();
        if self.has_authority && !is_empty {
            text.push_str("//");
            text.extend(self.user.iter().flat_map(|user| [user, "@"]));
            text.push_str(&Part::Host.escape(&self.host));
        }
        text.extend([self.opaque, &self.escaped_path]);
        text.extend(self.query.iter().flat_map(|query| ["?", query]));
        if !fragment.is_empty() {
            text.extend(["#", fragment]);
        }
        text
    }
}

fn is_optional_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

fn read_host(scheme: &str, host: &str) -> Result<Vec<u8>, String> {
    let wrong_port = |port: &str| format!("invalid port {} after host", Quoted(port));
    match host.rfind('[') {
        None => {
            // Some databases have lists of hosts with ports; those of HTTP do not.
            let colon = if matches!(scheme, "http" | "https") { host.find(':') } else { host.rfind(':') };
            match colon.map(|at| &host[at..]) {
                Some(port) if !is_optional_port(port) => Err(wrong_port(port)),
                _ => Part::Host.unescape(host),
            }
        }
        Some(0) => {
            let end = host.rfind(']').ok_or("missing ']' in host")?;
            let (address, port) = (&host[1..end], &host[end + 1..]);
            if !is_optional_port(port) {
                return Err(wrong_port(port));
            }
            let (address, zone) = address.split_at(address.find("%25").unwrap_or(address.len()));
            let mut plain = Part::Host.unescape(address)?;
            plain.extend(Part::Zone.unescape(zone)?);
            match ip_literals::fault(&plain) {
                Some(fault) => Err(fault),
                None => Ok([b"[", plain.as_slice(), b"]", port.as_bytes()].concat()),
            }
        }
        Some(_) => Err("invalid IP-literal".to_owned()),
    }
}

/// What is wrong with a text that should be an absolute URI or an absolute path.
pub(super) fn fault(text: &str) -> Option<String> {
    parts(text, Within::Request).err().map(|why| failed(text, &why))
}

fn failed(text: &str, why: &str) -> String {
    format!("parse {}: {why}", Quoted(text))
}

fn read(text: &str) -> Result<Url, String> {
    if let Some(fault) = fault(text) {
        return Err(fault);
    }
    let (document, fragment) = text.split_once('#').unwrap_or((text, ""));
    let parts = parts(document, Within::Document).map_err(|why| failed(document, &why))?;
    let plain_fragment = Part::Fragment.unescape(fragment).map_err(|why| failed(text, &why))?;
    Ok(Url {
        text: parts.text(&Part::Fragment.escaped(fragment, &plain_fragment)),
        scheme: parts.scheme.into(),
        host: text_of(&parts.host).into(),
        escaped_path: parts.escaped_path.into(),
        query: parts.query.unwrap_or("").into(),
    })
}

/// Functions of a text.
pub(super) fn of_text(name: &str, text: &str) -> Result<Value, Error> {
    match name {
        "isURL" => Ok(Value::Bool(fault(text).is_none())),
        _ => read(text)
            .map(|url| Value::Url(Arc::new(url)))
            .map_err(|error| Error::runtime(format!("URL parse error during conversion from string: {error}"))),
    }
}

impl Url {
    /// The bytes of it.
    pub(super) fn len(&self) -> u64 {
        self.text.len() as u64
    }

    /// The host without its port, and the port.
    fn host_and_port(&self) -> (&str, &str) {
        let (name, port) = match self.host.rfind(':') {
            Some(at) if is_optional_port(&self.host[at..]) => (&self.host[..at], &self.host[at + 1..]),
            _ => (&*self.host, ""),
        };
        (name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name), port)
    }

    /// The parameters by name. Those that cannot be read are left out.
    fn parameters(&self) -> Map {
        let mut parameters: BTreeMap<Key, Vec<Value>> = BTreeMap::new();
        let count = self.query.bytes().filter(|byte| *byte == b'&').count() + 1;
        let all = self.query.split('&').filter(|parameter| !parameter.is_empty() && !parameter.contains(';'));
        for parameter in all.filter(|_| count <= PARAMETERS_MAX) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            if let (Ok(name), Ok(value)) = (Part::Query.unescape(name), Part::Query.unescape(value)) {
                let values = parameters.entry(Key::String(text_of(&name).into())).or_default();
                values.push(Value::string(text_of(&value)));
            }
        }
        let entries = parameters.into_iter().map(|(name, values)| (name, Value::list(values))).collect();
        Map { entries, default: None }
    }
}

/// Methods of a URL.
pub(super) fn of_url(name: &str, url: &Url) -> Result<Value, Error> {
    Ok(match name {
        "getScheme" => Value::String(Arc::clone(&url.scheme)),
        "getHost" => Value::String(Arc::clone(&url.host)),
        "getHostname" => Value::string(url.host_and_port().0),
        "getPort" => Value::string(url.host_and_port().1),
        "getEscapedPath" => Value::String(Arc::clone(&url.escaped_path)),
        "getQuery" => Value::Map(Arc::new(url.parameters())),
        _ => return Err(Error::no_such_overload()),
    })
}
