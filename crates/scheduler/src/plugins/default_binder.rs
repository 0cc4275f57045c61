//! DefaultBinder: tells the API server where the pod goes.

use bayplan_model::api::{Request, Resource, Verb};
use futures::future::BoxFuture;
use serde_json::json;

use crate::framework::*;

/// Binds pods.
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
