//! A server on loopback between a component and its API server: remembers what was asked, and can fail it.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bayplan_client::{Config, HttpClient};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

type Body = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// A request, and the code of its answer.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub(crate) method: Method,
    /// With its query.
    pub(crate) path: String,
    pub(crate) code: u16,
}

/// A request that is refused once instead of passed on: its method, what its path contains, and the answer's code.
pub(crate) struct Fault {
    pub(crate) method: Method,
    pub(crate) part: &'static str,
    pub(crate) code: u16,
}

#[derive(Default)]
struct Shared {
    asked: Mutex<Vec<Recorded>>,
    faults: Mutex<Vec<Fault>>,
}

/// Takes plain HTTP and speaks to the API server with the caller's token.
pub(crate) struct Recorder {
    url: String,
    shared: Arc<Shared>,
}

impl Recorder {
    /// Begins to record in front of a server.
    pub(crate) async fn start(server: &Config, faults: Vec<Fault>) -> Recorder {
        let mut bare = server.clone();
        // The token of the request alone says who asks.
        bare.tls.identity = None;
        let client = HttpClient::new(&bare).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared { faults: Mutex::new(faults), ..Shared::default() });
        let serving = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let (client, shared) = (client.clone(), Arc::clone(&serving));
                let service = service_fn(move |request| answer(client.clone(), Arc::clone(&shared), request));
                tokio::spawn(async move {
                    // A component that ends leaves its watches open.
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(connection), service)
                        .await;
                });
            }
        });
        Recorder { url, shared }
    }

    /// Itself, as a kubeconfig describes a cluster.
    pub(crate) fn cluster(&self) -> Value {
        json!({"server": self.url})
    }

    /// Everything that was asked so far.
    pub(crate) fn asked(&self) -> Vec<Recorded> {
        self.shared.asked.lock().unwrap().clone()
    }

    /// Whether such a request was answered with success.
    pub(crate) fn has_passed(&self, method: &Method, part: &str) -> bool {
        let asked = self.shared.asked.lock().unwrap();
        asked.iter().any(|asked| asked.method == method && asked.path.contains(part) && asked.code < 300)
    }

    /// The faults that nothing ran into.
    pub(crate) fn unmet(&self) -> Vec<&'static str> {
        self.shared.faults.lock().unwrap().iter().map(|fault| fault.part).collect()
    }
}

async fn answer(
    client: HttpClient,
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or_else(String::new, ToString::to_string);
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let response = match fault(&shared, &parts.method, &path) {
        Some(code) => refusal(code),
        None => pass_on(&client, parts.method.clone(), &path, parts.headers, body).await,
    };
    let code = response.status().as_u16();
    shared.asked.lock().unwrap().push(Recorded { method: parts.method, path, code });
    Ok(response)
}

/// The code of a fault that this request runs into, which is met by it.
fn fault(shared: &Shared, method: &Method, path: &str) -> Option<u16> {
    let mut faults = shared.faults.lock().unwrap();
    let met = faults.iter().position(|fault| fault.method == method && path.contains(fault.part))?;
    Some(faults.remove(met).code)
}

async fn pass_on(client: &HttpClient, method: Method, path: &str, headers: HeaderMap, body: Bytes) -> Response<Body> {
    let mut request = Request::builder().method(method).uri(path).body(body).unwrap();
    *request.headers_mut() = headers;
    for name in [header::HOST, header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING] {
        request.headers_mut().remove(name);
    }
    match client.send(request).await {
        Ok(mut response) => {
            for name in [header::CONNECTION, header::TRANSFER_ENCODING] {
                response.headers_mut().remove(name);
            }
            *response.version_mut() = http::Version::HTTP_11;
            response
        }
        Err(_away) => refusal(502),
    }
}

fn refusal(code: u16) -> Response<Body> {
    let reason = if code == 409 { "Conflict" } else { "InternalError" };
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": "failed by the test"});
    let body = Full::new(Bytes::from(status.to_string())).map_err(|never| match never {}).boxed_unsync();
    Response::builder().status(code).header(header::CONTENT_TYPE, "application/json").body(body).unwrap()
}
