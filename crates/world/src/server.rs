//! A server: the real API server over the store that this world has.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bayplan_apiserver::certificates::{Names, Pki};
use bayplan_apiserver::{AdmissionPlugins, ApiServer, Config, InProcess, User};
use bayplan_store::Store;
use jiff::Timestamp;

use crate::plan::Form;
use crate::shared::Shared;
use crate::signal::Signal;

/// An API server that runs.
pub(crate) struct Server {
    pub(crate) number: usize,
    api: ApiServer,
    /// Raised when it is killed.
    dead: Signal,
}

/// The same keys for all worlds: generating them takes longer than a run.
fn key() -> &'static str {
    static KEY: OnceLock<String> = OnceLock::new();
    KEY.get_or_init(|| {
        let hosts = Names::standard(None, [10, 96, 0, 1].into());
        Pki::in_memory(&hosts, Timestamp::UNIX_EPOCH).expect("keys can be generated").service_account_key
    })
}

impl Server {
    /// Starts a server; the error says why it cannot.
    pub(crate) async fn start(shared: &Arc<Shared>, number: usize, store: Arc<dyn Store>) -> Result<Server, String> {
        let address = ([10, 0, 1, 10 + number as u8], 6443);
        let mut config = Config::new(key(), address.into());
        config.plugins = AdmissionPlugins { service_account: false, ..AdmissionPlugins::default() };
        config.bootstrap.shared_store = shared.plan.form == Form::Etcd;
        // Short, so that runs come to the end of it.
        config.event_lifetime = Duration::from_secs(120);
        let clock = shared.clone();
        config.clock = Arc::new(move || clock.server_wall());
        let api = ApiServer::new(config, store).await.map_err(|error| {
            let mut text = error.to_string();
            let mut source = std::error::Error::source(&error);
            while let Some(cause) = source {
                text = format!("{text}: {cause}");
                source = cause.source();
            }
            text
        })?;
        Ok(Server { number, api, dead: Signal::default() })
    }

    /// The request path, as somebody who may do everything.
    pub(crate) fn service(&self, user: &str) -> InProcess {
        self.api.service(User::new(user, ["system:masters"]))
    }

    /// Stops the server: requests that it is serving get no answer.
    pub(crate) async fn kill(&self) {
        self.dead.raise();
        self.api.shutdown().await;
    }

    /// Waits for the server's death.
    pub(crate) fn death(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut dead = self.dead.ever();
        async move { dead.raised().await }
    }
}
