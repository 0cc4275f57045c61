//! When a CronJob is due: the schedules of robfig/cron v3, with its quirks, because users rely on them.

mod zone;

use jiff::Timestamp;

pub use self::zone::{Zone, rfc1123};
use self::zone::{civil_from_days, days_from_civil};
use crate::go_duration::GoDuration;

/// Set for a field that says `*` or `?`: the other field of the two days alone decides then.
const STAR: u64 = 1 << 63;

/// A search gives up after this many years: nothing is due on the 30th of February.
const YEARS_MAX: i64 = 5;

const SECONDS_PER_DAY: i64 = 86_400;

/// Go's zero time, which a search that finds nothing answers.
const NEVER: i64 = -62_135_596_800;

/// A parsed schedule. Times are whole seconds since 1970.
#[derive(Clone, Debug)]
pub enum Schedule {
    /// The five fields.
    Fields(Box<Fields>),
    /// `@every`: this many seconds after the last time.
    Every(i64),
}

/// The times that match, as sets of bits, in a time zone.
#[derive(Clone, Debug)]
pub struct Fields {
    minute: u64,
    hour: u64,
    day_of_month: u64,
    month: u64,
    day_of_week: u64,
    zone: Zone,
}

/// What the numbers of a field may be.
struct Bounds {
    min: u64,
    max: u64,
    names: &'static [&'static str],
}

const MINUTES: Bounds = Bounds { min: 0, max: 59, names: &[] };
const HOURS: Bounds = Bounds { min: 0, max: 23, names: &[] };
const DAYS_OF_MONTH: Bounds = Bounds { min: 1, max: 31, names: &[] };
const MONTHS: Bounds = Bounds {
    min: 1,
    max: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const DAYS_OF_WEEK: Bounds = Bounds { min: 0, max: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

impl Bounds {
    const fn all(&self) -> u64 {
        bits(self.min, self.max, 1) | STAR
    }
}

impl Schedule {
    /// Reads a schedule; the error is upstream's text.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("empty spec string".into());
        }
        let (zone, text) = split_zone(text)?;
        if text.starts_with('@') {
            return descriptor(text, zone);
        }
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minute, hour, day_of_month, month, day_of_week] = fields[..] else {
            return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
        };
        Ok(Schedule::Fields(Box::new(Fields {
            minute: field(minute, &MINUTES)?,
            hour: field(hour, &HOURS)?,
            day_of_month: field(day_of_month, &DAYS_OF_MONTH)?,
            month: field(month, &MONTHS)?,
            day_of_week: field(day_of_week, &DAYS_OF_WEEK)?,
            zone,
        })))
    }

    /// The first time after this one; none within five years.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let next = self.next_second(after.as_second());
        (next != NEVER).then(|| Timestamp::from_second(next).ok()).flatten()
    }

    /// The first second after this one; Go's zero time when there is none within five years.
    pub fn next_second(&self, after: i64) -> i64 {
        match self {
            Schedule::Every(delay) => after.saturating_add(*delay),
            Schedule::Fields(fields) => fields.next(after).unwrap_or(NEVER),
        }
    }
}

/// The zone that a schedule begins with, and the rest.
fn split_zone(text: &str) -> Result<(Zone, &str), String> {
    let Some((name, rest)) =
        text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ=")).map(|rest| (rest, rest.find(' ')))
    else {
        return Ok((Zone::utc(), text));
    };
    // Upstream's parser panics here, and is recovered from with these words.
    let at = rest.ok_or("invalid schedule format: runtime error: slice bounds out of range [:-1]")?;
    let (name, rest) = name.split_at(at);
    let zone = Zone::load(name).map_err(|error| format!("provided bad location {name}: {error}"))?;
    Ok((zone, rest.trim()))
}

