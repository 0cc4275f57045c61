//! Continue tokens: where the next page of a list starts, and at which revision.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bayplan_model::status::Status;
use bayplan_store::Revision;
use serde::{Deserialize, Serialize};

use crate::status_errors::bad_request;

/// The content of a continue token, in upstream's JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Continuation {
    v: String,
    /// The revision of the first page; -1 reads the newest state.
    rv: i64,
    /// The first key of the next page, relative to the list's prefix.
    start: String,
}

const VERSION: &str = "meta.k8s.io/v1";

impl Continuation {
    /// The token of the page after `last`, a key relative to the prefix.
    pub(super) fn after(last: &str, revision: Revision) -> Continuation {
        Continuation { v: VERSION.to_owned(), rv: i64::try_from(revision).unwrap_or(-1), start: format!("{last}\0") }
    }

    /// The same position in the newest state.
    pub(super) fn inconsistent(mut self) -> Continuation {
        self.rv = -1;
        self
    }

    /// The revision to read at, `None` for the newest.
    pub(super) fn revision(&self) -> Option<Revision> {
        Revision::try_from(self.rv).ok()
    }

    /// The first key of the next page, relative to the prefix.
    pub(super) fn start(&self) -> &str {
        &self.start
    }

    /// Reads a token.
    pub(super) fn decode(token: &str) -> Result<Continuation, Status> {
        let invalid = |why: String| bad_request(format!("invalid continue token: continue key is not valid: {why}"));
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|e| {
            let at = match e {
                base64::DecodeError::InvalidByte(at, _) => at,
                _ => token.len() - token.len() % 4,
            };
            invalid(format!("illegal base64 data at input byte {at}"))
        })?;
        let token: Continuation = serde_json::from_slice(&bytes).map_err(|e| invalid(e.to_string()))?;
        if token.v != VERSION {
            return Err(invalid(format!("server does not recognize this encoded version {:?}", token.v)));
        }
        if token.rv == 0 {
            return Err(invalid("incorrect encoded start resourceVersion (version meta.k8s.io/v1)".to_owned()));
        }
        if token.start.is_empty() {
            return Err(invalid("encoded start key empty (version meta.k8s.io/v1)".to_owned()));
        }
        if token.start.split('/').any(|part| part == "..") {
            return Err(invalid(format!("unsafe path: {:?}", token.start)));
        }
        Ok(token)
    }

    /// Writes a token.
    pub(super) fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).expect("two strings and a number have a JSON form"))
    }
}
