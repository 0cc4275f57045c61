//! What names must look like, in upstream's words: labels, subdomains, qualified names, ports.

const LABEL_MAX: usize = 63;
const SUBDOMAIN_MAX: usize = 253;

const LABEL_FORM: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN_FORM: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const QUALIFIED_FORM: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const QUALIFIED_WORDS: &str =
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

fn form_error(words: &str, form: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{words} (e.g. {}regex used for validation is '{form}')", examples.join(" or "))
}

fn too_long(max: usize) -> String {
    format!("must be no more than {max} characters")
}

fn edges(value: &str, edge: impl Fn(u8) -> bool, middle: impl Fn(u8) -> bool) -> bool {
    let bytes = value.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => edge(*first) && edge(*last) && bytes.iter().all(|b| edge(*b) || middle(*b)),
        _ => false,
    }
}

fn lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn is_label(value: &str) -> bool {
    edges(value, lower, |b| b == b'-')
}

fn is_subdomain(value: &str) -> bool {
    value.split('.').all(is_label)
}

/// A DNS label (RFC 1123).
pub(crate) fn dns_label(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > LABEL_MAX {
        errors.push(too_long(LABEL_MAX));
    }
    if !is_label(value) {
        errors.push(if is_subdomain(value) {
            "must not contain dots".to_owned()
        } else {
            form_error(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
                 and must start and end with an alphanumeric character",
                LABEL_FORM,
                &["my-name", "123-abc"],
            )
        });
    }
    errors
}

/// A DNS label that begins with a letter (RFC 1035).
pub(crate) fn dns_1035_label(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > LABEL_MAX {
        errors.push(too_long(LABEL_MAX));
    }
    if !(is_label(value) && value.as_bytes()[0].is_ascii_lowercase()) {
        errors.push(form_error(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', \
             start with an alphabetic character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    errors
}

/// Dot-separated DNS labels (RFC 1123).
pub(crate) fn dns_subdomain(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > SUBDOMAIN_MAX {
        errors.push(too_long(SUBDOMAIN_MAX));
    }
    if !is_subdomain(value) {
        errors.push(form_error(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
             and must start and end with an alphanumeric character",
            SUBDOMAIN_FORM,
            &["example.com"],
        ));
    }
    errors
}

fn qualified_part(byte: u8) -> bool {
    matches!(byte, b'-' | b'_' | b'.')
}

/// `[prefix/]name`, as in label keys.
pub(crate) fn qualified_name(value: &str) -> Vec<String> {
    let words = || form_error(QUALIFIED_WORDS, QUALIFIED_FORM, &["MyName", "my.name", "123-abc"]);
    let mut errors = Vec::new();
    let name = match value.split_once('/') {
        None => value,
        Some((_, rest)) if rest.contains('/') => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                words()
            )];
        }
        Some((prefix, name)) => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                errors.extend(dns_subdomain(prefix).into_iter().map(|error| {
                    let error = error.replace("253 characters", "253 bytes");
                    format!("prefix part {error}")
                }));
            }
            name
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_MAX {
        errors.push(format!("name part must be no more than {LABEL_MAX} bytes"));
    }
    if !edges(name, |b| b.is_ascii_alphanumeric(), qualified_part) {
        errors.push(format!("name part {}", words()));
    }
    errors
}

/// The value of a label; empty is fine.
pub(crate) fn label_value(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > LABEL_MAX {
        errors.push(format!("must be no more than {LABEL_MAX} bytes"));
    }
    if !value.is_empty() && !edges(value, |b| b.is_ascii_alphanumeric(), qualified_part) {
        errors.push(form_error(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
             and must start and end with an alphanumeric character",
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
            &["MyValue", "my_value", "12345"],
        ));
    }
    errors
}

/// What any name must be to fit into a URL.
pub(crate) fn path_segment(value: &str) -> Vec<String> {
    if matches!(value, "." | "..") {
        return vec![format!("may not be '{value}'")];
    }
    let bad = ["/", "%"].into_iter().filter(|bad| value.contains(bad));
    bad.map(|bad| format!("may not contain '{bad}'")).collect()
}

/// A key of a ConfigMap or Secret.
pub(crate) fn config_key(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > SUBDOMAIN_MAX {
        errors.push(too_long(SUBDOMAIN_MAX));
    }
    if value.is_empty() || !value.bytes().all(|b| b.is_ascii_alphanumeric() || qualified_part(b)) {
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
    if value.is_empty() || !value.bytes().all(|b| lower(b) || b == b'-') {
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
