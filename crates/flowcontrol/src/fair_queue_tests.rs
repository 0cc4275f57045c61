use super::*;

const MS: Duration = Duration::from_millis(1);

fn queues(queues: usize, hand_size: usize, queue_length_limit: usize, limit: usize) -> QueueSet<u64> {
    QueueSet::new(Queuing { queues, hand_size, queue_length_limit }, limit)
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
    let first = executes(set.arrive(0, 1, MS, || 1));
    let _second = executes(set.arrive(0, 1, MS, || 2));
    let third = waits(set.arrive(0, 1, MS, || 3));
    waits(set.arrive(0, 1, MS, || 4));
    assert!(matches!(set.arrive(0, 1, MS, || 5), Arrival::Refused));
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
    let started = executes(set.arrive(1, 1, Duration::ZERO, || 1));
    for _ in 0..500 {
        waits(set.arrive(1, 1, Duration::ZERO, || 1));
    }
    for _ in 0..3 {
        waits(set.arrive(2, 1, MS, || 2));
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
    let started: Vec<_> = (0..4).map(|_| (time(1), 1, executes(set.arrive(1, 1, Duration::ZERO, || 1)))).collect();
    for _ in 0..400 {
        waits(set.arrive(1, 1, Duration::ZERO, || 1));
    }
    for _ in 0..4_000 {
        waits(set.arrive(2, 1, Duration::ZERO, || 2));
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
    let narrow = executes(set.arrive(0, 1, Duration::ZERO, || 1));
    waits(set.arrive(0, 5, Duration::ZERO, || 2));
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
    executes(set.arrive(3, 1, Duration::ZERO, || 1));
    waits(set.arrive(3, 1, Duration::ZERO, || 2));
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
        let (what, flow, seats) = (random >> 60, random >> 32 & 7, (random >> 40 & 3) as usize + 1);
        now += Duration::from_micros(random >> 50 & 255);
        match what {
            0..8 => match set.arrive(flow.wrapping_mul(0x9E37_79B9_7F4A_7C15), seats, now, || flow) {
                Arrival::Executes(request) => {
                    accepted += 1;
                    served += 1;
                    executing.push(request);
                }
                Arrival::Waits(id) => {
                    accepted += 1;
                    waiting.push(id);
                }
                Arrival::Refused => {}
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
}
