//! A server in memory and a client in the same process.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

pub mod objects;
pub mod places;

use std::sync::Arc;

use bayplan_apiserver::certificates::{Names, Pki};
use bayplan_apiserver::{AdmissionPlugins, ApiServer, Config, InProcess, ResponseBody, User};
use bayplan_store::{LogStore, Store};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;

pub struct Cluster {
    pub server: ApiServer,
    pub store: Arc<dyn Store>,
    pub admin: Client,
}

#[derive(Clone)]
pub struct Client(InProcess);

/// A new server, and a client that may do everything.
pub async fn cluster() -> Cluster {
    over(Arc::new(LogStore::in_memory().unwrap())).await
}

/// A server over a store that may have been used before.
pub async fn over(store: Arc<dyn Store>) -> Cluster {
    let names = Names::standard(None, "10.0.0.1".parse().unwrap());
    let pki = Pki::in_memory(&names, jiff::Timestamp::now()).unwrap();
    let mut config = Config::new(pki.service_account_key.clone(), "127.0.0.1:6443".parse().unwrap());
    config.plugins = AdmissionPlugins { service_account: false, ..AdmissionPlugins::default() };
    let server = ApiServer::new(config, store.clone()).await.unwrap();
    let admin = Client(server.service(User::new("admin", ["system:masters"])));
    Cluster { server, store, admin }
}

impl Cluster {
    pub fn client(&self, user: &str) -> Client {
        Client(self.server.service(User::new(user, Vec::<String>::new())))
    }
}

impl Client {
    pub fn of(service: InProcess) -> Client {
        Client(service)
    }

    pub async fn send(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: impl Into<Bytes>,
    ) -> Response<ResponseBody> {
        let mut request = Request::builder().method(method).uri(path);
        if !content_type.is_empty() {
            request = request.header("Content-Type", content_type);
        }
        self.call(request.body(Full::new(body.into())).unwrap()).await
    }

    pub async fn call(&self, request: Request<Full<Bytes>>) -> Response<ResponseBody> {
        self.0.clone().oneshot(request).await.unwrap()
    }

    /// Sends JSON; answers the code and the JSON of the response.
    pub async fn json(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        read(self.send(method, path, "application/json", body).await).await
    }

    pub async fn get(&self, path: &str) -> (u16, Value) {
        self.json("GET", path, Value::Null).await
    }

    pub async fn patch(&self, path: &str, kind: &str, body: Value) -> (u16, Value) {
        let content_type = match kind {
            "json" => "application/json-patch+json",
            "merge" => "application/merge-patch+json",
            _ => "application/strategic-merge-patch+json",
        };
        read(self.send("PATCH", path, content_type, body.to_string()).await).await
    }

    /// Creates and expects success.
    pub async fn create(&self, path: &str, body: Value) -> Value {
        let (code, created) = self.json("POST", path, body).await;
        assert_eq!(code, 201, "{created}");
        created
    }

    pub async fn watch(&self, path: &str) -> Watch {
        let response = self.send("GET", path, "", Bytes::new()).await;
        assert_eq!(response.status(), 200);
        Watch { body: response.into_body(), rest: Vec::new() }
    }
}

pub async fn read(response: Response<ResponseBody>) -> (u16, Value) {
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let value = serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes)));
    (code, value)
}

/// The code and the bytes of a response.
pub async fn bytes(response: Response<ResponseBody>) -> (u16, Bytes) {
    let code = response.status().as_u16();
    (code, response.into_body().collect().await.unwrap().to_bytes())
}

/// The lines of a watch.
pub struct Watch {
    body: ResponseBody,
    rest: Vec<u8>,
}

impl Watch {
    pub fn of(body: ResponseBody) -> Watch {
        Watch { body, rest: Vec::new() }
    }

    /// The next event; `None` if the server closed the stream.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = self.body.frame().await?.unwrap();
            self.rest.extend_from_slice(&frame.into_data().unwrap());
        }
    }

    /// Type and name of the next event.
    pub async fn event(&mut self) -> (String, String) {
        let event = self.next().await.expect("the stream goes on");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&event["type"]), text(&event["object"]["metadata"]["name"]))
    }
}

pub fn config_map(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}, "data": {"k": "v"}})
}

pub fn pod(name: &str, node: &str) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "nginx"}]},
    });
    if !node.is_empty() {
        pod["spec"]["nodeName"] = json!(node);
    }
    pod
}
