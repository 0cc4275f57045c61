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
    // A bare name is one of the library's.
    let length = if registry.is_none() && !rest.contains('/') { "library/".len() + rest.len() } else { rest.len() };
    length <= PATH_MAX && registry.is_none_or(is_host) && rest.split('/').all(is_component)
}

/// The longest path of an image, in bytes.
const PATH_MAX: usize = 255;

/// Words of small letters and digits, between which is a dot, one or two underscores, or hyphens.
fn is_component(part: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let edge = |byte: Option<&u8>| byte.is_some_and(|byte| is_word(*byte));
    let separators = part.split(|character: char| character.is_ascii() && is_word(character as u8));
    let known = |between: &str| matches!(between, "" | "." | "_" | "__") || between.bytes().all(|byte| byte == b'-');
    edge(part.as_bytes().first()) && edge(part.as_bytes().last()) && separators.into_iter().all(known)
}

/// A name with dots, and maybe a port.
fn is_host(host: &str) -> bool {
    let (name, port) = host.split_once(':').unwrap_or((host, "0"));
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    name.split('.').all(is_label) && !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
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
            ("../x", "IfNotPresent"),
            ("a.-b", "IfNotPresent"),
            ("a--b__c/d.e_f", "Always"),
            ("a_b.c/d", "IfNotPresent"),
        ];
        for (image, want) in cases {
            assert_eq!(pull_policy(image), want, "{image}");
        }
    }
}
