//! Where the time of a decision of the engine goes, by extension point and plugin.
//!
//! The engine does not run one extension point after the other on all nodes. It asks plugins where something changed,
//! filters and scores together. Its time is divided all the same, because that is what operators watch: PreFilter is
//! the preparation for the pod, Filter is bringing the scoreboard up to date, Score is evaluating scores and choosing.
//!
//! Reading the clock at each step would cost more than some steps. Decisions are sampled therefore, and one that was
//! timed stands for those of its kind that follow until the next.

use std::cell::Cell;
use std::ops::Deref;

use crate::cluster::PodInfo;
use crate::framework::{Code, Cycle};
use crate::metrics::{PointTime, ProfileMetrics, TimedPoint};

/// The extension points of a decision, in their order.
const POINTS: [TimedPoint; 4] = [TimedPoint::PreFilter, TimedPoint::Filter, TimedPoint::PreScore, TimedPoint::Score];

/// So many decisions are all timed, so that a quiet cluster shows what each of them took.
const TIMED_FIRST: u32 = 100;
/// After them one in about so many is; in gaps of irregular length, because clusters have rhythms.
const TIMED_EVERY: u32 = 10;

/// What plugins see of a decision, and its timing.
#[derive(Clone, Copy)]
pub(crate) struct TimedCycle<'a> {
    pub(super) cycle: Cycle<'a>,
    /// None in a decision that is not timed.
    pub(super) timing: Option<&'a Timing<'a>>,
}

impl<'a> TimedCycle<'a> {
    /// The same for another pod of the signature.
    pub(super) fn of<'b>(&self, pod: &'b PodInfo) -> TimedCycle<'b>
    where
        'a: 'b,
    {
        TimedCycle { cycle: Cycle { pod, ..self.cycle }, timing: self.timing }
    }
}

impl<'a> Deref for TimedCycle<'a> {
    type Target = Cycle<'a>;
    fn deref(&self) -> &Cycle<'a> {
        &self.cycle
    }
}

/// Times one decision.
pub(crate) struct Timing<'a> {
    metrics: &'a ProfileMetrics,
    started: u64,
    /// When the current step began.
    step_started: Cell<u64>,
    /// The extension point that the current step counts as.
    step: Cell<usize>,
    /// Nanoseconds by extension point; negative while a plugin's time was moved out of a step that has not ended.
    spent: [Cell<i64>; POINTS.len()],
}

fn index(point: TimedPoint) -> Option<usize> {
    match point {
        // Normalising is a part of scoring.
        TimedPoint::Normalize => Some(3),
        point => POINTS.iter().position(|known| *known == point),
    }
}

impl<'a> Timing<'a> {
    /// Begins with PreFilter.
    pub(crate) fn start(metrics: &'a ProfileMetrics) -> Self {
        let now = metrics.all.now();
        Timing { metrics, started: now, step_started: Cell::new(now), step: Cell::new(0), spent: Default::default() }
    }

    fn add(&self, at: usize, nanos: i64) {
        self.spent[at].set(self.spent[at].get() + nanos);
    }

    /// The current step ends, and one that counts as `next` begins.
    pub(super) fn step(&self, next: TimedPoint) {
        let now = self.metrics.all.now();
        self.add(self.step.get(), signed(now.saturating_sub(self.step_started.replace(now))));
        self.step.set(index(next).unwrap_or_default());
    }

    /// A plugin has answered `calls` times since `since`. Its time counts as its extension point's, whatever the step.
    fn plugin(&self, since: u64, plugin: usize, point: TimedPoint, code: Code, calls: usize) {
        let elapsed = self.metrics.all.now().saturating_sub(since);
        self.metrics.plugin_ran(plugin, point, code, elapsed, calls);
        if let Some(at) = index(point).filter(|at| *at != self.step.get()) {
            self.add(at, signed(elapsed));
            self.add(self.step.get(), -signed(elapsed));
        }
    }

    /// The decision is made: what each extension point took. Without scoring there are two.
    pub(crate) fn end(self, scored: bool) -> DecisionTimes {
        self.step(TimedPoint::Score);
        let points = if scored { POINTS.len() } else { 2 };
        let mut times = DecisionTimes { started: self.started, nanos: [0; POINTS.len()], points };
        for (nanos, spent) in times.nanos.iter_mut().zip(&self.spent) {
            *nanos = u64::try_from(spent.get()).unwrap_or(0);
        }
        if !scored {
            // Finding out that there is nothing to choose from is filtering.
            times.nanos[1] += times.nanos[2] + times.nanos[3];
        }
        times
    }
}

