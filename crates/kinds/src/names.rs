//! What names must look like, in upstream's words: labels, subdomains, qualified names, ports.

use bayplan_model::dns_name::form_error;

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
