//! A request, as the network sees it.

use bayplan_client::Body;
use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};

use crate::points::Sort;

/// A request.
pub(crate) struct Sent {
    parts: Parts,
    pub(crate) body: Bytes,
    pub(crate) path: String,
    pub(crate) sorts: Vec<Sort>,
}

impl Sent {
    pub(crate) async fn of(request: Request<Body>) -> Sent {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let (path, query) = (parts.uri.path().to_owned(), parts.uri.query().unwrap_or_default());
        let mut sorts = vec![Sort::Any];
        let segments = path.split('/').count();
        let is_get = parts.method == Method::GET;
        if !is_get {
            sorts.push(Sort::Write);
        }
        if parts.method == Method::PUT || parts.method == Method::PATCH {
            sorts.push(Sort::Change);
        }
        let watches = query.contains("watch=true");
        if watches {
            sorts.push(Sort::Watch);
        }
        if query.contains("sendInitialEvents=true") {
            sorts.push(Sort::Stream);
        }
        if is_get && segments <= 2 {
            sorts.push(Sort::Discovery);
        }
        if is_get && !watches && segments > 2 && !path.contains("/namespaces/") {
            sorts.push(Sort::List);
        }
        Sent { parts, body, path, sorts }
    }

    pub(crate) fn is(&self, sort: Sort) -> bool {
        self.sorts.contains(&sort)
    }

    /// The request, to be sent.
    pub(crate) fn request(&self) -> Request<Full<Bytes>> {
        Request::from_parts(self.parts.clone(), Full::new(self.body.clone()))
    }

    /// The value of a parameter of the query.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        let pairs = self.parts.uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(|(key, _)| *key == name).map(|(_, value)| value).next()
    }

    /// What is asked, for people.
    pub(crate) fn text(&self) -> String {
        let verb = if self.is(Sort::Watch) { "WATCH" } else { self.parts.method.as_str() };
        format!("{verb} {}", self.path)
    }
}
