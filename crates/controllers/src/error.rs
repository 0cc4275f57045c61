//! Why a reconcile failed; the text is what conditions and events show.

use bayplan_model::status::{Status, reason};

/// A failed step of a reconcile. The key is tried again with back-off.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused a call.
    #[error("{0}")]
    Api(#[from] Status),
    /// An orphan could not be adopted.
    #[error("can't adopt {kind} {object} ({uid}): {why}")]
    Adopt {
        /// Kind of the orphan.
        kind: &'static str,
        /// `namespace/name` of the orphan.
        object: String,
        /// UID of the orphan.
        uid: String,
        /// The obstacle.
        why: String,
    },
    /// The orphaned revisions could not be adopted.
    #[error("can't adopt ControllerRevisions: {0}")]
    AdoptRevisions(String),
    /// A pod's volume claim could not be created.
    #[error("failed to create PVC {name}: {status}")]
    CreateClaim {
        /// The claim's name.
        name: String,
        /// The refusal.
        status: Status,
    },
    /// A pod's volume claim is on its way out.
    #[error("pvc {name} is being deleted")]
    ClaimIsDeleted {
        /// The claim's name.
        name: String,
    },
    /// A volume claim could not be given its owners.
    #[error("could not update claim {name} for delete policy ownerRefs: {status}")]
    OwnClaim {
        /// The claim's name.
        name: String,
        /// The refusal.
        status: Status,
    },
    /// A pod could not be deleted.
    #[error("unable to delete pods: {0}")]
    DeletePod(Status),
    /// A pod template without labels would create pods that no selector matches.
    #[error("unable to create pods, no labels")]
    NoLabels,
    /// The caches do not have this controller's own writes yet.
    #[error("read version: {read} is not as new as written version: {written} for group resource {resource}")]
    Stale {
        /// Last version the cache processed.
        read: String,
        /// Last version this controller wrote.
        written: String,
        /// Which cache.
        resource: &'static str,
    },
    /// A write that is one of several failed.
    #[error("{doing}: {why}")]
    Step {
        /// What it was for.
        doing: String,
        /// Why it failed.
        why: Status,
    },
    /// The caches do not have this controller's own writes yet, in the words of a controller that says more than
    /// [`Error::Stale`].
    #[error("{0}")]
    Outdated(String),
    /// A field has an invalid value.
    #[error("{0}")]
    Invalid(String),
    /// A number of pods is neither a number nor a percentage.
    #[error(transparent)]
    Amount(#[from] bayplan_model::int_or_string::Error),
    /// Several things failed.
    #[error("{}", list(.0))]
    Several(Vec<Error>),
}

/// Several errors as one text: a single one as it is, more in brackets, repeated ones once; upstream's `Aggregate`.
fn list(errors: &[Error]) -> String {
    let mut texts: Vec<String> = Vec::new();
    for text in errors.iter().map(ToString::to_string) {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match texts.as_slice() {
        [one] => one.clone(),
        _ => format!("[{}]", texts.join(", ")),
    }
}

impl Error {
    /// The collected errors as one, or nothing when there are none.
    pub fn collect(errors: Vec<Error>) -> Result<(), Error> {
        match errors.len() {
            0 => Ok(()),
            _ => Err(Error::Several(errors.into_iter().flat_map(Error::parts).collect())),
        }
    }

    /// The errors that it consists of.
    fn parts(self) -> Vec<Error> {
        match self {
            Error::Several(errors) => errors.into_iter().flat_map(Error::parts).collect(),
            one => vec![one],
        }
    }

    /// True when the namespace is terminating, so a retry is pointless.
    pub fn is_namespace_terminating(&self) -> bool {
        match self {
            Error::Api(status) | Error::DeletePod(status) => namespace_terminating(status),
            _ => false,
        }
    }
}

/// True when the server refuses to create because the namespace is terminating.
pub(crate) fn namespace_terminating(status: &Status) -> bool {
    status.has_cause("NamespaceTerminating")
}

/// True when the object does not exist.
pub(crate) fn not_found(status: &Status) -> bool {
    status.is(reason::NOT_FOUND)
}
