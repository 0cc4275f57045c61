//! As much of SPDY/3.1 as it takes to say one thing on the stream of errors: kubectl before v1.31 speaks nothing else.
//!
//! The client opens its streams, each is accepted; then the message goes out, and every stream ends.

use std::io;

use flate2::{Decompress, FlushDecompress};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// What both ends begin to compress headers with (SPDY/3, section 2.6.10.1).
static DICTIONARY: &[u8; 1423] = include_bytes!("spdy_dictionary.bin");

/// The largest frame that is read, and the largest block of headers in it.
const FRAME_MAX: usize = 64 * 1024;
const HEADERS_MAX: usize = 16 * 1024;
/// The most streams that a client opens.
const STREAMS_MAX: usize = 16;

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const FIN: u8 = 1;

/// Accepts the streams of a client until all that are wanted are there, says an error, and ends them.
pub(super) async fn say<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    wanted: &[&str],
    error: Vec<u8>,
) -> io::Result<()> {
    let mut headers = Headers::new();
    let mut replies = Replies::default();
    let mut open: Vec<(u32, String)> = Vec::new();
    while !wanted.iter().all(|wanted| open.iter().any(|(_, kind)| kind == wanted)) {
        let Some((head, payload)) = frame(&mut stream).await? else { return Ok(()) };
        match control(&head) {
            Some(SYN_STREAM) => {
                let id = u32::from_be_bytes(*payload.first_chunk().ok_or_else(broken)?) & 0x7fff_ffff;
                let kind = headers.read(payload.get(10..).ok_or_else(broken)?)?;
                if open.len() == STREAMS_MAX {
                    return Err(broken());
                }
                open.push((id, kind));
                stream.write_all(&replies.reply(id)).await?;
            }
            Some(PING) => stream.write_all(&written(PING, &payload)).await?,
            Some(GOAWAY) => return Ok(()),
            _ => {}
        }
    }
    for (id, kind) in &open {
        let said = if kind == "error" { error.as_slice() } else { &[] };
        stream.write_all(&data(*id, said)).await?;
    }
    stream.flush().await?;
    // The client closes the connection once it has read all of it.
    while frame(&mut stream).await?.is_some() {}
    Ok(())
}

fn broken() -> io::Error {
    io::Error::from(io::ErrorKind::InvalidData)
}

/// The head and the payload of the next frame; `None` at the end.
async fn frame<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<Option<([u8; 8], Vec<u8>)>> {
    let mut head = [0; 8];
    if let Err(error) = stream.read_exact(&mut head).await {
        return if error.kind() == io::ErrorKind::UnexpectedEof { Ok(None) } else { Err(error) };
    }
    let length = usize::from(head[5]) << 16 | usize::from(head[6]) << 8 | usize::from(head[7]);
    if length > FRAME_MAX {
        return Err(broken());
    }
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).await?;
    Ok(Some((head, payload)))
}

/// The type of a control frame.
fn control(head: &[u8; 8]) -> Option<u16> {
    (head[0] == 0x80 && head[1] == 3).then(|| u16::from_be_bytes([head[2], head[3]]))
}

/// A control frame.
fn written(kind: u16, payload: &[u8]) -> Vec<u8> {
    let [high, low] = kind.to_be_bytes();
    [&[0x80, 3, high, low], &sized(0, payload.len()), payload].concat()
}

/// A frame of data that ends its stream.
fn data(id: u32, content: &[u8]) -> Vec<u8> {
    [&id.to_be_bytes(), &sized(FIN, content.len()), content].concat()
}

/// Flags and length.
fn sized(flags: u8, length: usize) -> [u8; 4] {
    let [_, high, middle, low] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    [flags, high, middle, low]
}

/// Deflate's block that is not compressed.
fn stored(content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).expect("what is stored is short");
    [&[0], &length.to_le_bytes()[..], &(!length).to_le_bytes(), content].concat()
}

/// Writes replies, whose headers are one compressed stream.
#[derive(Default)]
struct Replies {
    begun: bool,
}

impl Replies {
    /// Accepts a stream: no headers.
    fn reply(&mut self, id: u32) -> Vec<u8> {
        // The stream of headers begins as zlib's do, without a dictionary.
        let begin: &[u8] = if self.begun { &[] } else { &[0x78, 0x01] };
        self.begun = true;
        // Go's reader hands out what it has read once an empty block follows.
        written(SYN_REPLY, &[&id.to_be_bytes(), begin, &stored(&[0; 4]), &stored(&[])].concat())
    }
}

/// Reads blocks of headers, which are one compressed stream.
struct Headers {
    inflate: Decompress,
    begun: bool,
}

impl Headers {
    fn new() -> Headers {
        Headers { inflate: Decompress::new(false), begun: false }
    }

    /// What the stream is for: its header `streamtype`.
    fn read(&mut self, mut block: &[u8]) -> io::Result<String> {
        if !self.begun {
            self.begun = true;
            let begins_with_dictionary = block.get(1).ok_or_else(broken)? & 0x20 != 0;
            block = block.get(if begins_with_dictionary { 6 } else { 2 }..).ok_or_else(broken)?;
            if begins_with_dictionary {
                // What a block that is stored has said before can be repeated, as a dictionary can.
                self.inflated(&stored(DICTIONARY))?;
            }
        }
        let text = self.inflated(block)?;
        let mut rest = text.as_slice();
        let mut pairs = number(&mut rest)?;
        while pairs > 0 {
            pairs -= 1;
            let name = piece(&mut rest)?;
            let value = piece(&mut rest)?;
            if name.eq_ignore_ascii_case(b"streamtype") {
                return Ok(String::from_utf8_lossy(value).into_owned());
            }
        }
        Ok(String::new())
    }

