//! The service accounts that loops act as, for upstream's `--use-service-account-credentials`: one for each, with no
//! more rights than it needs.
//!
//! ```text
//!   the process's client ─▶ service account, token for an hour ─▶ BearerToken ◀─ the loop's client
//!                              ▲ after 80 % of its time, or when it is refused
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use bayplan_client::{BearerToken, Client, clock};
use bayplan_controllers::requests::{self, SERVICE_ACCOUNTS};
use bayplan_model::api::{Api, Request, Verb, decode, encode};
use bayplan_model::status::{Status, reason};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Where the accounts are.
const NAMESPACE: &str = "kube-system";

/// How long a token is asked for.
const TOKEN_SECONDS: i64 = 3600;

/// The part of its lifetime after which a token is replaced.
const LIFETIME_PART: f64 = 0.8;

/// A token lives at least so long: clocks may differ.
const LIFETIME_MIN: Duration = Duration::from_secs(600);

/// The delays between tries.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(10);

/// Upstream's account of each controller that has one.
const ACCOUNTS: &[(&str, &str)] = &[
    ("certificatesigningrequest-approving-controller", "certificate-controller"),
    ("certificatesigningrequest-cleaner-controller", "certificate-controller"),
    ("certificatesigningrequest-signing-controller", "certificate-controller"),
    ("clusterrole-aggregation-controller", "clusterrole-aggregation-controller"),
    ("cronjob-controller", "cronjob-controller"),
    ("daemonset-controller", "daemon-set-controller"),
    ("deployment-controller", "deployment-controller"),
    ("disruption-controller", "disruption-controller"),
    ("endpoints-controller", "endpoint-controller"),
    ("endpointslice-controller", "endpointslice-controller"),
    ("endpointslice-mirroring-controller", "endpointslicemirroring-controller"),
    ("ephemeral-volume-controller", "ephemeral-volume-controller"),
    ("garbage-collector-controller", "generic-garbage-collector"),
    ("horizontal-pod-autoscaler-controller", "horizontal-pod-autoscaler"),
    ("job-controller", "job-controller"),
    ("namespace-controller", "namespace-controller"),
    ("node-lifecycle-controller", "node-controller"),
    ("persistentvolume-attach-detach-controller", "attachdetach-controller"),
    ("persistentvolume-binder-controller", "persistent-volume-binder"),
    ("persistentvolume-expander-controller", "expand-controller"),
    ("persistentvolume-protection-controller", "pv-protection-controller"),
    ("persistentvolumeclaim-protection-controller", "pvc-protection-controller"),
    ("pod-garbage-collector-controller", "pod-garbage-collector"),
    ("replicaset-controller", "replicaset-controller"),
    ("replicationcontroller-controller", "replication-controller"),
    ("resourceclaim-controller", "resource-claim-controller"),
    ("resourcequota-controller", "resourcequota-controller"),
    ("root-ca-certificate-publisher-controller", "root-ca-cert-publisher"),
    ("service-cidr-controller", "service-cidrs-controller"),
    ("serviceaccount-controller", "service-account-controller"),
    ("statefulset-controller", "statefulset-controller"),
    ("taint-eviction-controller", "node-controller"),
    ("token-cleaner-controller", "token-cleaner"),
    ("ttl-after-finished-controller", "ttl-after-finished-controller"),
    ("ttl-controller", "ttl-controller"),
    ("volumeattributesclass-protection-controller", "volumeattributesclass-protection-controller"),
];

/// A connection without an identity, to which each loop brings its own.
#[derive(Clone)]
pub struct AnonymousClient(pub Client);

impl std::fmt::Debug for AnonymousClient {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("AnonymousClient")
    }
}

/// The accounts in use; their tokens are kept fresh until this is dropped.
pub(super) struct Accounts {
    own: Client,
    anonymous: Option<Client>,
    tokens: BTreeMap<&'static str, BearerToken>,
    keepers: JoinSet<()>,
}

