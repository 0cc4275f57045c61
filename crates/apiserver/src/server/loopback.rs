//! The server as its own client: what it writes this way takes the path of every other request.

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http::header::CONTENT_TYPE;
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use serde_json::Value;

use super::{Shared, handler};
use crate::authn::Peer;
use crate::user::User;

/// Requests as `system:apiserver`, who may do everything.
#[derive(Clone)]
pub(super) struct Loopback {
    shared: Arc<Shared>,
    peer: Arc<Peer>,
}

/// A request that failed.
#[derive(Debug, thiserror::Error)]
#[error("{code}: {message}")]
pub(super) struct Failure {
    /// The code of the response.
    pub(super) code: u16,
    message: String,
}

impl Loopback {
    pub(super) fn new(shared: Arc<Shared>) -> Loopback {
        let peer = Arc::new(Peer::Caller(User::new("system:apiserver", ["system:masters"])));
        Loopback { shared, peer }
    }

    /// The time by the server's clock.
    pub(super) fn now(&self) -> Timestamp {
        self.shared.registry.now()
    }

    /// Sends a request; answers the object of its response.
    pub(super) async fn send(
        &self,
        method: &str,
        path: &str,
        content_type: &'static str,
        body: &Value,
    ) -> Result<Value, Failure> {
        let request = Request::builder().method(method).uri(path).header(CONTENT_TYPE, content_type);
        let request = request.body(Full::new(Bytes::from(body.to_string())));
        let request = request.map_err(|error| Failure { code: 400, message: error.to_string() })?;
        let response = handler::handle(self.shared.clone(), Some(self.peer.clone()), request).await;
        let code = response.status().as_u16();
        let succeeded = response.status().is_success();
        let Ok(body) = response.into_body().collect().await;
        let body = body.to_bytes();
        let value: Value = serde_json::from_slice(&body).unwrap_or_default();
        if succeeded {
            return Ok(value);
        }
        let message = value["message"].as_str().map(str::to_owned);
        Err(Failure { code, message: message.unwrap_or_else(|| String::from_utf8_lossy(&body).into_owned()) })
    }
}
