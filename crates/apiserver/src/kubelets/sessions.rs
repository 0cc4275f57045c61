//! Sessions: exec, attach and port-forward. No container runs on a simulated node, and a session says so on the channel
//! of errors, which kubectl prints. A port-forward is refused before it begins: its client would wait for connections.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bayplan_kinds::Kind;
use bayplan_listener::ResponseBody;
use bayplan_model::status::{Status, reason};
use bytes::Bytes;
use http::Response;
use http::header::{HeaderName, HeaderValue};

use super::{check_simulated, containers, spdy, text};
use crate::server::RequestContext;
use crate::status_errors::{self, bad_request};
use crate::websocket::{self, Socket};

/// How long a session may last: it says one thing.
const SESSION_MAX: Duration = Duration::from_secs(10);

/// The subprotocols of WebSocket. The older ones have text on the channel of errors, the newer ones a `Status`.
const WEBSOCKET: [&str; 5] =
    ["v5.channel.k8s.io", "v4.channel.k8s.io", "v4.base64.channel.k8s.io", "channel.k8s.io", "base64.channel.k8s.io"];
/// Those of SPDY.
const SPDY: [&str; 4] = ["v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"];
const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");

/// The channels of a session over WebSocket.
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;

/// Answers a request for a session.
pub(super) async fn answer(
    context: &RequestContext<'_>,
    resource: &'static Kind,
) -> Result<Response<ResponseBody>, Status> {
    let (name, what, query) = (context.info.name.as_str(), context.info.subresource.as_str(), context.query);
    let pod = super::pod(context, resource, name).await?;
    if what != "portforward" {
        containers::chosen(&pod, query.get("container").unwrap_or_default())?;
    }
    let node = text(&pod["spec"], "nodeName");
    if node.is_empty() {
        return Err(bad_request(format!("pod {name} does not have a host assigned")));
    }
    check_simulated(context, node).await?;
    let Some(upgrade) = websocket::upgrade_of(context.headers) else {
        return Err(bad_request("Upgrade request required"));
    };
    let status = no_container(name, node, what);
    if what == "portforward" {
        return Err(status);
    }
    let Some(held) = context.shared.usage.stream(&context.user.name) else {
        return Err(status_errors::too_many_requests("too many streams are open, please try again later", 1));
    };
    let flag = |name: &str| query.flag(name);
    let session =
        Session { status, stdin: flag("stdin"), stdout: flag("stdout"), stderr: flag("stderr"), tty: flag("tty") };
    if upgrade.eq_ignore_ascii_case("websocket") {
        let protocol = chosen(websocket::protocols(context.headers), &WEBSOCKET, "")?;
        return websocket::switch(context.headers, protocol, move |socket| {
            Box::pin(async move {
                let _held = held;
                let _ = tokio::time::timeout(SESSION_MAX, session.over_websocket(socket, protocol)).await;
            })
        });
    }
    if !upgrade.eq_ignore_ascii_case("spdy/3.1") {
        return Err(bad_request("Upgrade request required"));
    }
    let protocol = chosen(websocket::tokens(context.headers, &STREAM_PROTOCOL), &SPDY, "channel.k8s.io")?;
    let mut response = websocket::switching("SPDY/3.1", move |stream| {
        Box::pin(async move {
            let _held = held;
            let wanted = session.wanted();
            let said = spdy::say(stream, &wanted, session.error(protocol));
            if let Ok(Err(error)) = tokio::time::timeout(SESSION_MAX, said).await {
                tracing::debug!(%error, "a session ended early");
            }
        })
    });
    response.headers_mut().insert(STREAM_PROTOCOL, HeaderValue::from_static(protocol));
    Ok(response)
}

