//! Logs what a reconcile asks of the API server: writes at level debug, reads at level trace.

use bayplan_model::api::{Api, Request, Verb, decode};
use bayplan_model::meta::PartialObjectMetadata;
use bayplan_model::status::Status;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;

/// Whether calls are logged at all.
pub(super) fn is_enabled() -> bool {
    tracing::enabled!(tracing::Level::DEBUG)
}

/// The API server of one reconcile, with its calls logged. Used only while [`is_enabled`].
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
                tracing::debug!(controller, key, verb, resource, namespace, name, %error, "write refused");
            }
            Ok(_) => tracing::trace!(controller, key, verb, resource, namespace, name, "read"),
            Err(error) => tracing::trace!(controller, key, verb, resource, namespace, name, %error, "read refused"),
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
    use bayplan_testkit::{FakeApi, refused};
    use serde_json::json;

    use super::*;

    const PODS: Resource = Resource::new("", "v1", "pods");

    /// The lines that these calls log at a level.
    fn logged(level: tracing::Level, calls: Vec<Request>) -> Vec<String> {
        let server = FakeApi::new(|request| match &request.verb {
            Verb::Create(_) => Ok(json!({"metadata": {"name": "web-x7k2p"}})),
            Verb::Delete(_) => refused(404),
            _ => Ok(json!({})),
        });
        bayplan_testkit::logged(level, || {
            let api = LoggedApi { api: &server, controller: "replicaset-controller", key: "ns/web" };
            for call in calls {
                let _ = api.call(call).now_or_never().expect("the fake server answers at once");
            }
        })
    }

    #[test]
    fn writes_are_logged_with_their_result_and_reads_at_level_trace_only() {
        let calls = || {
            vec![
                Request::object(&PODS, "ns", "a", Verb::Get),
                Request::collection(&PODS, "ns", Verb::Create(Bytes::new())),
                Request::object(&PODS, "ns", "a", Verb::Delete(DeleteOptions::default())),
            ]
        };
        let of = r#"controller="replicaset-controller" key="ns/web""#;
        let on = |verb: &str, name: &str| format!(r#"{of} verb="{verb}" resource="pods" namespace="ns" name="{name}""#);
        let writes = [
            format!("DEBUG write {}", on("create", "web-x7k2p")),
            format!("DEBUG write refused {} error=refused with 404", on("delete", "a")),
        ];
        let read = format!("TRACE read {}", on("get", "a"));
        assert_eq!(logged(tracing::Level::DEBUG, calls()), writes);
        assert_eq!(logged(tracing::Level::TRACE, calls()), [read, writes[0].clone(), writes[1].clone()]);
        assert_eq!(logged(tracing::Level::INFO, calls()), [""; 0]);
    }

    #[test]
    fn a_call_on_a_subresource_names_it() {
        let evict = Request::object(&PODS, "ns", "a", Verb::Create(Bytes::new())).subresource("eviction");
        assert_eq!((Call::of(&evict).verb, Call::of(&evict).resource.as_str()), ("create", "pods/eviction"));
    }
}
