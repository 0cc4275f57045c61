//! How many seats each level has: its share of all seats at first, then what the levels want of each other's.
//!
//! A level may lend a part of its seats and keeps the rest. Every few seconds all seats are divided again in proportion
//! to what the levels wanted, so that none gets less than it keeps (or than it wanted of its own share), nor more than
//! it may borrow.

use crate::config::PriorityLevel;

/// The bounds of a level's seats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Its share of all seats.
    pub nominal: usize,
    /// What it keeps when it lends.
    pub min: usize,
    /// What it has when it borrows all it may.
    pub max: usize,
}

/// The bounds of all levels when the server has so many seats. Shares are rounded up, so that together they may be a
/// few seats more.
pub fn bounds(levels: &[PriorityLevel], seats: usize) -> Vec<Bounds> {
    let shares: u64 = levels.iter().map(|level| u64::from(level.shares)).sum();
    let percent = |of: usize, percent: u32| (of as f64 * f64::from(percent) / 100.0).round() as usize;
    let bounds = |level: &PriorityLevel| {
        let nominal = (seats as u64 * u64::from(level.shares)).div_ceil(shares.max(1)) as usize;
        let borrowed = level.borrowing_limit_percent.map_or(seats, |limit| percent(nominal, limit));
        Bounds { nominal, min: nominal - percent(nominal, level.lendable_percent.min(100)), max: nominal + borrowed }
    };
    levels.iter().map(bounds).collect()
}

/// What a level wanted since the last division.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// The level's bounds.
    pub bounds: Bounds,
    /// The most seats wanted at once.
    pub peak: usize,
    /// The seats wanted on average, smoothed.
    pub smoothed: f64,
    /// An exempt level takes what it wants before the others divide the rest.
    pub exempt: bool,
}

impl Wish {
    /// The seats that it gets in any case.
    fn assured(&self) -> usize {
        if self.exempt {
            return self.bounds.min.max(self.peak);
        }
        self.bounds.min.max(self.bounds.nominal.min(self.peak))
    }
}

/// Divides the seats of all levels; answers the seats of each.
pub fn divide(wishes: &[Wish]) -> Vec<usize> {
    let total: usize = wishes.iter().map(|wish| wish.bounds.nominal).sum();
    let (exempt, limited): (Vec<&Wish>, Vec<&Wish>) = wishes.iter().partition(|wish| wish.exempt);
    let left = total.saturating_sub(exempt.iter().map(|wish| wish.assured()).sum());
    let min: usize = limited.iter().map(|wish| wish.bounds.min).sum();
    let assured: usize = limited.iter().map(|wish| wish.assured()).sum();
    let shares: Vec<f64> = if left <= min {
        limited.iter().map(|wish| wish.bounds.min as f64).collect()
    } else if left <= assured {
        let part = (left - min) as f64 / (assured - min) as f64;
        let share = |wish: &&Wish| wish.bounds.min as f64 + ((wish.assured() - wish.bounds.min) as f64 * part).round();
        limited.iter().map(share).collect()
    } else {
        proportionally(total as f64, &limited)
    };
    let mut shares = shares.into_iter();
    let mut seats = |wish: &Wish| match wish.exempt {
        true => wish.assured(),
        false => shares.next().map_or(wish.bounds.nominal, |share| share.round() as usize),
    };
    wishes.iter().map(&mut seats).collect()
}

/// The least demand that is counted, so that every level can be compared.
const TARGET_MIN: f64 = 0.001;
/// Halving the interval this often leaves less than a millionth of a seat.
const HALVINGS: usize = 100;

