//! The way to a server: straight to it, or through a proxy.

use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower::{BoxError, Service};

use crate::config::{Error, Protocol, Proxy};

/// What is between us and the server; TLS with the server runs inside of it.
type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// Opens connections to a server.
#[derive(Clone)]
pub(crate) struct Route {
    hop: Hop,
    /// How long the proxy may take, greeting included; for ever when absent.
    timeout: Option<Duration>,
}

#[derive(Clone)]
enum Hop {
    Direct(HttpConnector),
    Connect(Tunnel<HttpsConnector<HttpConnector>>),
    Socks5(SocksV5<HttpConnector>),
}

impl Route {
    /// Without a proxy. The connector has a limit of its own.
    pub(crate) fn direct(tcp: HttpConnector) -> Self {
        Route { hop: Hop::Direct(tcp), timeout: None }
    }

    /// Through a proxy; `tls` is how one of HTTPS is believed: as the server is, which is what Go does.
    pub(crate) fn through(
        proxy: &Proxy,
        tcp: HttpConnector,
        tls: rustls::ClientConfig,
        timeout: Option<Duration>,
    ) -> Result<Self, Error> {
        let address = proxy.address.clone();
        let hop = match proxy.protocol {
            Protocol::Connect => {
                let tls = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1();
                let tunnel = Tunnel::new(address, tls.wrap_connector(tcp));
                Hop::Connect(match proxy.authorization()? {
                    Some(authorization) => tunnel.with_auth(authorization),
                    None => tunnel,
                })
            }
            Protocol::Socks5 => {
                let socks = SocksV5::new(address, tcp);
                Hop::Socks5(match &proxy.user {
                    Some((name, password)) => socks.with_auth(name.clone(), password.clone()),
                    None => socks,
                })
            }
        };
        Ok(Route { hop, timeout })
    }
}

/// An error of the proxy, which is not one of the server.
fn of_proxy(error: impl Into<BoxError>) -> BoxError {
    format!("the proxy does not lead to the server: {}", error.into()).into()
}

impl Service<Uri> for Route {
    type Response = Stream;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Stream, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match &mut self.hop {
            Hop::Direct(tcp) => tcp.poll_ready(context).map_err(Into::into),
            Hop::Connect(tunnel) => tunnel.poll_ready(context).map_err(of_proxy),
            Hop::Socks5(socks) => socks.poll_ready(context).map_err(of_proxy),
        }
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let timeout = self.timeout;
        let connecting: Self::Future = match &mut self.hop {
            Hop::Direct(tcp) => {
                let connecting = tcp.call(server);
                return Box::pin(async move { Ok(MaybeHttpsStream::Http(connecting.await?)) });
            }
            Hop::Connect(tunnel) => {
                let connecting = tunnel.call(server);
                Box::pin(async move { connecting.await.map_err(of_proxy) })
            }
            Hop::Socks5(socks) => {
                let connecting = socks.call(server);
                Box::pin(async move { connecting.await.map(MaybeHttpsStream::Http).map_err(of_proxy) })
            }
        };
        Box::pin(async move {
            let Some(timeout) = timeout else { return connecting.await };
            let answered = tokio::time::timeout(timeout, connecting).await;
            answered.unwrap_or_else(|_| Err(of_proxy(format!("no answer within {timeout:?}"))))
        })
    }
}
