//! What all parts of a world share: its time, its chance, its faults, and what they were told.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use bayplan_model::simulated;
use bayplan_testkit::Rng;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::bugs::Bug;
use crate::ledger::Ledger;
use crate::plan::{Fault, Part, Plan};
use crate::points::{Point, Sort, When};
use crate::server::Server;
use crate::signal::{Follower, Signal};
use crate::trace::Trace;

/// The time on the wall when a world begins.
const START_SECONDS: i64 = 1_780_000_000;

/// What the one who runs the world is asked to do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ask {
    /// Kill a part, and start it again after a while.
    Kill(Part),
    /// Kill a server, and start it again after a while.
    KillServer(usize),
}

/// A world, as its parts see it.
pub(crate) struct Shared {
    pub(crate) plan: Plan,
    began: Instant,
    state: Mutex<State>,
    pub(crate) ledger: Mutex<Ledger>,
    trace: Mutex<Trace>,
    asks: mpsc::UnboundedSender<Ask>,
    /// Counts how often all watches of a part were severed.
    severed: Vec<Signal>,
}

struct State {
    /// Faults that wait for what they meet.
    waiting: Vec<Fault>,
    reached: BTreeMap<Point, u64>,
    incarnations: [u64; Part::COUNT],
    servers: Vec<Option<Arc<Server>>>,
    /// Which server each part talks to.
    homes: [usize; Part::COUNT],
    wall_offset: SignedDuration,
    server_offset: SignedDuration,
    chance: Rng,
    network: Rng,
    bug_turn: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    static PANICS: Cell<u64> = const { Cell::new(0) };
}

impl Shared {
    pub(crate) fn new(plan: Plan, servers: usize) -> (Arc<Shared>, mpsc::UnboundedReceiver<Ask>) {
        let (asks, asked) = mpsc::unbounded_channel();
        let waits = |fault: &&Fault| matches!(fault.point.when(), When::Request(_) | When::Event | When::EtcdWrite);
        let state = State {
            waiting: plan.faults.iter().filter(waits).copied().collect(),
            reached: BTreeMap::new(),
            incarnations: [0; Part::COUNT],
            servers: vec![None; servers],
            homes: std::array::from_fn(|part| part % servers),
            wall_offset: SignedDuration::ZERO,
            server_offset: SignedDuration::ZERO,
            chance: Rng::new(plan.seed),
            network: Rng::new(!plan.seed),
            bug_turn: 0,
        };
        let severed = (0..Part::COUNT).map(|_| Signal::default()).collect();
        let (state, ledger, trace) = (Mutex::new(state), Mutex::default(), Mutex::default());
        (Arc::new(Shared { plan, began: Instant::now(), state, ledger, trace, asks, severed }), asked)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }

