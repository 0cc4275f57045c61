//! The configuration of one extender: where it is, what it is asked, and for which pods.

use std::time::Duration;

use bayplan_model::pod::{Container, Pod};
use serde::Deserialize;

use super::GoDuration;

/// The timeout of a call when `httpTimeout` is not set.
const HTTP_TIMEOUT: Duration = Duration::from_secs(5);

/// One entry of `extenders`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtenderConfig {
    /// The URL that verbs are appended to; also the extender's name.
    pub url_prefix: String,
    /// The verb of Filter; empty when it does not filter.
    pub filter_verb: String,
    /// The verb of preemption; empty when it takes no part in it.
    pub preempt_verb: String,
    /// The verb of Prioritize; empty when it does not score.
    pub prioritize_verb: String,
    /// The verb of Bind; empty when it does not bind.
    pub bind_verb: String,
    /// The factor of its scores.
    pub weight: i64,
    /// Leaves its certificate unverified when no CA is given. The URL decides whether TLS is used.
    #[serde(rename = "enableHTTPS")]
    pub enable_https: bool,
    /// Certificates and keys of the connection.
    pub tls_config: Option<ExtenderTls>,
    /// The timeout of a call; 0 means the default of [`ExtenderConfig::timeout`].
    pub http_timeout: GoDuration,
    /// It caches nodes, and is sent their names only.
    pub node_cache_capable: bool,
    /// When not empty, it is only called for pods that request one of these.
    pub managed_resources: Vec<ManagedResource>,
    /// Its failures do not fail the attempt.
    pub ignorable: bool,
}

/// Certificates and keys, each as a file or as base64 data; the data takes precedence.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtenderTls {
    /// Accepts any certificate.
    pub insecure: bool,
    /// The server name of its certificate, when it is not the host of the URL.
    pub server_name: String,
    /// The client certificate, as a file.
    pub cert_file: String,
    /// The client key, as a file.
    pub key_file: String,
    /// The CA of its certificate, as a file.
    pub ca_file: String,
    /// The client certificate.
    pub cert_data: String,
    /// The client key.
    pub key_data: String,
    /// The CA of its certificate.
    pub ca_data: String,
}

/// A resource that an extender manages.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagedResource {
    /// The resource.
    pub name: String,
    /// NodeResourcesFit ignores it.
    pub ignored_by_scheduler: bool,
}

impl ExtenderConfig {
    /// Its name in messages.
    pub fn name(&self) -> &str {
        &self.url_prefix
    }

    /// Whether it filters nodes.
    pub fn is_filter(&self) -> bool {
        !self.filter_verb.is_empty()
    }

    /// Whether it scores nodes.
    pub fn is_prioritizer(&self) -> bool {
        !self.prioritize_verb.is_empty()
    }

    /// Whether it takes part in preemption.
    pub fn supports_preemption(&self) -> bool {
        !self.preempt_verb.is_empty()
    }

    /// Whether it binds pods.
    pub fn is_binder(&self) -> bool {
        !self.bind_verb.is_empty()
    }

    /// Whether it is called for a pod: one with any of its resources, or any pod when it manages none.
    pub fn is_interested(&self, pod: &Pod) -> bool {
        let managed = |name: &String| self.managed_resources.iter().any(|resource| resource.name == *name);
        let wants = |container: &Container| {
            let resources = &container.resources;
            resources.requests.keys().chain(resources.limits.keys()).any(managed)
        };
        self.managed_resources.is_empty() || pod.spec.containers.iter().chain(&pod.spec.init_containers).any(wants)
    }

    /// The timeout of a call.
    pub fn timeout(&self) -> Duration {
        match self.http_timeout.unsigned() {
            Duration::ZERO => HTTP_TIMEOUT,
            timeout => timeout,
        }
    }
}
