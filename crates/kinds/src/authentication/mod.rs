//! `authentication.k8s.io`: who somebody is.

pub(crate) mod self_subject_review;
pub(crate) mod token_request;
pub(crate) mod token_review;
