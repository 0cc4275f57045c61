//! Bounds what comes out of compressed files.

use std::cell::Cell;
use std::io::{self, BufRead, Read};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits::{DECOMPRESSED_BYTES_MAX, RATIO_GRACE_BYTES, RATIO_MAX};

/// What has come out of all compressed files so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budget(Arc<AtomicU64>);

/// A reader that counts what goes into a decompressor.
pub(crate) struct Counted<R> {
    input: R,
    count: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.count.set(self.count.get() + count as u64);
        Ok(count)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.input.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.count.set(self.count.get() + amount as u64);
        self.input.consume(amount);
    }
}

/// What comes out of a decompressor, until it is too much.
pub(crate) struct Inflated<D> {
    decompressor: D,
    consumed: Rc<Cell<u64>>,
    produced: u64,
    budget: Budget,
}

impl<D: Read> Inflated<D> {
    /// Makes the decompressor of an input, and bounds it.
    pub(crate) fn new<R: Read>(input: R, budget: &Budget, decompressor: impl FnOnce(Counted<R>) -> D) -> Self {
        let consumed = Rc::new(Cell::new(0));
        let counted = Counted { input, count: Rc::clone(&consumed) };
        Inflated { decompressor: decompressor(counted), consumed, produced: 0, budget: budget.clone() }
    }
}

impl<D: Read> Read for Inflated<D> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.decompressor.read(buffer)? as u64;
        self.produced += count;
        let all = self.budget.0.fetch_add(count, Ordering::Relaxed) + count;
        if all > DECOMPRESSED_BYTES_MAX {
            let limit = DECOMPRESSED_BYTES_MAX >> 30;
            return Err(io::Error::other(format!("compressed files hold more than {limit} GiB")));
        }
        if self.produced > RATIO_GRACE_BYTES && self.produced / RATIO_MAX > self.consumed.get() {
            return Err(io::Error::other(format!("it is more than {RATIO_MAX} times as large as its compressed file")));
        }
        usize::try_from(count).map_err(io::Error::other)
    }
}
