//! The configuration of one extender: where it is, what it is asked, and for which pods.

use std::time::Duration;

use bayplan_model::pod::{Container, Pod};
use serde::Deserialize;

use super::GoDuration;

/// How long an extender may take when nothing else is said.
const HTTP_TIMEOUT: Duration = Duration::from_secs(5);

/// One entry of `extenders`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtenderConfig {
    /// Where it is; also its name.
    pub url_prefix: String,
    /// Where it filters; empty when it does not.
    pub filter_verb: String,
    /// Where it changes who is evicted; empty when it does not.
    pub preempt_verb: String,
    /// Where it scores; empty when it does not.
    pub prioritize_verb: String,
    /// Where it binds; empty when it does not.
    pub bind_verb: String,
    /// What its scores are multiplied with.
    pub weight: i64,
    /// Without a CA, leaves its certificate unverified. The scheme is that of the URL.
    #[serde(rename = "enableHTTPS")]
    pub enable_https: bool,
    /// How to know it, and how to be known to it.
    pub tls_config: Option<ExtenderTls>,
    /// How long a call may take; 0 means [`ExtenderConfig::timeout`]'s default.
    pub http_timeout: GoDuration,
    /// It knows the nodes: it is sent their names only.
    pub node_cache_capable: bool,
    /// When not empty, it is asked only about pods that want one of these.
    pub managed_resources: Vec<ManagedResource>,
    /// Its failures do not keep pods from being placed.
    pub ignorable: bool,
}

/// Certificates and keys, each as a file or as base64 of its content; the content wins.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtenderTls {
    /// Whatever certificate it shows is fine.
    pub insecure: bool,
    /// The name its certificate is for, when it is not the host of the URL.
    pub server_name: String,
    /// Our certificate.
    pub cert_file: String,
    /// Our key.
    pub key_file: String,
    /// Who signs its certificate.
    pub ca_file: String,
    /// Our certificate.
    pub cert_data: String,
    /// Our key.
    pub key_data: String,
    /// Who signs its certificate.
    pub ca_data: String,
}

/// A resource that an extender answers for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagedResource {
    /// The resource.
    pub name: String,
    /// NodeResourcesFit leaves it alone.
    pub ignored_by_scheduler: bool,
}

impl ExtenderConfig {
    /// Its name in messages.
    pub fn name(&self) -> &str {
        &self.url_prefix
    }

    /// Whether it takes nodes away.
    pub fn is_filter(&self) -> bool {
        !self.filter_verb.is_empty()
    }

    /// Whether it scores nodes.
    pub fn is_prioritizer(&self) -> bool {
        !self.prioritize_verb.is_empty()
    }

    /// Whether it has a say in who is evicted.
    pub fn supports_preemption(&self) -> bool {
        !self.preempt_verb.is_empty()
    }

    /// Whether it binds pods.
    pub fn is_binder(&self) -> bool {
        !self.bind_verb.is_empty()
    }

    /// Whether it is asked about a pod: one with any of its resources, or any pod when it manages none.
    pub fn is_interested(&self, pod: &Pod) -> bool {
        let managed = |name: &String| self.managed_resources.iter().any(|resource| resource.name == *name);
        let wants = |container: &Container| {
            let resources = &container.resources;
            resources.requests.keys().chain(resources.limits.keys()).any(managed)
        };
        self.managed_resources.is_empty() || pod.spec.containers.iter().chain(&pod.spec.init_containers).any(wants)
    }

    /// How long a call may take.
    pub fn timeout(&self) -> Duration {
        match self.http_timeout.unsigned() {
            Duration::ZERO => HTTP_TIMEOUT,
            timeout => timeout,
        }
    }
}
