//! Durations as Go writes them: `15s`, `1h30m`, `-1.5ms`.

use std::fmt;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// The units with their length in nanoseconds.
const UNITS: [(&str, f64); 8] =
    [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("μs", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 60e9), ("h", 3600e9)];

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
        let mut total = 0.0;
        while !rest.is_empty() {
            let digits = rest.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(rest.len());
            let (number, after) = rest.split_at(digits);
            let number: f64 = number.parse().map_err(|_| invalid())?;
            let name_end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
            let (name, after) = after.split_at(name_end);
            if name.is_empty() {
                return Err(format!("time: missing unit in duration {text:?}"));
            }
            let unit = UNITS.iter().find(|(unit, _)| *unit == name);
            let (_, unit) = unit.ok_or_else(|| format!("time: unknown unit {name:?} in duration {text:?}"))?;
            total += number * unit;
            rest = after;
        }
        if total > i64::MAX as f64 {
            return Err(invalid());
        }
        Ok(GoDuration(if negative { -(total as i64) } else { total as i64 }))
    }
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
        let fraction = |value: u64, unit: u64| (value as f64 / unit as f64).to_string();
        match nanos {
            0 => f.write_str("0s"),
            1..1_000 => write!(f, "{nanos}ns"),
            1_000..1_000_000 => write!(f, "{}µs", fraction(nanos, 1_000)),
            1_000_000..1_000_000_000 => write!(f, "{}ms", fraction(nanos, 1_000_000)),
            _ => {
                let (minutes, rest) = (nanos / 60_000_000_000, nanos % 60_000_000_000);
                let (hours, minutes) = (minutes / 60, minutes % 60);
                if hours > 0 {
                    write!(f, "{hours}h")?;
                }
                if hours > 0 || minutes > 0 {
                    write!(f, "{minutes}m")?;
                }
                write!(f, "{}s", fraction(rest, 1_000_000_000))
            }
        }
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
