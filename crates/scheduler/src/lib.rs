//! The scheduler as a pure core: it reads no clock, has no randomness of its own and does no IO.
//!
//! ```text
//!   Input ──▶ queue ──pop──▶ engine, cycle ──decision──▶ assume, Reserve, Permit ──▶ Effect::Bind
//!     │                         │ borrow                                               │
//!     └──────▶ cluster ◀────────┘                          answers come back as Input ◀┘
//! ```
//!
//! A plugin implements [`Plugin`]; a profile is the plugins of one `schedulerName` in their order. A shell feeds
//! [`Scheduler::handle`], calls [`Scheduler::schedule_one`], and runs the effects.
//!
//! Modules depend on each other in one direction; `tests/module_arrows.rs` checks it:
//!
//! ```text
//!   scheduler ──▶ everything below
//!   engine    ──▶ cycle, profile, nominator, extender, metrics
//!   effect    ──▶ bind, shell
//!   cycle     ──▶ profile, nominator, extender, metrics
//!   bind      ──▶ profile, shell, metrics
//!   queue     ──▶ nominator, metrics
//!   profile   ──▶ config, extender, metrics
//!   plugins, extender ──▶ config
//!   config, metrics, nominator, shell ──▶ framework
//!   record    ──▶ cluster
//!   framework ──▶ cluster (what a plugin author sees depends on the cluster's types only), trace
//! ```

mod bind;
mod cluster;
pub mod config;
mod cycle;
mod effect;
mod engine;
pub mod extender;
mod framework;
mod metrics;
mod nominator;
mod plugins;
mod profile;
mod queue;
mod record;
mod scheduler;
mod shell;
mod trace;

// What plugins are written with.
pub use cluster::{
    AffinityTerm, AssumeError, ClaimKey, Cluster, Headroom, HostPorts, Image, NodeId, NodeInfo, Object, Objects,
    PodInfo, ResourceHeadroom, Table, TakenPod,
};
pub use framework::preemption::{Candidate, Preemption};
pub use framework::{
    AnyPlugin, BindContext, ClusterEvent, ClusterWaits, Code, CountScope, Cycle, Dependencies, DomainCounting,
    DomainSummary, EventRegistration, EventResource, ExtensionPoints, Factory, FeasibleNodes, HeadroomPlugin,
    MAX_NODE_SCORE, NodeScore, NodeStatuses, Nomination, Normalization, ObjectChange, Permit, Plugin, PluginName,
    PostFilter, PostFilterContext, PreFilter, PreFlight, QueuedPod, QueueingHint, Reads, Registry, SortKey, Status,
    Timer, action, default_normalize,
};

// What a shell runs the scheduler with.
pub use bind::{BindOutcome, Binding};
pub use cycle::tie_break::{Rng, TieBreak};
pub use effect::{Effect, Input};
pub use metrics::Clock;
pub use record::{DecisionRecord, Record, Recorded};
pub use scheduler::{Error, RecordedChoice, Scheduler};
pub use shell::{Shell, StatusUpdate};

/// The parts of a decision, for explanations, and for tests that compare them with upstream's or with each other.
pub mod inspect {
    pub use crate::cycle::filter::{FilterResult, Search};
    pub use crate::cycle::score::{PluginScores, Scores};
    pub use crate::cycle::{Attempt, Decision, Reserve, Unschedulable};
    pub use crate::engine::{Decider, DecisionInput, Engine};
    pub use crate::framework::Diagnosis;
    pub use crate::framework::node_trial::NodeTrial;
    pub use crate::framework::preemption::{
        DryRun, PotentialNodes, RankedCandidate, best_candidates, dry_run, split_by_budgets,
    };
    pub use crate::nominator::Nominator;
    pub use crate::plugins::default_preemption::ineligible;
    pub use crate::plugins::image_locality::image_locality_score;
    pub use crate::plugins::node_resources_fit::missing_resources;
    pub use crate::profile::{Error as ProfileError, Profile};
    pub use crate::queue::{Queue, QueueStage};
}
