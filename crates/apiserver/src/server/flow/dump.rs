//! What priority and fairness looks like from inside, as upstream's debug endpoints show it.

use std::collections::BTreeMap;
use std::fmt::Write;

use bayplan_flowcontrol::Tally;
use bayplan_flowcontrol::fair_queue::QueueView;
use jiff::{SignedDuration, Timestamp};

use super::{FlowControl, Shown};
use crate::request::Query;

/// Below it are the tables.
const ROOT: &str = "/debug/api_priority_and_fairness/";
/// Levels with more queues show only those with requests.
const EMPTY_QUEUES_MAX: usize = 1_000;
const NANOS: f64 = 1e9;

/// The table of a path, if there is one.
pub(crate) fn answer(control: &FlowControl, path: &str, query: &Query, now: Timestamp) -> Option<String> {
    match path.strip_prefix(ROOT)? {
        "dump_priority_levels" => Some(levels(control)),
        "dump_queues" => Some(queues(control)),
        "dump_requests" => {
            let with_details = query.get("includeRequestDetails").is_some_and(|value| !value.is_empty());
            Some(requests(control, with_details, now))
        }
        _ => None,
    }
}

/// Rows under their heads, aligned as Go's `tabwriter` aligns them.
fn table(heads: &[&str], rows: &[Vec<String>]) -> String {
    let heads: Vec<String> = heads.iter().map(ToString::to_string).collect();
    let rows = || std::iter::once(&heads).chain(rows);
    let width = |column: usize| rows().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    // The last column is not followed by anything.
    let widths: Vec<usize> = (0..heads.len()).map(|column| width(column).unwrap_or(0) + 2).collect();
    let mut text = String::new();
    for row in rows() {
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = if at + 1 < row.len() {
                let cell = format!("{cell},");
                write!(text, "{cell:<width$}", width = (*width).max(8))
            } else {
                writeln!(text, "{cell}")
            };
        }
    }
    text
}

fn levels(control: &FlowControl) -> String {
    let heads = [
        "PriorityLevelName",
        "ActiveQueues",
        "IsIdle",
        "IsQuiescing",
        "WaitingRequests",
        "ExecutingRequests",
        "DispatchedRequests",
        "RejectedRequests",
        "TimedoutRequests",
        "CancelledRequests",
    ];
    let row = |served: &super::Served| {
        let (level, _) = control.lock(&served.live);
        let (waiting, executing) = level.requests();
        let Tally { dispatched, rejected, cancelled } = level.tally();
        let active = level.queues().filter(|(_, queue)| queue.waiting > 0).count();
        let mut row = vec![served.config.name.clone(), active.to_string()];
        row.extend([level.is_idle(), level.is_quiescing()].map(|flag| flag.to_string()));
        row.extend([waiting, executing].map(|count| count.to_string()));
        row.extend([dispatched, rejected, 0, cancelled].map(|count| count.to_string()));
        row
    };
    table(&heads, &control.current().levels.iter().map(row).collect::<Vec<_>>())
}

fn queues(control: &FlowControl) -> String {
    let heads = [
        "PriorityLevelName",
        "Index",
        "PendingRequests",
        "ExecutingRequests",
        "SeatsInUse",
        "NextDispatchR",
        "InitialSeatsSum",
        "MaxSeatsSum",
        "TotalWorkSum",
    ];
    let mut rows = Vec::new();
    for served in &control.current().levels {
        let (level, _) = control.lock(&served.live);
        let mut queues: BTreeMap<usize, QueueView> = level.queues().collect();
        let count = level.queue_count();
        if count <= EMPTY_QUEUES_MAX {
            (0..count).for_each(|number| _ = queues.entry(number).or_default());
        }
        rows.extend(queues.into_iter().map(|(number, queue)| {
            let seat_seconds = |nanos: i128| format!("{:.8}ss", nanos as f64 / NANOS);
            let mut row = vec![served.config.name.clone()];
            row.extend([number, queue.waiting, queue.executing, queue.seats_in_use].map(|count| count.to_string()));
            row.push(seat_seconds(queue.next));
            row.extend([queue.initial_seats, queue.seats_max].map(|count| count.to_string()));
            row.push(seat_seconds(queue.work));
            row
        }));
    }
    table(&heads, &rows)
}

/// The requests that wait. Those that are served are not kept anywhere.
fn requests(control: &FlowControl, with_details: bool, now: Timestamp) -> String {
    let mut heads = vec![
        "PriorityLevelName",
        "FlowSchemaName",
        "QueueIndex",
        "RequestIndexInQueue",
        "FlowDistingsher",
        "ArriveTime",
        "InitialSeats",
        "FinalSeats",
        "AdditionalLatency",
        "StartTime",
    ];
    if with_details {
        heads.extend(["UserName", "Verb", "APIPath", "Namespace", "Name", "APIVersion", "Resource", "SubResource"]);
    }
    let mut rows = Vec::new();
    for served in &control.current().levels {
        let (level, _) = control.lock(&served.live);
        let mut place = (0, 0);
        for (queue, waiter, work) in level.waiting() {
            place = if place.0 == queue { (queue, place.1 + 1) } else { (queue, 1) };
            let Shown { schema, distinguisher, since, .. } = &waiter.shown;
            let mut row = vec![served.config.name.clone(), schema.name.clone()];
            row.extend([queue, place.1 - 1].map(|number| number.to_string()));
            let waited = SignedDuration::try_from(since.elapsed()).unwrap_or_default();
            let arrived = now.checked_sub(waited).unwrap_or(now);
            row.extend([distinguisher.clone(), arrived.to_string()]);
            row.extend([work.seats(), work.final_seats()].map(|seats| seats.to_string()));
            row.push(format!("{:?}", work.final_time()));
            row.push("0001-01-01T00:00:00Z".to_owned());
            if with_details {
                row.extend(details(&waiter.shown));
            }
            rows.push(row);
        }
    }
    table(&heads, &rows)
}

fn details(shown: &Shown) -> [String; 8] {
    let Shown { user, info, .. } = shown;
    let version = if info.group.is_empty() { info.version.clone() } else { format!("{}/{}", info.group, info.version) };
    [
        user.clone(),
        info.verb.as_str().to_owned(),
        info.path.clone(),
        info.namespace.clone(),
        info.name.clone(),
        version,
        info.plural.clone(),
        info.subresource.clone(),
    ]
}
