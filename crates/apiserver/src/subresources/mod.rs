//! The subresources with a kind of their own: binding, eviction, scale.

mod binding;
mod eviction;
mod scale;

pub(crate) use binding::bind;
pub(crate) use eviction::evict;
pub(crate) use scale::{apply as apply_scale, get as get_scale, patch as patch_scale, update as update_scale};