fn descriptor(text: &str, zone: Zone) -> Result<Schedule, String> {
    let first = |bounds: &Bounds| 1 << bounds.min;
    let fields = |hour, day_of_month, month, day_of_week| {
        let minute = first(&MINUTES);
        Ok(Schedule::Fields(Box::new(Fields { minute, hour, day_of_month, month, day_of_week, zone: zone.clone() })))
    };
    let (hour, day) = (first(&HOURS), first(&DAYS_OF_MONTH));
    let (days, months, weekdays) = (DAYS_OF_MONTH.all(), MONTHS.all(), DAYS_OF_WEEK.all());
    match text {
        "@yearly" | "@annually" => fields(hour, day, first(&MONTHS), weekdays),
        "@monthly" => fields(hour, day, months, weekdays),
        "@weekly" => fields(hour, days, months, first(&DAYS_OF_WEEK)),
        "@daily" | "@midnight" => fields(hour, days, months, weekdays),
        "@hourly" => fields(HOURS.all(), days, months, weekdays),
        _ => {
            let every = text.strip_prefix("@every ").ok_or_else(|| format!("unrecognized descriptor: {text}"))?;
            let delay =
                GoDuration::parse(every).map_err(|error| format!("failed to parse duration {text}: {error}"))?;
            Ok(Schedule::Every((delay.0 / 1_000_000_000).max(1)))
        }
    }
}

fn field(text: &str, bounds: &Bounds) -> Result<u64, String> {
    text.split(',').filter(|part| !part.is_empty()).try_fold(0, |all, part| Ok(all | range(part, bounds)?))
}

