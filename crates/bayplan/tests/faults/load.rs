//! The load on ConfigMaps: registers, objects that come and go, and lists, each recorded as its client saw it.

use std::collections::BTreeMap;
use std::time::Duration;

use bayplan_testkit::Rng;
use http::Method;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::history::{Action, Doubt, Listed, Operation, Promise, Register, text_of};
use crate::requests::{ApiClient, Reply, version};

/// The namespace of everything that the load writes.
pub(crate) const NAMESPACE: &str = "faults";
/// The keys of its ConfigMaps in etcd.
pub(crate) const CONFIG_MAP_KEYS: &str = "/registry/configmaps/faults/";
/// Their collection.
pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/faults/configmaps";

/// Registers at once.
const REGISTERS: usize = 3;
/// Clients of the registers; half of them at each server.
const REGISTER_CLIENTS: usize = 4;
/// Clients that create, update and delete objects of their own.
const WRITERS: usize = 2;
/// The pause between two requests of a client: a dozen processes share a few processors.
const PAUSE: Duration = Duration::from_millis(60);
/// The pause between two lists.
const LIST_PAUSE: Duration = Duration::from_millis(600);

/// What the clients of one fault recorded.
#[derive(Default)]
pub(crate) struct Records {
    pub(crate) promises: Vec<Promise>,
    pub(crate) registers: Vec<Register>,
    pub(crate) lists: Vec<Listed>,
}

enum Record {
    Promises(Vec<Promise>),
    Operations(Vec<(usize, Operation)>),
    Lists(Vec<Listed>),
}

/// Clients at work.
pub(crate) struct Load {
    tasks: JoinSet<Record>,
    stop: watch::Sender<bool>,
    names: Vec<String>,
}

impl Load {
    /// Creates the registers of a fault, while all is well, and starts the clients.
    pub(crate) async fn start(clients: &[ApiClient], fault: usize, seed: u64) -> Load {
        let (stop, stopping) = watch::channel(false);
        let names: Vec<String> = (0..REGISTERS).map(|i| format!("register-{fault}-{i}")).collect();
        for name in &names {
            create_register(&clients[0], name).await;
        }
        let mut tasks = JoinSet::new();
        let at = |i: usize| clients[i % clients.len()].clone();
        let rng = |i: usize| Rng::new(seed.wrapping_mul(1_000).wrapping_add(i as u64));
        for i in 0..REGISTER_CLIENTS {
            let client = RegisterClient { client: at(i), names: names.clone(), number: i, rng: rng(i) };
            tasks.spawn(client.run(stopping.clone()));
        }
        for i in 0..WRITERS {
            let prefix = format!("object-{fault}-{i}");
            let writer = Writer { client: at(i), prefix, rng: rng(100 + i), promises: Vec::new() };
            tasks.spawn(writer.run(stopping.clone()));
        }
        tasks.spawn(run_lists(clients.to_vec(), stopping));
        Load { tasks, stop, names }
    }

    /// Lets every client finish what it does, and collects what they recorded.
    pub(crate) async fn finish(mut self) -> Records {
        self.stop.send_replace(true);
        let key = |name: &String| format!("{CONFIG_MAP_KEYS}{name}");
        let registers = self.names.iter().map(|name| Register { key: key(name), ..Register::default() });
        let mut records = Records { registers: registers.collect(), ..Records::default() };
        while let Some(record) = self.tasks.join_next().await {
            match record.unwrap() {
                Record::Promises(promises) => records.promises.extend(promises),
                Record::Lists(lists) => records.lists.extend(lists),
                Record::Operations(operations) => {
                    for (register, operation) in operations {
                        records.registers[register].operations.push(operation);
                    }
                }
            }
        }
        records
    }
}

pub(crate) fn config_map(name: &str, text: &str) -> Value {
    let metadata = json!({"name": name, "namespace": NAMESPACE, "labels": {"load": "true"}});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"value": text}})
}

async fn create_register(client: &ApiClient, name: &str) {
    for _ in 0..20 {
        match client.post(CONFIG_MAPS, &config_map(name, &text_of(0))).await {
            Reply::Done(_) | Reply::Refused(409) => return,
            reply => assert!(!matches!(reply, Reply::Refused(400..429)), "{name}: {reply:?}"),
        }
        tokio::time::sleep(PAUSE).await;
    }
    panic!("{name} cannot be created although no fault is under way");
}

/// Reads and replaces registers.
struct RegisterClient {
    client: ApiClient,
    names: Vec<String>,
    number: usize,
    rng: Rng,
}

