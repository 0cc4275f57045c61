//! A watch that begins before the mirror's history: it follows etcd until the mirror has the rest.

use std::sync::Arc;
use std::time::Duration;

use bayplan_store::{Change, ReadError, Revision, SharedIndex, Watch};
use bytes::Bytes;
use futures::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::client::proto::{Event, EventType, KeyValue, WatchCommand, WatchCreateRequest};
use crate::store::Inner;
use crate::values::{etcd_revision, revision};

/// Answers of etcd that wait for the watcher; beyond it etcd is not read on.
const WAITING_ANSWERS_MAX: usize = 4;
/// How long etcd may be silent before the watch fails; its client then tries again.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// The changes up to a revision; none left when the mirror has the rest.
type Answer = Result<(Vec<Change>, Revision), ReadError>;

/// A watch in one of its two stages.
pub(crate) struct CatchUp {
    store: Arc<Inner>,
    start: String,
    end: String,
    position: Revision,
    stage: Stage,
}

enum Stage {
    /// Reading from etcd; the task is ended with the watch.
    Behind { answers: mpsc::Receiver<Answer>, _task: AbortOnDrop },
    /// The mirror has everything that is left.
    Caught(Box<dyn Watch>),
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl CatchUp {
    /// Watches `start <= key < end` for changes after a revision that etcd still knows.
    pub(crate) fn open(store: &Arc<Inner>, start: &str, end: &str, after: Revision) -> Self {
        let stage = Stage::behind(store, start, end, after);
        CatchUp { store: store.clone(), start: start.to_owned(), end: end.to_owned(), position: after, stage }
    }

    async fn next_changes(&mut self) -> Result<Vec<Change>, ReadError> {
        loop {
            match &mut self.stage {
                Stage::Caught(watch) => return watch.next().await,
                Stage::Behind { answers, .. } => match answers.recv().await {
                    Some(Ok((changes, position))) => {
                        self.position = position;
                        if !changes.is_empty() {
                            return Ok(changes);
                        }
                    }
                    Some(Err(error)) => return Err(error),
                    // The task has ended: the mirror has the rest, unless it was trimmed meanwhile.
                    None => self.stage = self.hand_over()?,
                },
            }
        }
    }

    fn hand_over(&self) -> Result<Stage, ReadError> {
        match self.shared().watch(&self.start, &self.end, self.position) {
            Ok(watch) => Ok(Stage::Caught(watch)),
            Err(ReadError::Compacted { .. }) => Ok(Stage::behind(&self.store, &self.start, &self.end, self.position)),
            Err(error) => Err(error),
        }
    }

    fn shared(&self) -> &Arc<SharedIndex> {
        &self.store.mirror.shared
    }
}

impl Stage {
    fn behind(store: &Arc<Inner>, start: &str, end: &str, after: Revision) -> Stage {
        let (sender, answers) = mpsc::channel(WAITING_ANSWERS_MAX);
        let bounds = store.values.keys.stored_range(start, end);
        let store = store.clone();
        let task = tokio::spawn(async move {
            let Some(bounds) = bounds else {
                // No key can lie in it, so nothing was missed.
                let _ = sender.send(Ok((Vec::new(), store.mirror.revision()))).await;
                return;
            };
            if let Err(error) = follow(&store, bounds, after, &sender).await {
                // The watcher may be gone.
                let _ = sender.send(Err(error)).await;
            }
        });
        Stage::Behind { answers, _task: AbortOnDrop(task.abort_handle()) }
    }
}

impl Watch for CatchUp {
    fn next(&mut self) -> BoxFuture<'_, Result<Vec<Change>, ReadError>> {
        Box::pin(self.next_changes())
    }

    fn progress(&self) -> Revision {
        match &self.stage {
            Stage::Behind { .. } => self.position,
            Stage::Caught(watch) => watch.progress(),
        }
    }
}

/// Sends what etcd knows after a revision, until the mirror's history has the rest.
async fn follow(
    store: &Inner,
    bounds: (Bytes, Bytes),
    after: Revision,
    answers: &mpsc::Sender<Answer>,
) -> Result<(), ReadError> {
    // From the revision itself, as the mirror's feed does; what is known is skipped.
    let create = WatchCreateRequest {
        key: bounds.0,
        range_end: bounds.1,
        start_revision: etcd_revision(after),
        progress_notify: false,
        prev_kv: true,
        fragment: true,
    };
    let lost = |reason: &str| ReadError::Unavailable(format!("watch: {reason}"));
    let opened = store.client.watch(0, WatchCommand::Create(create).into()).await;
    let mut stream = opened.map_err(|error| lost(&error.to_string()))?;
    let (mut position, mut events) = (after, Vec::new());
    while position < store.mirror.shared.index().oldest() {
        let answer = tokio::time::timeout(SILENCE_MAX, next_answer(&mut stream)).await;
        let mut answer = answer.map_err(|_| lost("etcd is silent"))?.map_err(|reason| lost(&reason))?;
        if answer.canceled && answer.compact_revision > 0 {
            let oldest = revision(answer.compact_revision);
            return Err(ReadError::Compacted { requested: position, oldest });
        }
        if answer.canceled {
            return Err(lost(&answer.cancel_reason));
        }
        let progress = answer.events.is_empty() && events.is_empty() && !answer.created && !answer.fragment;
        if progress {
            position = position.max(answer.header.map_or(0, |header| revision(header.revision)));
        }
        events.append(&mut answer.events);
        if answer.fragment || answer.created {
            continue;
        }
        let oldest = store.mirror.shared.index().oldest();
        let changes = changes(store, std::mem::take(&mut events), position)
            // What came before cannot be told, so the watcher is to list again.
            .ok_or(ReadError::Compacted { requested: after, oldest })?;
        position = changes.last().map_or(position, |change| change.revision);
        if answers.send(Ok((changes, position))).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// The next answer; while there is none, progress is asked for, since matching events may be long past.
async fn next_answer(stream: &mut crate::client::WatchStream) -> Result<crate::client::proto::WatchResponse, String> {
    const ASK_EVERY: Duration = Duration::from_millis(100);
    loop {
        match tokio::time::timeout(ASK_EVERY, stream.answers.message()).await {
            Ok(Ok(Some(answer))) => return Ok(answer),
            Ok(Ok(None)) => return Err("the stream ended".to_owned()),
            Ok(Err(status)) => return Err(status.message().to_owned()),
            // A full channel means that a request is on its way.
            Err(_) => {
                let progress = WatchCommand::Progress(crate::client::proto::Empty {});
                let _ = stream.commands.try_send(progress.into());
            }
        }
    }
}

/// The changes of events; `None` when a value cannot be read.
fn changes(store: &Inner, events: Vec<Event>, after: Revision) -> Option<Vec<Change>> {
    let entry = |kv: Option<KeyValue>| kv.and_then(|kv| store.values.entry(kv)).transpose().ok();
    let mut changes = Vec::with_capacity(events.len());
    for event in events {
        let Some(kv) = event.kv.as_ref() else { continue };
        let at = revision(kv.mod_revision);
        let Some(key) = store.values.keys.key(&kv.key).filter(|_| at > after) else { continue };
        let previous = entry(event.prev_kv)?;
        let current = if event.r#type == EventType::Delete as i32 { None } else { entry(event.kv)? };
        changes.push(Change { revision: at, key, current, previous });
    }
    Some(changes)
}
