//! Fields that break the rules of their kind. Upstream's word: the package `field`.

mod error;
mod error_list;
mod go_value;
mod path;
mod quote;
mod unified_diff;

pub use error::FieldError;
pub use error_list::Circumstances;
pub(crate) use error_list::{Change, ErrorList};
pub(crate) use path::Path;
pub(crate) use quote::{At, GoValue, Json};
