//! Durations as Go writes them: `15s`, `1h30m`, `-1.5ms`.

use std::fmt;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// The units with their length in nanoseconds.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];
/// The most nanoseconds that Go counts to before it looks at the sign: one more than a positive duration can have.
const NANOS_MAX: u64 = 1 << 63;

/// A duration in nanoseconds, possibly negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GoDuration(pub i64);

impl GoDuration {
    /// Whole seconds.
    pub const fn from_secs(seconds: i64) -> Self {
        GoDuration(seconds * 1_000_000_000)
    }

    /// As an unsigned duration; negative ones become zero.
    pub fn unsigned(self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0).unwrap_or(0))
    }

    /// Reads a duration as Go's `time.ParseDuration` does.
    pub fn parse(text: &str) -> Result<Self, String> {
        let invalid = || format!("time: invalid duration {text:?}");
        let (negative, mut rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        if rest == "0" {
            return Ok(GoDuration(0));
        }
        if rest.is_empty() {
            return Err(invalid());
        }
        let mut total: u64 = 0;
        while !rest.is_empty() {
            let (whole, after) = split_digits(rest);
            let (fraction, after) = after.strip_prefix('.').map_or(("", after), split_digits);
            if whole.is_empty() && fraction.is_empty() {
                return Err(invalid());
            }
            let whole = whole_number(whole).ok_or_else(invalid)?;
            let name_end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
            let (name, after) = after.split_at(name_end);
            if name.is_empty() {
                return Err(format!("time: missing unit in duration {text:?}"));
            }
            let unit = UNITS.iter().find(|(unit, _)| *unit == name);
            let (_, unit) = unit.ok_or_else(|| format!("time: unknown unit {name:?} in duration {text:?}"))?;
            let part = whole.checked_mul(*unit).and_then(|nanos| nanos.checked_add(part_of(*unit, fraction)));
            let sum = part.and_then(|part| total.checked_add(part));
            total = sum.filter(|total| *total <= NANOS_MAX).ok_or_else(invalid)?;
            rest = after;
        }
        if negative {
            return Ok(GoDuration(0i64.wrapping_sub_unsigned(total)));
        }
        i64::try_from(total).map(GoDuration).map_err(|_| invalid())
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// The number before the point, which may be left out; `None` beyond [`NANOS_MAX`].
fn whole_number(digits: &str) -> Option<u64> {
    if digits.is_empty() { Some(0) } else { digits.parse().ok().filter(|number| *number <= NANOS_MAX) }
}

/// The nanoseconds of a fraction of a unit. Go drops the digits that do not fit in 63 bits, and rounds down.
fn part_of(unit: u64, digits: &str) -> u64 {
    let (mut number, mut scale) = (0u64, 1.0);
    for digit in digits.bytes() {
        match number.checked_mul(10).and_then(|tens| tens.checked_add(u64::from(digit - b'0'))) {
            Some(next) if next <= NANOS_MAX => (number, scale) = (next, scale * 10.0),
            _ => break,
        }
    }
    (number as f64 * (unit as f64 / scale)) as u64
}

impl From<Duration> for GoDuration {
    fn from(duration: Duration) -> Self {
        GoDuration(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 0 {
            f.write_str("-")?;
        }
        let nanos = self.0.unsigned_abs();
        match nanos {
            0 => f.write_str("0s"),
            1..1_000 => write!(f, "{nanos}ns"),
            1_000..1_000_000 => write!(f, "{}µs", Decimal(nanos, 3)),
            1_000_000..1_000_000_000 => write!(f, "{}ms", Decimal(nanos, 6)),
            _ => {
                let (minutes, rest) = (nanos / 60_000_000_000, nanos % 60_000_000_000);
                let (hours, minutes) = (minutes / 60, minutes % 60);
                if hours > 0 {
                    write!(f, "{hours}h")?;
                }
                if hours > 0 || minutes > 0 {
                    write!(f, "{minutes}m")?;
                }
                write!(f, "{}s", Decimal(rest, 9))
            }
        }
    }
}

/// A number that is written with so many digits after the point, without the zeros at their end.
struct Decimal(u64, u32);

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Decimal(number, places) = *self;
        let one = 10u64.pow(places);
        let width = places as usize;
        let fraction = format!(".{:0width$}", number % one);
        write!(f, "{}{}", number / one, fraction.trim_end_matches('0').trim_end_matches('.'))
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        GoDuration::parse(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_as_go_does() {
        for (text, expected) in [
            ("15s", Ok("15s")),
            ("600s", Ok("10m0s")),
            ("1h", Ok("1h0m0s")),
            ("1h30m10s", Ok("1h30m10s")),
            ("-1.5s", Ok("-1.5s")),
            ("250ms", Ok("250ms")),
            ("1500us", Ok("1.5ms")),
            ("0", Ok("0s")),
            ("1µs", Ok("1µs")),
            ("1.0000010s", Ok("1.000001s")),
            // Every nanosecond counts, up to the last one there is.
            ("9007199.254740993s", Ok("2501h59m59.254740993s")),
            ("2562047h47m16.854775807s", Ok("2562047h47m16.854775807s")),
            ("-2562047h47m16.854775808s", Ok("-2562047h47m16.854775808s")),
            ("2562047h47m16.854775808s", Err("time: invalid duration \"2562047h47m16.854775808s\"")),
            ("9223372036854775808ns1ns", Err("time: invalid duration \"9223372036854775808ns1ns\"")),
            ("99999999999999999999h", Err("time: invalid duration \"99999999999999999999h\"")),
            (".5h", Ok("30m0s")),
            ("5.h", Ok("5h0m0s")),
            (".s", Err("time: invalid duration \".s\"")),
            ("1..5s", Err("time: missing unit in duration \"1..5s\"")),
            ("abc", Err("time: invalid duration \"abc\"")),
            ("", Err("time: invalid duration \"\"")),
            ("5", Err("time: missing unit in duration \"5\"")),
            ("5d", Err("time: unknown unit \"d\" in duration \"5d\"")),
        ] {
            let answer = GoDuration::parse(text).map(|duration| duration.to_string());
            assert_eq!(answer.as_deref().map_err(String::as_str), expected, "{text}");
        }
    }
}
