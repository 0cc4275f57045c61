//! The flags of kube-apiserver v1.36 that do nothing here: each is taken because what it asks for is so anyway, ignored
//! with a warning that says why that does no harm, or refused.

use anyhow::{Result, bail};
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use super::go;

/// What a flag's value does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// These values ask for what is so anyway; others are refused.
    Only(&'static [&'static str], &'static str),
    /// Ignored; the warning is left out for these values, which ask for what is so anyway.
    Ignored(&'static [&'static str], &'static str),
    /// Refused, whatever its value.
    Refused(&'static str),
}

/// A flag that does nothing.
pub(crate) struct ForeignFlag {
    pub(crate) name: &'static str,
    /// True if its value may be left out.
    boolean: bool,
    pub(crate) verdict: Verdict,
}

const fn flag(name: &'static str, verdict: Verdict) -> ForeignFlag {
    ForeignFlag { name, boolean: false, verdict }
}

const fn boolean(name: &'static str, verdict: Verdict) -> ForeignFlag {
    ForeignFlag { name, boolean: true, verdict }
}

use Verdict::{Ignored, Only, Refused};

const NO_AUDIT: &str = "no audit log is written";
const AUDIT_DETAIL: &str = "it says how audit events are written, and none are";
const NO_OIDC: &str = "OpenID Connect tokens are not accepted";
const NO_TOKEN_WEBHOOK: &str = "tokens are not reviewed by webhooks";
const NO_ACCESS_WEBHOOK: &str = "rights are not reviewed by webhooks";
const NO_WEBHOOK_DETAIL: &str = "it says how webhooks are asked, and none are";
const NO_PROFILES: &str = "no profile is served at /debug/pprof, which says why";
const NO_PEERS: &str = "requests are not passed on to other API servers";
const NO_ELECTION: &str = "coordinated leader election is off, as by default";