impl RegisterClient {
    async fn run(mut self, stopping: watch::Receiver<bool>) -> Record {
        let mut operations = Vec::new();
        // The object as it was last seen: what a write is based on.
        let mut known: BTreeMap<usize, Value> = BTreeMap::new();
        let mut next = u32::try_from(self.number).unwrap() + 1;
        while !*stopping.borrow() {
            let register = self.rng.below(self.names.len());
            let begun = self.client.now();
            let operation = match known.remove(&register) {
                Some(object) if self.rng.one_in(2) => {
                    let to = next;
                    next += u32::try_from(REGISTER_CLIENTS).unwrap();
                    self.write(register, object, to, &mut known).await
                }
                _ => self.read(register, &mut known).await,
            };
            if let Some((action, version)) = operation {
                let ended = version.is_some_and(|version| version > 0) || matches!(action, Action::Conflict { .. });
                let ended = ended.then(|| self.client.now());
                operations.push((register, Operation { begun, ended, action, version }));
            }
            tokio::time::sleep(PAUSE).await;
        }
        Record::Operations(operations)
    }

    async fn read(&self, register: usize, known: &mut BTreeMap<usize, Value>) -> Option<(Action, Option<u64>)> {
        let object = self.client.get(&format!("{CONFIG_MAPS}/{}", self.names[register])).await.done()?;
        let read = (Action::Read(value_of(&object)), Some(version(&object)));
        known.insert(register, object);
        Some(read)
    }

    async fn write(
        &self,
        register: usize,
        mut object: Value,
        to: u32,
        known: &mut BTreeMap<usize, Value>,
    ) -> Option<(Action, Option<u64>)> {
        let from = value_of(&object);
        object["data"]["value"] = json!(text_of(to));
        let path = format!("{CONFIG_MAPS}/{}", self.names[register]);
        match self.client.send(Method::PUT, &path, Some(&object)).await {
            Reply::Done(object) => {
                let version = version(&object);
                known.insert(register, object);
                Some((Action::Write { from, to }, Some(version)))
            }
            Reply::Refused(409) => Some((Action::Conflict { from }, None)),
            Reply::Refused(_) => None,
            Reply::Failed(_) | Reply::Unanswered => Some((Action::Write { from, to }, None)),
        }
    }
}

fn value_of(object: &Value) -> u32 {
    let text = object["data"]["value"].as_str().unwrap_or_default();
    text.trim_matches('v').parse().unwrap_or_else(|_| panic!("not a value of a register: {object}"))
}

/// Creates objects, updates them and deletes half of them; a write without an answer is the last of its object.
struct Writer {
    client: ApiClient,
    prefix: String,
    rng: Rng,
    promises: Vec<Promise>,
}

impl Writer {
    async fn run(mut self, stopping: watch::Receiver<bool>) -> Record {
        for number in 0.. {
            if *stopping.borrow() {
                break;
            }
            let name = format!("{}-{number}", self.prefix);
            let updates = self.rng.below(4);
            let deletes = self.rng.one_in(2);
            let promise = self.life(&name, updates, deletes).await;
            self.promises.push(promise);
        }
        Record::Promises(self.promises)
    }

    async fn life(&self, name: &str, updates: usize, deletes: bool) -> Promise {
        let mut promise = Promise { key: format!("{CONFIG_MAP_KEYS}{name}"), ..Promise::default() };
        let path = format!("{CONFIG_MAPS}/{name}");
        let mut object = config_map(name, "");
        for turn in 0..=updates {
            let text = format!("{name}-text-{turn}.");
            object["data"]["value"] = json!(text);
            let reply = match turn {
                0 => self.client.post(CONFIG_MAPS, &object).await,
                _ => self.client.send(Method::PUT, &path, Some(&object)).await,
            };
            tokio::time::sleep(PAUSE).await;
            match reply {
                Reply::Done(written) => {
                    promise.acknowledged.push((version(&written), text));
                    object = written;
                }
                // Refused although nobody else writes it: too many requests at once.
                Reply::Refused(_) => return promise,
                Reply::Failed(_) | Reply::Unanswered => {
                    promise.doubt = Some(Doubt::Write(text));
                    return promise;
                }
            }
        }
        if deletes {
            match self.client.send(Method::DELETE, &path, None).await {
                Reply::Done(_) => promise.deleted = true,
                Reply::Refused(_) => {}
                Reply::Failed(_) | Reply::Unanswered => promise.doubt = Some(Doubt::Delete),
            }
        }
        promise
    }
}

/// Lists through each server in turn.
async fn run_lists(clients: Vec<ApiClient>, stopping: watch::Receiver<bool>) -> Record {
    let mut lists = Vec::new();
    for turn in 0.. {
        if *stopping.borrow() {
            break;
        }
        let client: &ApiClient = &clients[turn % clients.len()];
        let begun = client.now();
        if let Some(list) = client.get(CONFIG_MAPS).await.done() {
            let (revision, objects) = (version(&list), objects_of(&list, CONFIG_MAP_KEYS));
            lists.push(Listed { begun, ended: client.now(), revision, objects });
        }
        tokio::time::sleep(LIST_PAUSE).await;
    }
    Record::Lists(lists)
}

/// The keys in etcd and the versions of a list's objects.
pub(crate) fn objects_of(list: &Value, prefix: &str) -> BTreeMap<String, u64> {
    let items = list["items"].as_array().into_iter().flatten();
    items.map(|item| (format!("{prefix}{}", item["metadata"]["name"].as_str().unwrap()), version(item))).collect()
}
