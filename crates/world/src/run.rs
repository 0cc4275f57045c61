//! Runs a world: starts its parts, lets its faults happen, and holds what came of it against what was promised.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bayplan_store::disk::Crash;
use jiff::SignedDuration;
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout_at};

use crate::arrival;
use crate::machine::Machine;
use crate::parts::{self, Running};
use crate::plan::{Fault, Form, Part, Plan, STORM};
use crate::points::{Point, When};
use crate::server::Server;
use crate::shared::{self, Ask, Shared};
use crate::user::User;

/// Everything arrives within this after the last fault: a node that failed counts as gone for five minutes.
const PATIENCE: Duration = Duration::from_secs(1500);
/// How often it is looked at whether everything has arrived.
const LOOK: Duration = Duration::from_secs(10);
/// Tasks that a world may have left some time after its parts have ended.
const TASKS_MAX: usize = 1;
/// Watches of all parts together.
const STREAMS_MAX: usize = 400;
/// What is left of parts speaks to nobody, and gives up within this.
const LAST_WORDS: Duration = Duration::from_secs(300);

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The promises that were broken; empty after a good run.
    pub violations: Vec<String>,
    /// The fault points that were reached, and how often.
    pub reached: BTreeMap<Point, u64>,
    /// A number that is equal for equal runs.
    pub digest: u64,
    /// How many events there were.
    pub events: usize,
    /// All of them, a line each.
    pub lines: Vec<String>,
    /// What a person reads of a run that broke a promise; empty after a good one.
    pub story: String,
    /// The virtual time that passed.
    pub elapsed: Duration,
    /// Acknowledged writes and delivered events that were held against the history.
    pub audited: (usize, usize),
    /// Pods that were bound.
    pub bound: u64,
}

/// Runs a plan.
pub fn run(plan: &Plan) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without IO needs nothing");
    runtime.block_on(World::live(plan.clone()))
}

/// What is to be done at some time.
#[derive(Clone, Copy, Debug)]
enum Todo {
    Fault(Fault),
    /// A fault that lasts is over.
    Over(Point),
    Start(Part, Option<u64>),
    StartServer(usize),
}

struct World {
    shared: Arc<Shared>,
    machine: Machine,
    parts: BTreeMap<Part, Running>,
    todo: BTreeMap<(Duration, u64), Todo>,
    counted: u64,
    asked: UnboundedReceiver<Ask>,
    /// The user's tasks.
    users: Vec<JoinHandle<()>>,
    servers: usize,
}

impl World {
    async fn live(plan: Plan) -> Outcome {
        let servers = if plan.form == Form::Etcd { 2 } else { 1 };
        let (shared, asked) = Shared::new(plan, servers);
        let installed = shared::install(&shared);
        let machine = Machine::new(&shared);
        let (parts, todo, users) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let mut world = World { shared: shared.clone(), machine, parts, todo, counted: 0, asked, users, servers };
        world.begin().await;
        world.storm().await;
        world.settle().await;
        world.idle().await;
        world.audit().await;
        world.end().await;
        drop(installed);
        let (violations, audited, bound) = {
            let ledger = shared.ledger();
            (ledger.violations.clone(), ledger.counts(), ledger.bound)
        };
        let trace = shared.trace();
        let words = words(&violations);
        Outcome {
            reached: shared.reached(),
            digest: trace.digest(),
            events: trace.len(),
            lines: trace.text(),
            story: if violations.is_empty() { String::new() } else { trace.story(&words) },
            elapsed: shared.elapsed(),
            audited,
            bound,
            violations,
        }
    }

    fn plan(&mut self, after: Duration, todo: Todo) {
        self.counted += 1;
        self.todo.insert((self.shared.elapsed() + after, self.counted), todo);
    }

    async fn begin(&mut self) {
        if let Err(error) = self.machine.open().await {
            self.shared.violate(format!("an empty store does not open: {error}"));
        }
        for server in 0..self.servers {
            self.start_server(server).await;
        }
        for fault in self.shared.plan.faults.clone() {
            match fault.point.when() {
                When::Then | When::OnDisk | When::EtcdThen | When::WhileOnDisk => {
                    self.plan(fault.at, Todo::Fault(fault));
                }
                _ => {}
            }
        }
        for part in [Part::Kubelets, Part::Scheduler, Part::Controllers, Part::StandbyControllers, Part::Observer] {
            self.start(part, None);
        }
        let user = User::new(&self.shared);
        self.users.push(tokio::spawn(async move { user.act().await }));
    }

    fn start(&mut self, part: Part, polls: Option<u64>) {
        if self.parts.contains_key(&part) {
            return;
        }
        let running = parts::start(&self.shared, part, polls);
        self.parts.insert(part, running);
    }

    async fn start_server(&mut self, number: usize) {
        if self.shared.server(number).is_some() {
            return;
        }
        let Some(store) = self.machine.store(number) else {
            self.reopen().await;
            return self.plan(Duration::from_secs(1), Todo::StartServer(number));
        };
        match Server::start(&self.shared, number, store).await {
            Ok(server) => {
                self.shared.stress("server", format!("{number} serves"), "");
                self.shared.set_server(number, Some(Arc::new(server)));
            }
            Err(error) => {
                self.shared.stress("server", format!("{number} cannot start"), error);
                self.plan(Duration::from_secs(1), Todo::StartServer(number));
            }
        }
    }

