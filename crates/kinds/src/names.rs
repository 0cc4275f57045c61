//! What names must look like, in upstream's words: labels, subdomains, qualified names, ports.

pub(crate) use bayplan_model::dns_name::form_error;
/// A DNS label, one that begins with a letter, and dot-separated ones.
pub(crate) use bayplan_model::dns_name::{
    label_1035_errors as dns_1035_label, label_errors as dns_label, subdomain_errors as dns_subdomain,
};
/// A qualified name, as in label keys, and the value of a label.
pub(crate) use bayplan_model::label::{key_errors as qualified_name, value_errors as label_value};

const CONFIG_KEY_MAX: usize = 253;

fn too_long(max: usize) -> String {
    format!("must be no more than {max} characters")
}

/// What any name must be to fit into a URL.
pub(crate) fn path_segment(value: &str) -> Vec<String> {
    if matches!(value, "." | "..") {
        return vec![format!("may not be '{value}'")];
    }
    let bad = ["/", "%"].into_iter().filter(|bad| value.contains(bad));
    bad.map(|bad| format!("may not contain '{bad}'")).collect()
}

/// A domain, with a wildcard as its first label. Upstream: `IsWildcardDNS1123Subdomain`.
pub(crate) fn wildcard_subdomain(value: &str) -> Vec<String> {
    const SUBDOMAIN_MAX: usize = 253;
    const FORM: &str = r"\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
    let mut errors = Vec::new();
    if value.len() > SUBDOMAIN_MAX {
        errors.push(too_long(SUBDOMAIN_MAX));
    }
    // The length is that of the whole.
    let formed = |rest: &str| dns_subdomain(rest).iter().all(|error| error.starts_with("must be no more than"));
    if !value.strip_prefix("*.").is_some_and(formed) {
        errors.push(form_error(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist \
             of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
            FORM,
            &["*.example.com"],
        ));
    }
    errors
}

/// A key of a ConfigMap or Secret.
pub(crate) fn config_key(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > CONFIG_KEY_MAX {
        errors.push(too_long(CONFIG_KEY_MAX));
    }
    if value.is_empty() || !value.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) {
        errors.push(form_error(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    match value {
        "." | ".." => errors.push(format!("must not be '{value}'")),
        _ if value.starts_with("..") => errors.push("must not start with '..'".to_owned()),
        _ => {}
    }
    errors
}

/// The name of a port.
pub(crate) fn port_name(value: &str) -> Vec<String> {
    const PORT_NAME_MAX: usize = 15;
    let mut errors = Vec::new();
    if value.len() > PORT_NAME_MAX {
        errors.push(too_long(PORT_NAME_MAX));
    }
    if value.is_empty() || !value.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        errors.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !value.bytes().any(|b| b.is_ascii_lowercase()) {
        errors.push("must contain at least one letter (a-z)".to_owned());
    }
    if value.contains("--") {
        errors.push("must not contain consecutive hyphens".to_owned());
    }
    if value.starts_with('-') || value.ends_with('-') {
        errors.push("must not begin or end with a hyphen".to_owned());
    }
    errors
}

/// The name of an environment variable.
pub(crate) fn env_name(value: &str) -> Vec<String> {
    if value.bytes().all(|b| (b.is_ascii_graphic() || b == b' ') && b != b'=') {
        return Vec::new();
    }
    vec!["a valid environment variable name must consist only of printable ASCII characters other than '='".to_owned()]
}

/// What is wrong with the name of an HTTP header.
pub(crate) fn http_header(value: &str) -> Option<String> {
    let fits = !value.is_empty() && value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let words = "a valid HTTP header must consist of alphanumeric characters or '-'";
    (!fits).then(|| form_error(words, "[-A-Za-z0-9]+", &["X-Header-Name"]))
}

/// What is wrong with a DNS subdomain whose labels may have underscores.
pub(crate) fn underscored_subdomain(value: &str) -> Vec<String> {
    const SUBDOMAIN_MAX: usize = 253;
    let mut errors = Vec::new();
    if value.len() > SUBDOMAIN_MAX {
        errors.push(too_long(SUBDOMAIN_MAX));
    }
    let word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let label = |label: &str| {
        let label = label.strip_prefix('_').unwrap_or(label).as_bytes();
        let ends = label.first().zip(label.last()).is_some_and(|(first, last)| word(*first) && word(*last));
        ends && label.iter().all(|b| word(*b) || matches!(b, b'-' | b'_'))
    };
    if !value.split('.').all(label) {
        errors.push(form_error(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', \
             and must start and end with an alphanumeric character",
            r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*",
            &["example.com"],
        ));
    }
    errors
}

/// What is wrong with a path under a domain, `example.com/controller`: parts of it, and why.
pub(crate) fn domain_prefixed_path(value: &str) -> Vec<(&str, String)> {
    const PUNCTUATION: &str = "/-._~%!$&'()*+,;=:";
    let Some((domain, path)) = value.split_once('/').filter(|(domain, path)| !domain.is_empty() && !path.is_empty())
    else {
        return vec![(value, "must be a domain-prefixed path (such as \"acme.io/foo\")".to_owned())];
    };
    let mut errors: Vec<(&str, String)> = dns_subdomain(domain).into_iter().map(|problem| (domain, problem)).collect();
    if !path.bytes().all(|b| b.is_ascii_alphanumeric() || PUNCTUATION.as_bytes().contains(&b)) {
        let form = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+";
        errors.push((path, format!("Invalid path (regex used for validation is '{form}')")));
    }
    errors
}

/// What is wrong with a port number.
pub(crate) fn port_number(port: i64) -> Option<&'static str> {
    (!(1..=65535).contains(&port)).then_some("must be between 1 and 65535, inclusive")
}

/// `10%`.
pub(crate) fn percent(value: &str) -> Option<String> {
    let digits = value.strip_suffix('%').unwrap_or("");
    let fits = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    (!fits).then(|| {
        form_error(
            "a valid percent string must be a numeric string followed by an ending '%'",
            "[0-9]+%",
            &["1%", "93%"],
        )
    })
}