    fn inflated(&mut self, mut block: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::with_capacity(HEADERS_MAX);
        while !block.is_empty() {
            let (read, before) = (self.inflate.total_in(), out.len());
            self.inflate.decompress_vec(block, &mut out, FlushDecompress::Sync).map_err(|_| broken())?;
            let read = usize::try_from(self.inflate.total_in() - read).map_err(|_| broken())?;
            if read == 0 && out.len() == before {
                return Err(broken());
            }
            block = &block[read..];
        }
        Ok(out)
    }
}

fn number(rest: &mut &[u8]) -> io::Result<u32> {
    let (number, after) = rest.split_first_chunk().ok_or_else(broken)?;
    *rest = after;
    Ok(u32::from_be_bytes(*number))
}

fn piece<'a>(rest: &mut &'a [u8]) -> io::Result<&'a [u8]> {
    let length = usize::try_from(number(rest)?).map_err(|_| broken())?;
    let (piece, after) = rest.split_at_checked(length).ok_or_else(broken)?;
    *rest = after;
    Ok(piece)
}

#[cfg(test)]
mod tests {
    use flate2::{Compress, Compression, FlushCompress};

    use super::*;

    fn block(compress: &mut Compress, kind: &str) -> Vec<u8> {
        let mut text = 1_u32.to_be_bytes().to_vec();
        for piece in ["streamtype", kind] {
            text.extend_from_slice(&(piece.len() as u32).to_be_bytes());
            text.extend_from_slice(piece.as_bytes());
        }
        let mut out = Vec::with_capacity(1024);
        compress.compress_vec(&text, &mut out, FlushCompress::Sync).unwrap();
        out
    }

    fn opening(compress: &mut Compress, id: u32, kind: &str) -> Vec<u8> {
        written(SYN_STREAM, &[&id.to_be_bytes()[..], &[0; 6], &block(compress, kind)].concat())
    }

    #[tokio::test]
    async fn an_error_is_said_once_all_streams_are_open() {
        let mut compress = Compress::new(Compression::default(), true);
        let (mut client, server) = tokio::io::duplex(4096);
        let said = tokio::spawn(async move { say(server, &["error", "stdout"], b"no".to_vec()).await });
        client.write_all(&opening(&mut compress, 1, "error")).await.unwrap();
        let (head, reply) = frame(&mut client).await.unwrap().unwrap();
        assert_eq!((control(&head), &reply[..4], &reply[4..6]), (Some(SYN_REPLY), &[0, 0, 0, 1][..], &[0x78, 1][..]));
        client.write_all(&written(PING, &[0, 0, 0, 1])).await.unwrap();
        assert_eq!(control(&frame(&mut client).await.unwrap().unwrap().0), Some(PING));
        client.write_all(&opening(&mut compress, 3, "stdout")).await.unwrap();
        let (head, reply) = frame(&mut client).await.unwrap().unwrap();
        let no_headers = [0, 4, 0, 251, 255, 0, 0, 0, 0, 0, 0, 0, 255, 255];
        assert_eq!((control(&head), reply), (Some(SYN_REPLY), [&[0, 0, 0, 3], &no_headers[..]].concat()));
        assert_eq!(frame(&mut client).await.unwrap().unwrap(), ([0, 0, 0, 1, FIN, 0, 0, 2], b"no".to_vec()));
        assert_eq!(frame(&mut client).await.unwrap().unwrap(), ([0, 0, 0, 3, FIN, 0, 0, 0], Vec::new()));
        drop(client);
        said.await.unwrap().unwrap();
    }

    /// `streamtype: error` as Go's `compress/zlib` writes it with the dictionary.
    #[test]
    fn headers_compressed_with_the_dictionary_are_read() {
        let mut headers = Headers::new();
        let mut encoder = Compress::new(Compression::default(), false);
        let primed = stored(DICTIONARY);
        assert_eq!(primed.len(), DICTIONARY.len() + 5);
        let block = block(&mut encoder, "error");
        let with_dictionary = [&[0x78, 0xbb, 0xe3, 0xc6, 0xa7, 0xc2], &*block].concat();
        assert_eq!(headers.read(&with_dictionary).unwrap(), "error");
    }

    #[tokio::test]
    async fn what_breaks_the_protocol_ends_the_session() {
        for sent in [
            written(SYN_STREAM, &[0; 4]),
            written(SYN_STREAM, &[0; 12]),
            written(SYN_STREAM, &[0xff; 64]),
            vec![0x80, 3, 0, 1, 0, 0xff, 0xff, 0xff],
        ] {
            let (mut client, server) = tokio::io::duplex(4096);
            client.write_all(&sent).await.unwrap();
            drop(client);
            assert!(say(server, &["error"], Vec::new()).await.is_err(), "{sent:?}");
        }
    }
}
