//! How many seats a level wants: the average, the spread and the peak since the last look.

use std::time::Duration;

/// How much of the old value a smoothed value keeps each time: half of it in five minutes, as upstream.
const SMOOTHING: f64 = 0.977;

/// The demand of a level over time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Demand {
    seats: usize,
    since: Duration,
    last: Duration,
    /// Integrals of the seats, and of their square, over seconds.
    sum: f64,
    sum_of_squares: f64,
    peak: usize,
    seen: Seen,
}

/// What a level wanted until it was last looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// The most seats wanted at once.
    pub peak: usize,
    /// The seats wanted on average.
    pub average: f64,
    /// How far they were from that: the standard deviation.
    pub deviation: f64,
    /// What follows a rise of both at once and a fall slowly.
    pub smoothed: f64,
}

impl Demand {
    /// No demand yet.
    pub(crate) fn since(now: Duration) -> Demand {
        Demand { since: now, last: now, ..Demand::default() }
    }

    pub(crate) fn set(&mut self, seats: usize, now: Duration) {
        self.integrate(now);
        self.seats = seats;
        self.peak = self.peak.max(seats);
    }

    fn integrate(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.last).as_secs_f64();
        let seats = self.seats as f64;
        self.sum += seats * passed;
        self.sum_of_squares += seats * seats * passed;
        self.last = self.last.max(now);
    }

    /// What was wanted since the last look. A look at the same time shows only another peak.
    pub(crate) fn look(&mut self, now: Duration) -> Seen {
        self.integrate(now);
        let mut seen = Seen { peak: self.peak, ..self.seen };
        let passed = now.saturating_sub(self.since).as_secs_f64();
        if passed > 0.0 {
            seen.average = self.sum / passed;
            seen.deviation = (self.sum_of_squares / passed - seen.average * seen.average).max(0.0).sqrt();
            let envelope = seen.average + seen.deviation;
            seen.smoothed = envelope.max(SMOOTHING * seen.smoothed + (1.0 - SMOOTHING) * envelope);
        }
        *self = Demand { seats: self.seats, peak: self.seats, seen, ..Demand::since(now) };
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demand_follows_a_rise_at_once_and_a_fall_slowly() {
        let seconds = Duration::from_secs;
        let mut demand = Demand::default();
        demand.set(10, seconds(0));
        assert_eq!(demand.look(seconds(10)), Seen { peak: 10, average: 10.0, deviation: 0.0, smoothed: 10.0 });
        // Half of the time 10, half of the time 30: average 20, deviation 10.
        demand.set(30, seconds(15));
        let seen = demand.look(seconds(20));
        assert_eq!((seen.peak, seen.average, seen.deviation, seen.smoothed.round()), (30, 20.0, 10.0, 30.0));
        demand.set(0, seconds(20));
        let seen = demand.look(seconds(30));
        assert_eq!((seen.peak, (seen.smoothed * 100.0).round()), (30, 2931.0));
        assert_eq!(demand.look(seconds(30)), Seen { peak: 0, ..seen });
        assert_eq!(demand.look(seconds(40)).peak, 0);
    }
}
