//! Planted bugs: what a mistake in the product would do, put where the product meets the world. A test shows that the
//! world finds each of them.

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {
    /// The store forgets to sync its log.
    SkippedSync,
    /// The store forgets to sync its folder.
    SkippedFolderSync,
    /// An informer loses an event now and then.
    DroppedEvent,
    /// The server's watches repeat an event now and then.
    RepeatedEvent,
    /// The server's watches swap two events now and then.
    SwappedEvents,
    /// The server binds a pod a second time.
    DoubleBinding,
    /// The store replaces what the writer has not seen.
    LostUpdate,
    /// The store acknowledges a write that it does not do.
    UnwrittenAck,
    /// The control loops take a write for done that failed, and do not try it again.
    LostRequeue,
    /// The scheduler takes a binding for done that it never sent.
    ForgottenBinding,
    /// The control loops do not wait until they lead.
    TwoLeaders,
    /// The kubelets take a status for reported that they never sent.
    LostStatus,
}

impl Bug {
    /// All of them.
    pub const ALL: &[Bug] = &[
        Bug::SkippedSync,
        Bug::SkippedFolderSync,
        Bug::DroppedEvent,
        Bug::RepeatedEvent,
        Bug::SwappedEvents,
        Bug::DoubleBinding,
        Bug::LostUpdate,
        Bug::UnwrittenAck,
        Bug::LostRequeue,
        Bug::ForgottenBinding,
        Bug::TwoLeaders,
        Bug::LostStatus,
    ];
}
