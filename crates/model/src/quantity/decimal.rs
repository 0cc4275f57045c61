//! Arbitrary precision decimals, for the amounts that 64 bits do not hold.

use std::cmp::Ordering;

use num_bigint::{BigInt, Sign};

/// The powers of ten within `i64`, by exponent.
pub(super) const POWERS_OF_TEN: [i64; 19] = {
    let mut powers = [1; 19];
    let mut at = 1;
    while at < powers.len() {
        powers[at] = powers[at - 1] * 10;
        at += 1;
    }
    powers
};

/// `unscaled × 10^exponent`.
#[derive(Clone, Debug)]
pub(super) struct Decimal {
    pub(super) unscaled: BigInt,
    pub(super) exponent: i32,
}

impl Decimal {
    pub(super) fn new(unscaled: i64, exponent: i32) -> Self {
        Decimal { unscaled: BigInt::from(unscaled), exponent }
    }

    pub(super) fn sign(&self) -> i32 {
        match self.unscaled.sign() {
            Sign::Minus => -1,
            Sign::NoSign => 0,
            Sign::Plus => 1,
        }
    }

    pub(super) fn unscaled_i64(&self) -> Option<i64> {
        i64::try_from(&self.unscaled).ok()
    }

    /// The float nearest to the unscaled integer.
    pub(super) fn unscaled_f64(&self) -> f64 {
        // Text to float rounds correctly whatever the number of digits; digits always parse.
        self.unscaled.to_string().parse().unwrap_or(f64::INFINITY)
    }

    pub(super) fn negated(&self) -> Self {
        Decimal { unscaled: -&self.unscaled, exponent: self.exponent }
    }

    pub(super) fn times(&self, factor: i64) -> Self {
        Decimal { unscaled: &self.unscaled * factor, exponent: self.exponent }
    }

    /// The sum, or the difference, at the finer of the two exponents.
    pub(super) fn plus(&self, other: &Self, negative: bool) -> Self {
        let exponent = self.exponent.min(other.exponent);
        let (a, b) = (self.at(exponent), other.at(exponent));
        Decimal { unscaled: if negative { a - b } else { a + b }, exponent }
    }

    /// The unscaled integer at an exponent no larger than its own.
    fn at(&self, exponent: i32) -> BigInt {
        &self.unscaled * power_of_ten(self.exponent.abs_diff(exponent))
    }

    /// Rounded away from zero to a multiple of `10^exponent`, and held at that exponent.
    pub(super) fn rounded_up(&self, exponent: i32) -> Self {
        if self.exponent >= exponent {
            return Decimal { unscaled: self.at(exponent), exponent };
        }
        let divisor = power_of_ten(exponent.abs_diff(self.exponent));
        let mut unscaled = &self.unscaled / &divisor;
        if &self.unscaled % &divisor != BigInt::ZERO {
            unscaled += self.sign();
        }
        Decimal { unscaled, exponent }
    }

    /// The amount counted in `10^scale`, within `i64`.
    ///
    /// A remainder adds one to the truncated quotient, also below zero, as upstream does while 64 bits suffice.
    pub(super) fn scaled_value(&self, scale: i32) -> Option<i64> {
        if self.exponent >= scale {
            return i64::try_from(&self.at(scale)).ok();
        }
        let down = scale.abs_diff(self.exponent);
        let divisor = power_of_ten(down);
        let (mut quotient, remainder) = (&self.unscaled / &divisor, &self.unscaled % &divisor);
        let in_64_bits =
            self.unscaled_i64().is_some_and(|value| value < i64::MAX) && (down as usize) < POWERS_OF_TEN.len();
        if remainder.sign() == Sign::Plus || (in_64_bits && remainder.sign() == Sign::Minus) {
            quotient += 1;
        }
        i64::try_from(&quotient).ok()
    }

    pub(super) fn cmp(&self, other: &Self) -> Ordering {
        if self.sign() != other.sign() || self.sign() == 0 {
            return self.sign().cmp(&other.sign());
        }
        let exponent = self.exponent.min(other.exponent);
        self.at(exponent).cmp(&other.at(exponent))
    }

    /// Moves factors of ten (or 1024) out of the unscaled integer; how many there were, at most `most`.
    ///
    /// Large powers first: one by one, the thousand zeros of a short text would take a thousand divisions.
    pub(super) fn without_factors(mut integer: BigInt, factor: u32, most: u32) -> (BigInt, u32) {
        if integer.sign() == Sign::NoSign {
            return (integer, 0);
        }
        // The powers factor^1, factor^2, factor^4, … that are not larger than the integer.
        let mut powers = vec![(BigInt::from(factor), 1)];
        while let Some((power, step)) = powers.last()
            && power.bits() * 2 <= integer.bits() + 1
        {
            powers.push((power * power, step * 2));
        }
        let mut times: u32 = 0;
        for (power, step) in powers.iter().rev() {
            if most - times >= *step && &integer % power == BigInt::ZERO {
                integer /= power;
                times += *step;
            }
        }
        (integer, times)
    }
}

fn power_of_ten(exponent: u32) -> BigInt {
    match POWERS_OF_TEN.get(exponent as usize) {
        Some(&power) => BigInt::from(power),
        None => BigInt::from(10).pow(exponent),
    }
}

/// A power of ten as Go's `math.Pow10` gives it: a product or quotient of two table entries.
pub(super) fn power_of_ten_f64(exponent: i32) -> f64 {
    const STEPS_UP: [f64; 10] = [1e0, 1e32, 1e64, 1e96, 1e128, 1e160, 1e192, 1e224, 1e256, 1e288];
    const STEPS_DOWN: [f64; 11] = [1e0, 1e-32, 1e-64, 1e-96, 1e-128, 1e-160, 1e-192, 1e-224, 1e-256, 1e-288, 1e-320];
    const ONES: [f64; 32] = [
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19,
        1e20, 1e21, 1e22, 1e23, 1e24, 1e25, 1e26, 1e27, 1e28, 1e29, 1e30, 1e31,
    ];
    let magnitude = exponent.unsigned_abs() as usize;
    match exponent {
        0..=308 => STEPS_UP[magnitude / 32] * ONES[magnitude % 32],
        -323..0 => STEPS_DOWN[magnitude / 32] / ONES[magnitude % 32],
        309.. => f64::INFINITY,
        _ => 0.0,
    }
}
