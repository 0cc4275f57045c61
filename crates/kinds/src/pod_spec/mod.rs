//! The spec of pods, which workloads carry in their templates: its defaults and its rules.

mod affinity_rules;
mod container_rules;
mod defaults;
mod image;
mod rules;
mod volume_defaults;
mod volume_rules;

pub(crate) use affinity_rules::{PREFERRED, REQUIRED};
pub(crate) use defaults::{drop_init_container_annotations, spec_defaults, template_defaults};
pub(crate) use rules::{NOT_AN_ADDRESS, SECONDS_MAX, is_address, spec_rules, template_rules, toleration_rules};
pub(crate) use volume_defaults::source_defaults;