    pub(crate) fn trace(&self) -> MutexGuard<'_, Trace> {
        lock(&self.trace)
    }

    /// The time since the world began.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// The time on the wall.
    pub(crate) fn wall(&self) -> Timestamp {
        self.time() + self.state().wall_offset
    }

    /// The time on the wall of the servers.
    pub(crate) fn server_wall(&self) -> Timestamp {
        let state = self.state();
        self.time() + state.wall_offset + state.server_offset
    }

    fn time(&self) -> Timestamp {
        Timestamp::from_second(START_SECONDS).expect("the time is in range") + self.elapsed()
    }

    /// Lets the clocks jump.
    pub(crate) fn jump(&self, everybody: SignedDuration, servers: SignedDuration) {
        let mut state = self.state();
        state.wall_offset += everybody;
        state.server_offset += servers;
    }

    /// A number below `n` that the network draws.
    pub(crate) fn draw(&self, n: usize) -> u64 {
        self.state().network.below(n) as u64
    }

    /// A line of the trace that every story tells.
    pub(crate) fn stress(&self, who: &str, what: impl Into<String>, back: impl Into<String>) {
        self.trace().tell(self.elapsed(), who, what.into(), back.into(), true);
    }

    /// A promise was broken.
    pub(crate) fn violate(&self, what: String) {
        self.stress("CHECK", what.clone(), "");
        self.ledger().violations.push(what);
    }

    pub(crate) fn reach(&self, point: Point) {
        *self.state().reached.entry(point).or_default() += 1;
    }

    pub(crate) fn reached(&self) -> BTreeMap<Point, u64> {
        self.state().reached.clone()
    }

    /// Whether a fault that lasts meets this part now.
    pub(crate) fn lasts(&self, point: Point, part: Option<Part>) -> bool {
        let now = self.elapsed();
        let meets = |fault: &&Fault| {
            fault.point == point
                && part.is_none_or(|part| fault.part == part)
                && fault.at <= now
                && now < fault.at + fault.lasts()
        };
        let met = self.plan.faults.iter().any(|fault| meets(&fault));
        if met {
            self.reach(point);
        }
        met
    }

    /// The fault that meets this request, if one has waited for it.
    pub(crate) fn meet_request(&self, part: Part, sorts: &[Sort]) -> Option<Fault> {
        self.meet(part, |when| matches!(when, When::Request(sort) if sorts.contains(&sort)))
    }

    /// The fault that meets this event, if one has waited for it.
    pub(crate) fn meet_event(&self, part: Part) -> Option<Fault> {
        self.meet(part, |when| when == When::Event)
    }

    /// The fault that meets this write of a server, if one has waited for it.
    pub(crate) fn meet_etcd_write(&self) -> Option<Fault> {
        self.meet_any(|_, when| when == When::EtcdWrite)
    }

    fn meet(&self, part: Part, fits: impl Fn(When) -> bool) -> Option<Fault> {
        self.meet_any(|fault, when| fault.part == part && fits(when))
    }

    fn meet_any(&self, fits: impl Fn(&Fault, When) -> bool) -> Option<Fault> {
        let (now, mut state) = (self.elapsed(), self.state());
        let at = state.waiting.iter().position(|fault| fault.at <= now && fits(fault, fault.point.when()))?;
        let fault = state.waiting.remove(at);
        *state.reached.entry(fault.point).or_default() += 1;
        Some(fault)
    }

    /// Faults that have met nothing do not come any more.
    pub(crate) fn calm(&self) {
        self.state().waiting.clear();
    }

    /// Whether a bug that is planted strikes: once in so many times.
    pub(crate) fn bug_strikes(&self, bug: Bug, one_in: u64) -> bool {
        if self.plan.bug != Some(bug) {
            return false;
        }
        let mut state = self.state();
        state.bug_turn += 1;
        state.bug_turn.is_multiple_of(one_in)
    }

    /// Begins a new life of a part.
    pub(crate) fn begin_life(&self, part: Part) -> u64 {
        let life = &mut self.state().incarnations[part as usize];
        *life += 1;
        *life
    }

    /// Whether this is the life that the part has now.
    pub(crate) fn lives(&self, part: Part, life: u64) -> bool {
        self.state().incarnations[part as usize] == life
    }

    pub(crate) fn ask(&self, ask: Ask) {
        // Nobody is asked once the world ends.
        let _ = self.asks.send(ask);
    }

    /// Ends all watches of a part.
    pub(crate) fn sever(&self, part: Part) {
        self.severed[part as usize].raise();
    }

    pub(crate) fn severed(&self, part: Part) -> Follower {
        self.severed[part as usize].follow()
    }

    pub(crate) fn server_of(&self, part: Part) -> Option<Arc<Server>> {
        let state = self.state();
        state.servers[state.homes[part as usize]].clone()
    }

    pub(crate) fn server(&self, number: usize) -> Option<Arc<Server>> {
        self.state().servers[number].clone()
    }

    pub(crate) fn set_server(&self, number: usize, server: Option<Arc<Server>>) {
        self.state().servers[number] = server;
    }

    /// Lets a part talk to the next server from now on.
    pub(crate) fn switch_server(&self, part: Part) {
        let mut state = self.state();
        let count = state.servers.len();
        let home = &mut state.homes[part as usize];
        *home = (*home + 1) % count;
    }
}

impl Fault {
    /// How long a fault lasts that lasts.
    pub(crate) fn lasts(&self) -> Duration {
        match self.point {
            // Long enough to lose a lease.
            Point::LeaseCutOff => Duration::from_millis(12_000 + 2 * self.amount),
            _ => Duration::from_millis(500 + self.amount * 3 / 2),
        }
    }
}

/// The time and the chance of a world, for the product.
struct Source(Arc<Shared>);

impl simulated::World for Source {
    fn now(&self) -> Timestamp {
        self.0.wall()
    }

    fn draw(&self) -> u64 {
        self.0.state().chance.next_u64()
    }
}

/// Lets the product on this thread live in the world.
pub(crate) fn install(shared: &Arc<Shared>) -> simulated::Installed {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.with(|panics| panics.set(panics.get() + 1));
            usual(panic);
        }));
    });
    PANICS.set(0);
    simulated::install(Rc::new(Source(shared.clone())))
}

/// How often something panicked on this thread since the world began.
pub(crate) fn panics() -> u64 {
    PANICS.get()
}
