//! The generic verbs over the store.

mod objects;

pub use objects::Objects;
