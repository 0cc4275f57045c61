//! `TracingConfiguration` of `apiserver.config.k8s.io`, as `--tracing-config-file` names it.

use serde::Deserialize;
use tonic::transport::Endpoint;

/// Where collectors listen unless somebody says otherwise.
const DEFAULT_ENDPOINT: &str = "localhost:4317";
/// All traces.
const RATE_MAX: i32 = 1_000_000;
const VERSIONS: [&str; 3] =
    ["apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1beta1", "apiserver.config.k8s.io/v1alpha1"];

/// Why a configuration cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// It is no YAML, or has other fields.
    #[error("unable to decode tracing configuration data: {0}")]
    Undecodable(String),
    /// It is something else.
    #[error("no kind {kind:?} is registered for version {version:?}, TracingConfiguration of {} is", VERSIONS[0])]
    Kind {
        /// The kind it says it is.
        kind: String,
        /// The version it says.
        version: String,
    },
    /// A value is not allowed.
    #[error("failed to validate tracing configuration: {field}: Invalid value: {value}: {why}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with it.
        why: String,
    },
}

/// Where spans are sent, and of how many traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracingConfig {
    /// `host:port` of the collector.
    pub endpoint: String,
    /// Of a million new traces so many are sampled; of those that callers have begun, what their callers sample.
    pub sampling_rate_per_million: i32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    api_version: String,
    kind: String,
    endpoint: Option<String>,
    sampling_rate_per_million: Option<i32>,
}

impl TracingConfig {
    /// Reads the text of a configuration file.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let document: Document =
            serde_saphyr::from_str(text).map_err(|error| ConfigError::Undecodable(one_line(&error.to_string())))?;
        if document.kind != "TracingConfiguration" || !VERSIONS.contains(&document.api_version.as_str()) {
            return Err(ConfigError::Kind { kind: document.kind, version: document.api_version });
        }
        let rate = document.sampling_rate_per_million.unwrap_or(0);
        let invalid = |why: &str| ConfigError::Invalid {
            field: "samplingRatePerMillion",
            value: rate.to_string(),
            why: why.to_owned(),
        };
        if rate < 0 {
            return Err(invalid("sampling rate must be positive"));
        }
        if rate > RATE_MAX {
            return Err(invalid("sampling rate per million must be less than or equal to one million"));
        }
        let endpoint = document.endpoint.unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned());
        let config = TracingConfig { endpoint, sampling_rate_per_million: rate };
        config.connection().map(|_| config)
    }

    /// The collector, not connected yet. As upstream the connection is plain: collectors run beside the component.
    pub(crate) fn connection(&self) -> Result<Endpoint, ConfigError> {
        let invalid =
            |why: String| ConfigError::Invalid { field: "endpoint", value: format!("{:?}", self.endpoint), why };
        let address = self.endpoint.strip_prefix("dns:").unwrap_or(&self.endpoint);
        let address = address.trim_start_matches('/');
        if self.endpoint.contains("//") && !self.endpoint.starts_with("dns:") {
            return Err(invalid(
                "unsupported scheme: collectors are reached by host and port, as localhost:4317".into(),
            ));
        }
        let uri = format!("http://{address}");
        let uri: http::Uri = uri.parse().map_err(|error: http::uri::InvalidUri| invalid(error.to_string()))?;
        match uri.port() {
            Some(_) => Ok(Endpoint::from(uri)),
            None => Err(invalid("it has no port; collectors listen on 4317".into())),
        }
    }

    /// The bound on the 63 bits of a trace's id that decide whether it is sampled.
    pub(crate) fn sampled_below(&self) -> u64 {
        let rate = u128::try_from(self.sampling_rate_per_million).unwrap_or(0);
        u64::try_from((1u128 << 63) * rate / RATE_MAX as u128).unwrap_or(u64::MAX)
    }
}

fn one_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n";

    #[test]
    fn a_configuration_is_read_as_upstreams() {
        let parsed = TracingConfig::parse(HEAD).unwrap();
        assert_eq!(parsed, TracingConfig { endpoint: "localhost:4317".into(), sampling_rate_per_million: 0 });
        let all = format!("{HEAD}endpoint: collector:9999\nsamplingRatePerMillion: 1000000\n");
        let parsed = TracingConfig::parse(&all).unwrap();
        assert_eq!((parsed.endpoint.as_str(), parsed.sampled_below()), ("collector:9999", 1 << 63));
        assert!(TracingConfig::parse(&HEAD.replace("/v1", "/v1beta1")).is_ok());
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        for (text, why) in [
            (HEAD.replace("Tracing", "Encryption"), "no kind \"EncryptionConfiguration\""),
            (HEAD.replace("/v1", "/v2"), "for version \"apiserver.config.k8s.io/v2\""),
            (format!("{HEAD}samplingRatePerMillion: -1\n"), "Invalid value: -1: sampling rate must be positive"),
            (format!("{HEAD}samplingRatePerMillion: 1000001\n"), "less than or equal to one million"),
            (format!("{HEAD}endpoint: https://c:1\n"), "unsupported scheme"),
            (format!("{HEAD}endpoint: collector\n"), "it has no port"),
            (format!("{HEAD}endpoint: 'a b:1'\n"), "Invalid value: \"a b:1\""),
            (format!("{HEAD}endpiont: a:1\n"), "unable to decode"),
            ("{".into(), "unable to decode"),
        ] {
            let error = TracingConfig::parse(&text).unwrap_err().to_string();
            assert!(error.contains(why) && error.lines().count() == 1, "{error}");
        }
    }
}