    async fn stop_server(&mut self, number: usize) {
        let Some(server) = self.shared.server(number) else { return };
        self.shared.set_server(number, None);
        server.kill().await;
    }

    /// Lets everything happen that is planned before a time.
    async fn run_until(&mut self, end: Duration) {
        loop {
            let next = self.todo.first_key_value().map(|(key, todo)| (*key, *todo)).filter(|((at, _), _)| *at <= end);
            let wake = next.map_or(end, |((at, _), _)| at);
            let deadline = tokio::time::Instant::now() + wake.saturating_sub(self.shared.elapsed());
            match timeout_at(deadline, self.asked.recv()).await {
                Ok(Some(ask)) => self.answer(ask).await,
                _ => match next {
                    Some((key, todo)) => {
                        self.todo.remove(&key);
                        self.act(todo).await;
                    }
                    None => return,
                },
            }
            if self.broken() {
                return;
            }
        }
    }

    fn broken(&self) -> bool {
        !self.shared.ledger().violations.is_empty()
    }

    async fn answer(&mut self, ask: Ask) {
        match ask {
            Ask::Kill(part) => self.kill(part, None, Duration::from_millis(700)).await,
            Ask::KillServer(number) => self.kill_server(number).await,
        }
    }

    async fn kill(&mut self, part: Part, polls: Option<u64>, rest: Duration) {
        let Some(running) = self.parts.remove(&part) else { return };
        self.shared.stress(part.name(), "is killed", "");
        running.kill(&self.shared, part).await;
        self.plan(rest, Todo::Start(part, polls));
    }

    /// A server dies; the embedded store with it.
    async fn kill_server(&mut self, number: usize) {
        self.shared.stress("server", format!("{number} is killed"), "");
        self.stop_server(number).await;
        if self.shared.plan.form == Form::Disk {
            self.machine.close().await;
            self.reopen().await;
        }
        self.plan(Duration::from_millis(1500), Todo::StartServer(number));
    }

    async fn reopen(&mut self) {
        let Err(error) = self.machine.open().await else { return };
        // A disk that fails or is full may be the reason; whoever starts a server tries again.
        let excused = error.contains("simulated") || self.shared.lasts(Point::DiskFull, None);
        if excused {
            self.shared.stress("machine", "the store does not open", error);
        } else {
            self.shared.violate(format!("the store does not open again: {error}"));
        }
    }

    async fn act(&mut self, todo: Todo) {
        match todo {
            Todo::Start(part, polls) => self.start(part, polls),
            Todo::StartServer(number) => self.start_server(number).await,
            Todo::Over(point) => {
                self.shared.stress("disk", format!("{} is over", point.name()), "");
                self.machine.disk.set_capacity(None);
            }
            Todo::Fault(fault) => self.strike(fault).await,
        }
    }

    async fn strike(&mut self, fault: Fault) {
        let Fault { point, part, amount, .. } = fault;
        if point.name().starts_with("hostile.") {
            let user = User::new(&self.shared);
            let task = tokio::spawn(async move { user.annoy(point, amount).await });
            return self.users.push(task);
        }
        self.shared.reach(point);
        self.shared.stress("world", format!("{} {}", point.name(), part.name()), "");
        let seconds = SignedDuration::from_millis(1000 + amount as i64 * 6);
        match point {
            Point::WatchesSevered => self.shared.sever(part),
            Point::PartKilled => self.kill(part, None, Duration::from_millis(amount)).await,
            Point::PartKilledAtPoll => self.kill(part, Some(1 + amount % 40), Duration::from_millis(300)).await,
            Point::TwoSchedulers => {
                // Two of them may give the same room away.
                self.shared.ledger().bindings_unsure = true;
                self.start(Part::SecondScheduler, None);
            }
            Point::ServerKilled => self.kill_server(amount as usize % self.servers).await,
            Point::MachineLosesAll => self.crash(Crash::LoseAll, amount).await,
            Point::MachineTorn => self.crash(Crash::Torn, amount).await,
            Point::MachineHoles => self.crash(Crash::Holes, amount).await,
            Point::CrashInRecovery => self.crash_twice(amount).await,
            Point::DiskFull => {
                let used: usize = self.machine.disk.files().values().map(Vec::len).sum();
                self.machine.disk.set_capacity(Some(used + amount as usize % 2000));
                self.plan(fault.lasts(), Todo::Over(point));
            }
            Point::SyncFails => self.machine.disk.fail_sync(self.machine.disk.syncs() + 1 + amount % 5),
            Point::OperationFails => self.machine.disk.fail_at(self.machine.disk.operations() + 1 + amount % 9),
            Point::Compacted => self.machine.compact().await,
            Point::ClockForward => self.shared.jump(seconds, SignedDuration::ZERO),
            Point::ClockBackward => self.shared.jump(-seconds, SignedDuration::ZERO),
            Point::ServerClock => self.shared.jump(SignedDuration::ZERO, seconds / 8),
            Point::EtcdWatchCancelled => self.machine.cancel_watches(),
            Point::ServerSwitched => {
                self.shared.switch_server(part);
                self.shared.sever(part);
            }
            _ => {}
        }
    }

