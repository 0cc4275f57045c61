//! `kill -9` under load: nothing acknowledged is lost, revisions never go back, watchers resume.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bayplan_client::Client;
use bayplan_client::informer::{Informer, Scope};
use bayplan_model::api::{Api, DeleteOptions, ListOptions, Request, Resource, Verb};
use bayplan_model::meta::PartialObjectMetadata;
use bayplan_testkit::free_ports;
use bytes::Bytes;

/// How often the process is killed; each time after another number of acknowledged writes.
const KILLS: u64 = 12;
/// How many clients write at once, so that writes share fsyncs and die together.
const WRITERS: usize = 8;
/// How long a cluster may take to do what it must; generous because shared machines stall.
const PATIENCE: Duration = Duration::from_secs(60);

const CONFIG_MAPS: Resource = Resource::new("", "v1", "configmaps");

struct Server(Child);

impl Server {
    fn start(folder: &Path, port: u16) -> Server {
        let mut process = Command::new(env!("CARGO_BIN_EXE_bayplan"))
            .args(["up", "--nodes", "2", "--port", &port.to_string(), "--data-dir"])
            .arg(folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        lines.by_ref().map(Result::unwrap).find(|line| line.contains("Try")).expect("bayplan up came up");
        std::thread::spawn(move || lines.for_each(drop));
        Server(process)
    }

    fn kill(mut self) {
        // std's kill is SIGKILL: the process gets no chance to flush anything.
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// What the server has promised: name to the resource version of the last acknowledged write, `None` once deleted.
#[derive(Default)]
struct Promises {
    objects: BTreeMap<String, Option<u64>>,
    /// Names whose last write was not answered: it may or may not have happened.
    in_doubt: BTreeMap<String, ()>,
    newest: u64,
    acknowledged: u64,
}

fn version_of(answer: &Bytes) -> u64 {
    let object: PartialObjectMetadata = serde_json::from_slice(answer).unwrap();
    object.metadata.resource_version.parse().unwrap()
}

/// Writes until told to stop: creates, and every third object is deleted again.
async fn write(client: Client, writer: usize, round: u64, promises: Arc<Mutex<Promises>>, stop: Arc<AtomicBool>) {
    for count in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let name = format!("c-{round}-{writer}-{count}");
        let body = serde_json::json!({"metadata": {"name": name}, "data": {"padding": "x".repeat(200)}});
        let create = Request::collection(&CONFIG_MAPS, "default", Verb::Create(body.to_string().into()));
        promises.lock().unwrap().in_doubt.insert(name.clone(), ());
        let Ok(answer) = client.call(create).await else { return };
        {
            let mut promises = promises.lock().unwrap();
            let version = version_of(&answer);
            promises.in_doubt.remove(&name);
            promises.objects.insert(name.clone(), Some(version));
            promises.newest = promises.newest.max(version);
            promises.acknowledged += 1;
        }
        if count % 3 == 0 {
            promises.lock().unwrap().in_doubt.insert(name.clone(), ());
            let delete = Verb::Delete(DeleteOptions::default());
            if client.call(Request::object(&CONFIG_MAPS, "default", &name, delete)).await.is_err() {
                return;
            }
            let mut promises = promises.lock().unwrap();
            promises.in_doubt.remove(&name);
            promises.objects.insert(name, None);
            promises.acknowledged += 1;
        }
    }
}

async fn list(client: &Client) -> (u64, BTreeMap<String, u64>) {
    let list = Request::collection(&CONFIG_MAPS, "default", Verb::List(ListOptions::default()));
    let answer = client.call(list).await.unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
    let version = |meta: &serde_json::Value| meta["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    let items = answer["items"].as_array().unwrap().iter();
    let items = items.map(|item| (item["metadata"]["name"].as_str().unwrap().into(), version(&item["metadata"])));
    (version(&answer["metadata"]), items.collect())
}

/// Resolves doubts by what is there now: after a restart, done or not done is settled for ever.
fn settle(promises: &mut Promises, found: &BTreeMap<String, u64>) {
    for (name, ()) in std::mem::take(&mut promises.in_doubt) {
        promises.objects.insert(name.clone(), found.get(&name).copied());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_cluster_keeps_every_acknowledged_write() {
    let folder = tempfile::tempdir().unwrap();
    // The same port for every restart: nobody else may take it while the server is down.
    let [port] = free_ports();
    let kubeconfig = folder.path().join("kubeconfig");
    let promises = Arc::new(Mutex::new(Promises::default()));
    let mut server = Server::start(folder.path(), port);
    let client = Client::from_kubeconfig(Some(&kubeconfig), None).await.unwrap();

    // One watcher lives through all of it, as a controller would.
    let mut informer = Informer::<PartialObjectMetadata>::new(&client, Scope::all(&CONFIG_MAPS).namespace("default"));
    let watched = informer.cache(&[]);
    let _informer = informer.spawn();

    for round in 0..KILLS {
        let stop = Arc::new(AtomicBool::new(false));
        let until = promises.lock().unwrap().acknowledged + 1 + round * round * 3;
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| tokio::spawn(write(client.clone(), writer, round, promises.clone(), stop.clone())))
            .collect();
        let reached = async {
            while promises.lock().unwrap().acknowledged < until {
                tokio::time::sleep(Duration::from_micros(200)).await;
            }
        };
        tokio::time::timeout(PATIENCE, reached).await.expect("writes are acknowledged");
        server.kill();
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.await.unwrap();
        }

        server = Server::start(folder.path(), port);
        let (revision, found) = list(&client).await;
        let mut promises = promises.lock().unwrap();
        assert!(revision >= promises.newest, "revision went back: {revision} < {}", promises.newest);
        settle(&mut promises, &found);
        for (name, promised) in &promises.objects {
            assert_eq!(found.get(name), promised.as_ref(), "round {round}: {name}");
        }
    }

    let (_, found) = list(&client).await;
    let same = async {
        loop {
            let seen: BTreeMap<String, u64> = watched
                .list()
                .iter()
                .map(|o| (o.metadata.name.clone(), o.metadata.resource_version.parse().unwrap()))
                .collect();
            if seen == found {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, same).await.expect("the watcher resumed and saw what the list says");
    server.kill();
}
