//! Bayplan's parts in place of upstream's, on upstream's own API server and etcd.
//!
//! `KUBEBUILDER_ASSETS` names a folder with `etcd`, `kube-apiserver` and `kubectl`, as other tools of the trade
//! use it; without it every test here is skipped. Where the folder also has `kube-scheduler` or
//! `kube-controller-manager`, they are given the same objects, and what they write must be what Bayplan writes.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod assets;
mod attempts;
mod control_plane;
mod controllers;
mod deployments;
mod differential;
mod drill;
#[path = "../deploy/installed/mod.rs"]
mod installed;
mod installing;
#[path = "../live/kubeconfig.rs"]
mod kubeconfig;
mod metrics;
mod nodes;
mod normal;
mod outages;
mod questions;
mod rights;
mod shadow;
mod side_by_side;
mod takeover;
#[path = "../transcript/mod.rs"]
mod transcript;
mod transcripts;
mod upstreams_components;
mod volumes;
mod written;
