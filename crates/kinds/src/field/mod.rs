//! Fields that break the rules of their kind. Upstream's word: the package `field`.

mod error;
mod error_list;
mod path;

pub use error::FieldError;
pub(crate) use error_list::{ErrorList, Json};
pub(crate) use path::Path;
