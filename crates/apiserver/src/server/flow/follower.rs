//! The configuration follows the objects: every change of a FlowSchema or a level makes a new one.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bayplan_flowcontrol::{Broken, FlowSchema, Objects, PriorityLevel};
use bayplan_store::{Change, Entry, ReadError, Revision, Store};
use serde_json::Value;
use tokio::sync::watch;

use super::FlowControl;
use super::statuses::{Dangling, Outdated};
use crate::watch_cache::prefix_end;

/// How long the objects are not followed after the store failed.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

const SCHEMAS: &str = "/registry/flowschemas/";
const LEVELS: &str = "/registry/prioritylevelconfigurations/";

/// Keeps the configuration and says which statuses are outdated.
pub(in crate::server) struct Follower {
    control: Arc<FlowControl>,
    /// The objects by key. What is broken counts as if it were not there.
    schemas: BTreeMap<Arc<str>, Stored<FlowSchema>>,
    levels: BTreeMap<Arc<str>, Stored<PriorityLevel>>,
    outdated: watch::Sender<Arc<[Outdated]>>,
    /// What was written until this revision was there before this server. Other servers share that store, and a start
    /// rewrites nothing of theirs: a schema of then that says nothing of its level keeps silent as long as that exists.
    left_by_others: Revision,
}

/// An object as it was last seen.
#[derive(Clone, Debug, PartialEq)]
struct Stored<T> {
    object: Option<Arc<T>>,
    revision: Revision,
    /// What its status says of the level.
    dangling: Option<Dangling>,
}

impl<T: PartialEq> Stored<T> {
    fn read(entry: &Entry, read: fn(&Value) -> Result<T, Broken>) -> Stored<T> {
        let value: Value = serde_json::from_slice(&entry.value).unwrap_or_default();
        let object = read(&value).map(Arc::new);
        if let Err(error) = &object {
            tracing::warn!(key = %entry.key, %error, "an object of priority and fairness is broken and steers nothing");
        }
        Stored { object: object.ok(), revision: entry.mod_revision, dangling: Dangling::of(&value) }
    }

    /// True if both steer the same.
    fn steers_as(&self, other: &Stored<T>) -> bool {
        self.object == other.object
    }
}

impl Follower {
    /// Reads the objects, so that the first request is steered by them.
    pub(in crate::server) async fn start(
        control: Arc<FlowControl>,
        store: &dyn Store,
        left_by_others: Revision,
    ) -> Result<Follower, ReadError> {
        let outdated = watch::Sender::new(Arc::from([]));
        let (schemas, levels) = (BTreeMap::new(), BTreeMap::new());
        let mut follower = Follower { control, schemas, levels, outdated, left_by_others };
        follower.load(store).await?;
        Ok(follower)
    }

    /// The statuses that are outdated, at every moment.
    pub(in crate::server) fn outdated(&self) -> watch::Receiver<Arc<[Outdated]>> {
        self.outdated.subscribe()
    }

    /// Follows the objects until the task is dropped.
    pub(in crate::server) async fn follow(mut self, store: Arc<dyn Store>) {
        loop {
            let Err(error) = self.follow_changes(&*store).await;
            tracing::debug!(%error, "the objects of priority and fairness are followed again");
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    async fn load(&mut self, store: &dyn Store) -> Result<[Revision; 2], ReadError> {
        let schemas = store.range(SCHEMAS, &prefix_end(SCHEMAS), None, 0).await?;
        let levels = store.range(LEVELS, &prefix_end(LEVELS), None, 0).await?;
        let schema = |entry: &Entry| (entry.key.clone(), Stored::read(entry, FlowSchema::read));
        self.schemas = schemas.entries.iter().map(schema).collect();
        let level = |entry: &Entry| (entry.key.clone(), Stored::read(entry, PriorityLevel::read));
        self.levels = levels.entries.iter().map(level).collect();
        self.configure();
        Ok([schemas.revision, levels.revision])
    }

    async fn follow_changes(&mut self, store: &dyn Store) -> Result<Infallible, ReadError> {
        let [schemas_read, levels_read] = self.load(store).await?;
        let mut schemas = store.watch(SCHEMAS, &prefix_end(SCHEMAS), schemas_read).await?;
        let mut levels = store.watch(LEVELS, &prefix_end(LEVELS), levels_read).await?;
        let control = self.control.clone();
        loop {
            let differs = tokio::select! {
                // In this order, so that runs repeat themselves.
                biased;
                changes = levels.next() => apply(&mut self.levels, &changes?, PriorityLevel::read),
                changes = schemas.next() => apply(&mut self.schemas, &changes?, FlowSchema::read),
                () = control.reconsider.notified() => true,
            };
            if differs {
                self.configure();
            }
        }
    }

    fn configure(&self) {
        let objects = Objects {
            levels: self.levels.values().filter_map(|level| level.object.clone()).collect(),
            schemas: self.schemas.values().filter_map(|schema| schema.object.clone()).collect(),
        };
        let dangling = self.control.configure(&objects);
        let outdated = self.schemas.values().filter_map(|Stored { object, revision, dangling: found }| {
            let schema = object.as_ref()?;
            let is_missing = dangling.contains(&schema.name);
            if found.is_none() && !is_missing && *revision <= self.left_by_others {
                return None;
            }
            let wanted = Dangling::new(&schema.level, is_missing);
            let outdated = || Outdated { schema: schema.name.clone(), revision: *revision, wanted: wanted.clone() };
            (found.as_ref() != Some(&wanted)).then(outdated)
        });
        self.outdated.send_replace(outdated.collect());
    }
}

/// Notes changes; false if none of them steers anything or concerns a status.
fn apply<T: PartialEq>(
    known: &mut BTreeMap<Arc<str>, Stored<T>>,
    changes: &[Change],
    read: fn(&Value) -> Result<T, Broken>,
) -> bool {
    let mut differs = false;
    for Change { key, current, .. } in changes {
        differs |= match current {
            None => known.remove(key).is_some(),
            Some(entry) => {
                let now = Stored::read(entry, read);
                let same = |before: &Stored<T>| before.steers_as(&now) && before.dangling == now.dangling;
                let differs = !known.get(key).is_some_and(same);
                known.insert(key.clone(), now);
                differs
            }
        };
    }
    differs
}
