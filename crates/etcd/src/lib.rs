//! The store on etcd: the same trait as the embedded one, for clusters that have outgrown one machine.
//!
//! ```text
//!   create/update/delete ──▶ Txn If ModRevision = expected ──▶ etcd
//!                                                               │ one watch on the prefix
//!   get/range/watch ◀── mirror: bayplan_store::SharedIndex ◀────┘
//!        │                 ▲ has it reached the revision?
//!        └─▶ freshness: one linearizable read for all who wait ─▶ etcd
//!   older than the mirror: Range at a revision, or a watch of its own until the mirror has the rest
//! ```
//!
//! A read of the newest state asks etcd for its revision and is answered from memory, so what it costs etcd depends
//! neither on the size of the answer nor on how many ask at the same time. Values are translated by the caller's
//! `ValueCodec` where they enter and leave.

mod catch_up;
mod client;
mod compaction;
mod direct;
mod freshness;
mod health;
mod keys;
mod leases;
mod mirror;
mod options;
mod store;
mod values;
mod write;

pub use options::{ConnectError, DEFAULT_PREFIX, Options, Tls};
pub use store::EtcdStore;