    /// The power goes in the middle of an operation.
    async fn crash(&mut self, crash: Crash, amount: u64) {
        let disk = &self.machine.disk;
        disk.crash_at(disk.operations() + 1 + amount % 6);
        sleep(Duration::from_millis(50 + amount % 200)).await;
        self.stop_server(0).await;
        self.machine.crash(crash, amount).await;
        self.reopen().await;
        self.plan(Duration::from_millis(1500), Todo::StartServer(0));
    }

    /// The power goes again while the store is being opened.
    async fn crash_twice(&mut self, amount: u64) {
        self.stop_server(0).await;
        self.machine.crash(Crash::Torn, amount).await;
        self.machine.disk.crash_at(1 + amount % 8);
        // It may fail, or not come so far.
        let _ = self.machine.open().await;
        self.machine.crash(Crash::Torn, amount + 1).await;
        self.reopen().await;
        self.plan(Duration::from_millis(1500), Todo::StartServer(0));
    }

    async fn storm(&mut self) {
        if self.shared.plan.faults.is_empty() && self.shared.plan.bug.is_none() {
            return self.run_until(STORM / 2).await;
        }
        self.run_until(STORM).await;
        // Whatever lasts is over by then.
        self.run_until(STORM + Duration::from_secs(35)).await;
    }

    /// Faults have stopped: everything arrives.
    async fn settle(&mut self) {
        if self.broken() {
            return;
        }
        self.shared.calm();
        self.shared.stress("world", "faults stop", "");
        self.machine.disk.set_capacity(None);
        if let Some(second) = self.parts.remove(&Part::SecondScheduler) {
            second.stop().await;
        }
        let user = User::new(&self.shared);
        let task = tokio::spawn(async move { user.clean_up().await });
        self.users.push(task);
        let end = self.shared.elapsed() + PATIENCE;
        let mut quiet = 0;
        while quiet < 2 && !self.broken() {
            self.run_until(self.shared.elapsed() + LOOK).await;
            let mut problems = arrival::problems(&self.shared.ledger());
            if problems.is_empty() && self.users.iter().all(JoinHandle::is_finished) {
                problems = self.stale();
                quiet += usize::from(problems.is_empty());
            } else {
                quiet = 0;
            }
            if self.shared.elapsed() >= end {
                problems.push("the user is not done".to_owned());
                problems.truncate(3);
                problems.into_iter().for_each(|problem| self.shared.violate(format!("never arrives: {problem}")));
                return;
            }
        }
    }

    fn stale(&self) -> Vec<String> {
        let caches = self.parts.get(&Part::Observer).map(|observer| &*observer.caches).unwrap_or_default();
        arrival::stale_caches(&self.shared.ledger(), caches)
    }

    async fn idle(&mut self) {
        if !self.broken() {
            self.run_until(self.shared.elapsed() + self.shared.plan.idle).await;
        }
    }

    async fn audit(&mut self) {
        if self.broken() {
            return;
        }
        self.machine.audit().await;
        let streams = self.shared.ledger().open_streams();
        if streams > STREAMS_MAX {
            self.shared.violate(format!("{streams} watches are open"));
        }
        self.shared.ledger().audit();
        for broken in self.shared.ledger().violations.clone() {
            self.shared.stress("CHECK", broken, "");
        }
    }

    /// Ends everything; nothing may be left.
    async fn end(mut self) {
        let broken = self.broken();
        for (part, running) in std::mem::take(&mut self.parts) {
            if broken { running.kill(&self.shared, part).await } else { running.stop().await }
        }
        for user in self.users.drain(..) {
            user.abort();
        }
        for number in 0..self.servers {
            self.stop_server(number).await;
        }
        self.machine.close().await;
        let panics = shared::panics();
        if panics > 0 {
            self.shared.violate(format!("{panics} panics"));
        }
        if broken {
            return;
        }
        sleep(LAST_WORDS).await;
        let tasks = Handle::current().metrics().num_alive_tasks();
        if tasks > TASKS_MAX {
            self.shared.violate(format!("{tasks} tasks are left when everything has ended"));
        }
    }
}

/// The names in what was broken, by which a story is told.
fn words(violations: &[String]) -> Vec<String> {
    let split = violations.iter().flat_map(|violation| violation.split(|c: char| c.is_whitespace() || c == '"'));
    let mut words: Vec<String> = split
        .filter(|word| word.contains('/') || word.contains('-'))
        .map(|word| word.rsplit('/').next().unwrap_or(word).trim_matches(|c: char| !c.is_alphanumeric()).to_owned())
        .filter(|word| word.len() > 3)
        .collect();
    words.dedup();
    words
}
