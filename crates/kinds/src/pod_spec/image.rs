//! Image references, as far as the pull policy depends on them.

/// `Always` for images that may change under their name.
pub(super) fn pull_policy(image: &str) -> &'static str {
    if is_latest(image) { "Always" } else { "IfNotPresent" }
}

/// Whether an image reference means the tag `latest`, explicitly or by omission. An invalid reference does not.
fn is_latest(image: &str) -> bool {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    // A colon before the last slash belongs to the registry's port.
    let (path, tag) = match name.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
        _ => (name, None),
    };
    if !is_image_path(path) || digest.is_some_and(|digest| !is_digest(digest)) {
        return false;
    }
    match tag {
        Some(tag) => tag == "latest",
        None => digest.is_none(),
    }
}

fn is_digest(digest: &str) -> bool {
    digest.split_once(':').is_some_and(|(algorithm, hex)| {
        !algorithm.is_empty() && hex.len() >= 32 && hex.bytes().all(|b| b.is_ascii_hexdigit())
    })
}

/// `[registry/]path/…/name`, lower case, separators inside components only.
fn is_image_path(path: &str) -> bool {
    let (registry, rest) = match path.split_once('/') {
        Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" || first != first.to_lowercase() => {
            (Some(first), rest)
        }
        _ => (None, path),
    };
    if path.len() == 64 && path.bytes().all(|b| matches!(b, b'a'..=b'f' | b'0'..=b'9')) {
        return false;
    }
    let component = |part: &str| {
        let bytes = part.as_bytes();
        let edge = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        edge(bytes.first())
            && edge(bytes.last())
            && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-'))
            && !part.contains("..")
            && !part.contains("___")
    };
    let host = |part: &str| {
        let (name, port) = part.split_once(':').unwrap_or((part, "0"));
        !name.is_empty()
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-'))
            && port.bytes().all(|b| b.is_ascii_digit())
            && !port.is_empty()
    };
    registry.is_none_or(host) && rest.split('/').all(component)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pull_policy_follows_the_tag() {
        let cases = [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("nginx:1.25", "IfNotPresent"),
            ("registry.example.com:5000/a/b", "Always"),
            ("registry.example.com:5000/a/b:v1", "IfNotPresent"),
            ("a@sha256:7031c1b283388d2c2e09b57badb803c05ebed362dc88d84b480cc47f72a21097", "IfNotPresent"),
            ("a:latest@sha256:7031c1b283388d2c2e09b57badb803c05ebed362dc88d84b480cc47f72a21097", "Always"),
            ("Not A Reference", "IfNotPresent"),
            ("", "IfNotPresent"),
        ];
        for (image, want) in cases {
            assert_eq!(pull_policy(image), want, "{image}");
        }
    }
}
