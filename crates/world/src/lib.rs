//! The whole of Bayplan in one thread, from one seed.
//!
//! ```text
//!   user, scheduler, controllers, kubelets, observer ─▶ network ─▶ server(s) ─▶ store ─▶ machine (disk)
//!        (the shells that the binary runs)              loses, delays, cuts     (the real ones)    │
//!   plan (actions, faults) ─▶ run ─kills, clocks─▶ all of them                     ledger ◀─ witness
//!                              └─▶ arrival, audit: what was promised, held against what happened
//! ```
//!
//! Time is virtual, chance comes from the seed (`bayplan_model::simulated`), and there is one thread: a seed repeats
//! its run to the letter. `shrink` makes a run that fails smaller, and `story` tells it.

mod arrival;
mod bugs;
mod leases;
mod ledger;
mod machine;
mod network;
mod parts;
mod plan;
mod points;
mod run;
mod server;
mod shared;
mod shrink;
mod signal;
mod store;
mod trace;
mod user;

pub use bugs::Bug;
pub use plan::{Form, Plan};
pub use points::Point;
pub use run::{Outcome, run};
pub use shrink::{shrink, story};
