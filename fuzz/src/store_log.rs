//! The store's files as recovery finds them: damaged, or written by somebody else.
//!
//! Input: `edits`, a newline and damage to the files of a store that was in use; or `segment <revision>` or `snapshot
//! <revision>`, a newline and the bodies of records, each after its length in two bytes, which get valid frames.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use bayplan_store::disk::SimulatedDisk;
use bayplan_store::{LogStore, OpenError, Options, Revision, Store};
use bytes::Bytes;
use futures::executor::block_on;

use crate::{bounded, first_line};

/// Bytes allocated for each byte of the files: each is read whole and copied into the index. Once opened, a store
/// reserves buffers of its own, which are most of [`BUFFERS_BYTES`].
const FACTOR: u64 = 256;
/// What opening a store allocates whatever is in it.
const BUFFERS_BYTES: usize = 64 << 10;

/// Small segments, so that there are several of them.
const SEGMENT_BYTES: u64 = 400;

/// A salt for frames that this target writes.
const SALT: u32 = 0x5a17_5a17;

type Files = BTreeMap<String, Vec<u8>>;
/// Keys and values at a revision.
type State = Vec<(String, Bytes)>;

/// A store's files, and everything it ever was.
struct Past {
    files: Files,
    states: BTreeMap<Revision, State>,
}

static PAST: LazyLock<Past> = LazyLock::new(past);

pub(crate) fn run(data: &[u8]) {
    let (line, rest) = first_line(data);
    let mut words = line.split(' ');
    let what = words.next().unwrap_or_default();
    let revision: Revision = words.next().and_then(|word| word.parse().ok()).unwrap_or(2);
    match what {
        "segment" => {
            let name = format!("log-{revision:020}.segment");
            opens_the_same_twice(Files::from([(name, file(*b"baypllog", revision, rest))]));
        }
        "snapshot" => {
            let name = format!("snapshot-{revision:020}.state");
            let empty = format!("log-{:020}.segment", revision.saturating_add(1));
            let segment = file(*b"baypllog", revision.saturating_add(1), &[]);
            opens_the_same_twice(Files::from([(name, file(*b"bayplsnp", revision, rest)), (empty, segment)]));
        }
        _ => {
            let files = damaged(PAST.files.clone(), rest);
            // Whatever happened to the files, a store that opens is one that there was.
            if let Some((revision, state)) = opens_the_same_twice(files) {
                let was = PAST.states.get(&revision);
                assert_eq!(was, Some(&state), "the state of revision {revision} never was");
            }
        }
    }
}

fn options() -> Options {
    Options { segment_bytes: SEGMENT_BYTES, ..Options::default() }
}

/// Opens the store, and once more: what recovery found it also left behind.
fn opens_the_same_twice(files: Files) -> Option<(Revision, State)> {
    let disk = SimulatedDisk::with_files(files.clone());
    let size: usize = files.values().map(Vec::len).sum();
    let open = || LogStore::open(Arc::new(disk.clone()), options());
    let first = match bounded::work(size + BUFFERS_BYTES, FACTOR, "recovery", open) {
        Ok(store) => contents(&store),
        Err(error) => {
            bounded::text(size, "recovery", &error.to_string());
            // What is damaged stays as it is, for those who mend it.
            if let OpenError::Corrupt { .. } = error {
                assert_eq!(disk.files(), files, "recovery changed what it refused: {error}");
            }
            return None;
        }
    };
    let second = open().unwrap_or_else(|error| panic!("opened once and then refused: {error}"));
    assert_eq!(contents(&second), first, "opened twice");
    assert_eq!(second.recovery().cut, None, "something was cut twice");
    // It goes on from there.
    let next = block_on(second.create("/fuzz/new", Bytes::from_static(b"new")));
    match next {
        Ok(next) => assert_eq!(next, first.0 + 1),
        Err(error) => assert!(first.1.iter().any(|(key, _)| key == "/fuzz/new"), "no write: {error}"),
    }
    Some(first)
}

fn contents(store: &LogStore) -> (Revision, State) {
    let range = block_on(store.range("", "\u{10ffff}", None, 0)).expect("a store that is open can be read");
    (range.revision, range.entries.into_iter().map(|entry| (entry.key.to_string(), entry.value)).collect())
}

/// A file with a valid header, and valid frames around the bodies.
fn file(magic: [u8; 8], revision: Revision, bodies: &[u8]) -> Vec<u8> {
    let mut file = magic.to_vec();
    file.extend_from_slice(&1u32.to_le_bytes());
    file.extend_from_slice(&SALT.to_le_bytes());
    file.extend_from_slice(&revision.to_le_bytes());
    file.extend_from_slice(&crc32fast::hash(&file).to_le_bytes());
    let mut rest = bodies;
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let (body, after) = after.split_at(after.len().min(usize::from(u16::from_le_bytes(*length))));
        let length = (body.len() as u32).to_le_bytes();
        let mut hasher = crc32fast::Hasher::new_with_initial(SALT);
        hasher.update(&length);
        hasher.update(body);
        file.extend_from_slice(&length);
        file.extend_from_slice(&hasher.finalize().to_le_bytes());
        file.extend_from_slice(body);
        rest = after;
    }
    file
}

/// Each edit has five bytes: what, which file, where (two), and a byte.
fn damaged(mut files: Files, edits: &[u8]) -> Files {
    for edit in edits.chunks_exact(5) {
        let count = files.len();
        let Some(name) = files.keys().nth(usize::from(edit[1]) % count.max(1)).cloned() else { break };
        let bytes = files.get_mut(&name).expect("its name was just read");
        let at = usize::from(u16::from_le_bytes([edit[2], edit[3]])) % (bytes.len() + 1);
        match edit[0] % 6 {
            0 if at < bytes.len() => bytes[at] ^= edit[4],
            1 => bytes.truncate(at),
            2 => bytes.insert(at, edit[4]),
            3 if at < bytes.len() => drop(bytes.remove(at)),
            4 => bytes.extend(std::iter::repeat_n(edit[4], at)),
            5 => drop(files.remove(&name)),
            _ => {}
        }
    }
    files
}

/// A store that was written to, compacted, written to again and killed: a snapshot, several segments, no seal.
fn past() -> Past {
    let disk = SimulatedDisk::new();
    let options = Options { garbage_bytes_min: 1, ..options() };
    let store = LogStore::open(Arc::new(disk.clone()), options).expect("an empty disk");
    let mut states = BTreeMap::from([contents(&store)]);
    let mut written = |n: u64| {
        let key = format!("/registry/pods/default/p{}", n % 7);
        let value = Bytes::from(format!("{{\"n\":{n},\"text\":\"{}\"}}", "x".repeat(n as usize)));
        let found = block_on(store.get(&key)).expect("an open store").map(|entry| entry.mod_revision);
        let write = match found {
            Some(revision) if n.is_multiple_of(5) => store.delete(&key, revision),
            Some(revision) => store.update(&key, value, revision),
            None => store.create(&key, value),
        };
        block_on(write).expect("nobody else writes");
        let (revision, state) = contents(&store);
        states.insert(revision, state);
    };
    (0..20).for_each(&mut written);
    block_on(store.compact(12)).expect("a revision of the past");
    while !disk.files().keys().any(|name| name.starts_with("snapshot-") && name.ends_with(".state")) {
        std::thread::yield_now();
    }
    (20..30).for_each(&mut written);
    Past { files: disk.files(), states }
}
