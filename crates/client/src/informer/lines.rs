//! Cuts a byte stream into lines.

use bayplan_model::status::{Status, reason};

/// No object is larger: servers refuse bodies above 3 MiB, and the envelope and `\u` escapes take their share.
const LINE_BYTES_MAX: usize = 32 << 20;

/// Bytes received, of which whole lines can be taken.
#[derive(Default)]
pub(crate) struct Lines {
    buffer: Vec<u8>,
    /// Where the first line that was not taken begins.
    start: usize,
    /// Up to where there is certainly no line end after `start`.
    searched: usize,
}

impl Lines {
    /// Adds what was received.
    pub(crate) fn push(&mut self, data: &[u8]) -> Result<(), Status> {
        self.buffer.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        if self.buffer.len() + data.len() > LINE_BYTES_MAX && !data.contains(&b'\n') {
            return Err(Status::failure(0, reason::SERVICE_UNAVAILABLE, "a watch event is larger than any object"));
        }
        self.buffer.extend_from_slice(data);
        Ok(())
    }

    /// The next whole line that is not blank, without its end.
    pub(crate) fn next(&mut self) -> Option<&[u8]> {
        loop {
            let Some(length) = self.buffer[self.searched..].iter().position(|&b| b == b'\n') else {
                self.searched = self.buffer.len();
                return None;
            };
            let (start, end) = (self.start, self.searched + length);
            (self.start, self.searched) = (end + 1, end + 1);
            if !self.buffer[start..end].trim_ascii().is_empty() {
                return Some(&self.buffer[start..end]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_however_the_bytes_arrive() {
        let text = b"one\n\ntwo\r\nthree and more\nrest";
        for size in 1..=text.len() {
            let (mut lines, mut got) = (Lines::default(), Vec::new());
            for chunk in text.chunks(size) {
                lines.push(chunk).unwrap();
                while let Some(line) = lines.next() {
                    got.push(String::from_utf8(line.trim_ascii().to_vec()).unwrap());
                }
            }
            assert_eq!(got, ["one", "two", "three and more"], "chunks of {size}");
        }
    }

    #[test]
    fn a_line_without_end_is_refused_before_memory_is() {
        let mut lines = Lines::default();
        let chunk = vec![b'x'; 1 << 20];
        let refused = (0..64).position(|_| lines.push(&chunk).is_err());
        assert_eq!(refused, Some(32));
    }
}
