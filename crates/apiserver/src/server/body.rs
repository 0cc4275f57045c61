//! The bodies of requests, read before they take a seat, and of responses, which keep their seat to the last byte.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bayplan_model::status::Status;
use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::time::Instant;

use super::ResponseBody;
use super::handler::RequestBody;
use super::usage::{Held, SMALL, Usage};
use crate::status_errors;

/// The largest request body, as upstream.
pub(super) const BODY_MAX: usize = 3 * 1024 * 1024;
/// How long a body may take in any case.
const BODY_GRACE: Duration = Duration::from_secs(5);
/// How fast a body must come after that, in bytes per second. The largest takes 55 s then, which is within the time
/// limit of a request.
const BODY_RATE_MIN: u32 = 64 * 1024;
/// How much of a response is handed on at once: two TLS records. The rest is made, or kept, until the client reads.
pub(crate) const CHUNK: usize = 32 * 1024;

/// Why a body was not read.
pub(super) enum Refusal {
    /// It is wrong, or came too slowly.
    Status(Status),
    /// The user holds too much already.
    Busy,
}

/// Reads a body, and counts it as the user's if it is large.
pub(super) async fn read(
    mut body: RequestBody,
    user: &str,
    usage: &Arc<Usage>,
) -> Result<(Bytes, Option<Held>), Refusal> {
    let too_large = || Refusal::Status(status_errors::too_large(BODY_MAX));
    if body.size_hint().lower() > BODY_MAX as u64 {
        return Err(too_large());
    }
    let mut read = Received::default();
    // What has arrived already is read without further ado.
    let waits = loop {
        match body.frame().now_or_never() {
            None => break true,
            Some(None) => break false,
            Some(Some(frame)) => read.add(frame).map_err(Refusal::Status)?,
        }
        if read.len > BODY_MAX {
            return Err(too_large());
        }
    };
    if !waits && read.len <= SMALL {
        return Ok((read.finish(), None));
    }
    // The whole of it is reserved at once: bodies that wait for each other's memory would never end.
    let size = if waits { expected(&body, read.len) } else { read.len };
    let held = (size > SMALL).then(|| usage.body(user, size).ok_or(Refusal::Busy)).transpose()?;
    if waits {
        let _waiting = usage.wait(user).ok_or(Refusal::Busy)?;
        read_rest(&mut body, &mut read).await.map_err(Refusal::Status)?;
    }
    Ok((read.finish(), held))
}

/// Reads what has not arrived yet, unless it comes too slowly.
async fn read_rest(body: &mut RequestBody, read: &mut Received) -> Result<(), Status> {
    let started = Instant::now();
    loop {
        let allowed = BODY_GRACE + Duration::from_secs(read.len as u64) / BODY_RATE_MIN;
        match tokio::time::timeout_at(started + allowed, body.frame()).await {
            Err(_) => return Err(status_errors::body_too_slow(BODY_RATE_MIN)),
            Ok(None) => return Ok(()),
            Ok(Some(frame)) => read.add(frame)?,
        }
        if read.len > BODY_MAX {
            return Err(status_errors::too_large(BODY_MAX));
        }
    }
}

/// The size of a body: as it says, or the largest there is.
fn expected(body: &RequestBody, read: usize) -> usize {
    let rest = body.size_hint().upper().and_then(|rest| usize::try_from(rest).ok());
    rest.map_or(BODY_MAX, |rest| read.saturating_add(rest)).min(BODY_MAX)
}

#[derive(Default)]
struct Received {
    first: Bytes,
    rest: BytesMut,
    len: usize,
}

impl Received {
    fn add(&mut self, frame: Result<Frame<Bytes>, String>) -> Result<(), Status> {
        let frame =
            frame.map_err(|error| status_errors::bad_request(format!("the body could not be read: {error}")))?;
        let Ok(data) = frame.into_data() else { return Ok(()) };
        self.len += data.len();
        if self.first.is_empty() {
            self.first = data;
        } else {
            if self.rest.is_empty() {
                self.rest.extend_from_slice(&self.first);
            }
            self.rest.extend_from_slice(&data);
        }
        Ok(())
    }

    fn finish(self) -> Bytes {
        if self.rest.is_empty() { self.first } else { self.rest.freeze() }
    }
}

/// A body that holds something until its last byte is taken, and is taken in chunks.
pub(super) struct Holding<G> {
    body: ResponseBody,
    rest: Bytes,
    _guard: G,
}

