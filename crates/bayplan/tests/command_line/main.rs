//! What a user sees of `bayplan` itself, run as a user runs it: screens, mistakes, logs and the built-in reference.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod backup;
mod components;
mod data_folder;
mod first_screen;
mod logs;
mod mistakes;
mod nodes;
mod process;
mod reference;
