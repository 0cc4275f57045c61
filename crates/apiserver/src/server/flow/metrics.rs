//! What priority and fairness counts, under upstream's names and labels.

use std::sync::Arc;
use std::time::Duration;

use bayplan_flowcontrol::Estimate;
use bayplan_flowcontrol::borrowing::{Bounds, Wish};
use bayplan_metrics::{Buckets, Counter, Family, Gauge, Histogram, ONES, Registry, SECONDS};
use tokio::time::Instant;

use crate::request::{RequestInfo, Verb};
use crate::server::metrics::{Occupied, nanos};

/// The bounds of the time that a request waits for a seat, and has it.
const TIMES: [f64; 13] = [0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0];
const CLASS: &[&str] = &["flow_schema", "priority_level"];
const LEVEL: &[&str] = &["priority_level"];

/// The metrics of priority and fairness.
#[derive(Clone)]
pub(in crate::server) struct FlowMetrics {
    dispatched: Family<Counter>,
    rejected: Family<Counter>,
    waited: Family<Histogram>,
    executed: Family<Histogram>,
    executing: Family<Gauge>,
    seats: Family<Gauge>,
    in_queue: Family<Gauge>,
    estimated_seats: Family<Histogram>,
    watch_counts: Family<Histogram>,
    limits: Limits,
    demand: Demand,
    fair_part: Arc<Gauge>,
}

/// The seats of each level.
#[derive(Clone)]
struct Limits {
    nominal: Family<Gauge>,
    lower: Family<Gauge>,
    upper: Family<Gauge>,
    current: Family<Gauge>,
}

/// The seats that each level wants.
#[derive(Clone)]
struct Demand {
    peak: Family<Gauge>,
    average: Family<Gauge>,
    deviation: Family<Gauge>,
    smoothed: Family<Gauge>,
    target: Family<Gauge>,
}

impl FlowMetrics {
    /// Registers the metrics.
    pub(in crate::server) fn new(registry: &Registry) -> FlowMetrics {
        let times = || Buckets::new(TIMES.to_vec(), SECONDS);
        let gauge = |name, help| registry.family(name, help, CLASS, ());
        FlowMetrics {
            dispatched: registry.family(
                "apiserver_flowcontrol_dispatched_requests_total",
                "[BETA] Requests that got a seat.",
                CLASS,
                (),
            ),
            rejected: registry.family(
                "apiserver_flowcontrol_rejected_requests_total",
                "[BETA] Requests that got no seat, by why.",
                &["flow_schema", "priority_level", "reason"],
                (),
            ),
            executing: gauge("apiserver_flowcontrol_current_executing_requests", "[BETA] Requests that have a seat."),
            seats: gauge("apiserver_flowcontrol_current_executing_seats", "[BETA] Seats that are taken."),
            in_queue: gauge("apiserver_flowcontrol_current_inqueue_requests", "[BETA] Requests that wait for a seat."),
            waited: registry.family(
                "apiserver_flowcontrol_request_wait_duration_seconds",
                "[BETA] Time that requests waited for a seat.",
                &["flow_schema", "priority_level", "execute"],
                times(),
            ),
            executed: registry.family(
                "apiserver_flowcontrol_request_execution_seconds",
                "[ALPHA] Time that requests had their seats; watches until their initial state was sent.",
                &["flow_schema", "priority_level", "type"],
                times(),
            ),
            estimated_seats: registry.family(
                "apiserver_flowcontrol_work_estimated_seats",
                "[ALPHA] Seats that requests were expected to need.",
                CLASS,
                Buckets::exponential(1.0, 2.0, 7, ONES),
            ),
            watch_counts: registry.family(
                "apiserver_flowcontrol_watch_count_samples",
                "[ALPHA] Watches that see what a write changes.",
                CLASS,
                Buckets::new(vec![0.0, 1.0, 10.0, 100.0, 1_000.0, 10_000.0], ONES),
            ),
            limits: Limits::new(registry),
            demand: Demand::new(registry),
            fair_part: registry.one(
                "apiserver_flowcontrol_seat_fair_frac",
                "[ALPHA] The part of its target that each level has which is at none of its bounds.",
                (),
            ),
        }
    }

    /// A request that got so many seats of a priority level after waiting; they are taken until the answer is dropped.
    pub(super) fn seated(&self, schema: &str, level: &str, waited: Duration, seats: usize) -> Occupied {
        let class = [schema, level];
        self.dispatched.get(&class).inc();
        self.waited.get(&[schema, level, "true"]).observe(nanos(waited));
        let taken = [(self.executing.get(&class), 1.0), (self.seats.get(&class), seats as f64)];
        Occupied::new(taken.into())
    }

