//! DefaultBinder: binds a pod by a POST to its `binding` subresource.

use bayplan_model::api::{Request, Resource, Verb};
use futures::future::BoxFuture;
use serde_json::json;

use crate::framework::*;

pub(super) struct DefaultBinder;

const PODS: Resource = Resource::new("", "v1", "pods");

impl Plugin for DefaultBinder {
    type State = ();

    fn name(&self) -> PluginName {
        "DefaultBinder"
    }

    fn extension_points(&self) -> ExtensionPoints {
        ExtensionPoints::BIND
    }

    fn bind<'a>(&'a self, cx: BindContext<'a>, _state: &'a ()) -> BoxFuture<'a, Status> {
        Box::pin(async move {
            let meta = &cx.pod.metadata;
            let binding = json!({
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"namespace": meta.namespace, "name": meta.name, "uid": meta.uid},
                "target": {"kind": "Node", "name": cx.node},
            });
            let body = bayplan_model::api::encode(&binding);
            let request =
                Request::object(&PODS, &meta.namespace, &meta.name, Verb::Create(body)).subresource("binding");
            match cx.api.call(request).await {
                Ok(_) => Status::SUCCESS,
                Err(status) => Status::error(status.message),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use bayplan_model::status::{Status as ApiStatus, reason};
    use serde_json::json;

    use crate::plugins::testing::plugin;

    /// The request that binds a pod to node `node`.
    fn binding(namespace: &str, name: &str, uid: &str) -> String {
        let body = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "target": {"kind": "Node", "name": "node"},
        });
        format!("POST {namespace}/pods/{name}/binding {body}")
    }

    #[test]
    fn a_binding_names_the_pod_with_its_uid_and_the_node() {
        plugin("DefaultBinder").binds(
            None,
            &[
                ("a pod of the default namespace", "{uid: u1}", "", &[&binding("default", "pod", "u1"), "Success"]),
                (
                    "a pod of another namespace",
                    "{namespace: team, name: web, uid: u2}",
                    "",
                    &[&binding("team", "web", "u2"), "Success"],
                ),
            ],
        );
    }

    #[test]
    fn any_refusal_is_an_error_in_the_words_of_the_api_server() {
        let taken =
            r#"Operation cannot be fulfilled on pods/binding "pod": pod pod is already assigned to node "other""#;
        for (code, reason, message) in [
            (409, reason::CONFLICT, taken),
            (404, reason::NOT_FOUND, r#"pods "pod" not found"#),
            (500, reason::INTERNAL_ERROR, "etcdserver: request timed out"),
        ] {
            let refusal = ApiStatus::failure(code, reason, message);
            let expected = format!("Error: {message}");
            plugin("DefaultBinder").binds(
                Some(refusal),
                &[("no refusal is special", "{}", "", &[&binding("default", "pod", "pod"), &expected])],
            );
        }
    }
}
