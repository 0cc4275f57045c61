//! `resource.Quantity`: an exact fixed-point number that remembers how it was written.
//!
//! ```text
//!   "1.5Gi" ──parse──▶ Amount::Small { value × 10^scale }   nearly everything: no allocation
//!                  └─▶ Amount::Big(Decimal)                 fractions of binary units, more than 18 digits
//!                         │  add, sub, mul, round_up
//!                         ▼
//!                      Display: canonical ("1536Mi"), or the text it was read from where upstream keeps that
//! ```
//!
//! Which of the two forms holds a value is observable upstream (rounding of negative values, the last bit of the
//! approximate float, what `mul` calls exact), so the forms are chosen exactly as upstream chooses them.

mod canonical;
mod decimal;
mod parse;

use std::{cmp::Ordering, fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use decimal::{Decimal, POWERS_OF_TEN};
pub use parse::Error;

/// Power of ten a value is counted in, for [`Quantity::scaled_value`] and [`Quantity::round_up`].
pub mod scale {
    /// Thousand-millionths.
    pub const NANO: i32 = -9;
    /// Millionths.
    pub const MICRO: i32 = -6;
    /// Thousandths.
    pub const MILLI: i32 = -3;
    /// Ones.
    pub const UNIT: i32 = 0;
    /// Thousands.
    pub const KILO: i32 = 3;
    /// Millions.
    pub const MEGA: i32 = 6;
    /// Thousand millions.
    pub const GIGA: i32 = 9;
}

/// How a quantity is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// `12e6`.
    DecimalExponent,
    /// `12Mi`.
    BinarySI,
    /// `12M`.
    #[default]
    DecimalSI,
}

impl Format {
    /// Upstream's name of the format.
    pub fn as_str(self) -> &'static str {
        match self {
            Format::DecimalExponent => "DecimalExponent",
            Format::BinarySI => "BinarySI",
            Format::DecimalSI => "DecimalSI",
        }
    }
}

#[derive(Clone, Debug)]
enum Amount {
    /// `value × 10^scale`.
    Small { value: i64, scale: i32 },
    /// Anything.
    Big(Box<Decimal>),
}

/// An amount of a resource. Equality and order look at the amount alone, never at how it is written.
#[derive(Clone, Debug)]
pub struct Quantity {
    amount: Amount,
    format: Format,
    /// The text it was parsed from, where upstream prints that and it differs from the canonical form (`+5Ki`).
    text: Option<Box<str>>,
}

impl Quantity {
    /// Zero, written `0`.
    pub const ZERO: Quantity = Quantity::scaled(0, 0, Format::DecimalSI);

    /// A whole amount.
    pub const fn new(value: i64, format: Format) -> Self {
        Quantity::scaled(value, 0, format)
    }

    /// An amount in thousandths.
    pub const fn milli(value: i64, format: Format) -> Self {
        Quantity::scaled(value, scale::MILLI, format)
    }

    const fn scaled(value: i64, scale: i32, format: Format) -> Self {
        Quantity { amount: Amount::Small { value, scale }, format, text: None }
    }

    /// Reads a quantity.
    pub fn parse(text: &str) -> Result<Self, Error> {
        parse::parse(text)
    }

    /// How it is written.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The whole amount, rounded up (away from zero); saturates at the ends of `i64`.
    pub fn value(&self) -> i64 {
        self.scaled_value(scale::UNIT)
    }

    /// The amount in thousandths, rounded up; saturates at the ends of `i64`.
    pub fn milli_value(&self) -> i64 {
        self.scaled_value(scale::MILLI)
    }

    /// The amount counted in `10^scale`, rounded up; saturates at the ends of `i64`.
    pub fn scaled_value(&self, scale: i32) -> i64 {
        let rail = if self.sign() < 0 { i64::MIN } else { i64::MAX };
        self.checked_scaled_value(scale).unwrap_or(rail)
    }

    /// The amount counted in `10^scale`, rounded up; `None` beyond `i64`.
    pub fn checked_scaled_value(&self, scale: i32) -> Option<i64> {
        match &self.amount {
            Amount::Small { value, scale: own } => match own.checked_sub(scale)? {
                up @ 0.. => multiply_by_power(*value, up),
                down => Some(divide_by_power(*value, down.unsigned_abs()).0),
            },
            Amount::Big(decimal) => decimal.scaled_value(scale),
        }
    }

