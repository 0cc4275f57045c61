//! The objects every cluster starts with.
