//! What a request is expected to cost: seats while it is served, and seats for the watches that it wakes.

use std::time::Duration;

/// Seats multiplied by nanoseconds. A year of 1,000,000 seats is 2^115 of them.
pub(crate) type SeatTime = i128;

/// The guess of how long a request takes, as upstream.
pub(crate) const GUESS: Duration = Duration::from_millis(3);
/// The watches that take one seat together, as upstream. Fewer are not counted.
const WATCHES_PER_SEAT: usize = 10;
/// How long the watches take to see an event, as upstream.
const EVENT_TIME: Duration = Duration::from_millis(5);
/// The most seats of a write, as upstream.
const WRITE_SEATS_MAX: usize = 10;

pub(crate) fn seat_time(seats: usize, time: Duration) -> SeatTime {
    seats as SeatTime * time.as_nanos() as SeatTime
}

/// What is known of a request's cost before it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Estimate {
    /// It takes so many seats.
    Seats(usize),
    /// It is a write of something that so many watches see.
    Write {
        /// The number of watches.
        watches: usize,
    },
}

/// The work of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// The seats while it is served.
    pub(crate) seats: usize,
    /// The seats that it keeps after that.
    pub(crate) final_seats: usize,
    /// For how long it keeps them.
    pub(crate) final_time: Duration,
}

impl Work {
    /// The work of a request in a level that gives at most so many seats to one.
    pub(crate) fn new(estimate: Estimate, width_max: Option<usize>) -> Work {
        let bounded = |seats: usize, most: usize| seats.min(width_max.unwrap_or(most)).min(most).max(1);
        match estimate {
            Estimate::Seats(seats) => Work::plain(bounded(seats, seats)),
            Estimate::Write { watches } if watches < WATCHES_PER_SEAT => Work::plain(1),
            Estimate::Write { watches } => {
                let wanted = watches.div_ceil(WATCHES_PER_SEAT);
                // The same work on fewer seats takes longer.
                Work { final_seats: wanted, final_time: EVENT_TIME, ..Work::plain(1) }
                    .on(bounded(wanted, WRITE_SEATS_MAX))
            }
        }
    }

    fn plain(seats: usize) -> Work {
        Work { seats, final_seats: 0, final_time: Duration::ZERO }
    }

    /// The same work, with at most so many seats at its end.
    pub(crate) fn on(self, seats: usize) -> Work {
        if self.final_seats <= seats || seats == 0 {
            return self;
        }
        let nanos = seat_time(self.final_seats, self.final_time) / seats as SeatTime;
        let final_time = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        Work { final_seats: seats, final_time, ..self }
    }

    /// The seats while it is served.
    pub fn seats(&self) -> usize {
        self.seats
    }

    /// The seats that it keeps after that.
    pub fn final_seats(&self) -> usize {
        self.final_seats
    }

    /// For how long it keeps them.
    pub fn final_time(&self) -> Duration {
        self.final_time
    }

    /// The most seats that it takes at once. It has them from its start.
    pub fn seats_max(&self) -> usize {
        self.seats.max(self.final_seats)
    }

    /// All of it, with a guess of how long it is served.
    pub(crate) fn total(&self) -> SeatTime {
        seat_time(self.seats, GUESS) + seat_time(self.final_seats, self.final_time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_pays_for_the_watches_that_it_wakes() {
        for (watches, width_max, seats, millis) in [
            (0, Some(37), 0, 0),
            (9, Some(37), 0, 0),
            (10, Some(37), 1, 5),
            (11, Some(37), 2, 5),
            (100, None, 10, 5),
            (1_000, None, 10, 50),
            (1_000, Some(4), 4, 125),
            (1_000, Some(1), 1, 500),
        ] {
            let work = Work::new(Estimate::Write { watches }, width_max);
            assert_eq!((work.seats, work.final_seats), (1, seats), "{watches} watches");
            assert_eq!(work.final_time, Duration::from_millis(millis), "{watches} watches");
        }
    }

    #[test]
    fn a_list_takes_no_more_than_its_level_gives() {
        for (seats, width_max, expected) in [(0, None, 1), (7, None, 7), (7, Some(4), 4), (3, Some(4), 3)] {
            let work = Work::new(Estimate::Seats(seats), width_max);
            assert_eq!((work.seats_max(), work.total()), (expected, seat_time(expected, GUESS)));
        }
    }
}
