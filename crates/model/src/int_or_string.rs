//! `intstr.IntOrString`: a number, or text that is usually a percentage.

use std::{fmt, num::IntErrorKind};

use serde::{Deserialize, Serialize};

use crate::quoted::Quoted;

/// A number or a text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum IntOrString {
    /// A plain number.
    Int(i32),
    /// Text: `25%`, or the name of a port.
    String(String),
}

/// Why a value cannot be scaled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Text without `%`.
    #[error("invalid value for IntOrString: invalid type: string is not a percentage")]
    NotAPercentage,
    /// Text with `%` after something that is no number.
    #[error(
        "invalid value for IntOrString: invalid value {}: strconv.Atoi: parsing {}: {reason}",
        Quoted(.text),
        Quoted(.number)
    )]
    NotANumber {
        /// The whole text.
        text: String,
        /// The part before `%`.
        number: String,
        /// Go's words for it.
        reason: &'static str,
    },
}

impl IntOrString {
    /// The number; for text the number it spells, or 0.
    pub fn int_value(&self) -> i64 {
        match self {
            IntOrString::Int(value) => i64::from(*value),
            IntOrString::String(text) => match text.parse::<i64>().map_err(|error| *error.kind()) {
                Ok(value) => value,
                Err(IntErrorKind::PosOverflow) => i64::MAX,
                Err(IntErrorKind::NegOverflow) => i64::MIN,
                Err(_) => 0,
            },
        }
    }

    /// The number itself, or the percentage of `total`, rounded up or down.
    pub fn scaled(&self, total: i64, round_up: bool) -> Result<i64, Error> {
        let text = match self {
            IntOrString::Int(value) => return Ok(i64::from(*value)),
            IntOrString::String(text) => text,
        };
        let number = text.strip_suffix('%').ok_or(Error::NotAPercentage)?;
        let percent: i64 = number.parse().map_err(|error: std::num::ParseIntError| Error::NotANumber {
            text: text.clone(),
            number: number.into(),
            reason: match error.kind() {
                IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
                _ => "invalid syntax",
            },
        })?;
        let share = percent as f64 * total as f64 / 100.0;
        Ok(if round_up { share.ceil() } else { share.floor() } as i64)
    }
}

impl fmt::Display for IntOrString {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IntOrString::Int(value) => value.fmt(formatter),
            IntOrString::String(text) => text.fmt(formatter),
        }
    }
}

impl From<i32> for IntOrString {
    fn from(value: i32) -> Self {
        IntOrString::Int(value)
    }
}

impl From<&str> for IntOrString {
    fn from(text: &str) -> Self {
        IntOrString::String(text.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_rounded_as_asked() {
        for (value, total, up, down) in [("25%", 10, 3, 2), ("0%", 7, 0, 0), ("100%", 7, 7, 7), ("-50%", 3, -1, -2)] {
            assert_eq!(IntOrString::from(value).scaled(total, true), Ok(up), "{value}");
            assert_eq!(IntOrString::from(value).scaled(total, false), Ok(down), "{value}");
        }
        assert_eq!(IntOrString::from(4).scaled(10, true), Ok(4));
    }

    #[test]
    fn what_is_no_percentage_is_refused_with_upstreams_words() {
        for (value, error) in [
            ("5", "invalid value for IntOrString: invalid type: string is not a percentage"),
            ("%", r#"invalid value for IntOrString: invalid value "%": strconv.Atoi: parsing "": invalid syntax"#),
            (
                "99999999999999999999%",
                "invalid value for IntOrString: invalid value \"99999999999999999999%\": \
                 strconv.Atoi: parsing \"99999999999999999999\": value out of range",
            ),
        ] {
            assert_eq!(IntOrString::from(value).scaled(1, true).unwrap_err().to_string(), error);
        }
    }

    #[test]
    fn json_keeps_the_kind() {
        for json in ["8080", "\"http\"", "\"25%\""] {
            let value: IntOrString = serde_json::from_str(json).unwrap();
            assert_eq!(serde_json::to_string(&value).unwrap(), json);
        }
    }
}
