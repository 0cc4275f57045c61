//! When extension points and plugins ran, and for how long.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use super::{ProfileMetrics, TimedPoint};
use crate::framework::Code;
use crate::trace::TracedPoint;

/// When an extension point ran, on the metrics' clock, and how it ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PointTime {
    pub(crate) point: TimedPoint,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) code: Code,
}

impl PointTime {
    /// As a trace tells it.
    pub(crate) fn traced(self) -> TracedPoint {
        TracedPoint { name: self.point.name(), start: self.start, end: self.end, code: self.code.name() }
    }
}

/// The extension points of the attempt that the owner of the queue makes just now, while it is traced.
#[derive(Default)]
pub(crate) struct TracedPoints {
    /// The span of the attempt; 0 when it is not traced.
    span: AtomicU64,
    points: Mutex<Vec<TracedPoint>>,
}

impl TracedPoints {
    /// An attempt begins, as this span or untraced.
    pub(crate) fn begin(&self, span: Option<u64>) {
        self.span.store(span.unwrap_or(0), Relaxed);
        self.points.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(crate) fn is_on(&self) -> bool {
        self.span.load(Relaxed) != 0
    }

    /// A point has ended. Those of binding cycles, which run at the same time for other pods, are told elsewhere.
    pub(crate) fn note(&self, time: PointTime) {
        if self.is_on() && time.point.is_of_scheduling_cycle() {
            self.points.lock().unwrap_or_else(PoisonError::into_inner).push(time.traced());
        }
    }

    /// The points of the attempt of this span since the last call; none of another's.
    pub(crate) fn take(&self, span: u64) -> Vec<TracedPoint> {
        match self.span.load(Relaxed) == span {
            true => std::mem::take(&mut self.points.lock().unwrap_or_else(PoisonError::into_inner)),
            false => Vec::new(),
        }
    }
}

/// Times an extension point or a plugin; does nothing without metrics.
#[derive(Clone, Copy)]
pub(crate) struct Stopwatch<'a>(Option<(&'a ProfileMetrics, u64)>);

impl<'a> Stopwatch<'a> {
    /// Starts, if there are metrics.
    pub(crate) fn start(metrics: Option<&'a ProfileMetrics>) -> Self {
        Stopwatch(metrics.map(|metrics| (metrics, metrics.all.now())))
    }

    /// An extension point ended; when, if there are metrics.
    pub(crate) fn point(self, point: TimedPoint, code: Code) -> Option<PointTime> {
        let (metrics, since) = self.0?;
        let now = metrics.all.now();
        metrics.point_took(point, code, now.saturating_sub(since), 1);
        let time = PointTime { point, start: since, end: now, code };
        metrics.all.trace.note(time);
        Some(time)
    }

    /// A plugin ended at an extension point.
    pub(crate) fn plugin(self, plugin: usize, point: TimedPoint, code: Code) {
        if let Some((metrics, since)) = self.0 {
            metrics.plugin_ran(plugin, point, code, metrics.all.now().saturating_sub(since), 1);
        }
    }
}
