//! What a label's key and value may be.

use crate::dns_name;

/// Longest name part of a key, and longest value.
const PART_BYTES_MAX: usize = 63;
/// Longest DNS subdomain before a key's slash.
const PREFIX_BYTES_MAX: usize = 253;

const NAME_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                         alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
                         validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
                          '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or \
                          'my_value',  or '12345', regex used for validation is \
                          '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' \
                              or '.', and must start and end with an alphanumeric character (e.g. 'example.com', \
                              regex used for validation is \
                              '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// The errors of a label key (a qualified name); none when it is valid.
pub fn key_errors(key: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let name = match key.split_once('/') {
        None => key,
        Some((_, name)) if name.contains('/') => {
            return vec![format!(
                "a valid label key {NAME_RULE} with an optional DNS subdomain prefix and '/' \
                 (e.g. 'example.com/MyName')"
            )];
        }
        Some(("", name)) => {
            errors.push("prefix part must be non-empty".into());
            name
        }
        Some((prefix, name)) => {
            errors.extend(subdomain_errors(prefix).into_iter().map(|error| format!("prefix part {error}")));
            name
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".into());
    } else if name.len() > PART_BYTES_MAX {
        errors.push(format!("name part must be no more than {PART_BYTES_MAX} bytes"));
    }
    if !is_name(name) {
        errors.push(format!("name part {NAME_RULE}"));
    }
    errors
}

/// The errors of a label value; none when it is valid.
pub fn value_errors(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > PART_BYTES_MAX {
        errors.push(format!("must be no more than {PART_BYTES_MAX} bytes"));
    }
    if !value.is_empty() && !is_name(value) {
        errors.push(VALUE_RULE.into());
    }
    errors
}

/// The errors of a DNS subdomain (most object names); none when it is valid.
pub fn subdomain_errors(subdomain: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if subdomain.len() > PREFIX_BYTES_MAX {
        errors.push(format!("must be no more than {PREFIX_BYTES_MAX} bytes"));
    }
    if !dns_name::is_subdomain(subdomain) {
        errors.push(SUBDOMAIN_RULE.into());
    }
    errors
}

fn is_name(name: &str) -> bool {
    let at_the_ends = |byte: &u8| byte.is_ascii_alphanumeric();
    match name.as_bytes() {
        [] => false,
        [only] => at_the_ends(only),
        [first, middle @ .., last] => {
            at_the_ends(first)
                && at_the_ends(last)
                && middle.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_an_optional_dns_prefix_and_a_name() {
        for key in ["a", "app.kubernetes.io/name", "A_b-c.9"] {
            assert_eq!(key_errors(key), Vec::<String>::new(), "{key}");
        }
        for (key, errors) in [("", 2), ("/a", 1), ("a/", 2), ("a/b/c", 1), ("A.com/x", 1), ("-a", 1), ("a b", 1)] {
            assert_eq!(key_errors(key).len(), errors, "{key}");
        }
        assert_eq!(key_errors(&"x".repeat(64)), ["name part must be no more than 63 bytes"]);
    }

    #[test]
    fn values_may_be_empty_but_not_ragged() {
        for value in ["", "a", "1.2_3-4"] {
            assert_eq!(value_errors(value), Vec::<String>::new(), "{value}");
        }
        for value in ["-a", "a.", "a b", "é"] {
            assert_eq!(value_errors(value).len(), 1, "{value}");
        }
    }
}