/// Every flag of kube-apiserver that is not in [`apiserver`](super::apiserver), in the order of its help.
pub(crate) const FLAGS: &[ForeignFlag] = &[
    // Generic.
    flag("cors-allowed-origins", Refused("answers carry no CORS headers")),
    boolean("emulation-forward-compatible", Only(&["false"], "there is only the behaviour of v1.36")),
    flag("goaway-chance", Ignored(&["0"], "a client stays with this server until it stops")),
    flag("livez-grace-period", Ignored(&["0s", "0"], "the server listens once it has started")),
    flag("min-request-timeout", Ignored(&["1800"], "watches end after the time upstream gives them by default")),
    flag("request-timeout", Ignored(&["1m0s", "1m", "60s"], "a request has 60 s, upstream's default")),
    boolean("runtime-config-emulation-forward-compatible", Only(&["false"], "there is only the behaviour of v1.36")),
    flag("shutdown-delay-duration", Ignored(&["0s", "0"], "the server stops at once, and clients try another")),
    boolean(
        "shutdown-send-retry-after",
        Ignored(&["false"], "connections end when the server stops, and clients retry"),
    ),
    flag(
        "shutdown-watch-termination-grace-period",
        Ignored(&["0s", "0"], "watches end when the server stops, and clients resume them"),
    ),
    flag("storage-initialization-timeout", Ignored(&["1m0s", "1m"], "the store is open before the server listens")),
    flag("strict-transport-security-directives", Refused("answers carry no HSTS header")),
    // Storage.
    flag("delete-collection-workers", Ignored(&["1"], "a collection is deleted as fast as the store writes")),
    boolean("enable-garbage-collector", Only(&["true"], "deletions always heed owners and finalizers")),
    boolean(
        "encryption-provider-config-automatic-reload",
        Only(&["false"], "the file of --encryption-provider-config is read once"),
    ),
    flag("etcd-compaction-interval", Ignored(&["5m0s", "5m"], "history is compacted every five minutes")),
    flag("etcd-count-metric-poll-period", Ignored(&["1m0s", "1m"], "objects are not counted by asking etcd")),
    flag("etcd-db-metric-poll-interval", Ignored(&["30s"], "etcd itself serves the metrics of its database")),
    flag("etcd-healthcheck-timeout", Ignored(&["2s"], "health is asked with upstream's default of 2 s")),
    flag("etcd-readycheck-timeout", Ignored(&["2s"], "readiness is asked with upstream's default of 2 s")),
    flag("etcd-servers-overrides", Refused("all resources are in one store")),
    flag("lease-reuse-duration-seconds", Ignored(&["60"], "how leases are shared is the store's own matter")),
    flag("storage-backend", Only(&["etcd3", ""], "the store is embedded or an etcd of version 3")),
    flag(
        "storage-media-type",
        Ignored(&["application/vnd.kubernetes.protobuf", "application/json"], "stored objects are read in every form"),
    ),
    boolean("watch-cache", Only(&["true"], "watches are always served from the cache")),
    flag("watch-cache-sizes", Ignored(&[], "the caches grow as they need to")),
    // Secure serving.
    flag("cert-dir", Ignored(&[], "certificates that are not given are kept in the data folder")),
    flag("http2-max-streams-per-connection", Ignored(&["0", "1000"], "a connection has 1000 streams at most")),
    boolean("permit-address-sharing", Ignored(&["true", "false"], "addresses can always be used again at once")),
    boolean("permit-port-sharing", Only(&["false"], "the port is this server's alone")),
    flag("tls-sni-cert-key", Refused("certificates by host name are not supported")),
    // Audit.
    flag("audit-log-batch-buffer-size", Ignored(&[], AUDIT_DETAIL)),
    flag("audit-log-batch-max-size", Ignored(&[], AUDIT_DETAIL)),
    flag("audit-log-batch-max-wait", Ignored(&[], AUDIT_DETAIL)),
    flag("audit-log-batch-throttle-burst", Ignored(&[], AUDIT_DETAIL)),
    boolean("audit-log-batch-throttle-enable", Ignored(&[], AUDIT_DETAIL)),
    flag("audit-log-batch-throttle-qps", Ignored(&[], AUDIT_DETAIL)),
    boolean("audit-log-compress", Ignored(&[], AUDIT_DETAIL)),
    flag("audit-log-format", Ignored(&[], AUDIT_DETAIL)),
    flag("audit-log-maxage", Ignored(&[], AUDIT_DETAIL)),
    flag("audit-log-maxbackup", Ignored(&[], AUDIT_DETAIL)),
    flag("audit-log-maxsize", Ignored(&[], AUDIT_DETAIL)),
    flag("audit-log-mode", Ignored(&[], AUDIT_DETAIL)),
    flag("audit-log-path", Refused(NO_AUDIT)),
    boolean("audit-log-truncate-enabled", Ignored(&[], AUDIT_DETAIL)),
    flag("audit-log-truncate-max-batch-size", Ignored(&[], AUDIT_DETAIL)),
    flag("audit-log-truncate-max-event-size", Ignored(&[], AUDIT_DETAIL)),
    flag("audit-log-version", Ignored(&[], AUDIT_DETAIL)),
    flag("audit-policy-file", Refused(NO_AUDIT)),
    flag("audit-webhook-batch-buffer-size", Ignored(&[], AUDIT_DETAIL)),
    flag("audit-webhook-batch-max-size", Ignored(&[], AUDIT_DETAIL)),
    flag("audit-webhook-batch-max-wait", Ignored(&[], AUDIT_DETAIL)),
    flag("audit-webhook-batch-throttle-burst", Ignored(&[], AUDIT_DETAIL)),
    boolean("audit-webhook-batch-throttle-enable", Ignored(&[], AUDIT_DETAIL)),
    flag("audit-webhook-batch-throttle-qps", Ignored(&[], AUDIT_DETAIL)),
    flag("audit-webhook-config-file", Refused(NO_AUDIT)),
    flag("audit-webhook-initial-backoff", Ignored(&[], AUDIT_DETAIL)),
    flag("audit-webhook-mode", Ignored(&[], AUDIT_DETAIL)),
    boolean("audit-webhook-truncate-enabled", Ignored(&[], AUDIT_DETAIL)),
    flag("audit-webhook-truncate-max-batch-size", Ignored(&[], AUDIT_DETAIL)),
    flag("audit-webhook-truncate-max-event-size", Ignored(&[], AUDIT_DETAIL)),
    flag("audit-webhook-version", Ignored(&[], AUDIT_DETAIL)),
    // Features.
    boolean("contention-profiling", Ignored(&["false"], NO_PROFILES)),
    flag("debug-socket-path", Refused("there is no socket for profiles")),
    boolean("enable-priority-and-fairness", Only(&["true"], "requests are always queued by priority and fairness")),
    boolean("profiling", Ignored(&["false"], NO_PROFILES)),
    // Authentication.
    flag("authentication-config", Refused(NO_OIDC)),
    flag("authentication-token-webhook-cache-ttl", Ignored(&[], NO_WEBHOOK_DETAIL)),
    flag("authentication-token-webhook-config-file", Refused(NO_TOKEN_WEBHOOK)),
    flag("authentication-token-webhook-version", Ignored(&[], NO_WEBHOOK_DETAIL)),
    flag("oidc-ca-file", Refused(NO_OIDC)),
    flag("oidc-client-id", Refused(NO_OIDC)),
    flag("oidc-groups-claim", Refused(NO_OIDC)),
    flag("oidc-groups-prefix", Refused(NO_OIDC)),
    flag("oidc-issuer-url", Refused(NO_OIDC)),
    flag("oidc-required-claim", Refused(NO_OIDC)),
    flag("oidc-signing-algs", Refused(NO_OIDC)),
    flag("oidc-username-claim", Refused(NO_OIDC)),
    flag("oidc-username-prefix", Refused(NO_OIDC)),
    boolean("service-account-lookup", Only(&["true"], "a token is always refused when its account is gone")),
    // Authorization.
    flag("authorization-config", Refused("the authorizers are those of --authorization-mode")),
    flag("authorization-policy-file", Refused("mode ABAC is not supported")),
    flag("authorization-webhook-cache-authorized-ttl", Ignored(&[], NO_WEBHOOK_DETAIL)),
    flag("authorization-webhook-cache-unauthorized-ttl", Ignored(&[], NO_WEBHOOK_DETAIL)),
    flag("authorization-webhook-config-file", Refused(NO_ACCESS_WEBHOOK)),
    flag("authorization-webhook-version", Ignored(&[], NO_WEBHOOK_DETAIL)),
    // Egress and admission.
    flag("egress-selector-config-file", Refused("connections are made directly")),
    flag("admission-control", Refused("use --enable-admission-plugins and --disable-admission-plugins")),
    flag("admission-control-config-file", Refused("admission plugins have their default configuration")),
    flag("default-not-ready-toleration-seconds", Only(&["300"], "pods tolerate nodes that are not ready for 300 s")),
    flag("default-unreachable-toleration-seconds", Only(&["300"], "pods tolerate unreachable nodes for 300 s")),
    // Misc.
    boolean("aggregator-reject-forwarding-redirect", Ignored(&["true"], NO_PEERS)),
    boolean("allow-privileged", Only(&["true"], "privileged containers are allowed")),
    flag("coordinated-leadership-lease-duration", Ignored(&[], NO_ELECTION)),
    flag("coordinated-leadership-renew-deadline", Ignored(&[], NO_ELECTION)),
    flag("coordinated-leadership-retry-period", Ignored(&[], NO_ELECTION)),
    boolean("enable-aggregator-routing", Ignored(&["false"], NO_PEERS)),
    boolean("enable-logs-handler", Only(&["false"], "nothing is served at /logs")),
    flag("endpoint-reconciler-type", Only(&["lease"], "servers share the endpoints of their service by leases")),
    flag("kubelet-timeout", Ignored(&["5s"], "kubelets have 5 s to answer a connection, upstream's default")),
    flag("kubernetes-service-node-port", Only(&["0"], "the service `kubernetes` has no node port")),
    flag("max-connection-bytes-per-sec", Only(&["0"], "sessions are not slowed down")),
    flag("peer-advertise-ip", Ignored(&[], NO_PEERS)),
    flag("peer-advertise-port", Ignored(&[], NO_PEERS)),
    flag("peer-ca-file", Ignored(&[], NO_PEERS)),
    flag("proxy-client-cert-file", Ignored(&[], NO_PEERS)),
    flag("proxy-client-key-file", Ignored(&[], NO_PEERS)),
    flag("service-account-signing-endpoint", Refused("tokens are signed by the key of a file")),
];

