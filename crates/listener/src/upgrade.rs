//! Connections that become something else than HTTP/1.1: WebSocket, for example.

use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;

use crate::table::{InFlight, State};
use crate::{RequestBody, ResponseBody};

/// The bytes of a connection after its upgrade.
pub type UpgradedStream = TokioIo<Upgraded>;

type Run = Box<dyn FnOnce(UpgradedStream) -> BoxFuture<'static, ()> + Send>;

/// What runs on a connection after a response with the code 101, as an extension of the response. The connection keeps
/// its place, and ends with what runs, with the server, or when its client does not read.
#[derive(Clone)]
pub struct Upgrade(Arc<Mutex<Option<Run>>>);

impl Upgrade {
    /// Runs this.
    pub fn new(run: impl FnOnce(UpgradedStream) -> BoxFuture<'static, ()> + Send + 'static) -> Upgrade {
        Upgrade(Arc::new(Mutex::new(Some(Box::new(run)))))
    }
}

/// What a connection becomes after its last response.
#[derive(Clone, Default)]
pub(crate) struct Becoming(Arc<Mutex<Option<Next>>>);

struct Next {
    upgraded: OnUpgrade,
    run: Run,
    /// A connection in use does not make room for others.
    _in_flight: InFlight,
}

impl Becoming {
    /// Takes note of a request that may be an upgrade.
    pub(crate) fn prepare(&self, request: &mut Request<RequestBody>) -> Prepared {
        let asked = request.headers().contains_key(http::header::UPGRADE);
        Prepared { becoming: self.clone(), upgraded: asked.then(|| hyper::upgrade::on(request)) }
    }

    /// Runs what the connection becomes, if it becomes anything.
    pub(crate) async fn run(&self) {
        let next = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(next) = next else { return };
        match next.upgraded.await {
            Ok(upgraded) => (next.run)(TokioIo::new(upgraded)).await,
            Err(error) => tracing::debug!(%error, "a connection was not upgraded"),
        }
    }
}

/// A request that may be an upgrade.
pub(crate) struct Prepared {
    becoming: Becoming,
    upgraded: Option<OnUpgrade>,
}

impl Prepared {
    /// Keeps what the response says that the connection becomes.
    pub(crate) fn when_accepted(self, response: &mut Response<ResponseBody>, state: &Arc<State>) {
        let Some(Upgrade(run)) = response.extensions_mut().remove::<Upgrade>() else { return };
        let run = run.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(upgraded), Some(run), StatusCode::SWITCHING_PROTOCOLS) = (self.upgraded, run, response.status()) {
            let next = Next { upgraded, run, _in_flight: state.begin() };
            *self.becoming.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(next);
        }
    }
}
