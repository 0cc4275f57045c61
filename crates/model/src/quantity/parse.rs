//! Text to quantity, choosing the same inner form as upstream.

use num_bigint::BigInt;

use super::{
    Amount, Format, Quantity,
    decimal::{Decimal, POWERS_OF_TEN},
    scale,
};

/// Most digits before and after the point together. Upstream has no limit and spends quadratic time on long texts;
/// the largest 64-bit amount in nanos has 28 digits.
const DIGITS_MAX: usize = 1024;

/// Largest decimal exponent in either direction. Upstream expands `1e999999999` into a thousand million digits; the
/// exponent of the largest float is 308.
const EXPONENT_MAX: i64 = 1024;

/// Digits that are sure to fit in `i64`, and with which upstream leaves its 64-bit form.
const SMALL_DIGITS_MAX: usize = 18;

/// Why a text is not a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not a number with a suffix.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// An unknown suffix.
    #[error("unable to parse quantity's suffix")]
    Suffix,
    /// Beyond our limits.
    #[error(
        "quantity is out of range: at most {DIGITS_MAX} digits and an exponent from -{EXPONENT_MAX} to {EXPONENT_MAX}"
    )]
    Range,
}

/// A text in its parts.
struct Parts<'a> {
    negative: bool,
    /// A sign or leading zeros were written that the canonical form does not have.
    padded: bool,
    /// Digits before the point without leading zeros; may be empty.
    integer: &'a str,
    /// Digits after the point, if there is a point.
    fraction: Option<&'a str>,
    suffix: &'a str,
}

enum Suffix {
    Decimal { exponent: i32, format: Format },
    Binary { shift: u32 },
}

pub(super) fn parse(text: &str) -> Result<Quantity, Error> {
    if text.is_empty() {
        return Err(Error::Format);
    }
    let parts = split(text)?;
    let suffix = interpret(parts.suffix)?;
    let fraction = parts.fraction.unwrap_or_default();
    // An empty integer part counts as the one digit "0".
    let integer_digits = parts.integer.len().max(1);
    if integer_digits + fraction.len() > DIGITS_MAX {
        return Err(Error::Range);
    }
    let small = match suffix {
        Suffix::Decimal { exponent, .. } => {
            integer_digits + fraction.len() <= SMALL_DIGITS_MAX && exponent - fraction.len() as i32 >= scale::NANO
        }
        // Upstream's estimate: 2^10 has three digits, and fifteen digits less one are safe.
        Suffix::Binary { shift } => fraction.is_empty() && integer_digits + shift as usize * 3 / 10 < 15,
    };
    Ok(if small { parse_small(text, &parts, fraction, &suffix) } else { parse_big(&parts, fraction, &suffix) })
}

fn split(text: &str) -> Result<Parts<'_>, Error> {
    let (negative, plus) = (text.starts_with('-'), text.starts_with('+'));
    let unsigned = if negative || plus { &text[1..] } else { text };
    let stripped = unsigned.trim_start_matches('0');
    let padded = plus || stripped.len() < unsigned.len();
    let (integer, rest) = stripped.split_at(digits(stripped));
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(after) => {
            let (fraction, rest) = after.split_at(digits(after));
            (Some(fraction), rest)
        }
        None => (None, rest),
    };
    // The suffix: letters, then a sign, then digits, each optional, and nothing else.
    let letters = rest.bytes().take_while(|byte| b"eEinumkKMGTP".contains(byte)).count();
    let after = &rest[letters..];
    let after = after.strip_prefix(['-', '+']).unwrap_or(after);
    if digits(after) < after.len() {
        return Err(Error::Format);
    }
    Ok(Parts { negative, padded, integer, fraction, suffix: rest })
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

fn interpret(suffix: &str) -> Result<Suffix, Error> {
    let decimal = |exponent| Ok(Suffix::Decimal { exponent, format: Format::DecimalSI });
    let binary = |shift| Ok(Suffix::Binary { shift });
    match suffix {
        "" => decimal(0),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let number = suffix.strip_prefix(['e', 'E']).ok_or(Error::Suffix)?;
            let exponent: i64 = number.parse().map_err(|_| Error::Suffix)?;
            if exponent.unsigned_abs() > EXPONENT_MAX.unsigned_abs() {
                return Err(Error::Range);
            }
            Ok(Suffix::Decimal { exponent: exponent as i32, format: Format::DecimalExponent })
        }
    }
}

fn parse_small(text: &str, parts: &Parts<'_>, fraction: &str, suffix: &Suffix) -> Quantity {
    let digits = parts.integer.bytes().chain(fraction.bytes());
    let mantissa = digits.fold(0i64, |value, digit| value * 10 + i64::from(digit - b'0'));
    let (value, scale, format, kept) = match *suffix {
        // Upstream keeps the text it read where it takes that to be canonical; it is wrong about signs, leading zeros,
        // points and the spelling of exponents, and that is visible.
        Suffix::Binary { shift } => (mantissa << shift, 0, Format::BinarySI, mantissa & 7 != 0),
        Suffix::Decimal { exponent, format } => {
            let scale = exponent - fraction.len() as i32;
            (mantissa, scale, format, scale % 3 == 0 && mantissa % 1000 != 0 && !parts.integer.is_empty())
        }
    };
    let value = if parts.negative { -value } else { value };
    let differs = parts.padded || parts.fraction.is_some() || format == Format::DecimalExponent;
    let text = (kept && differs).then(|| text.into());
    Quantity { amount: Amount::Small { value, scale }, format, text }
}

fn parse_big(parts: &Parts<'_>, fraction: &str, suffix: &Suffix) -> Quantity {
    let digits = [parts.integer, fraction].concat();
    let mut decimal = Decimal {
        unscaled: BigInt::parse_bytes(digits.as_bytes(), 10).unwrap_or_default(),
        exponent: -(fraction.len() as i32),
    };
    let mut format = match *suffix {
        Suffix::Decimal { exponent, format } => {
            decimal.exponent += exponent;
            format
        }
        Suffix::Binary { shift } => {
            decimal.unscaled <<= shift;
            Format::BinarySI
        }
    };
    // As upstream, an amount finer than a nano is rounded up to one, so that it does not become zero.
    if decimal.sign() != 0 {
        decimal = decimal.rounded_up(scale::NANO);
    }
    if format == Format::BinarySI {
        let most = Decimal::new(i64::MAX, 0);
        if decimal.cmp(&most).is_gt() {
            decimal = most;
        }
        if decimal.sign() != 0 && decimal.cmp(&Decimal::new(1, 0)).is_lt() {
            format = Format::DecimalSI;
        }
    }
    if parts.negative {
        decimal = decimal.negated();
    }
    Quantity { amount: Amount::Big(Box::new(decimal)), format, text: None }
}

// The mantissa of a small decimal has to fit.
const _: () = assert!(SMALL_DIGITS_MAX < POWERS_OF_TEN.len());
