//! The cluster that is shown: its state, what was decided, and a version that tells whether anything changed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bayplan_explain::{Profiles, State};
use bayplan_model::pod::Pod;
use bayplan_sources::Resource;
use bayplan_sources::decision_log::LogEntry;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::watch;

use crate::decisions::Decisions;
use crate::logged::LoggedDecisions;

/// A change of the cluster that is shown.
#[derive(Clone, Debug)]
pub enum Change {
    /// An object is new, or has a new version.
    Written(&'static Resource, Value),
    /// An object is gone.
    Gone {
        /// Its resource.
        resource: &'static Resource,
        /// Its namespace; empty for cluster-scoped objects.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// What is shown, and to whom it is told that it changed.
pub struct ClusterView {
    shown: Mutex<Shown>,
    pub(crate) profiles: Profiles,
    pub(crate) about: About,
    version: watch::Sender<u64>,
}

/// What does not change while it is shown.
#[derive(Clone, Debug)]
pub(crate) struct About {
    /// What the cluster is called.
    pub(crate) name: String,
    /// True when changes follow.
    pub(crate) is_live: bool,
    /// The decision log that decisions are read from; without one, they are what the objects of pods tell.
    pub(crate) log: Option<String>,
    /// Tells this process from one before it.
    pub(crate) run: String,
}

/// The state and what is derived from it.
pub(crate) struct Shown {
    pub(crate) state: State,
    pub(crate) decisions: Decisions,
    logged: LoggedDecisions,
    /// The answer about all pending pods, and the version it was made for: several browsers ask for it at once.
    pub(crate) pending: Option<(u64, bytes::Bytes)>,
}

impl ClusterView {
    /// Shows a state. `run` tells this process from one before it, so that a browser notices that it was restarted.
    pub fn new(state: State, profiles: Profiles, name: &str, is_live: bool, run: &str) -> Self {
        let decisions = Decisions::of(state.cluster().objects.pods.iter().map(|pod| &**pod));
        ClusterView {
            shown: Mutex::new(Shown { state, decisions, logged: LoggedDecisions::default(), pending: None }),
            profiles,
            about: About { name: name.to_owned(), is_live, log: None, run: run.to_owned() },
            version: watch::Sender::new(1),
        }
    }

    /// Takes decisions from a log of this name, whose entries follow, and no longer from the objects of pods.
    #[must_use]
    pub fn with_log(mut self, name: &str) -> Self {
        self.about.log = Some(name.to_owned());
        self.lock().decisions = Decisions::default();
        self
    }

    /// Takes in the next entries of the log.
    pub fn log(&self, entries: impl IntoIterator<Item = LogEntry>) {
        let mut shown = self.lock();
        let Shown { logged, decisions, .. } = &mut *shown;
        let mut told = 0;
        for decision in entries.into_iter().flat_map(|entry| logged.entry(&entry)) {
            decisions.push(decision);
            told += 1;
        }
        drop(shown);
        if told > 0 {
            self.version.send_modify(|version| *version += 1);
        }
    }

    /// Applies changes, and tells of them once. Returns one line for each object that could not be read.
    pub fn apply(&self, changes: impl IntoIterator<Item = Change>, now: Timestamp) -> Vec<String> {
        let mut shown = self.lock();
        let (mut notes, mut changed) = (Vec::new(), false);
        for change in changes {
            changed = true;
            if let Err(note) = shown.apply(change, self.about.log.is_none(), now) {
                notes.push(note);
            }
        }
        drop(shown);
        if changed {
            self.version.send_modify(|version| *version += 1);
        }
        notes
    }

    /// Puts the decisions of the first state in the order of their times: they came in that of their names.
    pub fn settle(&self) {
        if self.about.log.is_none() {
            self.lock().decisions.sort();
        }
        self.version.send_modify(|version| *version += 1);
    }

    /// What is shown, for one question at a time: a question may change the state while it is answered.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Shown> {
        // A question that panicked may have left a trial in the state; going on is better than answering nobody.
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The version now.
    pub(crate) fn version(&self) -> u64 {
        *self.version.borrow()
    }

    /// The version as the page remembers it.
    pub(crate) fn seen(&self, version: u64) -> String {
        format!("{}-{version}", self.about.run)
    }

    /// Follows the version.
    pub(crate) fn versions(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }
}

impl Shown {
    /// Applies a change; `tells` when decisions are what the objects of pods tell.
    fn apply(&mut self, change: Change, tells: bool, now: Timestamp) -> Result<(), String> {
        let known =
            |state: &State, namespace: &str, name: &str| state.cluster().objects.pods.get(namespace, name).cloned();
        match change {
            Change::Written(resource, json) => {
                let text = |field: &str| json["metadata"][field].as_str().unwrap_or_default();
                let (namespace, name) = (text("namespace").to_owned(), text("name").to_owned());
                let before = (resource.kind == "Pod").then(|| known(&self.state, &namespace, &name)).flatten();
                // An edit that is not undone stays.
                let written = self.state.write(resource, &json);
                drop(written.map_err(|error| format!("{} {namespace}/{name} cannot be read: {error}", resource.name))?);
                if resource.kind == "Pod"
                    && tells
                    && let Ok(after) = serde_json::from_value::<Pod>(json)
                {
                    self.decisions.observe(before.as_deref(), &after, now);
                }
            }
            Change::Gone { resource, namespace, name } => {
                if resource.kind == "Pod" && tells {
                    self.decisions.observe_gone(known(&self.state, &namespace, &name).as_deref(), now);
                }
                drop(self.state.remove(resource, &namespace, &name));
            }
        }
        Ok(())
    }
}
