//! The machine that the store runs on: its disk, which can fill up, fail and crash, and the witness of every change.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bayplan_store::disk::{Crash, Disk, DiskFile, FileInfo, SimulatedDisk};
use bayplan_store::{LogStore, Options, Revision, Steps, Store};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::bugs::Bug;
use crate::leases::Leases;
use crate::plan::Form;
use crate::points::Point;
use crate::shared::Shared;
use crate::signal::Signal;
use crate::store::FaultyStore;

/// A machine.
pub(crate) struct Machine {
    shared: Arc<Shared>,
    pub(crate) disk: SimulatedDisk,
    opened: Option<Opened>,
    cancel: Signal,
    leases: Leases,
}

struct Opened {
    store: Arc<LogStore>,
    bell: Arc<Notify>,
    tasks: Vec<JoinHandle<()>>,
}

impl Machine {
    pub(crate) fn new(shared: &Arc<Shared>) -> Machine {
        Machine {
            shared: shared.clone(),
            disk: SimulatedDisk::new(),
            opened: None,
            cancel: Signal::default(),
            leases: Leases::default(),
        }
    }

    /// Opens the store, and begins to witness its changes where the last witness stopped.
    pub(crate) async fn open(&mut self) -> Result<(), String> {
        let lying = Lying { disk: self.disk.clone(), bug: self.shared.plan.bug };
        // Small files, so that a run comes to several segments and snapshots.
        let options = Options { segment_bytes: 96 << 10, garbage_bytes_min: 96 << 10, ..Options::default() };
        let (store, steps) = LogStore::open_stepped(Arc::new(lying), options).map_err(|error| error.to_string())?;
        let (store, bell) = (Arc::new(store), Arc::new(Notify::new()));
        let last = self.shared.ledger().last;
        let revision = store.revision().await.map_err(|error| error.to_string())?;
        if revision < last {
            self.shared.violate(format!("the store came back at revision {revision}, but had shown {last}"));
        }
        if last == 0 {
            self.shared.ledger().last = revision;
        }
        let disk = tokio::spawn(run_disk(self.shared.clone(), bell.clone(), Mutex::new(steps)));
        let witness = tokio::spawn(witness(self.shared.clone(), store.clone(), last.max(1).min(revision)));
        let mut tasks = vec![disk, witness];
        if self.shared.plan.form == Form::Etcd {
            tasks.push(tokio::spawn(self.leases.clone().expire(self.shared.clone(), store.clone(), bell.clone())));
        }
        self.opened = Some(Opened { store, bell, tasks });
        Ok(())
    }

    /// The process that has the store dies.
    pub(crate) async fn close(&mut self) {
        let Some(opened) = self.opened.take() else { return };
        for task in opened.tasks {
            task.abort();
            // It was told to end.
            let _ = task.await;
        }
    }

    /// The power goes, and comes back.
    pub(crate) async fn crash(&mut self, crash: Crash, seed: u64) {
        self.close().await;
        self.disk = self.disk.reboot(crash, seed);
    }

    /// The store, for a server.
    pub(crate) fn store(&self, server: usize) -> Option<Arc<dyn Store>> {
        let opened = self.opened.as_ref()?;
        let (shared, inner, bell) = (self.shared.clone(), opened.store.clone(), opened.bell.clone());
        Some(Arc::new(FaultyStore {
            shared,
            inner,
            bell,
            server,
            cancelled: self.cancel.clone(),
            leases: self.leases.clone(),
        }))
    }

    /// Forgets all history.
    pub(crate) async fn compact(&mut self) {
        let Some(opened) = &mut self.opened else { return };
        let Ok(revision) = opened.store.revision().await else { return };
        let store = opened.store.clone();
        // Compacting takes a turn of the disk, which may be full or gone: nobody waits for it.
        opened.tasks.push(tokio::spawn(async move { drop(store.compact(revision).await) }));
        tokio::task::yield_now().await;
        opened.bell.notify_one();
    }

    /// Ends all watches of the store.
    pub(crate) fn cancel_watches(&self) {
        self.cancel.raise();
    }

    /// Compares the store with what was witnessed.
    pub(crate) async fn audit(&self) {
        let Some(opened) = &self.opened else { return };
        let range = match opened.store.range("/registry/", "/registry0", None, 0).await {
            Ok(range) => range,
            Err(error) => return self.shared.violate(format!("the store cannot be read in the end: {error}")),
        };
        let ledger = self.shared.ledger();
        let same = range.entries.iter().eq(ledger.state.values());
        drop(ledger);
        if !same {
            self.shared.violate("what the store holds is not what it has shown".to_owned());
        }
    }
}

/// Does the work of the disk: what waits is written together, a moment later.
async fn run_disk(shared: Arc<Shared>, bell: Arc<Notify>, steps: Mutex<Steps>) {
    loop {
        bell.notified().await;
        let slow = shared.lasts(Point::DiskSlow, None);
        let millis = if slow { 50 + shared.draw(1500) } else { shared.draw(3) };
        sleep(Duration::from_millis(millis)).await;
        steps.lock().unwrap_or_else(PoisonError::into_inner).step();
    }
}

/// Sees every change of the store.
async fn witness(shared: Arc<Shared>, store: Arc<LogStore>, after: Revision) {
    let mut changes = match store.watch("", "\u{10ffff}", after).await {
        Ok(changes) => changes,
        Err(error) => return shared.violate(format!("the history after revision {after} is gone: {error}")),
    };
    while let Ok(changes) = changes.next().await {
        let before = shared.ledger().violations.len();
        for change in &changes {
            shared.ledger().witness(change, shared.elapsed());
        }
        let broken: Vec<String> = shared.ledger().violations.split_off(before);
        broken.into_iter().for_each(|broken| shared.violate(broken));
    }
}

/// A disk that lies where a bug is planted: as if the store did not ask it.
struct Lying {
    disk: SimulatedDisk,
    bug: Option<Bug>,
}

struct LyingFile(Box<dyn DiskFile>);

impl Lying {
    fn file(&self, file: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        if self.bug == Some(Bug::SkippedSync) { Box::new(LyingFile(file)) } else { file }
    }
}

impl DiskFile for LyingFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.append(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Disk for Lying {
    fn list(&self) -> io::Result<Vec<FileInfo>> {
        self.disk.list()
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn io::Read + Send>> {
        self.disk.read(name)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.file(self.disk.create(name)?))
    }

    fn reopen(&self, name: &str, len: u64) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.file(self.disk.reopen(name, len)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn sync_dir(&self) -> io::Result<()> {
        if self.bug == Some(Bug::SkippedFolderSync) { Ok(()) } else { self.disk.sync_dir() }
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }
}
