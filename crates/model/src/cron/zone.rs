//! Time zones by name, from data that is part of the program: what a schedule means does not depend on the machine.

use std::sync::LazyLock;

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};

static DATABASE: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// A time zone; none is UTC.
#[derive(Clone, Debug)]
pub struct Zone(Option<TimeZone>);

impl Zone {
    /// UTC.
    pub fn utc() -> Self {
        Zone(None)
    }

    /// The zone of this name, as Go's `time.LoadLocation` finds it. The local zone of a controller is UTC.
    pub fn load(name: &str) -> Result<Self, String> {
        if matches!(name, "" | "UTC" | "Local") {
            return Ok(Zone::utc());
        }
        if name.contains("..") || name.starts_with(['/', '\\']) {
            return Err("time: invalid location name".into());
        }
        let zone = DATABASE.get(name).ok().filter(|zone| zone.iana_name() == Some(name));
        zone.map(|zone| Zone(Some(zone))).ok_or_else(|| format!("unknown time zone {name}"))
    }

    /// The seconds by which the zone is ahead of UTC at a time.
    pub fn offset_at(&self, second: i64) -> i64 {
        let Some(zone) = &self.0 else { return 0 };
        let at = second.clamp(Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
        Timestamp::from_second(at).map_or(0, |at| i64::from(zone.to_offset(at).seconds()))
    }

    /// A time as RFC 3339 writes it in this zone.
    pub fn rfc3339(&self, at: Timestamp) -> String {
        let offset = self.offset_at(at.as_second());
        let local = at.as_second() + offset;
        let (year, month, day) = civil_from_days(local.div_euclid(86_400));
        let clock = local.rem_euclid(86_400);
        let time =
            format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}", clock / 3600, clock / 60 % 60, clock % 60);
        if offset == 0 {
            return format!("{time}Z");
        }
        let (sign, minutes) = (if offset < 0 { '-' } else { '+' }, offset.abs() / 60);
        format!("{time}{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

/// A time in UTC as RFC 1123 writes it, with a numeric zone.
pub fn rfc1123(at: Timestamp) -> String {
    const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let days = at.as_second().div_euclid(86_400);
    let clock = at.as_second().rem_euclid(86_400);
    let (year, month, day) = civil_from_days(days);
    let weekday = DAYS[usize::try_from((days + 4).rem_euclid(7)).unwrap_or(0)];
    let month = MONTHS[usize::try_from(month - 1).unwrap_or(0)];
    let (hour, minute, second) = (clock / 3600, clock / 60 % 60, clock % 60);
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} +0000")
}

/// Days since 1970 of a date of the Gregorian calendar.
pub(super) fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March here, so that the day that leap years add is their last.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Year, month and day of the days since 1970.
pub(super) fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = (shifted + 2) % 12 + 1;
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_dates_go_both_ways() {
        for (days, date) in [(0, (1970, 1, 1)), (59, (1970, 3, 1)), (11_016, (2000, 2, 29)), (-719_162, (1, 1, 1))] {
            assert_eq!((civil_from_days(days), days_from_civil(date.0, date.1, date.2)), (date, days));
        }
    }

    #[test]
    fn zones_are_found_by_their_exact_name() {
        let error = |name: &str| Zone::load(name).err().unwrap_or_default();
        assert_eq!(error("Europe/Berlin"), "");
        assert_eq!(error("europe/berlin"), "unknown time zone europe/berlin");
        assert_eq!(error("../etc/passwd"), "time: invalid location name");
        assert_eq!(rfc1123(Timestamp::UNIX_EPOCH), "Thu, 01 Jan 1970 00:00:00 +0000");
    }
}
