//! The feed: one watch on the prefix that is opened again when it is lost, from where the mirror is.
//!
//! ```text
//!   listed ──▶ watching from the mirror's revision ──lost──▶ back-off ──▶ watching again
//!                      │ compacted meanwhile                    ▲
//!                      └──▶ list again, tell the watchers ──────┘
//! ```

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bayplan_store::{Observed, Revision};
use tokio::time::Instant;

use crate::client::WatchStream;
use crate::client::proto::{Empty, Event, WatchCommand, WatchCreateRequest, WatchResponse};
use crate::mirror::{Mirror, list};
use crate::values::{etcd_revision, revision};

/// How often a quiet stream is asked for progress, so that a dead one is noticed.
const IDLE_PROGRESS: Duration = Duration::from_secs(5);
/// How long a stream may leave a request for progress without any answer.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// Requests for progress are at least this far apart, however many readers wait.
const PROGRESS_INTERVAL_MIN: Duration = Duration::from_millis(10);
/// How long the first and any later try to open the watch again waits.
const BACKOFF_FIRST: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(2);

/// Why a stream ended.
enum Ended {
    Lost(String),
    Compacted(Revision),
}

/// Keeps the mirror current until the task is dropped or the mirror has failed.
pub(super) async fn run(mirror: Arc<Mirror>) {
    let mut backoff = BACKOFF_FIRST;
    let mut attempt = 0;
    while mirror.failure().is_none() {
        let mut heard = false;
        match watch(&mirror, attempt, &mut heard).await {
            Ended::Compacted(oldest) => {
                tracing::warn!(oldest, "etcd has compacted what the mirror missed; all keys are read again");
                relist(&mirror).await;
            }
            Ended::Lost(reason) => {
                tracing::info!(reason, revision = mirror.revision(), "the watch on etcd is opened again");
            }
        }
        if heard {
            (backoff, attempt) = (BACKOFF_FIRST, 0);
        } else {
            attempt += 1;
        }
        tokio::time::sleep(backoff).await;
        backoff = (backoff * 2).min(BACKOFF_MAX);
    }
}

/// Reads all keys again. What happened in between is unknown, so watchers that need it are told to list again.
async fn relist(mirror: &Mirror) {
    match list(&mirror.client, &mirror.values).await {
        Ok(index) if index.revision() < mirror.revision() => {
            let (now, before) = (index.revision(), mirror.revision());
            mirror.fail(went_back(now, before));
        }
        Ok(index) => {
            mirror.shared.replace(index);
            mirror.set_reached();
        }
        Err(error) => tracing::warn!(%error, "the keys could not be read again"),
    }
}

/// What is wrong when etcd is at an older revision than it was.
pub(crate) fn went_back(now: Revision, before: Revision) -> String {
    format!("etcd is at revision {now}, and was at {before}: it was restored from a backup or is another cluster")
}

async fn watch(mirror: &Mirror, attempt: usize, heard: &mut bool) -> Ended {
    let (key, range_end) = mirror.values.keys.bounds();
    // From the revision that is known, not the next: etcd then notices that this one is compacted, and with it a
    // deletion in the next. What is known is skipped.
    let create = WatchCreateRequest {
        key,
        range_end,
        start_revision: etcd_revision(mirror.revision()),
        progress_notify: true,
        // The mirror knows what was there before.
        prev_kv: false,
        fragment: true,
    };
    let stream = match mirror.client.watch(attempt, WatchCommand::Create(create).into()).await {
        Ok(stream) => stream,
        Err(error) => return Ended::Lost(error.to_string()),
    };
    let mut feed = Feed { mirror, events: Vec::new(), asked: None, last_asked: Instant::now() };
    feed.follow(stream, heard).await
}

/// One stream.
struct Feed<'a> {
    mirror: &'a Mirror,
    /// The parts of an answer that is not complete yet.
    events: Vec<Event>,
    /// When progress was asked for without any answer since.
    asked: Option<Instant>,
    last_asked: Instant,
}

impl Feed<'_> {
    async fn follow(&mut self, mut stream: WatchStream, heard: &mut bool) -> Ended {
        loop {
            let next_ask = self.last_asked + IDLE_PROGRESS;
            let silent = self.asked.map_or(next_ask + SILENCE_MAX, |asked| asked + SILENCE_MAX);
            tokio::select! {
                answer = stream.answers.message() => {
                    self.asked = None;
                    let answer = match answer {
                        Ok(Some(answer)) => answer,
                        Ok(None) => return lost(&stream, "the stream ended"),
                        Err(status) => return lost(&stream, status.message()),
                    };
                    *heard |= !answer.created && !answer.canceled;
                    if let ControlFlow::Break(ended) = self.take(answer, &stream) {
                        return ended;
                    }
                }
                () = self.mirror.wanted.notified() => self.ask(&mut stream),
                () = tokio::time::sleep_until(next_ask) => self.ask(&mut stream),
                () = tokio::time::sleep_until(silent) => return lost(&stream, "no answer to a request for progress"),
            }
        }
    }

    /// Asks for the revision up to which everything has been sent.
    fn ask(&mut self, stream: &mut WatchStream) {
        let now = Instant::now();
        if now < self.last_asked + PROGRESS_INTERVAL_MIN {
            return;
        }
        // A full channel means that a request is on its way.
        let _ = stream.commands.try_send(WatchCommand::Progress(Empty {}).into());
        self.last_asked = now;
        self.asked.get_or_insert(now);
    }

    fn take(&mut self, mut answer: WatchResponse, stream: &WatchStream) -> ControlFlow<Ended> {
        if answer.canceled {
            if answer.compact_revision > 0 {
                return ControlFlow::Break(Ended::Compacted(revision(answer.compact_revision)));
            }
            return ControlFlow::Break(lost(stream, &answer.cancel_reason));
        }
        let announced = answer.header.as_ref().map_or(0, |header| revision(header.revision));
        let quiet = answer.events.is_empty() && self.events.is_empty() && !answer.fragment;
        self.events.append(&mut answer.events);
        if answer.created || answer.fragment {
            return ControlFlow::Continue(());
        }
        if quiet {
            // Everything up to the revision has been sent. Old versions of etcd say so too early.
            if self.mirror.progress_trusted {
                self.show(Vec::new(), announced);
            }
        } else {
            let events = std::mem::take(&mut self.events);
            let known = self.mirror.revision();
            let observed: Vec<Observed> = events
                .into_iter()
                .filter(|event| event.kv.as_ref().is_some_and(|kv| revision(kv.mod_revision) > known))
                .filter_map(|event| self.mirror.values.observed(event))
                .collect();
            if !observed.is_sorted_by_key(|write| write.revision) {
                return ControlFlow::Break(lost(stream, "events came out of order"));
            }
            let last = observed.last().map_or(known, |write| write.revision);
            self.show(observed, last);
        }
        ControlFlow::Continue(())
    }

    fn show(&self, observed: Vec<Observed>, up_to: Revision) {
        let mirror = self.mirror;
        if up_to <= mirror.revision() {
            return;
        }
        mirror.shared.observe(observed, up_to);
        mirror.set_reached();
        if mirror.shared.index().history_bytes() > mirror.history_bytes_max {
            mirror.shared.trim(mirror.history_bytes_max);
        }
    }
}

fn lost(stream: &WatchStream, reason: &str) -> Ended {
    Ended::Lost(format!("watch: etcd at {}: {}", stream.address, reason.trim_start_matches("etcdserver: ")))
}