    /// The whole amount, when it is whole and within `i64`.
    pub fn as_i64(&self) -> Option<i64> {
        match &self.amount {
            Amount::Small { value, scale } if *scale >= 0 => multiply_by_power(*value, *scale),
            Amount::Small { value, scale } => {
                let (quotient, exact) = divide_by_power(*value, scale.unsigned_abs());
                exact.then_some(quotient)
            }
            Amount::Big(decimal) => {
                let whole = decimal.rounded_up(0);
                (whole.cmp(decimal) == Ordering::Equal).then(|| whole.unscaled_i64()).flatten()
            }
        }
    }

    /// A float near the amount, computed as upstream does: mantissa times power of ten, each rounded.
    pub fn approximate_f64(&self) -> f64 {
        let (base, exponent) = match &self.amount {
            Amount::Small { value, scale } => (*value as f64, *scale),
            Amount::Big(decimal) => (decimal.unscaled_f64(), decimal.exponent),
        };
        if exponent == 0 { base } else { base * decimal::power_of_ten_f64(exponent) }
    }

    /// Whether the integer that holds the amount (in units of its own power of ten) is within `i64`.
    pub fn is_held_in_64_bits(&self) -> bool {
        match &self.amount {
            Amount::Small { .. } => true,
            Amount::Big(decimal) => decimal.unscaled_i64().is_some(),
        }
    }

    /// -1, 0 or 1.
    pub fn sign(&self) -> i32 {
        match &self.amount {
            Amount::Small { value, .. } => value.signum() as i32,
            Amount::Big(decimal) => decimal.sign(),
        }
    }

    /// Whether it is zero.
    pub fn is_zero(&self) -> bool {
        self.sign() == 0
    }

    /// Compares with a whole number.
    pub fn cmp_i64(&self, other: i64) -> Ordering {
        match &self.amount {
            Amount::Small { value, scale } => cmp_small(*value, *scale, other, 0),
            Amount::Big(decimal) => decimal.cmp(&Decimal::new(other, 0)),
        }
    }

    /// Adds in place; zero takes over the other's format.
    pub fn add(&mut self, other: &Quantity) {
        self.accumulate(other, false);
    }

    /// Subtracts in place; zero takes over the other's format.
    pub fn sub(&mut self, other: &Quantity) {
        self.accumulate(other, true);
    }

    fn accumulate(&mut self, other: &Quantity, negative: bool) {
        self.text = None;
        if self.is_zero() {
            self.format = other.format;
        }
        if let (Amount::Small { value: a, scale: s }, Amount::Small { value: b, scale: t }) =
            (&self.amount, &other.amount)
            && let Some((value, scale)) =
                if negative { b.checked_neg() } else { Some(*b) }.and_then(|b| add_small(*a, *s, b, *t))
        {
            self.amount = Amount::Small { value, scale };
            return;
        }
        let sum = self.decimal().plus(&other.decimal(), negative);
        self.amount = Amount::Big(Box::new(sum));
    }

    /// Negates in place.
    pub fn neg(&mut self) {
        self.text = None;
        self.amount = match &self.amount {
            Amount::Small { value, scale } if *value != i64::MIN => Amount::Small { value: -value, scale: *scale },
            _ => Amount::Big(Box::new(self.decimal().negated())),
        };
    }

    /// Multiplies in place; whether the result's integer is still within 64 bits.
    pub fn mul(&mut self, factor: i64) -> bool {
        self.text = None;
        if let Amount::Small { value, scale } = &self.amount
            && let Some((value, scale)) = mul_small(*value, *scale, factor)
        {
            self.amount = Amount::Small { value, scale };
            return true;
        }
        let product = self.decimal().times(factor);
        let exact = product.unscaled_i64().is_some();
        self.amount = Amount::Big(Box::new(product));
        exact
    }

    /// Rounds away from zero to a multiple of `10^scale`, in place; whether nothing was lost.
    pub fn round_up(&mut self, scale: i32) -> bool {
        match &self.amount {
            Amount::Small { scale: own, .. } if *own >= scale => true,
            Amount::Small { value, scale: own } => {
                let (value, exact) = divide_by_power(*value, scale.abs_diff(*own));
                self.text = None;
                self.amount = Amount::Small { value, scale };
                exact
            }
            Amount::Big(decimal) => {
                let rounded = decimal.rounded_up(scale);
                let exact = rounded.cmp(decimal) == Ordering::Equal;
                self.text = None;
                self.amount = Amount::Big(Box::new(rounded));
                exact
            }
        }
    }

