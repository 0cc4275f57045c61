//! How long ago something happened, in the few characters a column has.

use jiff::Timestamp;
use serde_json::Value;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;

/// The age of a time field, `<unknown>` when it is not set.
pub(crate) fn since(time: &Value, now: Timestamp) -> String {
    match parse(time) {
        Some(time) => human(now, time),
        None => "<unknown>".to_owned(),
    }
}

pub(crate) fn parse(time: &Value) -> Option<Timestamp> {
    time.as_str().and_then(|text| text.parse().ok())
}

/// The time from `from` to `to` in at most two units. Upstream: `duration.HumanDuration`.
pub(crate) fn human(to: Timestamp, from: Timestamp) -> String {
    let nanos = to.as_nanosecond() - from.as_nanosecond();
    // Truncated to whole seconds, as upstream does.
    let seconds = i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX);
    let (minutes, hours) = (seconds / MINUTE, seconds / HOUR);
    let two = |first: i64, unit: char, second: i64, small: char| {
        if second == 0 { format!("{first}{unit}") } else { format!("{first}{unit}{second}{small}") }
    };
    match () {
        () if seconds < -1 => "<invalid>".to_owned(),
        () if seconds < 0 => "0s".to_owned(),
        () if seconds < 2 * MINUTE => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, 'm', seconds % 60, 's'),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two(hours, 'h', minutes % 60, 'm'),
        () if hours < 48 => format!("{hours}h"),
        () if hours < 24 * 8 => two(hours / 24, 'd', hours % 24, 'h'),
        () if hours < 24 * 365 * 2 => format!("{}d", hours / 24),
        () if hours < 24 * 365 * 8 => two(hours / 24 / 365, 'y', hours / 24 % 365, 'd'),
        () => format!("{}y", hours / 24 / 365),
    }
}
