//! Writes and linearizable reads per second through the store, beside reads that each ask etcd themselves:
//! `cargo run --release -p bayplan-etcd --example throughput -- http://127.0.0.1:2379`. The etcd should be empty.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement for a person")]

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bayplan_etcd::{EtcdStore, Options};
use bayplan_store::Store;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};

/// How long each figure is measured.
const MEASURED: Duration = Duration::from_secs(3);
/// Bytes of a value: about a pod.
const VALUE_BYTES: usize = 1024;

/// A read of one key, by the field that etcd needs.
#[derive(Clone, PartialEq, prost::Message)]
struct Get {
    #[prost(string, tag = "1")]
    key: String,
}

/// An answer that is not looked at.
#[derive(Clone, PartialEq, prost::Message)]
struct Answer {}

#[tokio::main]
async fn main() {
    let address = std::env::args().nth(1).expect("the address of an etcd");
    let store = Arc::new(EtcdStore::connect(Options::new([address.clone()])).await.unwrap());
    let channel = Endpoint::from_shared(address).unwrap().tcp_nodelay(true).connect().await.unwrap();
    println!("{}; values of {VALUE_BYTES} bytes, {MEASURED:?} each, per second", store.describe());
    println!("{:>8} {:>10} {:>10} {:>14}", "callers", "writes", "gets", "etcd's gets");
    for callers in [1, 16, 256] {
        let writes = measure(callers, |caller| write(store.clone(), callers, caller)).await;
        let gets = measure(callers, |caller| get(store.clone(), callers, caller)).await;
        let direct = measure(callers, |caller| get_directly(channel.clone(), callers, caller)).await;
        println!("{callers:>8} {writes:>10} {gets:>10} {direct:>14}");
    }
}

fn key(callers: usize, caller: usize) -> String {
    format!("/registry/throughput/{callers}/{caller}")
}

/// How often all callers together got something done in a second.
async fn measure<F>(callers: usize, mut start: impl FnMut(usize) -> F) -> u64
where
    F: Future<Output = Box<dyn FnMut() -> Step + Send>> + Send,
{
    let (done, until) = (Arc::new(AtomicU64::new(0)), Instant::now() + MEASURED);
    let mut tasks = tokio::task::JoinSet::new();
    for caller in 0..callers {
        let (mut step, done) = (start(caller).await, done.clone());
        tasks.spawn(async move {
            while Instant::now() < until {
                step().await;
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    tasks.join_all().await;
    done.load(Ordering::Relaxed) / MEASURED.as_secs()
}

type Step = futures::future::BoxFuture<'static, ()>;

async fn write(store: Arc<EtcdStore>, callers: usize, caller: usize) -> Box<dyn FnMut() -> Step + Send> {
    let key = key(callers, caller);
    let created = store.create(&key, vec![b'x'; VALUE_BYTES].into()).await.unwrap();
    let at = Arc::new(AtomicU64::new(created));
    Box::new(move || {
        let (store, key, at) = (store.clone(), key.clone(), at.clone());
        Box::pin(async move {
            let value = vec![b'x'; VALUE_BYTES];
            let written = store.update(&key, value.into(), at.load(Ordering::Relaxed)).await.unwrap();
            at.store(written, Ordering::Relaxed);
        })
    })
}

async fn get(store: Arc<EtcdStore>, callers: usize, caller: usize) -> Box<dyn FnMut() -> Step + Send> {
    let key = key(callers, caller);
    Box::new(move || {
        let (store, key) = (store.clone(), key.clone());
        Box::pin(async move { assert!(store.get(&key).await.unwrap().is_some()) })
    })
}

async fn get_directly(channel: Channel, callers: usize, caller: usize) -> Box<dyn FnMut() -> Step + Send> {
    let key = key(callers, caller);
    Box::new(move || {
        let (mut grpc, request) = (Grpc::new(channel.clone()), tonic::Request::new(Get { key: key.clone() }));
        Box::pin(async move {
            grpc.ready().await.unwrap();
            let path = http::uri::PathAndQuery::from_static("/etcdserverpb.KV/Range");
            let codec = tonic_prost::ProstCodec::<Get, Answer>::default();
            grpc.unary(request, path, codec).await.unwrap();
        })
    })
}
