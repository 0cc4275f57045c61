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
    smoothed: f64,
}

impl Demand {
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

    /// The peak since the last look and the smoothed demand: it follows a rise at once and a fall slowly.
    pub(crate) fn look(&mut self, now: Duration) -> (usize, f64) {
        self.integrate(now);
        let peak = self.peak;
        let passed = now.saturating_sub(self.since).as_secs_f64();
        if passed > 0.0 {
            let average = self.sum / passed;
            let deviation = (self.sum_of_squares / passed - average * average).max(0.0).sqrt();
            let envelope = average + deviation;
            self.smoothed = envelope.max(SMOOTHING * self.smoothed + (1.0 - SMOOTHING) * envelope);
        }
        *self = Demand {
            seats: self.seats,
            since: now,
            last: now,
            peak: self.seats,
            smoothed: self.smoothed,
            ..Demand::default()
        };
        (peak, self.smoothed)
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
        assert_eq!(demand.look(seconds(10)), (10, 10.0));
        // Half of the time 10, half of the time 30: average 20, deviation 10.
        demand.set(30, seconds(15));
        let (peak, smoothed) = demand.look(seconds(20));
        assert_eq!((peak, smoothed.round()), (30, 30.0));
        demand.set(0, seconds(20));
        let (peak, smoothed) = demand.look(seconds(30));
        assert_eq!((peak, (smoothed * 100.0).round()), (30, 2931.0));
        let (peak, _) = demand.look(seconds(40));
        assert_eq!(peak, 0);
    }
}
