//! The two ways Kubernetes writes a time: `metav1.Time` in seconds, `metav1.MicroTime` in microseconds; and a quick one
//! that cuts nothing.

use jiff::Timestamp;
use jiff::tz::Offset;
use serde::{Serialize, Serializer};

/// `metav1.Time`: `2026-01-02T03:04:05Z`.
pub fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// `metav1.MicroTime`: `2026-01-02T03:04:05.000000Z`, always with six digits.
pub fn micros(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// Writes a time to the nanosecond, byte for byte as it writes itself, in a fraction of the time: a decision log has
/// several in each line.
pub(crate) fn serialize_exactly<S: Serializer>(at: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    let Some(at) = at else { return serializer.serialize_none() };
    let mut text = *b"0000-00-00T00:00:00.000000000Z";
    match exact(*at, &mut text).and_then(|length| std::str::from_utf8(&text[..length]).ok()) {
        Some(text) => serializer.serialize_str(text),
        None => at.serialize(serializer),
    }
}

/// Fills in a time of a year of four digits; none for others. The length is returned.
fn exact(at: Timestamp, text: &mut [u8; 30]) -> Option<usize> {
    let time = Offset::UTC.to_datetime(at);
    if !(0..=9999).contains(&time.year()) {
        return None;
    }
    let number = |number: i8| u32::try_from(number).ok();
    fill(&mut text[..4], u32::try_from(time.year()).ok()?);
    fill(&mut text[5..7], number(time.month())?);
    fill(&mut text[8..10], number(time.day())?);
    fill(&mut text[11..13], number(time.hour())?);
    fill(&mut text[14..16], number(time.minute())?);
    fill(&mut text[17..19], number(time.second())?);
    let fraction = u32::try_from(time.subsec_nanosecond()).ok()?;
    fill(&mut text[20..29], fraction);
    // Without a point that nothing follows.
    let mut length = if fraction == 0 { 19 } else { 29 };
    while text[length - 1] == b'0' && length > 20 {
        length -= 1;
    }
    text[length] = b'Z';
    Some(length + 1)
}

/// Writes a number in decimal, with zeros before it.
fn fill(digits: &mut [u8], mut number: u32) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_cut_what_they_cannot_say() {
        let at: Timestamp = "2026-01-02T03:04:05.678901234Z".parse().unwrap();
        assert_eq!(seconds(at), "2026-01-02T03:04:05Z");
        assert_eq!(micros(at), "2026-01-02T03:04:05.678901Z");
        assert_eq!(micros(Timestamp::UNIX_EPOCH), "1970-01-01T00:00:00.000000Z");
    }
    #[test]
    fn an_exact_time_is_written_as_it_writes_itself() {
        #[derive(Serialize)]
        struct Line(#[serde(serialize_with = "serialize_exactly")] Option<Timestamp>);
        let nanoseconds = [0, 1, 10, 999_999_999, 500_000_000, 123_456_789, 120_000_000, 5_000];
        let seconds =
            [0, -1, 1_700_000_000, 951_782_400, 4_102_444_799, -62_167_219_200, -62_167_219_201, 253_402_207_200];
        for (second, nanosecond) in seconds.into_iter().flat_map(|s| nanoseconds.map(|n| (s, n))) {
            let Ok(at) = Timestamp::new(second, nanosecond) else { continue };
            assert_eq!(serde_json::to_value(Line(Some(at))).unwrap(), at.to_string(), "{second} {nanosecond}");
        }
        assert_eq!(serde_json::to_value(Line(None)).unwrap(), serde_json::Value::Null);
    }
}
