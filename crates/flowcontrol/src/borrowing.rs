//! How many seats each level has: its share of all seats at first, then what the levels want of each other's.
//!
//! A level may lend a part of its seats and keeps the rest. Every few seconds all seats are divided again in proportion
//! to what the levels wanted, so that none gets less than it keeps (or than it wanted of its own share), nor more than
//! it may borrow.

use crate::config::PriorityLevel;
use crate::demand::Seen;

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

impl Bounds {
    /// The seats of a level that is new.
    pub(crate) fn first(&self) -> usize {
        self.nominal - (self.nominal - self.min) / 2
    }
}

/// The bounds of all levels when the server has so many seats. Shares are rounded up, so that together they may be a
/// few seats more.
pub fn bounds<'a>(levels: impl Iterator<Item = &'a PriorityLevel> + Clone, seats: usize) -> Vec<Bounds> {
    let shares: f64 = levels.clone().map(|level| f64::from(level.shares)).sum();
    let percent = |of: usize, percent: u32| (of as f64 * f64::from(percent) / 100.0).round() as usize;
    let bounds = |level: &PriorityLevel| {
        let nominal = (seats as f64 * f64::from(level.shares) / shares.max(1.0)).ceil() as usize;
        let borrowed = level.borrowing_limit_percent.map_or(seats, |limit| percent(nominal, limit));
        Bounds { nominal, min: nominal - percent(nominal, level.lendable_percent.min(100)), max: nominal + borrowed }
    };
    levels.map(bounds).collect()
}

/// What a level wanted since the last division.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// The level's bounds.
    pub bounds: Bounds,
    /// What was seen.
    pub demand: Seen,
    /// An exempt level takes what it wants before the others divide the rest.
    pub exempt: bool,
    /// The seats that it has.
    pub current: usize,
}

impl Wish {
    /// The seats that it gets in any case.
    fn assured(&self) -> usize {
        if self.exempt {
            return self.bounds.min.max(self.demand.peak);
        }
        self.bounds.min.max(self.bounds.nominal.min(self.demand.peak))
    }

    /// What it should have if there were enough.
    pub fn target(&self) -> f64 {
        self.demand.smoothed.max(self.assured() as f64)
    }
}

/// How the seats are divided.
#[derive(Clone, Debug, PartialEq)]
pub struct Division {
    /// The seats of each level.
    pub seats: Vec<usize>,
    /// What part of its target each level has that is not at one of its bounds; nothing when there is too little for
    /// that.
    pub fair_part: f64,
}

/// Divides the seats of all levels.
pub fn divide(wishes: &[Wish]) -> Division {
    let total: usize = wishes.iter().map(|wish| wish.bounds.nominal).sum();
    let (exempt, limited): (Vec<&Wish>, Vec<&Wish>) = wishes.iter().partition(|wish| wish.exempt);
    let left = total.saturating_sub(exempt.iter().map(|wish| wish.assured()).sum());
    let min: usize = limited.iter().map(|wish| wish.bounds.min).sum();
    let assured: usize = limited.iter().map(|wish| wish.assured()).sum();
    let (shares, fair_part): (Vec<usize>, f64) = if left <= min {
        (limited.iter().map(|wish| wish.bounds.min).collect(), 0.0)
    } else if left <= assured {
        let part = (left - min) as f64 / (assured - min) as f64;
        let share = |wish: &&Wish| {
            let extra = (wish.assured() - wish.bounds.min) as f64 * part;
            wish.bounds.min + extra.round() as usize
        };
        (limited.iter().map(share).collect(), 0.0)
    } else {
        // Where the bounds leave no solution, everything stays as it is.
        let stays = || (limited.iter().map(|wish| wish.current).collect(), 0.0);
        proportionally(total as f64, &limited).unwrap_or_else(stays)
    };
    let mut shares = shares.into_iter();
    let seats = |wish: &Wish| if wish.exempt { wish.assured() } else { shares.next().unwrap_or(wish.current) };
    Division { seats: wishes.iter().map(seats).collect(), fair_part }
}

/// The least target that is counted, so that every level can be compared.
const TARGET_MIN: f64 = 0.001;
/// Sums that differ by no more are equal.
const ROUNDING: f64 = 0.000_000_1;

