//! DNS names as Kubernetes allows them, and its words for what is wrong with others.

const LABEL_MAX: usize = 63;
const SUBDOMAIN_MAX: usize = 253;

const LABEL_FORM: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN_FORM: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";

/// Words, a pattern and examples, as upstream puts them together.
pub fn form_error(words: &str, form: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{words} (e.g. {}regex used for validation is '{form}')", examples.join(" or "))
}

fn too_long(max: usize) -> String {
    format!("must be no more than {max} characters")
}

fn lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn is_label(value: &str) -> bool {
    match value.as_bytes() {
        [only] => lower(*only),
        [first, middle @ .., last] => {
            lower(*first) && lower(*last) && middle.iter().all(|byte| lower(*byte) || *byte == b'-')
        }
        [] => false,
    }
}

pub(crate) fn is_subdomain(value: &str) -> bool {
    value.split('.').all(is_label)
}

/// The errors of a DNS label (RFC 1123); none when it is valid.
pub fn label_errors(value: &str) -> Vec<String> {
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

/// The errors of a DNS label that begins with a letter (RFC 1035).
pub fn label_1035_errors(value: &str) -> Vec<String> {
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

/// The errors of dot-separated DNS labels (RFC 1123).
pub fn subdomain_errors(value: &str) -> Vec<String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_lower_case_words_between_dots() {
        let cases: [(&str, [bool; 3]); 9] = [
            ("a", [true, true, true]),
            ("a-1", [true, true, true]),
            ("1a", [true, false, true]),
            ("a.b", [false, false, true]),
            ("", [false; 3]),
            ("a-", [false; 3]),
            ("-", [false; 3]),
            ("A", [false; 3]),
            ("a..b", [false; 3]),
        ];
        for (name, valid) in cases {
            let errors = [label_errors(name), label_1035_errors(name), subdomain_errors(name)];
            assert_eq!(errors.map(|errors| errors.is_empty()), valid, "{name}");
        }
        assert_eq!(label_errors("a.b"), ["must not contain dots"]);
        assert_eq!(label_errors(&"a".repeat(64)), ["must be no more than 63 characters"]);
    }
}
