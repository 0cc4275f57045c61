//! `deploy`: the chart, the manifests that it renders, kubeadm's patch and the image, as far as they can be tried here.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod applied;
mod chart;
mod image;
mod installed;
mod requested;
