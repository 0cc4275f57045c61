//! Which start of a CronJob is due now, which were missed, and when to look again.

use std::time::Duration;

use bayplan_model::cron::{Schedule, Zone};
use jiff::{SignedDuration, Timestamp};

use super::object::CronJob;

/// A start is looked for this much later than it is due: clocks differ.
const SKEW: Duration = Duration::from_millis(100);

/// More missed starts than this are many.
const MISSED_MAX: i64 = 100;

/// How many starts were missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissedStarts {
    /// None, or the last one is due now.
    None,
    /// Up to 100.
    Few,
    /// More.
    Many,
}

/// The latest start that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latest {
    /// From when on starts were looked for.
    pub earliest: Timestamp,
    /// The start, if one is due.
    pub start: Option<Timestamp>,
    /// How many others were missed.
    pub missed: MissedStarts,
}

/// A schedule that is due at no two different times.
pub const NO_INTERVAL: &str = "time difference between two schedules is less than 1 second";

/// Whether the starting deadline limits how far back starts are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// It does.
    Heeded,
    /// It does not.
    Ignored,
}

/// The latest start that is due, with the time from which it was looked for.
pub fn latest(
    cron_job: &CronJob,
    schedule: &Schedule,
    now: Timestamp,
    deadline: Deadline,
) -> (Timestamp, Result<Latest, &'static str>) {
    let (status, spec) = (&cron_job.status, &cron_job.spec);
    let known = status.last_schedule_time.or(cron_job.metadata.creation_timestamp).unwrap_or(Timestamp::UNIX_EPOCH);
    let limit = spec.starting_deadline_seconds.filter(|_| deadline == Deadline::Heeded);
    let limit = limit.and_then(|seconds| now.checked_sub(SignedDuration::from_secs(seconds)).ok());
    let earliest = limit.map_or(known, |limit| known.max(limit));
    (earliest, latest_since(earliest, schedule, now))
}

fn latest_since(earliest: Timestamp, schedule: &Schedule, now: Timestamp) -> Result<Latest, &'static str> {
    let clock = now.as_second();
    let first = schedule.next_second(earliest.as_second());
    let second = schedule.next_second(first);
    let found = |start: Option<i64>, missed: MissedStarts| {
        Ok(Latest { earliest, start: start.and_then(|at| Timestamp::from_second(at).ok()), missed })
    };
    if clock < first {
        return found(None, MissedStarts::None);
    }
    if clock < second {
        return found(Some(first), MissedStarts::None);
    }
    let interval = second.saturating_sub(first);
    if interval < 1 {
        return Err(NO_INTERVAL);
    }
    let missed = (clock - first) / interval + 1;
    // Two intervals back, and from there one start after the other: intervals may differ.
    let mut at = schedule.next_second(first.saturating_add((missed - 2).saturating_mul(interval)));
    let mut last = None;
    while at <= clock && last.is_none_or(|last| at > last) {
        last = Some(at);
        at = schedule.next_second(at);
    }
    found(last, if missed > MISSED_MAX { MissedStarts::Many } else { MissedStarts::Few })
}

/// How long until the next start.
pub fn wait(cron_job: &CronJob, schedule: &Schedule, now: Timestamp) -> Duration {
    let from = match latest(cron_job, schedule, now, Deadline::Ignored).1 {
        Err(_) => now,
        Ok(Latest { start: Some(start), .. }) => start,
        Ok(Latest { earliest, missed: MissedStarts::None, .. }) => earliest,
        Ok(_) => now,
    };
    let next = i128::from(schedule.next_second(from.as_second())) * 1_000_000_000;
    let wait = next + i128::try_from(SKEW.as_nanos()).unwrap_or(0) - now.as_nanosecond();
    Duration::from_nanos(u64::try_from(wait.max(0)).unwrap_or(u64::MAX))
}

/// The schedule with the time zone that it is read in, unless it names one itself.
pub fn effective_schedule(cron_job: &CronJob) -> String {
    let schedule = &cron_job.spec.schedule;
    let zone = cron_job.spec.time_zone.as_deref().filter(|zone| Zone::load(zone).is_ok());
    match zone {
        Some(zone) if !names_zone(schedule) => format!("TZ={zone} {schedule}"),
        _ => schedule.clone(),
    }
}

/// Whether a schedule seems to name a time zone.
pub(super) fn names_zone(schedule: &str) -> bool {
    schedule.contains("TZ")
}
