//! The fault points: everything that can go wrong here, by name.

/// When a fault takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// At the next request of a part that is of this sort.
    Request(Sort),
    /// At the next event that a watch of a part is sent.
    Event,
    /// For a while.
    While,
    /// From the beginning to the end, in some worlds.
    Always,
    /// At a time, by whoever runs the world.
    Then,
    /// As [`When::Then`], in the first form alone: the one with a disk.
    OnDisk,
    /// For a while, in the first form alone.
    WhileOnDisk,
    /// At the next write of a server, in the form with etcd alone.
    EtcdWrite,
    /// For a while, in the form with etcd alone.
    EtcdWhile,
    /// At a time, in the form with etcd alone.
    EtcdThen,
}

/// Sorts of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// Whatever comes.
    Any,
    /// Creations, changes and deletions.
    Write,
    /// Changes of an object that has a name.
    Change,
    /// Discovery.
    Discovery,
    /// Lists.
    List,
    /// The opening of a watch.
    Watch,
    /// The opening of a watch that begins with all objects.
    Stream,
}

macro_rules! points {
    ($($point:ident $name:literal $when:expr;)*) => {
        /// A fault point.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs, reason = "the names say it")]
        pub enum Point {
            $($point,)*
        }

        impl Point {
            /// All of them.
            pub const ALL: &[Point] = &[$(Point::$point,)*];

            /// Its name: who, then what.
            pub fn name(self) -> &'static str {
                match self {
                    $(Point::$point => $name,)*
                }
            }

            pub(crate) fn when(self) -> When {
                match self {
                    $(Point::$point => $when,)*
                }
            }
        }
    };
}

points! {
    RequestLost "request.lost" When::Request(Sort::Any);
    RequestLate "request.late" When::Request(Sort::Any);
    RequestHangs "request.hangs" When::Request(Sort::Write);
    AnswerLost "answer.lost" When::Request(Sort::Write);
    AnswerLate "answer.late" When::Request(Sort::Any);
    AnswerHangs "answer.hangs" When::Request(Sort::Write);
    AnswerCut "answer.cut" When::Request(Sort::Any);
    AnswerGarbage "answer.garbage" When::Request(Sort::Any);
    RefusedBusy "answer.429" When::Request(Sort::Any);
    RefusedInternal "answer.500" When::Request(Sort::Any);
    RefusedUnavailable "answer.503" When::Request(Sort::Any);
    AppliedTimeout "answer.504-applied" When::Request(Sort::Write);
    Raced "write.raced" When::Request(Sort::Change);
    DiscoveryLost "discovery.lost" When::Request(Sort::Discovery);
    ListLost "list.lost" When::Request(Sort::List);
    ListCut "list.cut" When::Request(Sort::List);
    StreamRefused "watch.stream-refused" When::Request(Sort::Stream);
    StreamsUnknown "server.knows-no-streams" When::Always;
    WatchGone "watch.refused-410" When::Request(Sort::Watch);
    WatchBusy "watch.refused-429" When::Request(Sort::Watch);
    WatchFailed "watch.refused-500" When::Request(Sort::Watch);
    WatchShut "watch.closed-at-once" When::Request(Sort::Watch);
    WatchClosed "watch.closed" When::Event;
    WatchBroken "watch.broken" When::Event;
    WatchHalfLine "watch.half-a-line" When::Event;
    WatchExpired "watch.expired" When::Event;
    WatchErrorEvent "watch.error-event" When::Event;
    WatchStalled "watch.stalled" When::Event;
    WatchSplit "watch.split" When::Event;
    CutOff "network.cut-off" When::While;
    HalfCutOff "network.half-cut-off" When::While;
    NetworkSlow "network.slow" When::While;
    WatchesSlow "network.slow-watches" When::While;
    LeaseCutOff "leader.cut-off" When::While;
    WatchesSevered "network.severed" When::Then;
    PartKilled "part.killed" When::Then;
    PartKilledAtPoll "part.killed-at-a-poll" When::Then;
    KilledBeforeRequest "part.killed-before-a-request" When::Request(Sort::Write);
    KilledAfterApplied "part.killed-after-a-write" When::Request(Sort::Write);
    TwoSchedulers "leader.two-schedulers" When::Then;
    ServerKilled "server.killed" When::Then;
    ServerKilledInRequest "server.killed-in-a-request" When::Request(Sort::Write);
    MachineLosesAll "machine.loses-unsynced" When::OnDisk;
    MachineTorn "machine.tears-writes" When::OnDisk;
    MachineHoles "machine.leaves-holes" When::OnDisk;
    CrashInRecovery "machine.crashes-in-recovery" When::OnDisk;
    DiskFull "disk.full" When::WhileOnDisk;
    DiskSlow "disk.slow" When::WhileOnDisk;
    SyncFails "disk.sync-fails" When::OnDisk;
    OperationFails "disk.operation-fails" When::OnDisk;
    Compacted "store.compacted" When::Then;
    CachesLag "server.caches-lag" When::While;
    ClockForward "clock.forward" When::Then;
    ClockBackward "clock.backward" When::Then;
    ServerClock "clock.server-differs" When::Then;
    PodNowhere "hostile.pod-for-no-node" When::Then;
    PodOnGhost "hostile.pod-on-no-node" When::Then;
    PodByHand "hostile.pod-bound-by-hand" When::Then;
    OwnerLoop "hostile.owner-loop" When::Then;
    OwnerGone "hostile.owner-never-was" When::Then;
    Finalizer "hostile.finalizer" When::Then;
    HugeAnnotation "hostile.huge-annotation" When::Then;
    SelectorThief "hostile.selected-stranger" When::Then;
    NodeCordoned "hostile.node-cordoned" When::Then;
    NodeFails "hostile.node-fails" When::Then;
    NodeDeleted "hostile.node-deleted" When::Then;
    EtcdNoLeader "etcd.no-leader" When::EtcdWhile;
    EtcdInDoubtApplied "etcd.in-doubt-applied" When::EtcdWrite;
    EtcdInDoubtLost "etcd.in-doubt-lost" When::EtcdWrite;
    EtcdLeaseOver "etcd.lease-over" When::Always;
    EtcdWatchCancelled "etcd.watch-cancelled" When::EtcdThen;
    EtcdMemberLags "etcd.member-lags" When::EtcdWhile;
    EtcdMemberCutOff "etcd.member-cut-off" When::EtcdWhile;
    ServerSwitched "network.server-switched" When::EtcdThen;
}
