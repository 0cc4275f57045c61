//! Fields that break the rules of their kind. Upstream's word: the package `field`.

mod error;
mod error_list;
mod go_struct;
mod go_value;
mod line_diff;
mod path;

pub use error::FieldError;
pub(crate) use error_list::{ErrorList, Json};
pub(crate) use go_struct::{GoField, go_list, go_struct};
pub(crate) use go_value::{shown as go_value, shown_list as go_values};
pub(crate) use line_diff::line_diff;
pub(crate) use path::Path;
