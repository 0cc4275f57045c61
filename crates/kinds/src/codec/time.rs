//! Times as the API writes them: RFC 3339 in UTC, to the second or to the microsecond.

use jiff::Timestamp;
use jiff::tz::TimeZone;

const SECONDS_LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
const MICROS_LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";

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
    match text.parse::<Timestamp>() {
        // The year 1 is upstream's zero time.
        Ok(time) if time.as_second() == -62_135_596_800 => Ok(None),
        Ok(time) => Ok(Some(time)),
        Err(_) => Err(format!("parsing time {text:?}: day out of range")),
    }
}
