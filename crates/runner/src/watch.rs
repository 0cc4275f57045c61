//! A live cluster, followed with read rights only: every object that decisions read, and every change of it.

use bayplan_client::Client;
use bayplan_model::delta::Delta;
use bayplan_model::status::Status;
use bayplan_scheduler::{Input, Object};

use crate::inputs::{self, Informers, Inputs};

/// Without these nothing can be said about a cluster.
const INDISPENSABLE: &[&str] = &["nodes", "pods"];

/// A cluster cannot be followed.
#[derive(Debug, thiserror::Error)]
#[error("{resource} cannot be read on {host}: {}", status.message)]
pub struct Error {
    resource: String,
    host: String,
    status: Box<Status>,
}

/// The changes of a cluster.
pub struct ClusterWatch {
    inputs: Inputs,
    informers: Informers,
    /// The results of effects never come: there are none.
    _results: tokio::sync::mpsc::UnboundedSender<Input>,
    /// One line for each resource that is not read.
    pub notes: Vec<String>,
}

impl ClusterWatch {
    /// Begins to follow a cluster. Resources that may not be read are noted, unless nothing can be said without them.
    pub async fn start(client: &Client) -> Result<Self, Error> {
        let (senders, inputs) = inputs::channels();
        let (informers, missing) = inputs::start_readable(client, senders.deltas).await;
        let mut notes = Vec::new();
        for (resource, status) in missing {
            if INDISPENSABLE.contains(&resource.as_str()) {
                return Err(Error { resource, host: client.host().to_owned(), status: Box::new(status) });
            }
            notes.push(format!("{resource} are not read, which may change answers: {}", status.message));
        }
        Ok(ClusterWatch { inputs, informers, _results: senders.results, notes })
    }

    /// The next change, if there is one now.
    pub fn try_next(&mut self) -> Option<Delta<Object>> {
        self.inputs.try_next().and_then(delta)
    }

    /// Waits for the next change.
    pub async fn next(&mut self) -> Option<Delta<Object>> {
        self.inputs.next().await.and_then(delta)
    }

    /// Takes changes until the whole state has been reported.
    pub async fn read_state(&mut self, mut take: impl FnMut(Delta<Object>)) {
        let ClusterWatch { inputs, informers, .. } = self;
        let mut synced = std::pin::pin!(informers.synced());
        loop {
            tokio::select! {
                () = &mut synced => break,
                Some(input) = inputs.next() => delta(input).into_iter().for_each(&mut take),
            }
        }
        // What was sent before belongs to the state.
        while let Some(input) = inputs.try_next() {
            delta(input).into_iter().for_each(&mut take);
        }
    }
}

fn delta(input: Input) -> Option<Delta<Object>> {
    match input {
        Input::Delta(delta) => Some(delta),
        Input::Bound(_) | Input::Preempted { .. } => None,
    }
}