    fn decimal(&self) -> Decimal {
        match &self.amount {
            Amount::Small { value, scale } => Decimal::new(*value, *scale),
            Amount::Big(decimal) => (**decimal).clone(),
        }
    }
}

/// `value × 10^up`, within `i64`.
fn multiply_by_power(value: i64, up: i32) -> Option<i64> {
    match POWERS_OF_TEN.get(up as usize) {
        Some(&power) => value.checked_mul(power),
        None => (value == 0).then_some(0),
    }
}

/// `value ÷ 10^down` away from zero, and whether that was exact.
fn divide_by_power(value: i64, down: u32) -> (i64, bool) {
    match POWERS_OF_TEN.get(down as usize) {
        Some(&power) if value % power == 0 => (value / power, true),
        Some(&power) => (value / power + value.signum(), false),
        None => (value.signum(), value == 0),
    }
}

fn add_small(a: i64, a_scale: i32, b: i64, b_scale: i32) -> Option<(i64, i32)> {
    match a_scale.checked_sub(b_scale)? {
        _ if b == 0 => Some((a, a_scale)),
        _ if a == 0 => Some((b, b_scale)),
        up @ 0.. => Some((multiply_by_power(a, up)?.checked_add(b)?, b_scale)),
        down => Some((multiply_by_power(b, -down)?.checked_add(a)?, a_scale)),
    }
}

/// Upstream stays in 64 bits only when the product is whole and its expanded value fits as well.
fn mul_small(value: i64, scale: i32, factor: i64) -> Option<(i64, i32)> {
    if value == 0 {
        return Some((value, scale));
    }
    if factor == 0 {
        return Some((0, 0));
    }
    let product = value.checked_mul(factor)?;
    let whole = match scale {
        0.. => multiply_by_power(product, scale).is_some(),
        _ => divide_by_power(product, scale.unsigned_abs()).1,
    };
    whole.then_some((product, scale))
}

fn cmp_small(a: i64, a_scale: i32, b: i64, b_scale: i32) -> Ordering {
    if a_scale == b_scale {
        return a.cmp(&b);
    }
    let power = |exponent: u32| POWERS_OF_TEN.get(exponent as usize).map(|&power| i128::from(power));
    match power(a_scale.abs_diff(b_scale)) {
        Some(power) if a_scale > b_scale => (i128::from(a) * power).cmp(&i128::from(b)),
        Some(power) => i128::from(a).cmp(&(i128::from(b) * power)),
        None => Decimal::new(a, a_scale).cmp(&Decimal::new(b, b_scale)),
    }
}

impl Default for Quantity {
    fn default() -> Self {
        Quantity::ZERO
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.amount, &other.amount) {
            (Amount::Small { value: a, scale: s }, Amount::Small { value: b, scale: t }) => cmp_small(*a, *s, *b, *t),
            _ => self.decimal().cmp(&other.decimal()),
        }
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl std::hash::Hash for Quantity {
    /// Equal amounts hash alike, however they are written.
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.milli_value().hash(state);
    }
}

impl FromStr for Quantity {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Quantity::parse(text)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.text {
            Some(text) => formatter.write_str(text),
            None => canonical::write(self, formatter),
        }
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Visitor)
    }
}

struct Visitor;

impl de::Visitor<'_> for Visitor {
    type Value = Quantity;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a quantity: text such as \"500m\" or \"2Gi\", or a number")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
        Quantity::parse(text.trim()).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Quantity, E> {
        Ok(Quantity::new(value, Format::DecimalSI))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Quantity, E> {
        match i64::try_from(value) {
            Ok(value) => self.visit_i64(value),
            Err(_) => self.visit_str(&value.to_string()),
        }
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Quantity, E> {
        self.visit_str(&value.to_string())
    }

    fn visit_unit<E: de::Error>(self) -> Result<Quantity, E> {
        Ok(Quantity::ZERO)
    }
}

#[cfg(test)]
mod tests;
