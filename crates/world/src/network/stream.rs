//! The events of a watch on their way to a part.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use futures::{FutureExt, Stream};
use http_body::Frame;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use tokio::time::sleep;
use tower::BoxError;

use super::Link;
use super::asked::Sent;
use crate::bugs::Bug;
use crate::plan::Part;
use crate::points::Point;
use crate::server::Server;
use crate::signal::Follower;

type Piece = Result<Frame<Bytes>, BoxError>;

/// A watch that is open.
struct Delivery {
    link: Link,
    /// What the ledger knows it by.
    number: usize,
    path: String,
    from: UnsyncBoxBody<Bytes, Infallible>,
    death: BoxFuture<'static, ()>,
    severed: Follower,
    /// What has come of the next line.
    partial: BytesMut,
    lines: VecDeque<Bytes>,
    /// Planted: what comes after the next line.
    swapped: Option<Bytes>,
    ended: bool,
}

/// The events of a watch as the part gets them.
pub(super) fn deliver(
    link: Link,
    server: &Server,
    asked: &Sent,
    from: UnsyncBoxBody<Bytes, Infallible>,
) -> impl Stream<Item = Piece> + Send + use<> {
    let selected = asked.parameter("fieldSelector").is_some() || asked.parameter("labelSelector").is_some();
    let after = asked.parameter("resourceVersion").and_then(|version| version.parse().ok());
    let number = link.shared.ledger().opened(link.part, &asked.path, selected, after);
    let delivery = Delivery {
        number,
        path: asked.path.clone(),
        from,
        death: server.death().boxed(),
        severed: link.shared.severed(link.part),
        partial: BytesMut::new(),
        lines: VecDeque::new(),
        swapped: None,
        ended: false,
        link,
    };
    futures::stream::unfold(delivery, |mut delivery| async move {
        let piece = delivery.next().await?;
        Some((piece, delivery))
    })
}

impl Drop for Delivery {
    fn drop(&mut self) {
        self.link.shared.ledger().closed(self.number);
    }
}

impl Delivery {
    async fn next(&mut self) -> Option<Piece> {
        loop {
            if self.ended {
                return None;
            }
            if let Some(line) = self.lines.pop_front() {
                if let Some(piece) = self.carry(line).await {
                    return Some(piece);
                }
                continue;
            }
            tokio::select! {
                biased;
                () = &mut self.death => return self.broken("connection reset: the server died"),
                () = self.severed.raised() => return self.broken("connection reset"),
                frame = self.from.frame() => match frame {
                    None => self.ended = true,
                    Some(Ok(frame)) => self.split(&frame.into_data().unwrap_or_default()),
                    Some(Err(never)) => match never {},
                },
            }
        }
    }

    fn broken(&mut self, why: &'static str) -> Option<Piece> {
        self.ended = true;
        Some(Err(why.into()))
    }

    /// Cuts what came into lines.
    fn split(&mut self, data: &[u8]) {
        self.partial.extend_from_slice(data);
        while let Some(end) = self.partial.iter().position(|byte| *byte == b'\n') {
            let line = self.partial.split_to(end + 1).freeze();
            let shared = &self.link.shared;
            if shared.bug_strikes(Bug::RepeatedEvent, 60) {
                self.lines.push_back(line.clone());
            }
            if let Some(earlier) = self.swapped.take() {
                self.lines.extend([line, earlier]);
            } else if shared.bug_strikes(Bug::SwappedEvents, 40) {
                self.swapped = Some(line);
            } else {
                self.lines.push_back(line);
            }
        }
    }

    /// Carries a line to the part. None: the part gets nothing of it.
    async fn carry(&mut self, line: Bytes) -> Option<Piece> {
        let link = self.link.clone();
        let (shared, part) = (&link.shared, link.part);
        let is_bookmark = shared.ledger().delivered(self.number, &line);
        link.travel().await;
        if shared.lasts(Point::WatchesSlow, Some(part)) {
            sleep(Duration::from_millis(50 + shared.draw(700))).await;
        }
        if shared.lasts(Point::CutOff, Some(part)) {
            while shared.lasts(Point::CutOff, Some(part)) {
                sleep(Duration::from_millis(250)).await;
            }
            return self.broken("connection reset after silence");
        }
        let loses = matches!(part, Part::Scheduler | Part::Controllers | Part::Observer);
        if loses && !is_bookmark && shared.bug_strikes(Bug::DroppedEvent, 120) {
            return None;
        }
        let Some(fault) = (!is_bookmark).then(|| shared.meet_event(part)).flatten() else {
            return Some(Ok(Frame::data(line)));
        };
        shared.stress(part.name(), format!("WATCH {} meets {}", self.path, fault.point.name()), "");
        let error = |code: u16, reason: &str| {
            let status = serde_json::json!({"type": "ERROR", "object": {
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
                "message": reason,
            }});
            Some(Ok(Frame::data(Bytes::from(format!("{status}\n")))))
        };
        match fault.point {
            Point::WatchClosed => self.ended = true,
            Point::WatchBroken => return self.broken("the connection broke"),
            Point::WatchHalfLine => {
                self.ended = true;
                return Some(Ok(Frame::data(line.slice(..line.len() / 2))));
            }
            Point::WatchExpired => {
                self.ended = true;
                return error(410, "Expired");
            }
            Point::WatchErrorEvent => {
                self.ended = true;
                return error(500, "InternalError");
            }
            Point::WatchStalled => sleep(Duration::from_millis(fault.amount)).await,
            _ => {
                let (first, rest) = (line.slice(..line.len() / 3), line.slice(line.len() / 3..));
                self.lines.push_front(rest);
                return Some(Ok(Frame::data(first)));
            }
        }
        (!self.ended).then(|| Ok(Frame::data(line)))
    }
}