/// The shares that add up to the total and are all the same multiple of what is wanted, within the bounds.
fn proportionally(total: f64, wishes: &[&Wish]) -> Vec<f64> {
    let share = |wish: &&Wish, multiple: f64| {
        let (low, high) = (wish.assured() as f64, wish.bounds.max as f64);
        (wish.smoothed.max(low).max(TARGET_MIN) * multiple).clamp(low, high.max(low))
    };
    let sum = |multiple: f64| wishes.iter().map(|wish| share(wish, multiple)).sum::<f64>();
    // The sum grows with the multiple; at this one every share is at its upper bound.
    let highest = wishes.iter().map(|wish| wish.bounds.max as f64).fold(0.0, f64::max) / TARGET_MIN;
    let (mut low, mut high) = (0.0, highest);
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        if sum(middle) < total {
            low = middle;
        } else {
            high = middle;
        }
    }
    wishes.iter().map(|wish| share(wish, high)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap;

    /// The wishes of upstream's levels, all the same but for what is given by name.
    fn wishes(given: &[(&str, usize, f64)]) -> Vec<Wish> {
        let levels = bootstrap::priority_levels();
        let bounds = bounds(&levels, 600);
        let wish = |(level, bounds): (&PriorityLevel, Bounds)| {
            let (peak, smoothed) =
                given.iter().find(|(name, ..)| *name == level.name).map_or((0, 0.0), |(_, peak, s)| (*peak, *s));
            Wish { bounds, peak, smoothed, exempt: level.name == "exempt" }
        };
        levels.iter().zip(bounds).map(wish).collect()
    }

    fn seats(given: &[(&str, usize, f64)]) -> Vec<(&'static str, usize)> {
        let names = bootstrap::priority_levels().into_iter().map(|level| level.name);
        names.zip(divide(&wishes(given))).collect()
    }

    fn of(seats: &[(&str, usize)], name: &str) -> usize {
        seats.iter().find(|(level, _)| *level == name).unwrap().1
    }

    #[test]
    fn six_hundred_seats_are_shared_as_upstream_shares_them() {
        let table: Vec<(&str, usize, usize, usize)> = bootstrap::priority_levels()
            .iter()
            .zip(bounds(&bootstrap::priority_levels(), 600))
            .map(|(level, Bounds { nominal, min, max })| (level.name, nominal, min, max))
            .collect();
        assert_eq!(
            table,
            [
                ("exempt", 0, 0, 600),
                ("leader-election", 25, 25, 625),
                ("node-high", 98, 73, 698),
                ("system", 74, 50, 674),
                ("workload-high", 98, 49, 698),
                ("workload-low", 245, 24, 845),
                ("global-default", 49, 24, 649),
                ("catch-all", 13, 13, 613),
            ]
        );
    }

    #[test]
    fn an_idle_server_divides_all_seats_by_what_the_levels_keep() {
        let seats = seats(&[]);
        let expected = [0, 58, 170, 117, 114, 56, 56, 30];
        assert_eq!(seats.iter().map(|(_, seats)| *seats).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_busy_level_borrows_what_others_lend() {
        let seats = seats(&[("global-default", 500, 400.0)]);
        assert!(of(&seats, "global-default") > 300, "{seats:?}");
        // The others keep what is theirs to keep.
        for (level, at_least) in
            [("leader-election", 25), ("node-high", 73), ("system", 50), ("workload-high", 49), ("catch-all", 13)]
        {
            assert!(of(&seats, level) >= at_least, "{seats:?}");
        }
    }

    #[test]
    fn a_level_gets_its_own_seats_back_when_it_wants_them() {
        let seats = seats(&[("global-default", 500, 400.0), ("workload-high", 98, 90.0), ("workload-low", 300, 245.0)]);
        assert!(of(&seats, "workload-high") >= 98, "{seats:?}");
        assert!(of(&seats, "workload-low") >= 245, "{seats:?}");
        assert!(of(&seats, "global-default") >= 49, "{seats:?}");
    }

    #[test]
    fn exempt_requests_take_seats_from_the_rest_but_not_what_it_keeps() {
        let (some, all) = (seats(&[("exempt", 500, 500.0)]), seats(&[("exempt", 5000, 5000.0)]));
        assert_eq!((of(&some, "exempt"), of(&all, "exempt")), (500, 5000));
        for seats in [some, all] {
            assert_eq!((of(&seats, "workload-low"), of(&seats, "node-high")), (24, 73), "{seats:?}");
        }
    }
}
