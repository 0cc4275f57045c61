//! Logs what a reconcile asks of the API server: writes at level debug, reads at level trace.

use bayplan_model::api::{Api, Request, Verb, decode};
use bayplan_model::meta::PartialObjectMetadata;
use bayplan_model::status::Status;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;

/// The API server of one reconcile, with its calls logged. Used only while level debug is enabled.
pub(super) struct LoggedApi<'a> {
    pub(super) api: &'a dyn Api,
    pub(super) controller: &'static str,
    pub(super) key: &'a str,
}

impl LoggedApi<'_> {
    fn log(&self, call: &Call, answer: &Result<Bytes, Status>) {
        let LoggedApi { controller, key, .. } = self;
        let Call { verb, is_write, resource, namespace, name } = call;
        let name = match (name.as_str(), answer) {
            // The server chose the name.
            ("", Ok(body)) if *is_write => &decode::<PartialObjectMetadata>(body).unwrap_or_default().metadata.name,
            _ => name,
        };
        match answer {
            Ok(_) if *is_write => tracing::debug!(controller, key, verb, resource, namespace, name, "write"),
            Err(error) if *is_write => {
                tracing::debug!(controller, key, verb, resource, namespace, name, code = error.code, %error, "write refused");
            }
            Ok(_) => tracing::trace!(controller, key, verb, resource, namespace, name, "read"),
            Err(error) => {
                tracing::trace!(controller, key, verb, resource, namespace, name, code = error.code, %error, "read refused");
            }
        }
    }
}

impl Api for LoggedApi<'_> {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Bytes, Status>> {
        let call = Call::of(&request);
        async move {
            let answer = self.api.call(request).await;
            self.log(&call, &answer);
            answer
        }
        .boxed()
    }
}

/// What of a request is logged.
#[derive(Debug, PartialEq)]
struct Call {
    /// Kubernetes' verb, as in audit logs and RBAC rules.
    verb: &'static str,
    is_write: bool,
    /// The plural name, with the subresource if there is one.
    resource: String,
    namespace: String,
    name: String,
}

impl Call {
    fn of(request: &Request) -> Self {
        let (verb, is_write) = match &request.verb {
            Verb::Get => ("get", false),
            Verb::List(_) => ("list", false),
            Verb::Create(_) => ("create", true),
            Verb::Update(_) => ("update", true),
            Verb::Patch(..) => ("patch", true),
            Verb::Delete(_) => ("delete", true),
            Verb::DeleteCollection(..) => ("deletecollection", true),
        };
        let mut resource = request.resource.plural.to_string();
        if let Some(subresource) = request.subresource {
            resource = format!("{resource}/{subresource}");
        }
        Call { verb, is_write, resource, namespace: request.namespace.clone(), name: request.name.clone() }
    }
}

#[cfg(test)]
mod tests {
    use bayplan_model::api::{DeleteOptions, Resource};

    use super::*;

    #[test]
    fn a_call_is_described_in_kubernetes_words() {
        let pods = Resource::new("", "v1", "pods");
        let delete = Request::object(&pods, "ns", "a", Verb::Delete(DeleteOptions::default()));
        let evict = Request::object(&pods, "ns", "a", Verb::Create(Bytes::new())).subresource("eviction");
        let call = |verb, is_write, resource: &str| Call {
            verb,
            is_write,
            resource: resource.into(),
            namespace: "ns".into(),
            name: "a".into(),
        };
        assert_eq!(Call::of(&delete), call("delete", true, "pods"));
        assert_eq!(Call::of(&evict), call("create", true, "pods/eviction"));
        assert_eq!(Call::of(&Request::object(&pods, "ns", "a", Verb::Get)), call("get", false, "pods"));
    }
}
