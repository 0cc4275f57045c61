//! What happens in a run: the user's actions and the faults, all of them chosen by the seed beforehand, so that a run
//! can be repeated with fewer of them.

use std::time::Duration;

use bayplan_testkit::Rng;

use crate::bugs::Bug;
use crate::points::{Point, Sort, When};

/// The time in which actions and faults happen.
pub(crate) const STORM: Duration = Duration::from_secs(80);

/// A process of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Scheduler,
    SecondScheduler,
    Controllers,
    StandbyControllers,
    Kubelets,
    Observer,
    User,
}

impl Part {
    pub(crate) const COUNT: usize = 7;
    /// Those whom faults meet.
    const FAULTY: &[Part] = &[
        Part::Scheduler,
        Part::Scheduler,
        Part::Controllers,
        Part::Controllers,
        Part::Controllers,
        Part::Kubelets,
        Part::Kubelets,
        Part::Observer,
        Part::User,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Part::Scheduler => "scheduler",
            Part::SecondScheduler => "scheduler-2",
            Part::Controllers => "controllers",
            Part::StandbyControllers => "controllers-2",
            Part::Kubelets => "kubelets",
            Part::Observer => "observer",
            Part::User => "user",
        }
    }
}

/// What a user does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    CreateDeployment { index: usize, replicas: usize },
    ScaleDeployment { index: usize, replicas: usize },
    RollDeployment { index: usize },
    DeleteDeployment { index: usize },
    CreateStatefulSet { replicas: usize },
    ScaleStatefulSet { replicas: usize },
    CreateDaemonSet,
    CreateJob { completions: usize },
    CreateService { index: usize },
    CreateBudget { index: usize },
    CreateNamespace,
    DeleteNamespace,
    DeleteSomePod { which: usize },
}

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) at: Duration,
    pub(crate) point: Point,
    pub(crate) part: Part,
    /// What the point takes: milliseconds, operations or polls.
    pub(crate) amount: u64,
}

/// Which form the world has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One API server on the embedded store, on a simulated disk.
    Disk,
    /// Several API servers on a model of etcd.
    Etcd,
}

/// A run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed of everything that is not planned.
    pub seed: u64,
    /// The form of the world.
    pub form: Form,
    pub(crate) actions: Vec<(Duration, Action)>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) bug: Option<Bug>,
    /// The servers are of an age in which no watch began with all objects: informers list.
    pub(crate) lists: bool,
    /// How long the world goes on after everything has arrived.
    pub(crate) idle: Duration,
}

impl Plan {
    /// The run of a seed. Every third has several API servers.
    pub fn of_seed(seed: u64) -> Plan {
        Self::in_form(seed, if seed % 3 == 2 { Form::Etcd } else { Form::Disk })
    }

    /// The run of a seed in a form.
    pub fn in_form(seed: u64, form: Form) -> Plan {
        let mut rng = Rng::new(seed ^ 0x5eed_0fa1);
        let actions = actions(&mut rng);
        let count = 4 + rng.below(14);
        let mut faults: Vec<Fault> = (0..count).filter_map(|_| fault(&mut rng, form)).collect();
        faults.sort_by_key(|fault| fault.at);
        let meets_lists = faults.iter().any(|fault| fault.point.when() == When::Request(Sort::List));
        let lists = meets_lists || rng.one_in(6);
        Plan { seed, form, actions, faults, bug: None, lists, idle: Duration::ZERO }
    }

    /// The same run with a bug in it.
    #[must_use]
    pub fn with_bug(mut self, bug: Bug) -> Plan {
        self.bug = Some(bug);
        self
    }

    /// The same run, without a fault.
    #[must_use]
    pub fn without_faults(mut self) -> Plan {
        self.faults.clear();
        self
    }

    /// The same run, which goes on for so long after everything has arrived.
    #[must_use]
    pub fn idle_for(mut self, idle: Duration) -> Plan {
        self.idle = idle;
        self
    }

    /// How many actions and faults there are.
    pub fn size(&self) -> (usize, usize) {
        (self.actions.len(), self.faults.len())
    }
}

fn actions(rng: &mut Rng) -> Vec<(Duration, Action)> {
    let mut actions =
        vec![(Duration::from_millis(500), Action::CreateDeployment { index: 0, replicas: 1 + rng.below(6) })];
    for _ in 0..3 + rng.below(8) {
        let index = rng.below(3);
        let action = match rng.below(15) {
            0..3 => Action::CreateDeployment { index, replicas: 1 + rng.below(6) },
            3 | 4 => Action::ScaleDeployment { index, replicas: rng.below(8) },
            5 | 6 => Action::RollDeployment { index },
            7 => Action::DeleteDeployment { index },
            8 => Action::CreateStatefulSet { replicas: 1 + rng.below(3) },
            9 => Action::ScaleStatefulSet { replicas: rng.below(4) },
            10 => Action::CreateDaemonSet,
            11 => Action::CreateJob { completions: 1 + rng.below(4) },
            12 => Action::CreateService { index },
            13 => match rng.below(3) {
                0 => Action::CreateBudget { index },
                1 => Action::CreateNamespace,
                _ => Action::DeleteNamespace,
            },
            _ => Action::DeleteSomePod { which: rng.below(64) },
        };
        actions.push((moment(rng), action));
    }
    actions.sort_by_key(|(at, _)| *at);
    actions
}

fn moment(rng: &mut Rng) -> Duration {
    Duration::from_millis(500 + rng.below(STORM.as_millis() as usize - 10_000) as u64)
}

fn fault(rng: &mut Rng, form: Form) -> Option<Fault> {
    let point = *rng.pick(Point::ALL);
    let (on_disk, on_etcd) = match point.when() {
        When::OnDisk | When::WhileOnDisk => (true, false),
        When::EtcdWrite | When::EtcdWhile | When::EtcdThen => (false, true),
        _ => (true, true),
    };
    let (part, at, amount) = (*rng.pick(Part::FAULTY), moment(rng), rng.next_u64() % 10_000);
    // What parts do when they start, and seldom later, is met from the beginning on.
    let at = match point.when() {
        When::Request(Sort::List | Sort::Stream | Sort::Discovery) => Duration::ZERO,
        _ => at,
    };
    let fits = if form == Form::Disk { on_disk } else { on_etcd };
    fits.then_some(Fault { at, point, part, amount })
}
