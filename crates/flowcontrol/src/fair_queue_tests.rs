use super::*;
use crate::work::Estimate;

const MS: Duration = Duration::from_millis(1);

fn queues(queues: usize, hand_size: usize, queue_length_limit: usize, limit: usize) -> QueueSet<u64> {
    QueueSet::new(Limiting::Queue(Queuing { queues, hand_size, queue_length_limit }), limit)
}

fn seats(seats: usize) -> Work {
    Work::new(Estimate::Seats(seats), None)
}

fn executes(arrival: Arrival) -> Executing {
    match arrival {
        Arrival::Executes(executing) => executing,
        other => panic!("{other:?}"),
    }
}

fn waits(arrival: Arrival) -> WaitingId {
    match arrival {
        Arrival::Waits(waiting) => waiting,
        other => panic!("{other:?}"),
    }
}

/// Serves all that waits with each flow's time per request, and answers the order of the flows. The number that wakes a
/// request is its flow.
fn drain(
    set: &mut QueueSet<u64>,
    mut executing: Vec<(Duration, u64, Executing)>,
    time: impl Fn(u64) -> Duration,
) -> Vec<u64> {
    let mut order = Vec::new();
    while !executing.is_empty() {
        let first = (0..executing.len()).min_by_key(|at| executing[*at].0).unwrap();
        let (now, _, ended) = executing.swap_remove(first);
        set.finish(&ended, now);
        while let Some((flow, request)) = set.dispatch(now) {
            order.push(flow);
            executing.push((now + time(flow), flow, request));
        }
    }
    order
}

#[test]
fn requests_take_seats_then_wait_then_are_refused() {
    let mut set = queues(1, 1, 2, 2);
    let first = executes(set.arrive(0, seats(1), MS, || 1));
    let _second = executes(set.arrive(0, seats(1), MS, || 2));
    let third = waits(set.arrive(0, seats(1), MS, || 3));
    waits(set.arrive(0, seats(1), MS, || 4));
    assert!(matches!(set.arrive(0, seats(1), MS, || 5), Arrival::QueueFull));
    assert_eq!((set.demand(), set.seats_in_use(), set.waiting()), (4, 2, 2));
    assert!(set.dispatch(MS).is_none());
    assert!(set.cancel(third, MS) && !set.cancel(third, MS));
    set.finish(&first, 2 * MS);
    assert_eq!(set.dispatch(2 * MS).unwrap().0, 4);
    assert!(set.dispatch(2 * MS).is_none());
}

#[test]
fn a_small_flow_overtakes_a_large_one() {
    let mut set = queues(8, 1, 1_000, 1);
    let started = executes(set.arrive(1, seats(1), Duration::ZERO, || 1));
    for _ in 0..500 {
        waits(set.arrive(1, seats(1), Duration::ZERO, || 1));
    }
    for _ in 0..3 {
        waits(set.arrive(2, seats(1), MS, || 2));
    }
    let order = drain(&mut set, vec![(5 * MS, 1, started)], |_| 5 * MS);
    let last = order.iter().rposition(|flow| *flow == 2).unwrap();
    assert!(last < 8, "served by then: {:?}", &order[..=last]);
    assert_eq!(order.len(), 503);
}

#[test]
fn flows_of_short_and_long_requests_get_the_same_time() {
    let mut set = queues(8, 1, 10_000, 4);
    let time = |flow: u64| if flow == 1 { 20 * MS } else { 2 * MS };
    let started: Vec<_> =
        (0..4).map(|_| (time(1), 1, executes(set.arrive(1, seats(1), Duration::ZERO, || 1)))).collect();
    for _ in 0..400 {
        waits(set.arrive(1, seats(1), Duration::ZERO, || 1));
    }
    for _ in 0..4_000 {
        waits(set.arrive(2, seats(1), Duration::ZERO, || 2));
    }
    let order = drain(&mut set, started, time);
    let half = &order[..order.len() / 2];
    let long = half.iter().filter(|flow| **flow == 1).count();
    let short = half.len() - long;
    let (long, short) = (long as f64 * 20.0, short as f64 * 2.0);
    assert!((0.8..1.25).contains(&(long / short)), "{long} ms of long requests, {short} ms of short ones");
}

#[test]
fn a_request_wider_than_the_level_gets_its_turn_alone() {
    let mut set = queues(1, 1, 10, 2);
    let narrow = executes(set.arrive(0, seats(1), Duration::ZERO, || 1));
    waits(set.arrive(0, seats(5), Duration::ZERO, || 2));
    assert!(set.dispatch(Duration::ZERO).is_none());
    set.finish(&narrow, MS);
    let (wide, executing) = set.dispatch(MS).unwrap();
    assert_eq!((wide, set.seats_in_use()), (2, 5));
    set.finish(&executing, 2 * MS);
    assert_eq!((set.demand(), set.busy), (0, 0));
}

#[test]
fn more_seats_serve_who_waits_at_once() {
    let mut set = queues(4, 2, 10, 1);
    executes(set.arrive(3, seats(1), Duration::ZERO, || 1));
    waits(set.arrive(3, seats(1), Duration::ZERO, || 2));
    set.set_limit(2, MS);
    assert_eq!(set.dispatch(MS).unwrap().0, 2);
}

