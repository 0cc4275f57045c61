//! The canonical form: no precision lost, no fraction shown, the largest suffix that allows that.

use std::{cmp::Ordering, fmt};

use num_bigint::BigInt;

use super::{Amount, Format, Quantity, decimal::Decimal, divide_by_power, multiply_by_power};

const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

pub(super) fn write(quantity: &Quantity, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
    if quantity.is_zero() {
        return formatter.write_str("0");
    }
    if quantity.format == Format::BinarySI
        && (quantity.cmp_i64(1024) != Ordering::Less || quantity.cmp_i64(-1024) != Ordering::Greater)
        && let Some((mantissa, suffix)) = binary(quantity)
    {
        return write!(formatter, "{mantissa}{suffix}");
    }
    let (mantissa, exponent) = decimal(quantity);
    write!(formatter, "{mantissa}")?;
    let suffix = match exponent {
        _ if quantity.format == Format::DecimalExponent => None,
        -9 => Some("n"),
        -6 => Some("u"),
        -3 => Some("m"),
        0 => Some(""),
        3 => Some("k"),
        6 => Some("M"),
        9 => Some("G"),
        12 => Some("T"),
        15 => Some("P"),
        18 => Some("E"),
        _ => None,
    };
    match suffix {
        Some(suffix) => formatter.write_str(suffix),
        None if exponent == 0 => Ok(()),
        None => write!(formatter, "e{exponent}"),
    }
}

/// A mantissa to print: nearly always a machine integer.
enum Mantissa {
    Small(i128),
    Big(BigInt),
}

impl fmt::Display for Mantissa {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mantissa::Small(mantissa) => mantissa.fmt(formatter),
            Mantissa::Big(mantissa) => mantissa.fmt(formatter),
        }
    }
}

/// Mantissa and exponent, the exponent being the largest multiple of three.
fn decimal(quantity: &Quantity) -> (Mantissa, i32) {
    match &quantity.amount {
        Amount::Small { value, scale } => {
            let (mut mantissa, mut exponent) = (i128::from(*value), *scale);
            while mantissa != 0 && mantissa % 10 == 0 {
                mantissa /= 10;
                exponent += 1;
            }
            let surplus = exponent.rem_euclid(3);
            (Mantissa::Small(mantissa * [1, 10, 100][surplus as usize]), exponent - surplus)
        }
        Amount::Big(decimal) => {
            let (mantissa, times) = Decimal::without_factors(decimal.unscaled.clone(), 10, u32::MAX);
            let exponent = decimal.exponent + times as i32;
            let surplus = exponent.rem_euclid(3);
            (Mantissa::Big(mantissa * [1, 10, 100][surplus as usize]), exponent - surplus)
        }
    }
}

/// Mantissa and suffix in powers of 1024; `None` when the amount is not whole.
fn binary(quantity: &Quantity) -> Option<(Mantissa, &'static str)> {
    if let Amount::Small { value, scale } = &quantity.amount {
        let whole = match scale {
            0.. => multiply_by_power(*value, *scale),
            _ => match divide_by_power(*value, scale.unsigned_abs()) {
                (whole, true) => Some(whole),
                (_, false) => return None,
            },
        };
        if let Some(whole) = whole {
            let times = (whole.trailing_zeros() / 10).min(BINARY_SUFFIXES.len() as u32 - 1);
            return Some((Mantissa::Small(i128::from(whole >> (10 * times))), BINARY_SUFFIXES[times as usize]));
        }
    }
    let exact = quantity.decimal();
    let whole = exact.rounded_up(0);
    if whole.cmp(&exact) != Ordering::Equal {
        return None;
    }
    let (mantissa, times) = Decimal::without_factors(whole.unscaled, 1024, BINARY_SUFFIXES.len() as u32 - 1);
    Some((Mantissa::Big(mantissa), BINARY_SUFFIXES[times as usize]))
}