/// The shares that add up to the total and are all the same part of their targets, within the bounds, and that part;
/// nothing if the bounds exclude it.
fn proportionally(total: f64, wishes: &[&Wish]) -> Option<(Vec<usize>, f64)> {
    let bounds: Vec<(f64, f64, f64)> = wishes
        .iter()
        .map(|wish| (wish.target().max(TARGET_MIN), wish.assured() as f64, wish.bounds.max as f64))
        .collect();
    if bounds.iter().any(|(_, low, high)| low > high) {
        return None;
    }
    let share = |part: f64| move |(target, low, high): &(f64, f64, f64)| (part * target).max(*low).min(*high);
    // The sum grows with the part, in straight lines between the parts at which a share meets one of its bounds.
    let sum = |part: f64| bounds.iter().map(share(part)).sum::<f64>();
    let mut corners: Vec<f64> = bounds.iter().flat_map(|(target, low, high)| [low / target, high / target]).collect();
    corners.sort_unstable_by(f64::total_cmp);
    let found = corners.partition_point(|part| sum(*part) < total - ROUNDING);
    let end = *corners.get(found)?;
    let part = match found.checked_sub(1).map(|before| corners[before]) {
        None if sum(end) > total + ROUNDING => return None,
        None => end,
        Some(start) => {
            // What grows on this line: the targets of those who are between their bounds.
            let between = |(target, low, high): &&(f64, f64, f64)| low / target <= start && end <= high / target;
            let growing: f64 = bounds.iter().filter(between).map(|(target, ..)| target).sum();
            if growing > 0.0 { (start + (total - sum(start)) / growing).min(end) } else { end }
        }
    };
    Some((bounds.iter().map(share(part)).map(|share| share.round() as usize).collect(), part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::levels;

    /// The wishes of upstream's levels, all the same but for what is given by name.
    fn wishes(given: &[(&str, usize, f64)]) -> Vec<Wish> {
        let levels = levels();
        let wish = |(level, bounds): (&PriorityLevel, Bounds)| {
            let (peak, smoothed) =
                given.iter().find(|(name, ..)| *name == level.name).map_or((0, 0.0), |(_, peak, s)| (*peak, *s));
            let demand = Seen { peak, smoothed, ..Seen::default() };
            Wish { bounds, demand, exempt: level.name == "exempt", current: bounds.first() }
        };
        levels.iter().zip(bounds(levels.iter(), 600)).map(wish).collect()
    }

    fn seats(given: &[(&str, usize, f64)]) -> Vec<(String, usize)> {
        let names = levels().into_iter().map(|level| level.name);
        names.zip(divide(&wishes(given)).seats).collect()
    }

    fn of(seats: &[(String, usize)], name: &str) -> usize {
        seats.iter().find(|(level, _)| *level == name).unwrap().1
    }

    #[test]
    fn six_hundred_seats_are_shared_as_upstream_shares_them() {
        let levels = levels();
        let table: Vec<(&str, usize, usize, usize)> = levels
            .iter()
            .zip(bounds(levels.iter(), 600))
            .map(|(level, Bounds { nominal, min, max })| (level.name.as_str(), nominal, min, max))
            .collect();
        assert_eq!(
            table,
            [
                ("exempt", 0, 0, 600),
                ("catch-all", 13, 13, 613),
                ("system", 74, 50, 674),
                ("node-high", 98, 73, 698),
                ("leader-election", 25, 25, 625),
                ("workload-high", 98, 49, 698),
                ("workload-low", 245, 24, 845),
                ("global-default", 49, 24, 649),
            ]
        );
    }

    #[test]
    fn an_idle_server_divides_all_seats_by_what_the_levels_keep() {
        let seats = seats(&[]);
        let expected = [0, 30, 117, 170, 58, 114, 56, 56];
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

    #[test]
    fn levels_keep_their_seats_where_their_bounds_leave_no_solution() {
        // The exempt level lends all of its seats, and the other may borrow none.
        let wish = |nominal, min, max, exempt| Wish {
            bounds: Bounds { nominal, min, max },
            demand: Seen::default(),
            exempt,
            current: 7,
        };
        assert_eq!(divide(&[wish(10, 0, 10, true), wish(20, 0, 20, false)]).seats, [0, 7]);
        assert_eq!(divide(&[]).seats, [0; 0]);
        assert_eq!(divide(&[wish(0, 0, 0, false)]).seats, [0]);
    }
}
