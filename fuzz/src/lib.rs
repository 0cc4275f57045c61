//! Inputs that nobody should send: each target takes bytes, puts them through the product's own functions, and panics
//! when a promise is broken.
//!
//! ```text
//!   corpus/<target>/* ─▶ tests/corpus.rs (cargo test)        ─┐
//!                                                             ├─▶ Target::run ─▶ decode, default, patch, recover, …
//!   libFuzzer ─▶ bin/libfuzzer.rs (cargo xtask fuzz, .ci/run) ─┘
//! ```
//!
//! "No panic" is the least of the promises. What is read and written again is the same; defaulting twice is defaulting
//! once; an input makes nobody allocate more than a multiple of its size; an error quotes no more than a multiple of
//! what it is about; a dry run writes nothing; and nobody is more than they show credentials for.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a broken promise is a panic here")]

mod bodies;
mod bounded;
mod cel;
mod extender;
mod kubeconfig;
mod numbers;
mod patches;
mod scheduler_configuration;
mod selectors;
mod server;
mod sources;
mod store_log;

/// One way into the product.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of its folder in `corpus/` and of the command's argument.
    pub name: &'static str,
    /// Takes any bytes; panics when the product breaks a promise.
    pub run: fn(&[u8]),
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "bodies", run: bodies::run },
    Target { name: "cel", run: cel::run },
    Target { name: "etcd", run: sources::etcd },
    Target { name: "extender", run: extender::run },
    Target { name: "headers", run: server::headers },
    Target { name: "kubeconfig", run: kubeconfig::run },
    Target { name: "numbers", run: numbers::run },
    Target { name: "patches", run: patches::run },
    Target { name: "paths", run: server::paths },
    Target { name: "scheduler_configuration", run: scheduler_configuration::run },
    Target { name: "selectors", run: selectors::run },
    Target { name: "snapshots", run: sources::snapshot },
    Target { name: "sources", run: sources::any },
    Target { name: "store_log", run: store_log::run },
    Target { name: "writes", run: server::writes },
];

/// The target of a name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.iter().copied().find(|target| target.name == name)
}

/// The first line of an input and what follows it. Inputs are text where they can be, so that a person can read them
/// and libFuzzer can cross them.
fn first_line(data: &[u8]) -> (&str, &[u8]) {
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let rest = data.get(end + 1..).unwrap_or_default();
    (std::str::from_utf8(&data[..end]).unwrap_or_default(), rest)
}