fn signed(nanos: u64) -> i64 {
    i64::try_from(nanos).unwrap_or(i64::MAX)
}

/// Times a plugin in a decision that is timed.
pub(crate) struct PluginWatch<'a>(Option<(&'a Timing<'a>, u64)>);

impl<'a> PluginWatch<'a> {
    #[inline]
    pub(crate) fn start(timing: Option<&'a Timing<'a>>) -> Self {
        PluginWatch(timing.map(|timing| (timing, timing.metrics.all.now())))
    }

    /// The plugin has answered.
    #[inline]
    pub(crate) fn end(self, plugin: usize, point: TimedPoint, code: Code) {
        self.end_many(plugin, point, code, 1);
    }

    /// The plugin has answered about so many nodes.
    #[inline]
    pub(crate) fn end_many(self, plugin: usize, point: TimedPoint, code: Code, calls: usize) {
        if let Some((timing, since)) = self.0 {
            timing.plugin(since, plugin, point, code, calls);
        }
    }
}

/// What each extension point of a decision took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecisionTimes {
    started: u64,
    nanos: [u64; POINTS.len()],
    /// How many of the points there were.
    points: usize,
}

impl DecisionTimes {
    fn observe(&self, metrics: &ProfileMetrics, times: u64) {
        for (point, nanos) in POINTS.into_iter().zip(self.nanos).take(self.points) {
            metrics.point_took(point, Code::Success, nanos, times);
        }
    }

    /// The points one after the other, as a trace shows them.
    pub(crate) fn points(&self) -> impl Iterator<Item = PointTime> {
        let mut start = self.started;
        POINTS.into_iter().zip(self.nanos).take(self.points).map(move |(point, nanos)| {
            let begun = start;
            start += nanos;
            PointTime { point, start: begun, end: start, code: Code::Success }
        })
    }
}

/// What a decision came to; those of one kind do about the same work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecisionKind {
    /// The best of several nodes was chosen.
    Scored,
    /// There was one node to choose from.
    OnlyNode,
    /// No node fits.
    NoNode,
}

const KINDS: usize = 3;

/// Which decisions of a profile are timed, and what those that are not are taken to have been like.
#[derive(Default)]
pub(crate) struct DecisionSamples {
    decisions: u32,
    /// The decisions until the next that is timed.
    gap: u32,
    /// Draws the gaps.
    state: u32,
    samples: [Sample; KINDS],
}

#[derive(Clone, Copy, Default)]
struct Sample {
    last: Option<DecisionTimes>,
    /// Decisions of this kind since the last that was timed.
    following: u64,
}

impl DecisionSamples {
    /// Whether the decision that begins is timed.
    pub(crate) fn next_is_timed(&mut self) -> bool {
        if self.decisions < TIMED_FIRST {
            self.decisions += 1;
            return true;
        }
        if self.gap > 0 {
            self.gap -= 1;
            return false;
        }
        // A linear congruence (Numerical Recipes): nobody can gain anything from guessing it.
        self.state = self.state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.gap = (self.state >> 16) % (2 * TIMED_EVERY - 1);
        true
    }

    /// A decision that was timed.
    pub(crate) fn timed(&mut self, kind: DecisionKind, times: DecisionTimes, metrics: &ProfileMetrics) {
        self.flush_kind(kind as usize, metrics);
        times.observe(metrics, 1);
        self.samples[kind as usize].last = Some(times);
    }

    /// A decision that was not.
    pub(crate) fn untimed(&mut self, kind: DecisionKind) {
        self.samples[kind as usize].following += 1;
    }

    /// Brings the metrics up to date, for a scrape.
    pub(crate) fn flush(&mut self, metrics: &ProfileMetrics) {
        (0..KINDS).for_each(|kind| self.flush_kind(kind, metrics));
    }

    fn flush_kind(&mut self, kind: usize, metrics: &ProfileMetrics) {
        let sample = &mut self.samples[kind];
        if let (Some(last), 1..) = (sample.last, sample.following) {
            last.observe(metrics, std::mem::take(&mut sample.following));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_decisions_are_timed_and_then_one_in_ten() {
        let mut samples = DecisionSamples::default();
        assert!((0..TIMED_FIRST).all(|_| samples.next_is_timed()));
        let timed = (0..10_000).filter(|_| samples.next_is_timed()).count();
        assert!((900..1_100).contains(&timed), "{timed}");
    }
}