/// A body that says how many bytes were taken of it, when it ends or is given up.
struct Counted<F: FnOnce(u64)> {
    body: ResponseBody,
    bytes: u64,
    done: Option<F>,
}

/// A body that calls `done` with the number of bytes that were taken, once nothing more will be.
pub(super) fn counted(body: ResponseBody, done: impl FnOnce(u64) + Send + Unpin + 'static) -> ResponseBody {
    Counted { body, bytes: 0, done: Some(done) }.boxed_unsync()
}

impl<F: FnOnce(u64) + Unpin> Body for Counted<F> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            self.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<F: FnOnce(u64)> Drop for Counted<F> {
    fn drop(&mut self) {
        if let Some(done) = self.done.take() {
            done(self.bytes);
        }
    }
}

/// A body that keeps `guard` until its last byte is taken.
pub(super) fn holding<G: Send + Unpin + 'static>(body: ResponseBody, guard: G) -> ResponseBody {
    Holding { body, rest: Bytes::new(), _guard: guard }.boxed_unsync()
}

impl<G: Unpin> Body for Holding<G> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.rest.is_empty() {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                other => return other,
            }
        }
        let size = self.rest.len().min(CHUNK);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(size)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        let rest = self.rest.len() as u64;
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use http_body_util::{Full, StreamBody};

    use super::*;

    /// A body of `count` chunks, one each `pause`.
    fn slow(count: usize, size: usize, pause: Duration) -> RequestBody {
        let chunks = stream::unfold(0, move |sent| async move {
            tokio::time::sleep(pause).await;
            (sent < count).then(|| (Ok(Frame::data(Bytes::from(vec![b'x'; size]))), sent + 1))
        });
        StreamBody::new(chunks).boxed_unsync()
    }

    fn whole(size: usize) -> RequestBody {
        Full::new(Bytes::from(vec![b'x'; size])).map_err(|never| match never {}).boxed_unsync()
    }

    async fn code(body: RequestBody, usage: &Arc<Usage>) -> Result<usize, u16> {
        match read(body, "alice", usage).await {
            Ok((bytes, _)) => Ok(bytes.len()),
            Err(Refusal::Status(status)) => Err(status.code),
            Err(Refusal::Busy) => Err(429),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_must_not_come_too_slowly() {
        let second = Duration::from_secs(1);
        let usage = Arc::new(Usage::default());
        for (body, expected) in [
            (whole(0), Ok(0)),
            (whole(BODY_MAX), Ok(BODY_MAX)),
            (whole(BODY_MAX + 1), Err(413)),
            (slow(3, 100, second), Ok(300)),
            (slow(30, 100, second), Err(408)),
            (slow(30, 100 * 1024, second), Ok(30 * 100 * 1024)),
            (slow(40, 100 * 1024, second), Err(413)),
            (slow(1, 1, 10 * second), Err(408)),
        ] {
            assert_eq!(code(body, &usage).await, expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn slow_bodies_of_one_user_take_a_bounded_amount_of_memory() {
        let usage = Arc::new(Usage::default());
        let reads: Vec<_> = (0..650)
            .map(|_| {
                let usage = usage.clone();
                tokio::spawn(async move { code(slow(30, 100 * 1024, Duration::from_secs(1)), &usage).await })
            })
            .collect();
        let (mut read, mut refused) = (0, 0);
        for result in reads {
            match result.await.unwrap() {
                Ok(_) => read += 1,
                Err(429) => refused += 1,
                Err(other) => panic!("{other}"),
            }
        }
        // Their length is not known, so each counts as the largest.
        assert_eq!((read, refused), (10, 640));
        assert_eq!(code(whole(1 << 20), &usage).await, Ok(1 << 20));
    }

    #[tokio::test]
    async fn a_response_is_handed_on_in_chunks_and_holds_its_guard_to_the_last() {
        let guard = Arc::new(());
        let whole = Full::new(Bytes::from(vec![b'x'; 3 * CHUNK + 1])).boxed_unsync();
        let mut body = holding(whole, guard.clone());
        assert_eq!(body.size_hint().exact(), Some(3 * CHUNK as u64 + 1));
        let mut sizes = Vec::new();
        while !body.is_end_stream() {
            sizes.push(body.frame().await.unwrap().unwrap().into_data().unwrap().len());
            assert_eq!(Arc::strong_count(&guard), 2);
        }
        assert_eq!(sizes, [CHUNK, CHUNK, CHUNK, 1]);
        drop(body);
        assert_eq!(Arc::strong_count(&guard), 1);
    }
}
