//! A disk in memory that can crash at any operation, tear what was not synced, flip bytes, fail and fill up.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use super::{Disk, DiskFile, FileInfo};

/// The unit a real disk writes; what a crash tears, it tears in pieces of this.
const SECTOR_BYTES: usize = 512;

/// What a crash does to bytes that were not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// Nothing unsynced survives.
    LoseAll,
    /// Everything survives, as when only the process dies.
    KeepAll,
    /// A prefix survives, cut anywhere.
    Torn,
    /// The length survives, but some sectors read as zeros.
    Holes,
}

#[derive(Clone, Debug, Default)]
struct Inode {
    durable: Vec<u8>,
    current: Vec<u8>,
    /// What a failed sync gave up, as Linux does: reads show it, and no later sync writes it.
    given_up: Option<std::ops::Range<usize>>,
}

impl Inode {
    fn new(bytes: Vec<u8>) -> Self {
        Inode { durable: bytes.clone(), current: bytes, given_up: None }
    }

    fn cut(&mut self, len: usize) {
        self.current.truncate(len);
        self.given_up = self.given_up.take().map(|lost| lost.start..lost.end.min(len)).filter(|lost| !lost.is_empty());
    }

    fn give_up(&mut self) {
        let start = self.given_up.as_ref().map_or(self.durable.len(), |lost| lost.start);
        self.given_up = Some(start..self.current.len()).filter(|lost| !lost.is_empty());
    }

    fn sync(&mut self) {
        self.durable.clone_from(&self.current);
        if let Some(lost) = self.given_up.clone() {
            self.durable[lost].fill(0);
        }
    }
}

#[derive(Clone, Debug)]
enum NameOp {
    Link(String, usize),
    Rename(String, String),
    Unlink(String),
}

fn perform(names: &mut BTreeMap<String, usize>, op: &NameOp) {
    match op {
        NameOp::Link(name, inode) => {
            names.insert(name.clone(), *inode);
        }
        NameOp::Rename(from, to) => {
            if let Some(inode) = names.remove(from) {
                names.insert(to.clone(), inode);
            }
        }
        NameOp::Unlink(name) => {
            names.remove(name);
        }
    }
}

#[derive(Debug, Default)]
struct State {
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    pending_names: Vec<NameOp>,
    operations: u64,
    crash_at: Option<u64>,
    /// Operations that fail without a crash.
    failing: BTreeSet<u64>,
    failing_syncs: BTreeSet<u64>,
    /// Syncs of files whose names contain this fail.
    failing_names: Option<&'static str>,
    syncs: u64,
    failed_syncs: u64,
    capacity: Option<usize>,
}

impl State {
    /// Counts an operation that changes the disk; the one to crash at and all later ones do not happen.
    fn step(&mut self) -> io::Result<()> {
        self.operations += 1;
        match self.crash_at {
            Some(at) if self.operations >= at => Err(io::Error::other("the simulated machine has crashed")),
            _ if self.failing.contains(&self.operations) => Err(io::Error::other("simulated failure")),
            _ => Ok(()),
        }
    }

    fn crashed(&self) -> bool {
        self.crash_at.is_some_and(|at| self.operations >= at)
    }

    fn inode(&self, name: &str) -> io::Result<usize> {
        self.names.get(name).copied().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, name.to_owned()))
    }

    fn rename(&mut self, op: NameOp) {
        perform(&mut self.names, &op);
        self.pending_names.push(op);
    }

    fn sync_inode(&mut self, inode: usize) -> io::Result<()> {
        self.syncs += 1;
        let named = |part| self.names.iter().any(|(name, named)| *named == inode && name.contains(part));
        if self.failing_syncs.contains(&self.syncs) || self.failing_names.is_some_and(named) {
            self.failed_syncs += 1;
            self.inodes[inode].give_up();
            return Err(io::Error::other("simulated fsync failure"));
        }
        self.inodes[inode].sync();
        Ok(())
    }

    fn used(&self) -> usize {
        self.names.values().map(|inode| self.inodes[*inode].current.len()).sum()
    }
}

/// A disk in memory whose faults are chosen by the test.
#[derive(Clone, Debug, Default)]
pub struct SimulatedDisk(Arc<Mutex<State>>);

