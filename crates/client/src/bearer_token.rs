//! A bearer token that is replaced while clients use it.

use std::sync::{Arc, PoisonError, RwLock};

use http::HeaderValue;
use tokio::sync::Notify;

use crate::config::Error;

/// The token; clones share it. Requests are sent without one until there is one.
#[derive(Clone, Default)]
pub struct BearerToken(Arc<Shared>);

#[derive(Default)]
struct Shared {
    header: RwLock<Option<HeaderValue>>,
    refused: Notify,
}

/// The header that carries a token.
pub(crate) fn header(token: &str) -> Result<HeaderValue, Error> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| Error::Header("the token"))?;
    value.set_sensitive(true);
    Ok(value)
}

impl BearerToken {
    /// Requests from now on carry this token.
    pub fn set(&self, token: &str) -> Result<(), Error> {
        let header = header(token)?;
        *self.0.header.write().unwrap_or_else(PoisonError::into_inner) = Some(header);
        Ok(())
    }

    /// Waits until a server refuses the token.
    pub async fn refused(&self) {
        self.0.refused.notified().await;
    }

    pub(crate) fn refuse(&self) {
        self.0.refused.notify_one();
    }

    pub(crate) fn header(&self) -> Option<HeaderValue> {
        self.0.header.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_the_token_and_its_text_is_no_secret_in_logs() {
        let token = BearerToken::default();
        let clone = token.clone();
        assert_eq!(clone.header(), None);
        token.set("one").unwrap();
        token.set("two").unwrap();
        let header = clone.header().unwrap();
        assert_eq!((header.to_str().unwrap(), header.is_sensitive()), ("Bearer two", true));
        assert!(token.set("a\nb").is_err());
    }
}
