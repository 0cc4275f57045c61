//! Answers in pieces: a long list is written while the client reads it, from the objects' shared bytes.

use bytes::Bytes;

use crate::registry::VersionedObject;

/// About how long a piece is: two TLS records.
const PIECE: usize = 32 * 1024;

/// The most bytes of objects that are read for a piece: the rows of a table are short, however large their objects are.
const READ_MAX: usize = 256 * 1024;

/// The content of a response.
pub(crate) enum Content {
    /// All of it.
    Whole(Bytes),
    /// One piece after the other.
    Pieces(Box<dyn Iterator<Item = Bytes> + Send>),
}

impl Content {
    /// All of the content.
    pub(super) fn whole(self) -> Bytes {
        match self {
            Content::Whole(bytes) => bytes,
            Content::Pieces(pieces) => {
                let mut all = Vec::new();
                pieces.for_each(|piece| all.extend_from_slice(&piece));
                Bytes::from(all)
            }
        }
    }

    /// The content of a list; short lists are written at once.
    pub(super) fn of_list(mut list: ListPieces) -> Content {
        let first = list.next().unwrap_or_default();
        if list.finished {
            Content::Whole(first)
        } else {
            Content::Pieces(Box::new(std::iter::once(first).chain(list)))
        }
    }
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Content::Whole(_) => "Whole",
            Content::Pieces(_) => "Pieces",
        })
    }
}

/// Appends an item of a list; false to leave it out.
type WriteItem = Box<dyn Fn(&VersionedObject, &mut Vec<u8>) -> bool + Send>;

/// A list that is written piece by piece.
pub(super) struct ListPieces {
    head: Vec<u8>,
    items: std::vec::IntoIter<VersionedObject>,
    write: WriteItem,
    /// An item has been written.
    started: bool,
    finished: bool,
}

impl ListPieces {
    /// A list that begins with `head`, up to the bracket before its items, and ends with its items.
    pub(super) fn new(head: Vec<u8>, items: Vec<VersionedObject>, write: WriteItem) -> ListPieces {
        ListPieces { head, items: items.into_iter(), write, started: false, finished: false }
    }
}

impl Iterator for ListPieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.finished {
            return None;
        }
        let mut piece = std::mem::take(&mut self.head);
        let mut read = 0;
        while piece.len() < PIECE && read < READ_MAX {
            let Some(item) = self.items.next() else {
                piece.extend_from_slice(b"]}");
                self.finished = true;
                break;
            };
            read += item.encoded.size();
            let before = piece.len();
            if self.started {
                piece.push(b',');
            }
            if (self.write)(&item, &mut piece) {
                self.started = true;
            } else {
                piece.truncate(before);
            }
        }
        Some(Bytes::from(piece))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::encode::Encoded;

    #[test]
    fn a_piece_reads_a_bounded_amount_however_little_it_writes() {
        let maps = bayplan_kinds::find("", "v1", "configmaps").unwrap();
        let object = json!({"metadata": {"name": "large"}, "data": {"text": "x".repeat(100_000)}});
        let item = VersionedObject { encoded: Encoded::new(maps, &object), revision: Some(1) };
        let write = |_: &VersionedObject, out: &mut Vec<u8>| {
            out.push(b'1');
            true
        };
        let pieces: Vec<Bytes> = ListPieces::new(b"[".to_vec(), vec![item; 10], Box::new(write)).collect();
        assert_eq!(pieces, ["[1,1,1", ",1,1,1", ",1,1,1", ",1]}"]);
    }
}
