//! The API's kinds: what each is called, how it is read, defaulted, checked, prepared for storage and shown as a table row.
//!
//! ```text
//!   bytes ─▶ codec (JSON, YAML, protobuf → canonical object) ─▶ defaults ─▶ strategy ─▶ validation ─▶ stored by the caller
//!                                                                    object ─▶ tables (columns and cells)
//! ```
//!
//! Invariant: nothing here does IO, reads a clock or knows HTTP, so files and stores can be read without a server.

pub mod codec;
pub mod defaults;
pub mod field_error;
pub mod resources;
pub mod strategy;
pub mod tables;
pub mod validation;