/// The values of [`FLAGS`] that were given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Foreign(Vec<(&'static str, String)>);

impl Args for Foreign {
    fn augment_args(command: Command) -> Command {
        command.args(FLAGS.iter().map(|flag| {
            let arg = Arg::new(flag.name).long(flag.name).hide(true).action(clap::ArgAction::Append);
            match flag.boolean {
                true => arg.num_args(0..=1).require_equals(true).default_missing_value("true").value_parser(
                    clap::builder::ValueParser::new(|text: &str| go::boolean(text).map(|value| value.to_string())),
                ),
                // Empty values are upstream's defaults, written out.
                false => arg.num_args(1).value_parser(clap::builder::ValueParser::string()),
            }
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Foreign {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let values = |flag: &'static ForeignFlag| {
            let given = matches.get_many::<String>(flag.name).into_iter().flatten();
            given.map(|value| (flag.name, value.clone())).collect::<Vec<_>>()
        };
        Ok(Foreign(FLAGS.iter().flat_map(values).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Foreign {
    /// Refuses what cannot be honoured; answers the warnings about what is ignored.
    pub(crate) fn check(&self) -> Result<Vec<String>> {
        let mut warnings = Vec::new();
        for (name, value) in &self.0 {
            let Some(flag) = FLAGS.iter().find(|flag| flag.name == *name) else { continue };
            match flag.verdict {
                Only(values, _) if values.contains(&value.as_str()) => {}
                Only(_, why) => bail!("--{name}={value} is not supported: {why}"),
                Ignored(values, _) if values.contains(&value.as_str()) => {}
                Ignored(_, why) => {
                    let warning = format!("--{name} is ignored: {why}");
                    if !warnings.contains(&warning) {
                        warnings.push(warning);
                    }
                }
                Refused(why) => bail!("--{name} is not supported: {why}"),
            }
        }
        Ok(warnings)
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::args::{Cli, Command};

    /// What `kube-apiserver --help` of v1.36.4 lists, one name a line.
    const UPSTREAM: &str = include_str!("kube-apiserver-flags.txt");

    fn check(arguments: &[&str]) -> Result<Vec<String>, String> {
        let cli =
            Cli::try_parse_from(["bayplan", "apiserver"].iter().chain(arguments)).map_err(|error| error.to_string())?;
        let Command::Apiserver(args) = cli.command else { panic!("another command") };
        args.foreign.check().map_err(|error| error.to_string())
    }

    #[test]
    fn every_flag_of_kube_apiserver_is_known_and_every_one_that_does_nothing_is_upstreams() {
        let command = Cli::command();
        let command = command.find_subcommand("apiserver").unwrap();
        let known: Vec<&str> = command.get_arguments().filter_map(|arg| arg.get_long()).collect();
        let upstream: Vec<&str> = UPSTREAM.lines().collect();
        assert!(upstream.len() > 150, "{}", upstream.len());
        let unknown: Vec<_> = upstream.iter().filter(|name| !known.contains(name) && **name != "help").collect();
        assert!(unknown.is_empty(), "{unknown:?}");
        let invented: Vec<_> = FLAGS.iter().map(|flag| flag.name).filter(|name| !upstream.contains(name)).collect();
        assert!(invented.is_empty(), "{invented:?}");
    }

    #[test]
    fn the_guide_names_every_flag_that_is_refused_or_ignored() {
        let guide = include_str!("../../../../docs/guide/kube-apiserver.md");
        for flag in FLAGS {
            // Families of flags are named by their beginning.
            let family = ["audit-", "oidc-", "coordinated-leadership-", "peer-"];
            let name = family.iter().find(|family| flag.name.starts_with(**family)).unwrap_or(&flag.name);
            assert!(guide.contains(&format!("--{name}")), "{}", flag.name);
        }
    }

    #[test]
    fn flags_are_taken_ignored_or_refused_by_name() {
        for (arguments, expected) in [
            (&["--allow-privileged=true", "--storage-backend=etcd3"][..], Ok("")),
            (&["--allow-privileged"], Ok("")),
            (&["--profiling=false", "--endpoint-reconciler-type", "lease"], Ok("")),
            (&["--goaway-chance=0.001"], Ok("--goaway-chance is ignored: a client stays with this server")),
            (
                &["--allow-privileged=false"],
                Err("--allow-privileged=false is not supported: privileged containers are"),
            ),
            (&["--oidc-issuer-url=https://x"], Err("--oidc-issuer-url is not supported: OpenID Connect")),
            (&["--authentication-config=x"], Err("--authentication-config is not supported")),
            (&["--authorization-webhook-config-file=x"], Err("not reviewed by webhooks")),
            (&["--audit-policy-file=x"], Err("--audit-policy-file is not supported: no audit log is written")),
            (&["--endpoint-reconciler-type=none"], Err("--endpoint-reconciler-type=none is not supported")),
            (&["--watch-cache=maybe"], Err("neither true nor false")),
            (&["--authorization-mode=ABAC"], Err("mode ABAC is not supported")),
            (&["--service-cluster-ip-range=10.0.0.0/16,10.1.0.0/16"], Err("is not a service range")),
            (&["--nonsense"], Err("unexpected argument '--nonsense'")),
        ] {
            match (check(arguments), expected) {
                (Ok(warnings), Ok(expected)) => {
                    assert!(warnings.join("\n").contains(expected) && warnings.is_empty() == expected.is_empty())
                }
                (Err(error), Err(expected)) => assert!(error.contains(expected), "{arguments:?}: {error}"),
                (found, _) => panic!("{arguments:?}: {found:?}"),
            }
        }
    }
}