/// The first of the offered protocols that is accepted, or a default if none is offered.
fn chosen<'a>(
    offered: impl Iterator<Item = &'a str>,
    accepted: &[&'static str],
    default: &'static str,
) -> Result<&'static str, Status> {
    let offered: Vec<&str> = offered.collect();
    if offered.is_empty() {
        return Ok(default);
    }
    let found = offered.iter().find_map(|offered| accepted.iter().find(|accepted| *accepted == offered));
    found.copied().ok_or_else(|| {
        let (offered, accepted) = (offered.join(" "), accepted.join(" "));
        let message = format!("unable to negotiate protocol: client supports [{offered}], server accepts [{accepted}]");
        Status::failure(403, reason::FORBIDDEN, message)
    })
}

/// Says what a session is about.
fn no_container(pod: &str, node: &str, what: &str) -> Status {
    let impossible = match what {
        "exec" => "no command can be executed in it",
        "attach" => "there is nothing to attach to",
        _ => "there is no port to forward to",
    };
    let message = format!("pod {pod} is on the simulated node {node}: none of its containers runs, so {impossible}");
    Status::failure(501, "", message)
}

/// What a session says, and the channels that its client wants.
struct Session {
    status: Status,
    stdin: bool,
    stdout: bool,
    stderr: bool,
    tty: bool,
}

impl Session {
    /// What stands on the channel of errors.
    fn error(&self, protocol: &str) -> Vec<u8> {
        if protocol.starts_with("v5.") || protocol.starts_with("v4.") {
            serde_json::to_vec(&self.status).expect("a Status has a JSON form")
        } else {
            self.status.message.clone().into_bytes()
        }
    }

    /// The streams that a client opens over SPDY.
    fn wanted(&self) -> Vec<&'static str> {
        let given = [
            ("error", true),
            ("stdin", self.stdin),
            ("stdout", self.stdout),
            ("stderr", self.stderr && !self.tty),
            ("resize", self.tty),
        ];
        given.into_iter().filter(|(_, wanted)| *wanted).map(|(name, _)| name).collect()
    }

    async fn over_websocket(self, mut socket: Socket, protocol: &str) {
        let first = match (self.stdout, self.stderr) {
            (true, _) => STDOUT,
            (false, true) => STDERR,
            (false, false) => ERROR,
        };
        // An empty message says that the session has begun, as a kubelet's.
        for (channel, text) in [(first, Vec::new()), (ERROR, self.error(protocol))] {
            let sent = if protocol.contains("base64.") {
                socket.text(format!("{channel}{}", STANDARD.encode(text))).await
            } else {
                socket.binary(Bytes::from([&[channel], &*text].concat())).await
            };
            if !sent {
                return;
            }
        }
        socket.close().await;
        socket.closed().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_protocol_that_is_accepted_wins() {
        let offered = ["v9", "v4.channel.k8s.io", "channel.k8s.io"];
        assert_eq!(chosen(offered.into_iter(), &SPDY, "channel.k8s.io"), Ok("v4.channel.k8s.io"));
        assert_eq!(chosen([].into_iter(), &WEBSOCKET, ""), Ok(""));
        let refused = chosen(["a", "b"].into_iter(), &["c"], "").unwrap_err();
        assert_eq!(
            (refused.code, &*refused.message),
            (403, "unable to negotiate protocol: client supports [a b], server accepts [c]")
        );
    }

    #[test]
    fn newer_protocols_have_a_status_and_older_ones_a_text() {
        let status = no_container("web", "node-0001", "exec");
        let text = "pod web is on the simulated node node-0001: none of its containers runs, so no command can be \
            executed in it";
        assert_eq!(status.message, text);
        let session = Session { status, stdin: true, stdout: true, stderr: true, tty: true };
        assert_eq!(session.error("channel.k8s.io"), text.as_bytes());
        let status: Status = serde_json::from_slice(&session.error("v5.channel.k8s.io")).unwrap();
        assert_eq!(status.message, text);
        assert_eq!(session.wanted(), ["error", "stdin", "stdout", "resize"]);
    }
}