impl Accounts {
    /// Without an anonymous connection, all loops act as the process.
    pub(super) fn new(own: Client, anonymous: Option<AnonymousClient>) -> Self {
        let anonymous = anonymous.map(|anonymous| anonymous.0.counted_with(&own));
        Accounts { own, anonymous, tokens: BTreeMap::new(), keepers: JoinSet::new() }
    }

    /// The client of a loop. Waits until there is a token for its account.
    pub(super) async fn client(&mut self, controller: &str) -> Client {
        let account = ACCOUNTS.iter().find(|(name, _)| *name == controller).map(|(_, account)| *account);
        let (Some(anonymous), Some(account)) = (&self.anonymous, account) else { return self.own.clone() };
        let user_agent = format!("kube-controller-manager/v{}/{account}", env!("CARGO_PKG_VERSION"));
        // Names of accounts are fit for headers.
        let client = anonymous.clone().with_user_agent(&user_agent).unwrap_or_else(|_| anonymous.clone());
        if let Some(token) = self.tokens.get(account) {
            return client.with_changing_token(token);
        }
        let token = BearerToken::default();
        let lifetime = replace(&self.own, account, &token).await;
        self.keepers.spawn(keep_fresh(self.own.clone(), account, token.clone(), lifetime));
        self.tokens.insert(account, token.clone());
        client.with_changing_token(&token)
    }
}

/// Replaces the token before it expires, and when a server refuses it.
async fn keep_fresh(own: Client, account: &'static str, token: BearerToken, mut lifetime: Duration) {
    loop {
        tokio::select! {
            biased;
            () = tokio::time::sleep(lifetime.mul_f64(LIFETIME_PART)) => {}
            () = token.refused() => tokio::time::sleep(RETRY_MIN).await,
        }
        lifetime = replace(&own, account, &token).await;
    }
}

/// Gets a new token, however long that takes; how long it lives.
async fn replace(own: &Client, account: &str, token: &BearerToken) -> Duration {
    let mut delay = RETRY_MIN;
    loop {
        match request(own, account).await {
            Ok(answer) if token.set(&answer.token).is_ok() => {
                let left = Duration::try_from(answer.expiration_timestamp.duration_since(clock::now()));
                return left.unwrap_or_default().max(LIFETIME_MIN);
            }
            Ok(_) => tracing::warn!(account, "the token of the service account cannot be sent"),
            Err(status) => tracing::warn!(account, "no token for the service account: {status}"),
        }
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(RETRY_MAX);
    }
}

#[derive(Deserialize)]
struct TokenRequest {
    status: Token,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Token {
    token: String,
    expiration_timestamp: Timestamp,
}

/// Makes the account if it is not there, and asks for a token.
async fn request(own: &Client, account: &str) -> Result<Token, Status> {
    let read: Result<Value, Status> = requests::get(own, &SERVICE_ACCOUNTS, NAMESPACE, account).await;
    if read.is_err_and(|status| status.is(reason::NOT_FOUND)) {
        let body = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": NAMESPACE},
        });
        match requests::create::<_, Value>(own, &SERVICE_ACCOUNTS, NAMESPACE, &body).await {
            Err(status) if !status.is(reason::ALREADY_EXISTS) => return Err(status),
            _ => {}
        }
    }
    let body = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": TOKEN_SECONDS},
    });
    let request = Request::object(&SERVICE_ACCOUNTS, NAMESPACE, account, Verb::Create(encode(&body)));
    let answer: TokenRequest = decode(&own.call(request.subresource("token")).await?)?;
    Ok(answer.status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_loop_of_upstreams_that_writes_has_an_account() {
        let named: Vec<&str> = ACCOUNTS.iter().map(|(name, _)| *name).collect();
        let mut missing = super::super::known();
        missing.retain(|name| !named.contains(name));
        // Upstream's acts as the process, too.
        assert_eq!(missing, ["serviceaccount-token-controller"]);
        assert!(named.is_sorted(), "{named:?}");
    }
}
