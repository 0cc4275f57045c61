//! Field selectors: `fields.ParseSelector`, the `metadata.name=x,spec.nodeName!=` of list and watch requests.

use std::fmt;

/// Whether the field must or must not have the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    /// Must.
    Equals,
    /// Must not.
    NotEquals,
}

impl Operator {
    /// How it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Operator::Equals => "=",
            Operator::NotEquals => "!=",
        }
    }
}

/// One term of a selector.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Requirement {
    /// Path of the field.
    pub field: String,
    /// Must or must not.
    pub operator: Operator,
    /// The value, unescaped.
    pub value: String,
}

/// All terms of a selector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FieldSelector {
    requirements: Vec<Requirement>,
}

/// Why a text is not a field selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A term without operator.
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    Term {
        /// The whole text.
        selector: String,
        /// The term.
        term: String,
    },
    /// A backslash before something that needs none.
    #[error("invalid field selector: invalid escape sequence: {0}")]
    Escape(String),
    /// A comma or equals sign without its backslash.
    #[error("invalid field selector: unescaped character in value: {}", u32::from(*.0))]
    Unescaped(char),
}

impl FieldSelector {
    /// Reads a selector; empty terms are ignored.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut terms = split(text);
        terms.sort_unstable();
        let mut requirements = Vec::new();
        for term in terms.into_iter().filter(|term| !term.is_empty()) {
            let (field, operator, value) =
                split_term(term).ok_or_else(|| Error::Term { selector: text.into(), term: term.into() })?;
            let value = unescape(value)?;
            if !(field.is_empty() && value.is_empty()) {
                requirements.push(Requirement { field: field.into(), operator, value });
            }
        }
        Ok(FieldSelector { requirements })
    }

    /// Whether an object is selected, given its fields; a field it does not have is empty.
    pub fn matches<'a>(&self, field: impl Fn(&str) -> &'a str) -> bool {
        self.requirements.iter().all(|requirement| {
            (field(&requirement.field) == requirement.value) == (requirement.operator == Operator::Equals)
        })
    }

    /// Whether everything is selected.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The terms, in the order of their text.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// The value a field must have, if some term demands one: lets a lookup replace a scan.
    pub fn exact_value(&self, field: &str) -> Option<&str> {
        self.requirements
            .iter()
            .find(|requirement| requirement.field == field && requirement.operator == Operator::Equals)
            .map(|requirement| requirement.value.as_str())
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Requirement { field, operator, value }) in self.requirements.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(formatter, "{comma}{field}{}", operator.as_str())?;
            for character in value.chars() {
                let slash = if matches!(character, '\\' | ',' | '=') { "\\" } else { "" };
                write!(formatter, "{slash}{character}")?;
            }
        }
        Ok(())
    }
}

/// Splits at commas that have no backslash before them.
fn split(text: &str) -> Vec<&str> {
    let mut escaped = false;
    text.split(|character| {
        let comma = !escaped && character == ',';
        escaped = !escaped && character == '\\';
        comma
    })
    .collect()
}

/// Splits at the first operator.
fn split_term(term: &str) -> Option<(&str, Operator, &str)> {
    let (at, _) = term.char_indices().find(|(at, _)| term[*at..].starts_with('=') || term[*at..].starts_with("!="))?;
    let (field, rest) = term.split_at(at);
    Some(match rest.strip_prefix("!=") {
        Some(value) => (field, Operator::NotEquals, value),
        None => (field, Operator::Equals, rest.strip_prefix("==").unwrap_or(&rest[1..])),
    })
}

fn unescape(value: &str) -> Result<String, Error> {
    let mut plain = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => plain.push(escaped),
                Some(other) => return Err(Error::Escape(format!("\\{other}"))),
                None => return Err(Error::Escape("\\".into())),
            },
            ',' | '=' => return Err(Error::Unescaped(character)),
            _ => plain.push(character),
        }
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_sorted_and_escaped_on_the_way_out() {
        for (text, canonical) in [
            ("", ""),
            (",,", ""),
            ("=", ""),
            ("a==1", "a=1"),
            ("metadata.name=x,a!=", "a!=,metadata.name=x"),
            (r"a=b\,c\=d\\e", r"a=b\,c\=d\\e"),
        ] {
            assert_eq!(FieldSelector::parse(text).unwrap().to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn bad_selectors_are_refused_with_upstreams_words() {
        for (text, error) in [
            ("a", "invalid selector: 'a'; can't understand 'a'"),
            ("a=b=c", "invalid field selector: unescaped character in value: 61"),
            (r"a=b\", r"invalid field selector: invalid escape sequence: \"),
            (r"a=\b", r"invalid field selector: invalid escape sequence: \b"),
        ] {
            assert_eq!(FieldSelector::parse(text).unwrap_err().to_string(), error, "{text}");
        }
    }

    #[test]
    fn a_field_that_is_missing_is_empty() {
        let node = |field: &str| if field == "spec.nodeName" { "n1" } else { "" };
        for (text, matches) in [("spec.nodeName=n1", true), ("spec.nodeName!=n1", false), ("x=", true), ("x!=", false)]
        {
            assert_eq!(FieldSelector::parse(text).unwrap().matches(node), matches, "{text}");
        }
        assert_eq!(FieldSelector::parse("spec.nodeName=n1").unwrap().exact_value("spec.nodeName"), Some("n1"));
    }
}
