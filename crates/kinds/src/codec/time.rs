//! Times as the API writes them: RFC 3339 in UTC, to the second or to the microsecond.

use jiff::Timestamp;
use jiff::tz::TimeZone;

const SECONDS_LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
const MICROS_LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";

/// The beginning of the year 1, in seconds since 1970.
const ZERO_TIME_SECONDS: i128 = -62_135_596_800;

/// The canonical form of a `Time`; `None` for the zero time, which is written as nothing.
pub(crate) fn seconds(text: &str) -> Result<Option<String>, String> {
    let time = parse(text, SECONDS_LAYOUT, false)?;
    Ok(time.map(write_seconds))
}

/// The canonical form of a `MicroTime`; `None` for the zero time, which is written as nothing.
pub(crate) fn micros(text: &str) -> Result<Option<String>, String> {
    let time = parse(text, MICROS_LAYOUT, true)?;
    Ok(time.map(write_micros))
}

/// `2026-01-02T03:04:05Z`.
pub(crate) fn write_seconds(time: Timestamp) -> String {
    let utc = time.to_zoned(TimeZone::UTC);
    let date = utc.date();
    let clock = utc.time();
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        date.year(),
        date.month(),
        date.day(),
        clock.hour(),
        clock.minute(),
        clock.second()
    )
}

/// `2026-01-02T03:04:05.000000Z`.
pub(crate) fn write_micros(time: Timestamp) -> String {
    let mut text = write_seconds(time);
    text.pop();
    let nanos = time.to_zoned(TimeZone::UTC).time().subsec_nanosecond();
    text.push_str(&format!(".{:06}Z", nanos / 1000));
    text
}

/// Reads a time by upstream's layout, with upstream's words when it does not fit.
fn parse(text: &str, layout: &'static str, fraction_required: bool) -> Result<Option<Timestamp>, String> {
    // The parts of the layout: a number of digits, or one literal byte (0).
    const PARTS: [(&str, usize); 11] = [
        ("2006", 4),
        ("-", 0),
        ("01", 2),
        ("-", 0),
        ("02", 2),
        ("T", 0),
        ("15", 2),
        (":", 0),
        ("04", 2),
        (":", 0),
        ("05", 2),
    ];
    let cannot =
        |rest: &str, want: &str| Err(format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {want:?}"));
    let mut rest = text;
    for (want, digits) in PARTS {
        let fits = if digits == 0 {
            rest.starts_with(want)
        } else {
            rest.len() >= digits && rest.as_bytes()[..digits].iter().all(u8::is_ascii_digit)
        };
        if !fits {
            return cannot(rest, want);
        }
        rest = &rest[if digits == 0 { 1 } else { digits }..];
    }
    let fraction = match rest.strip_prefix('.') {
        Some(after) => after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len(),
        None => 0,
    };
    if fraction_required && fraction != 6 {
        return cannot(rest, ".000000");
    }
    let zone = &rest[if fraction == 0 { 0 } else { fraction + 1 }..];
    let zone_fits = zone == "Z"
        || (zone.len() == 6
            && zone.starts_with(['+', '-'])
            && zone.as_bytes()[3] == b':'
            && zone.bytes().enumerate().all(|(i, b)| matches!(i, 0 | 3) || b.is_ascii_digit()));
    if !zone_fits {
        return cannot(zone, "Z07:00");
    }
    let out_of_range = || format!("parsing time {text:?}: day out of range");
    let time: Timestamp = text.parse().map_err(|_| out_of_range())?;
    // East of Greenwich the year 0 begins earlier: in UTC it may still be the year before, which has no spelling.
    if time.to_zoned(TimeZone::UTC).year() < 0 {
        return Err(out_of_range());
    }
    // Upstream's zero time, also when a fraction follows that is not written.
    let written = if fraction_required { 1_000 } else { 1_000_000_000 };
    let zero = time.as_nanosecond().div_euclid(written) == ZERO_TIME_SECONDS * (1_000_000_000 / written);
    Ok((!zero).then_some(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read_and_is_the_same() {
        for (text, written) in [
            ("2026-01-02T03:04:05+02:00", Some("2026-01-02T01:04:05Z")),
            ("0000-01-01T01:00:00+01:00", Some("0000-01-01T00:00:00Z")),
            ("0001-01-01T00:00:00Z", None),
            // Without its fraction it is the zero time, so that it must not be written as one.
            ("0001-01-01T00:00:00.5Z", None),
        ] {
            assert_eq!(seconds(text), Ok(written.map(str::to_owned)), "{text}");
        }
        assert_eq!(micros("0001-01-01T00:00:00.500000Z"), Ok(Some("0001-01-01T00:00:00.500000Z".to_owned())));
        for text in ["0000-01-01T00:00:00+01:00", "9999-12-31T23:59:59-23:59"] {
            assert_eq!(seconds(text), Err(format!("parsing time {text:?}: day out of range")));
        }
    }
}