#[test]
fn a_long_life_leaves_no_request_behind() {
    let mut set = queues(16, 4, 20, 10);
    let (mut random, mut now, mut served, mut accepted) = (1_u64, Duration::ZERO, 0, 0);
    let (mut executing, mut waiting) = (Vec::new(), Vec::new());
    for _ in 0..20_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let (what, flow, width) = (random >> 60, random >> 32 & 7, (random >> 40 & 3) as usize + 1);
        now += Duration::from_micros(random >> 50 & 255);
        match what {
            0..8 => match set.arrive(flow.wrapping_mul(0x9E37_79B9_7F4A_7C15), seats(width), now, || flow) {
                Arrival::Executes(request) => {
                    accepted += 1;
                    served += 1;
                    executing.push(request);
                }
                Arrival::Waits(id) => {
                    accepted += 1;
                    waiting.push(id);
                }
                Arrival::QueueFull | Arrival::NoSeat => {}
            },
            8..15 if !executing.is_empty() => {
                let at = (random >> 20) as usize % executing.len();
                set.finish(&executing.swap_remove(at), now);
            }
            15 if !waiting.is_empty() => {
                let at = (random >> 20) as usize % waiting.len();
                accepted -= usize::from(set.cancel(waiting.swap_remove(at), now));
            }
            _ => {}
        }
        while let Some((_, request)) = set.dispatch(now) {
            served += 1;
            executing.push(request);
        }
        assert!(set.seats_in_use() <= 10);
    }
    while let Some(request) = executing.pop() {
        set.finish(&request, now);
        while let Some((_, request)) = set.dispatch(now) {
            served += 1;
            executing.push(request);
        }
    }
    assert_eq!((served, set.demand(), set.waiting(), set.busy), (accepted, 0, 0, 0));
    assert!(set.queues.is_empty() && set.order.is_empty());
}

#[test]
fn ten_million_queues_cost_no_more_than_their_requests() {
    let mut set = queues(10_000_000, 2, 1, 1);
    let started = executes(set.arrive(7, seats(1), Duration::ZERO, || 0));
    for flow in 0..1_000 {
        waits(set.arrive(flow * 0x9E37_79B9, seats(1), MS, || flow));
    }
    assert_eq!((set.queues.len(), set.waiting()), (1_001, 1_000));
    assert_eq!(drain(&mut set, vec![(MS, 0, started)], |_| MS).len(), 1_000);
    assert!(set.queues.is_empty());
}

#[test]
fn equals_are_served_in_turn() {
    let mut set = queues(3, 3, 10, 1);
    let mut executing = executes(set.arrive(0, seats(1), Duration::ZERO, || 9));
    for number in 0..6 {
        waits(set.arrive(0, seats(1), Duration::ZERO, || number));
    }
    let mut served = Vec::new();
    for _ in 0..6 {
        assert!(set.finish(&executing, Duration::ZERO).is_none());
        let queue = set.robin;
        executing = set.dispatch(Duration::ZERO).unwrap().1;
        assert_ne!(executing.queue, Some(queue), "{served:?}");
        served.extend(executing.queue);
    }
    served.sort_unstable();
    assert_eq!(served, [0, 0, 1, 1, 2, 2]);
}

#[test]
fn queues_that_are_too_many_are_emptied_and_get_no_more() {
    let mut set = queues(64, 1, 10, 1);
    let started = executes(set.arrive(63, seats(1), Duration::ZERO, || 0));
    for flow in 0..64 {
        waits(set.arrive(flow, seats(1), Duration::ZERO, || flow));
    }
    set.set_limiting(Limiting::Queue(Queuing { queues: 2, hand_size: 1, queue_length_limit: 2 }));
    waits(set.arrive(63, seats(1), Duration::ZERO, || 63));
    assert!(matches!(set.arrive(63, seats(1), Duration::ZERO, || 63), Arrival::QueueFull));
    assert_eq!(set.queues.get(&63).map(|queue| queue.waiting.len()), Some(1));
    // Nobody waits in a level that refuses, but those who wait already are served.
    set.set_limiting(Limiting::Reject);
    assert!(matches!(set.arrive(63, seats(1), Duration::ZERO, || 63), Arrival::NoSeat));
    assert_eq!(drain(&mut set, vec![(MS, 0, started)], |_| MS).len(), 65);
    assert!(set.queues.is_empty() && set.order.is_empty());
    executes(set.arrive(63, seats(1), 100 * MS, || 63));
    assert_eq!((set.busy, set.seats_in_use()), (0, 1));
}

#[test]
fn a_level_without_seats_holds_its_requests_until_it_has_some() {
    let mut set = queues(4, 2, 2, 0);
    let first = waits(set.arrive(0, seats(1), Duration::ZERO, || 1));
    for _ in 0..3 {
        waits(set.arrive(0, seats(1), Duration::ZERO, || 2));
    }
    assert!(matches!(set.arrive(0, seats(1), Duration::ZERO, || 3), Arrival::QueueFull));
    assert!(set.dispatch(MS).is_none() && set.cancel(first, MS));
    set.set_limit(1, MS);
    assert_eq!(set.dispatch(MS).unwrap().0, 2);
}

#[test]
fn a_write_keeps_its_seats_for_the_watches_that_it_wakes() {
    let mut set = queues(4, 2, 10, 4);
    // Two hundred watches: twenty seats for five milliseconds, which are four for twenty-five.
    let write = executes(set.arrive(0, Work::new(Estimate::Write { watches: 200 }, None).on(4), Duration::ZERO, || 1));
    waits(set.arrive(0, seats(1), Duration::ZERO, || 2));
    let (time, lingering) = set.finish(&write, MS).unwrap();
    assert_eq!((time, set.seats_in_use(), set.executing()), (25 * MS, 4, 0));
    assert!(set.dispatch(2 * MS).is_none());
    set.release(&lingering, 26 * MS);
    let (_, next) = set.dispatch(26 * MS).unwrap();
    assert!(set.finish(&next, 27 * MS).is_none());
    assert_eq!((set.demand(), set.busy, set.queues.len()), (0, 0, 0));
}
