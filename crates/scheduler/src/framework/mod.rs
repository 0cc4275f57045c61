//! The scheduling framework: everything a plugin author uses.
//!
//! A plugin is one implementation of [`Plugin`], with one method for each extension point. What it keeps from one point
//! to the next is its own [`Plugin::State`]. Filter and Score are pure functions of what they see; Reserve may change
//! the cluster's assumed state; PreBind, Bind and PostBind are futures over the API that run outside the task that owns
//! the cluster.
//!
//! The framework knows the cluster's types and nothing else: queue, cycle and engine implement what it asks for.

mod cluster_waits;
mod context;
mod dependencies;
mod domain_counting;
mod erased;
mod event;
mod extension_points;
mod fit_error;
mod headroom_plugin;
pub(crate) mod node_trial;
mod object_change;
mod plugin;
pub(crate) mod preemption;
mod queued_pod;
mod registry;
mod results;
mod score;
mod sort_key;
mod status;

pub use bayplan_model::api::Timer;
pub use cluster_waits::ClusterWaits;
pub(crate) use context::FilterRunner;
pub use context::{BindContext, Cycle, PostFilterContext};
pub use dependencies::{Dependencies, Normalization, Reads};
pub(crate) use domain_counting::COUNTS_MAX;
pub use domain_counting::{CountScope, DomainCounting, DomainSummary, FeasibleNodes};
pub use erased::AnyPlugin;
pub(crate) use erased::{CycleStates, PluginWithState};
pub use event::{ClusterEvent, EventRegistration, EventResource, QueueingHint, action};
pub(crate) use event::{node_updates, pod_updates};
pub use extension_points::ExtensionPoints;
pub use fit_error::{Diagnosis, NodeStatuses};
pub use headroom_plugin::HeadroomPlugin;
pub(crate) use headroom_plugin::add_scores;
pub use object_change::ObjectChange;
pub use plugin::Plugin;
pub use queued_pod::QueuedPod;
pub use registry::{Factory, Registry};
pub use results::{Nomination, Permit, PostFilter, PreFilter, PreFlight};
pub(crate) use score::normalized_by_highest;
pub use score::{MAX_NODE_SCORE, NodeScore, default_normalize};
pub use sort_key::SortKey;
pub use status::{Code, PluginName, Status};
