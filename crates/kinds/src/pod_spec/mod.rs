//! The spec of pods, which workloads carry in their templates: its defaults and its rules.

mod affinity_rules;
mod annotation_rules;
mod app_armor;
mod container_rules;
mod defaults;
mod disabled_fields;
mod environment_rules;
mod image;
mod mount_rules;
mod path_rules;
mod probe_rules;
mod projected_rules;
mod resource_rules;
mod rules;
mod security_rules;
mod storage_rules;
mod volume_defaults;
mod volume_rules;
mod warnings;
mod windows_rules;

pub(crate) use affinity_rules::{REQUIRED, node_selector};
pub(crate) use annotation_rules::{annotation_changes, app_armor_agrees, seccomp_agrees};
pub(crate) use app_armor::{annotation_warnings, profiles_from_annotations};
pub(crate) use defaults::{drop_init_container_annotations, spec_defaults, template_defaults};
pub(crate) use disabled_fields::drop_disabled;
pub(crate) use resource_rules::{overhead as overhead_rules, resource_name as container_resource_name};
pub(crate) use rules::{SECONDS_MAX, pod_rules, template_rules, toleration_rules};
pub(crate) use security_rules::id as id_rules;
pub(crate) use volume_defaults::source_defaults;
pub(crate) use warnings::warnings;