impl SimulatedDisk {
    /// An empty disk without faults.
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no code panics while it holds the simulated disk")
    }

    /// How many operations that change the disk have been asked for.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// How often a file has been synced.
    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// How many syncs have failed.
    pub fn failed_syncs(&self) -> u64 {
        self.state().failed_syncs
    }

    /// Crashes at the given operation, counted from 1: it and all later ones fail.
    pub fn crash_at(&self, operation: u64) {
        self.state().crash_at = Some(operation);
    }

    /// Takes the crash back: only the process died, and what was not synced is still in the page cache.
    pub fn only_the_process_died(&self) {
        self.state().crash_at = None;
    }

    /// Lets one sync of a file fail, counted from 1.
    pub fn fail_sync(&self, sync: u64) {
        self.state().failing_syncs.insert(sync);
    }

    /// Lets every sync fail of a file whose name contains this.
    pub fn fail_syncs_of(&self, part: &'static str) {
        self.state().failing_names = Some(part);
    }

    /// Lets one operation fail, counted from 1; what it was to do may have happened half.
    pub fn fail_at(&self, operation: u64) {
        self.state().failing.insert(operation);
    }

    /// Limits the bytes of all files together.
    pub fn set_capacity(&self, bytes: Option<usize>) {
        self.state().capacity = bytes;
    }

    /// Changes one byte of a file, now and durably.
    pub fn flip(&self, name: &str, offset: usize, mask: u8) {
        let mut state = self.state();
        let inode = *state.names.get(name).expect("the test names a file that exists");
        state.inodes[inode].current[offset] ^= mask;
        state.inodes[inode].durable = state.inodes[inode].current.clone();
    }

    /// The names and bytes of all files as a running process sees them.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let state = self.state();
        state.names.iter().map(|(name, inode)| (name.clone(), state.inodes[*inode].current.clone())).collect()
    }

    /// A disk that holds just these files, durably.
    pub fn with_files(files: BTreeMap<String, Vec<u8>>) -> Self {
        let mut state = State::default();
        for (name, bytes) in files {
            state.names.insert(name, state.inodes.len());
            state.inodes.push(Inode::new(bytes));
        }
        state.durable_names = state.names.clone();
        SimulatedDisk(Arc::new(Mutex::new(state)))
    }

    /// What is found after the machine comes up again; the seed decides what of the unsynced survives.
    pub fn reboot(&self, crash: Crash, seed: u64) -> Self {
        let state = self.state();
        let mut rng = Rng(seed);
        let mut names = state.durable_names.clone();
        for op in &state.pending_names {
            let keep = match crash {
                Crash::LoseAll => false,
                Crash::KeepAll => true,
                Crash::Torn | Crash::Holes => rng.below(2) == 0,
            };
            if keep {
                perform(&mut names, op);
            }
        }
        let files = names.into_iter().map(|(name, inode)| (name, surviving(&state.inodes[inode], crash, &mut rng)));
        Self::with_files(files.collect())
    }
}

fn surviving(inode: &Inode, crash: Crash, rng: &mut Rng) -> Vec<u8> {
    let Some(unsynced) = inode.current.strip_prefix(&*inode.durable) else {
        // Cut and not synced: either length may be found.
        let keep_cut = crash == Crash::KeepAll || (crash != Crash::LoseAll && rng.below(2) == 0);
        return if keep_cut { inode.current.clone() } else { inode.durable.clone() };
    };
    let mut bytes = inode.durable.clone();
    match crash {
        Crash::LoseAll => {}
        Crash::KeepAll => bytes.extend_from_slice(unsynced),
        Crash::Torn => bytes.extend_from_slice(&unsynced[..rng.below(unsynced.len() + 1)]),
        Crash::Holes => {
            let start = bytes.len();
            bytes.extend_from_slice(unsynced);
            for (at, byte) in bytes.iter_mut().enumerate().skip(start) {
                if Rng(rng.0 ^ (at / SECTOR_BYTES) as u64).below(2) == 0 {
                    *byte = 0;
                }
            }
        }
    }
    bytes
}

/// SplitMix64: a few lines, and the same answers everywhere.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % bound.max(1) as u64) as usize
    }
}

impl Disk for SimulatedDisk {
    fn list(&self) -> io::Result<Vec<FileInfo>> {
        let state = self.state();
        let info = |(name, inode): (&String, &usize)| FileInfo {
            name: name.clone(),
            len: state.inodes[*inode].current.len() as u64,
        };
        Ok(state.names.iter().map(info).collect())
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn io::Read + Send>> {
        let state = self.state();
        let inode = state.inode(name)?;
        Ok(Box::new(io::Cursor::new(state.inodes[inode].current.clone())))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        if state.crashed() {
            return Err(state.step().expect_err("it has crashed"));
        }
        let stepped = state.step();
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = state.inodes.len();
        state.inodes.push(Inode::default());
        state.rename(NameOp::Link(name.to_owned(), inode));
        stepped?;
        Ok(Box::new(SimulatedFile { disk: self.clone(), inode }))
    }

    fn reopen(&self, name: &str, len: u64) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        let inode = state.inode(name)?;
        if state.inodes[inode].current.len() as u64 != len {
            state.step()?;
            state.inodes[inode].cut(len as usize);
        }
        Ok(Box::new(SimulatedFile { disk: self.clone(), inode }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        if state.crashed() {
            return state.step();
        }
        // The operation at which the machine dies may still have reached the disk: it stays pending, and `reboot`
        // decides.
        let stepped = state.step();
        state.inode(from)?;
        state.rename(NameOp::Rename(from.to_owned(), to.to_owned()));
        stepped
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        if state.crashed() {
            return state.step();
        }
        let stepped = state.step();
        state.inode(name)?;
        state.rename(NameOp::Unlink(name.to_owned()));
        stepped
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut state = self.state();
        state.step()?;
        state.pending_names.clear();
        state.durable_names = state.names.clone();
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let state = self.state();
        Ok(state.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(state.used()) as u64))
    }
}

struct SimulatedFile {
    disk: SimulatedDisk,
    inode: usize,
}

impl DiskFile for SimulatedFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.state();
        if state.crashed() {
            return state.step();
        }
        let stepped = state.step();
        let bytes = if stepped.is_err() && !state.crashed() { &bytes[..bytes.len() / 2] } else { bytes };
        let room = state.capacity.map_or(usize::MAX, |capacity| capacity.saturating_sub(state.used()));
        let kept = bytes.len().min(room);
        state.inodes[self.inode].current.extend_from_slice(&bytes[..kept]);
        stepped?;
        if kept < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.disk.state();
        let stepped = state.step();
        if stepped.is_err() && !state.crashed() {
            state.inodes[self.inode].give_up();
        }
        stepped?;
        state.sync_inode(self.inode)
    }
}