    /// A request that has its seats until the answer is dropped.
    pub(super) fn execution(&self, schema: &str, level: &str, info: &RequestInfo) -> Execution {
        let kind = if info.verb == Verb::Watch { "watch" } else { "regular" };
        Execution { series: self.executed.get(&[schema, level, kind]), since: Instant::now() }
    }

    /// A request that got no seat of a priority level.
    pub(super) fn refused(&self, schema: &str, level: &str, waited: Duration, reason: &str) {
        self.rejected.get(&[schema, level, reason]).inc();
        self.waited.get(&[schema, level, "false"]).observe(nanos(waited));
    }

    /// A request that waits for a seat until the answer is dropped.
    pub(super) fn queued(&self, schema: &str, level: &str) -> Occupied {
        Occupied::new([(self.in_queue.get(&[schema, level]), 1.0)].into())
    }

    /// A request that is expected to need so many seats.
    pub(super) fn estimated(&self, schema: &str, level: &str, estimate: Estimate, seats: usize) {
        let class = [schema, level];
        self.estimated_seats.get(&class).observe(seats as u64);
        if let Estimate::Write { watches } = estimate {
            self.watch_counts.get(&class).observe(watches as u64);
        }
    }

    /// The bounds of a level's seats.
    pub(super) fn set_bounds(&self, level: &str, bounds: Bounds) {
        let Limits { nominal, lower, upper, .. } = &self.limits;
        for (gauge, seats) in [(nominal, bounds.nominal), (lower, bounds.min), (upper, bounds.max)] {
            gauge.get(&[level]).set(seats as f64);
        }
    }

    /// What a level wanted and the seats that it got.
    pub(super) fn wished(&self, level: &str, wish: &Wish, seats: usize) {
        self.limits.current.get(&[level]).set(seats as f64);
        let Demand { peak, average, deviation, smoothed, target } = &self.demand;
        let seen = &wish.demand;
        for (gauge, seats) in [
            (peak, seen.peak as f64),
            (average, seen.average),
            (deviation, seen.deviation),
            (smoothed, seen.smoothed),
            (target, wish.target()),
        ] {
            gauge.get(&[level]).set(seats);
        }
    }

    /// What part of its target each level has that is at none of its bounds.
    pub(super) fn divided(&self, fair_part: f64) {
        self.fair_part.set(fair_part);
    }
}

impl Limits {
    fn new(registry: &Registry) -> Limits {
        let gauge = |name, help| registry.family(name, help, LEVEL, ());
        Limits {
            nominal: gauge(
                "apiserver_flowcontrol_nominal_limit_seats",
                "[BETA] The seats of a priority level when none are lent or borrowed.",
            ),
            lower: gauge(
                "apiserver_flowcontrol_lower_limit_seats",
                "[ALPHA] The seats of a priority level when it lends all that it may.",
            ),
            upper: gauge(
                "apiserver_flowcontrol_upper_limit_seats",
                "[ALPHA] The seats of a priority level when it borrows all that it may.",
            ),
            current: gauge(
                "apiserver_flowcontrol_current_limit_seats",
                "[ALPHA] The seats of a priority level by what it and the others wanted.",
            ),
        }
    }
}

impl Demand {
    fn new(registry: &Registry) -> Demand {
        let gauge = |name, help| registry.family(name, help, LEVEL, ());
        Demand {
            peak: gauge(
                "apiserver_flowcontrol_demand_seats_high_watermark",
                "[ALPHA] The most seats that a priority level wanted before seats were divided.",
            ),
            average: gauge(
                "apiserver_flowcontrol_demand_seats_average",
                "[ALPHA] The seats that a priority level wanted on average before seats were divided.",
            ),
            deviation: gauge(
                "apiserver_flowcontrol_demand_seats_stdev",
                "[ALPHA] How far the seats that a priority level wanted were from their average.",
            ),
            smoothed: gauge(
                "apiserver_flowcontrol_demand_seats_smoothed",
                "[ALPHA] The seats that a priority level wanted, following rises at once and falls slowly.",
            ),
            target: gauge(
                "apiserver_flowcontrol_target_seats",
                "[ALPHA] The seats that a priority level should have if there were enough.",
            ),
        }
    }
}

/// How long a request has had its seats, counted when it is dropped.
pub(super) struct Execution {
    series: Arc<Histogram>,
    since: Instant,
}

impl Drop for Execution {
    fn drop(&mut self) {
        self.series.observe(nanos(self.since.elapsed()));
    }
}