/// One of `*`, `a`, `a-b`, each with or without `/step`.
fn range(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let parts: Vec<&str> = text.split('/').collect();
    let limits: Vec<&str> = parts[0].split('-').collect();
    let (start, mut end, mut star) = match limits[..] {
        ["*" | "?", ..] => (bounds.min, bounds.max, STAR),
        [one] => number_or_name(one, bounds).map(|one| (one, one, 0))?,
        [first, ref rest @ ..] => {
            let first = number_or_name(first, bounds)?;
            let [last] = rest[..] else { return Err(format!("too many hyphens: {text}")) };
            (first, number_or_name(last, bounds)?, 0)
        }
        [] => (0, 0, 0),
    };
    let step = match parts[..] {
        [_] => 1,
        [_, step] => {
            let step = number(step)?;
            if limits.len() == 1 {
                end = bounds.max;
            }
            if step > 1 {
                star = 0;
            }
            step
        }
        _ => return Err(format!("too many slashes: {text}")),
    };
    let Bounds { min, max, .. } = bounds;
    if start < *min {
        return Err(format!("beginning of range ({start}) below minimum ({min}): {text}"));
    }
    if end > *max {
        return Err(format!("end of range ({end}) above maximum ({max}): {text}"));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    Ok(bits(start, end, step) | star)
}

const fn bits(first: u64, last: u64, step: u64) -> u64 {
    let (mut at, mut bits) = (first, 0);
    while at <= last {
        bits |= 1 << at;
        at = at.saturating_add(step);
    }
    bits
}

fn number_or_name(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let lower = text.to_lowercase();
    match bounds.names.iter().position(|name| *name == lower) {
        Some(at) => Ok(bounds.min + at as u64),
        None => number(text),
    }
}

/// A number as Go's `strconv.Atoi` reads it.
fn number(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let parsed: Result<i64, _> = text.parse();
    match parsed {
        Ok(number) => u64::try_from(number).map_err(|_| format!("negative number ({number}) not allowed: {text}")),
        Err(_) => {
            let numeric = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            let why = if numeric { "value out of range" } else { "invalid syntax" };
            Err(format!("failed to parse int from {text}: strconv.Atoi: parsing {}: {why}", quoted(text)))
        }
    }
}

fn quoted(text: &str) -> String {
    crate::quoted::Quoted(text).to_string()
}

/// A moment in a zone, and the calendar's and the clock's view of it.
#[derive(Clone, Copy)]
struct Moment {
    second: i64,
    year: i64,
    month: i64,
    day: i64,
    /// Days since 1970.
    days: i64,
    /// The second of the day.
    clock: i64,
}

impl Moment {
    fn hour(&self) -> i64 {
        self.clock / 3600
    }

    fn minute(&self) -> i64 {
        self.clock / 60 % 60
    }

    fn weekday(&self) -> i64 {
        (self.days + 4).rem_euclid(7)
    }
}

fn is_set(bits: u64, at: i64) -> bool {
    bits >> at & 1 == 1
}

impl Fields {
    fn at(&self, second: i64) -> Moment {
        let local = second.saturating_add(self.zone.offset_at(second));
        let days = local.div_euclid(SECONDS_PER_DAY);
        let (year, month, day) = civil_from_days(days);
        Moment { second, year, month, day, days, clock: local.rem_euclid(SECONDS_PER_DAY) }
    }

    /// The moment at which the calendar and the clock show this; Go's `time.Date`, which settles what a change of the
    /// clock leaves open or skips.
    fn date(&self, year: i64, month: i64, day: i64, clock: i64) -> Moment {
        let (year, month) = (year + (month - 1).div_euclid(12), (month - 1).rem_euclid(12) + 1);
        let local = (days_from_civil(year, month, 1) + day - 1) * SECONDS_PER_DAY + clock;
        let offset = match self.zone.offset_at(local) {
            0 => 0,
            guess => self.zone.offset_at(local - guess),
        };
        self.at(local - offset)
    }

    /// Nothing matches a field whose set is empty, and no search is needed to know.
    fn is_impossible(&self) -> bool {
        [self.minute, self.hour, self.month].iter().any(|bits| bits & !STAR == 0)
            || (self.day_of_month | self.day_of_week) & !STAR == 0
    }

    fn day_matches(&self, at: &Moment) -> bool {
        let of_month = is_set(self.day_of_month, at.day);
        let of_week = is_set(self.day_of_week, at.weekday());
        match (self.day_of_month | self.day_of_week) & STAR {
            0 => of_month || of_week,
            _ => of_month && of_week,
        }
    }

    fn next(&self, after: i64) -> Option<i64> {
        if self.is_impossible() {
            return None;
        }
        let mut t = self.at(after.saturating_add(1));
        let last_year = t.year + YEARS_MAX;
        // Once a unit has been moved on, all smaller ones are at their start.
        let mut moved = false;
        while t.year <= last_year {
            match self.step(t, &mut moved) {
                Step::Found(at) => return Some(at.second),
                Step::Restart(at) => t = at,
            }
        }
        None
    }

    /// Moves month, day, hour and minute on until they match, or one of them begins anew.
    fn step(&self, mut t: Moment, moved: &mut bool) -> Step {
        while !is_set(self.month, t.month) {
            if !std::mem::replace(moved, true) {
                t = self.date(t.year, t.month, 1, 0);
            }
            t = self.date(t.year, t.month + 1, t.day, t.clock);
            if t.month == 1 {
                return Step::Restart(t);
            }
        }
        while !self.day_matches(&t) {
            if !std::mem::replace(moved, true) {
                t = self.date(t.year, t.month, t.day, 0);
            }
            t = self.date(t.year, t.month, t.day + 1, t.clock);
            // Where midnight does not exist, the day begins at another hour.
            match t.hour() {
                0 => {}
                hour @ 13.. => t = self.at(t.second + (24 - hour) * 3600),
                hour => t = self.at(t.second - hour * 3600),
            }
            if t.day == 1 {
                return Step::Restart(t);
            }
        }
        while !is_set(self.hour, t.hour()) {
            if !std::mem::replace(moved, true) {
                t = self.date(t.year, t.month, t.day, t.hour() * 3600);
            }
            t = self.at(t.second + 3600);
            if t.hour() == 0 {
                return Step::Restart(t);
            }
        }
        while !is_set(self.minute, t.minute()) {
            if !std::mem::replace(moved, true) {
                t = self.at(t.second - t.second.rem_euclid(60));
            }
            t = self.at(t.second + 60);
            if t.minute() == 0 {
                return Step::Restart(t);
            }
        }
        // The second is always 0, and a minute that has begun already is over.
        match t.clock % 60 {
            0 => Step::Found(t),
            second => {
                *moved = true;
                Step::Restart(self.at(t.second + 60 - second))
            }
        }
    }
}

enum Step {
    Found(Moment),
    /// A larger unit may no longer match.
    Restart(Moment),
}
