//! The query of a request's URL.

/// The value of a parameter, decoded; the first when it is given more than once.
pub(crate) fn parameter(query: &str, name: &str) -> Option<String> {
    let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let mut found = pairs.filter(|(key, _)| decoded(key) == name);
    found.next().map(|(_, value)| decoded(value))
}

/// Undoes the encoding of forms. What is no escape stays as it is, and what is no UTF-8 is replaced.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = || {
            let digits = text.get(at + 1..at + 3)?;
            digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u8::from_str_radix(digits, 16).ok())?
        };
        let (byte, length) = match bytes[at] {
            b'+' => (b' ', 1),
            b'%' => escaped().map_or((b'%', 1), |byte| (byte, 3)),
            byte => (byte, 1),
        };
        out.push(byte);
        at += length;
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_as_forms_write_them() {
        for (query, expected) in [
            ("pod=default%2Fweb-1", Some("default/web-1")),
            ("a=1&pod=a+b&pod=c", Some("a b")),
            ("pod=%zz%4", Some("%zz%4")),
            ("pod=%ff", Some("\u{fffd}")),
            ("pod=%+1", Some("% 1")),
            ("pod", Some("")),
            ("pods=1", None),
            ("", None),
        ] {
            assert_eq!(parameter(query, "pod").as_deref(), expected, "{query}");
        }
    }
}
