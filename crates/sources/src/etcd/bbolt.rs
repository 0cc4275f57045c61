//! The file format of bbolt: a tree of pages, read from any file without trust.
//!
//! ```text
//!   page:   id 8, flags 2, count 2, overflow 4 ─ elements of 16 bytes ─ keys and values
//!   meta:   magic 4, version 4, page size 4, flags 4, root 8 + 8, free list 8, pages 8, transaction 8, checksum 8
//!   leaf:   flags 4, position 4, key size 4, value size 4        (position counts from the element itself)
//!   branch: position 4, key size 4, page 8
//! ```
//!
//! Every page is read once at most, and all of them together not more often than the file is long.

use std::collections::BTreeSet;
use std::io::{Read, Seek, SeekFrom};

const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;
const HEADER: usize = 16;
const ELEMENT: usize = 16;
const META_BYTES: usize = 64;

const BRANCH: u16 = 0x01;
const LEAF: u16 = 0x02;
const BUCKET: u32 = 0x01;

/// The sizes of pages that operating systems use.
const PAGE_SIZES: std::ops::RangeInclusive<u64> = 512..=65536;

/// The largest page with what overflows it. etcd takes requests of 1.5 MiB by default.
const PAGE_BYTES_MAX: u64 = 256 << 20;

/// How deep a tree may be. With two entries a page, this many levels hold more than any file.
const DEPTH_MAX: usize = 64;

/// Whether a file begins with the meta page of a database.
pub(crate) fn is_database(head: &[u8]) -> bool {
    number32(head, HEADER) == Some(MAGIC) && number32(head, HEADER + 4) == Some(VERSION)
}

/// Takes the entries of a bucket, by key.
type Take<'t> = &'t mut dyn FnMut(&[u8], &[u8]);

/// Hands every key and value of a bucket to `take`, in order.
pub(super) fn walk(file: &mut (impl Read + Seek), length: u64, bucket: &[u8], take: Take<'_>) -> Result<(), String> {
    let (page_size, root) = newest_meta(file, length)?;
    let mut pages = Pages { file, length, page_size, seen: BTreeSet::new(), bytes: 0 };
    let mut found = None;
    pages.walk(root, 0, &mut |flags, key, value| {
        if flags & BUCKET != 0 && key == bucket {
            found = Some(value.to_vec());
        }
    })?;
    let bucket = found.ok_or("it holds none of etcd's revisions")?;
    let root = number64(&bucket, 0).ok_or("a bucket is broken")?;
    let mut only_values = |flags: u32, key: &[u8], value: &[u8]| {
        if flags & BUCKET == 0 {
            take(key, value);
        }
    };
    match root {
        // A small bucket lies in its parent: the page follows its header.
        0 => pages.elements(bucket.get(16..).unwrap_or_default(), 0, &mut only_values),
        root => pages.walk(root, 0, &mut only_values),
    }
}

/// The page size and the root of the newest meta page that is whole.
fn newest_meta(file: &mut (impl Read + Seek), length: u64) -> Result<(u64, u64), String> {
    let mut read = |offset: u64| -> Option<Vec<u8>> {
        let mut bytes = vec![0; HEADER + META_BYTES];
        file.seek(SeekFrom::Start(offset)).ok()?;
        file.read_exact(&mut bytes).ok()?;
        Some(bytes[HEADER..].to_vec())
    };
    let first = read(0).ok_or("it is too short for a database")?;
    let page_size = u64::from(number32(&first, 8).unwrap_or(0));
    if !PAGE_SIZES.contains(&page_size) || !page_size.is_power_of_two() || length < 2 * page_size {
        return Err("its first page is broken".to_owned());
    }
    let metas = [Some(first), read(page_size)];
    let whole = metas.into_iter().flatten().filter(|meta| is_whole(meta));
    let newest = whole.max_by_key(|meta| number64(meta, 48)).ok_or("its meta pages are broken")?;
    Ok((page_size, number64(&newest, 16).unwrap_or(0)))
}

/// Whether the checksum of a meta page (FNV-1a) is right.
fn is_whole(meta: &[u8]) -> bool {
    let sum = meta[..56]
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    number32(meta, 0) == Some(MAGIC) && number64(meta, 56) == Some(sum)
}

/// Takes elements with their flags.
type TakeElement<'t> = &'t mut dyn FnMut(u32, &[u8], &[u8]);

struct Pages<'f, F> {
    file: &'f mut F,
    length: u64,
    page_size: u64,
    seen: BTreeSet<u64>,
    /// How much was read so far.
    bytes: u64,
}

impl<F: Read + Seek> Pages<'_, F> {
    /// Walks the tree below a page.
    fn walk(&mut self, page: u64, depth: usize, take: TakeElement<'_>) -> Result<(), String> {
        let bytes = self.read(page)?;
        self.elements(&bytes, depth, take)
    }

    /// Hands on the elements of a page, or those of the pages below it.
    fn elements(&mut self, page: &[u8], depth: usize, take: TakeElement<'_>) -> Result<(), String> {
        let (flags, count) = (number16(page, 8).unwrap_or(0), usize::from(number16(page, 10).unwrap_or(0)));
        if depth > DEPTH_MAX {
            return Err("its tree of pages is too deep".to_owned());
        }
        for index in 0..count {
            let at = HEADER + index * ELEMENT;
            match flags {
                LEAF => {
                    let (flags, key, value) = leaf_element(page, at).ok_or("an entry of a page is broken")?;
                    take(flags, key, value);
                }
                BRANCH => {
                    let below = number64(page, at + 8).ok_or("an entry of a page is broken")?;
                    self.walk(below, depth + 1, take)?;
                }
                _ => return Err("a page is neither branch nor leaf".to_owned()),
            }
        }
        Ok(())
    }

    /// A page with what overflows it.
    fn read(&mut self, page: u64) -> Result<Vec<u8>, String> {
        if !self.seen.insert(page) {
            return Err("a page is part of two others".to_owned());
        }
        let broken = || "a page lies outside of the file: it was cut".to_owned();
        let offset = page.checked_mul(self.page_size).filter(|at| *at < self.length).ok_or_else(broken)?;
        let mut header = [0; HEADER];
        self.file.seek(SeekFrom::Start(offset)).map_err(|error| error.to_string())?;
        self.file.read_exact(&mut header).map_err(|_| broken())?;
        let overflow = u64::from(number32(&header, 12).unwrap_or(0));
        let size = (overflow + 1) * self.page_size;
        if size > PAGE_BYTES_MAX {
            return Err(format!("a page takes more than {} MiB", PAGE_BYTES_MAX >> 20));
        }
        self.bytes += size;
        if offset + size > self.length || self.bytes > self.length {
            return Err(broken());
        }
        let mut bytes = header.to_vec();
        let rest = size - HEADER as u64;
        let count = (&mut *self.file).take(rest).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        if count as u64 == rest { Ok(bytes) } else { Err(broken()) }
    }
}

fn leaf_element(page: &[u8], at: usize) -> Option<(u32, &[u8], &[u8])> {
    let field = |offset: usize| number32(page, at.checked_add(offset)?);
    let size = |offset: usize| usize::try_from(field(offset)?).ok();
    let begin = at.checked_add(size(4)?)?;
    let middle = begin.checked_add(size(8)?)?;
    let end = middle.checked_add(size(12)?)?;
    Some((field(0)?, page.get(begin..middle)?, page.get(middle..end)?))
}

fn number16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn number32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn number64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}
