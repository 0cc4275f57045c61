//! The answers of an extender's server, over a real connection.
//!
//! Input: `filter`, `prioritize`, `preempt` or `bind`, with `names` if the extender caches nodes, and with `raw` if
//! what follows is the whole HTTP answer; a newline; the body of the answer, or those bytes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use bayplan_model::node::Node;
use bayplan_model::pod::Pod;
use bayplan_runner::extender::HttpExtender;
use bayplan_scheduler::extender::{Extender, PassedNodes};
use bayplan_scheduler::{Candidate, NodeInfo, PodInfo};
use serde_json::json;

use crate::{bounded, first_line};

/// Bytes allocated for each byte of an answer: `{},` is a node, decoded and kept with its manifest.
const FACTOR: u64 = 8192;

/// The verbs that an answer can be for.
const VERBS: [&str; 4] = ["filter", "prioritize", "preempt", "bind"];

struct Served {
    runtime: tokio::runtime::Runtime,
    whole: HttpExtender,
    names: HttpExtender,
    answer: Arc<Mutex<Answer>>,
    pod: PodInfo,
    nodes: Vec<NodeInfo>,
}

#[derive(Default)]
struct Answer {
    bytes: Vec<u8>,
    /// Whether the bytes are all there is, so that the connection closes after them.
    raw: bool,
}

/// One server for all inputs; inputs take turns.
static SERVED: LazyLock<Mutex<Served>> = LazyLock::new(|| Mutex::new(serve()));

pub(crate) fn run(data: &[u8]) {
    let served = SERVED.lock().unwrap_or_else(PoisonError::into_inner);
    let (line, bytes) = first_line(data);
    let mut words = line.split(' ');
    let verb = words.next().and_then(|word| VERBS.into_iter().find(|verb| *verb == word)).unwrap_or("filter");
    let (mut names, mut raw) = (false, false);
    for word in words {
        names |= word == "names";
        raw |= word == "raw";
    }
    *served.answer.lock().unwrap_or_else(PoisonError::into_inner) = Answer { bytes: bytes.to_vec(), raw };
    let extender = if names { &served.names } else { &served.whole };
    bounded::work(bytes.len(), FACTOR, "an answer", || match ask(&served, extender, verb) {
        Ok(()) => {}
        Err(error) => bounded::text(bytes.len(), "an answer", &error),
    });
}

fn ask(served: &Served, extender: &HttpExtender, verb: &str) -> Result<(), String> {
    let nodes: Vec<&NodeInfo> = served.nodes.iter().collect();
    match verb {
        "filter" => {
            let result = extender.filter(&served.pod, &nodes).map_err(|error| error.to_string())?;
            if let PassedNodes::Nodes(nodes) = &result.passed {
                assert!(nodes.iter().all(|node| node.manifest.is_some()), "a node without what to send on");
            }
        }
        "prioritize" => drop(extender.prioritize(&served.pod, &nodes).map_err(|error| error.to_string())?),
        "preempt" => {
            let candidate = Candidate { node: "a".into(), victims: Vec::new(), pdb_violations: 0 };
            drop(extender.process_preemption(&served.pod, &[candidate]).map_err(|error| error.to_string())?);
        }
        _ => served.runtime.block_on(extender.bind(&served.pod, "a")).map_err(|error| error.to_string())?,
    }
    Ok(())
}

fn serve() -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port of the loopback");
    let url = format!("http://{}/", listener.local_addr().expect("it listens"));
    let answer: Arc<Mutex<Answer>> = Arc::default();
    let shared = answer.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = shared.clone();
            // A client that goes away is no concern of the server.
            std::thread::spawn(move || drop(reply(&stream, &answer)));
        }
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let extender = |names: bool| {
        let _inside = runtime.enter();
        let config = json!({
            "urlPrefix": url, "filterVerb": "filter", "prioritizeVerb": "prioritize", "weight": 1,
            "preemptVerb": "preempt", "bindVerb": "bind", "httpTimeout": "5s", "nodeCacheCapable": names,
        });
        HttpExtender::new(serde_json::from_value(config).expect("a configuration")).expect("an extender")
    };
    let (whole, names) = (extender(false), extender(true));
    let mut pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p", "uid": "u"}})).expect("a pod");
    pod.manifest = Some("{}".into());
    let node = |name: &str| {
        let mut node: Node = serde_json::from_value(json!({"metadata": {"name": name}})).expect("a node");
        node.manifest = Some("{}".into());
        NodeInfo::of(Arc::new(node))
    };
    Served { whole, names, runtime, answer, pod: PodInfo::new(Arc::new(pod)), nodes: vec![node("a"), node("b")] }
}

/// Answers the requests of a connection.
fn reply(stream: &TcpStream, answer: &Mutex<Answer>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut requests = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if requests.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        requests.read_exact(&mut body)?;
        let Answer { bytes, raw } = std::mem::take(&mut *answer.lock().unwrap_or_else(PoisonError::into_inner));
        let mut stream = stream;
        if raw {
            return stream.write_all(&bytes);
        }
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", bytes.len());
        stream.write_all(&[head.as_bytes(), &bytes].concat())?;
    }
}
