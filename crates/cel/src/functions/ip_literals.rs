//! IP addresses in the brackets of a URL, refused in the words of Go.

use bayplan_model::quoted::QuotedBytes;

/// The groups of an IPv6 address.
const GROUPS: usize = 8;
/// The groups that an IPv4 address at the end stands for.
const IPV4_GROUPS: usize = 2;

/// Why a text is no address, and from where on.
struct Fault<'t>(&'static str, &'t [u8]);

/// What is wrong with an address in brackets, which must be one of IPv6; it may have a zone.
pub(super) fn fault(text: &[u8]) -> Option<String> {
    let read = match text.iter().find(|byte| matches!(byte, b'.' | b':' | b'%')) {
        Some(b'.') if ipv4(text).is_ok() => return Some("invalid IP-literal".to_owned()),
        Some(b'.') => ipv4(text),
        Some(b':') => ipv6(text),
        Some(_) => Err(Fault("missing IPv6 address", b"")),
        None => Err(Fault("unable to parse IP", b"")),
    };
    let Fault(why, at) = read.err()?;
    let at = if at.is_empty() { String::new() } else { format!(" (at {})", QuotedBytes(at)) };
    Some(format!("invalid host: ParseAddr({}): {why}{at}", QuotedBytes(text)))
}

fn ipv4(text: &[u8]) -> Result<(), Fault<'_>> {
    let mut dots = 0;
    let mut field: &[u8] = b"";
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'0'..=b'9' if field == b"0" => return Err(Fault("IPv4 field has octet with leading zero", b"")),
            b'0'..=b'9' => {
                field = &text[at - field.len()..=at];
                // With three digits their order is that of the numbers.
                if field.len() > 3 || (field.len() == 3 && field > b"255".as_slice()) {
                    return Err(Fault("IPv4 field has value >255", b""));
                }
            }
            b'.' if field.is_empty() || at + 1 == text.len() => {
                return Err(Fault("IPv4 field must have at least one digit", &text[at..]));
            }
            b'.' if dots == 3 => return Err(Fault("IPv4 address too long", b"")),
            b'.' => (dots, field) = (dots + 1, b""),
            _ => return Err(Fault("unexpected character", &text[at..])),
        }
    }
    if dots < 3 { Err(Fault("IPv4 address too short", b"")) } else { Ok(()) }
}

fn ipv6(text: &[u8]) -> Result<(), Fault<'_>> {
    let zone = text.iter().position(|byte| *byte == b'%');
    if zone.is_some_and(|at| at + 1 == text.len()) {
        return Err(Fault("zone must be a non-empty string", b""));
    }
    let address = &text[..zone.unwrap_or(text.len())];
    let (mut rest, mut has_gap) = match address.strip_prefix(b"::") {
        Some(b"") => return Ok(()),
        Some(rest) => (rest, true),
        None => (address, false),
    };
    let mut groups = 0;
    while groups < GROUPS {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        match digits {
            0 => return Err(Fault("each colon-separated field must have at least one digit", rest)),
            1..=4 => {}
            _ => return Err(Fault("each group must have 4 or less digits", rest)),
        }
        if rest.get(digits) == Some(&b'.') {
            groups = with_ipv4(rest, groups, has_gap)?;
            rest = b"";
            break;
        }
        groups += 1;
        rest = match &rest[digits..] {
            [] => b"",
            at @ [b':'] => return Err(Fault("colon must be followed by more characters", at)),
            [b':', at @ ..] if has_gap && at.starts_with(b":") => return Err(Fault("multiple :: in address", at)),
            [b':', b':', rest @ ..] => {
                has_gap = true;
                rest
            }
            [b':', rest @ ..] => rest,
            at => return Err(Fault("unexpected character, want colon", at)),
        };
        if rest.is_empty() {
            break;
        }
    }
    match groups {
        _ if !rest.is_empty() => Err(Fault("trailing garbage after address", rest)),
        GROUPS if has_gap => Err(Fault("the :: must expand to at least one field of zeros", b"")),
        0..GROUPS if !has_gap => Err(Fault("address string too short", b"")),
        _ => Ok(()),
    }
}

/// Reads the IPv4 address at the end of an IPv6 one; the answer is the number of groups that there are with it.
fn with_ipv4(text: &[u8], groups: usize, has_gap: bool) -> Result<usize, Fault<'_>> {
    let all = groups + IPV4_GROUPS;
    if !has_gap && all != GROUPS {
        return Err(Fault("embedded IPv4 address must replace the final 2 fields of the address", text));
    }
    if all > GROUPS {
        return Err(Fault("too many hex fields to fit an embedded IPv4 at the end of the address", text));
    }
    ipv4(text).map(|()| all)
}
