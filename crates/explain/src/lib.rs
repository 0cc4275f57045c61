//! why, whatif, simulate and shadow: questions asked of the scheduler's own core.
//!
//! ```text
//!   ClusterObjects ─▶ State (cluster, nominated and pending pods, objects as written)
//!                       │ a question, under the profiles of a configuration
//!                       ▼
//!                     the scheduler's plain cycle and engine ─▶ an answer in the JSON of bayplan.dev/v1
//! ```
//!
//! No filter or score is written a second time for explaining. A counterfactual is a changed state, decided again;
//! nothing is printed that was not decided.

pub mod capacity;
mod changes;
mod completion;
pub mod decision_log;
mod pools;
mod profiles;
pub mod shadow;
pub mod simulate;
mod state;
pub mod text;
pub mod whatif;
pub mod why;

pub use changes::{
    CHANGES_MAX, Change, ChangeKind, ChangeOptions, Complete, DECISIONS_MAX, FoundChanges, ObjectPatch, Subject,
    Target, changes, search,
};
pub use completion::{Completion, DEFAULT_NAMESPACE, Refused};
pub use pools::pool_of;
pub use profiles::{Profiles, ProfilesError};
pub use state::{State, Undo};
