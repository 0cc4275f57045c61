use std::sync::Mutex;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::*;

/// One Lease with optimistic concurrency, and a log of what was asked.
#[derive(Default)]
struct Server {
    lease: Mutex<Option<Value>>,
    log: Mutex<Vec<&'static str>>,
    down: Mutex<bool>,
}

impl Server {
    fn answer(&self, verb: &Verb) -> Result<Bytes, Status> {
        let mut lease = self.lease.lock().unwrap();
        let down = *self.down.lock().unwrap();
        let logged = |what| self.log.lock().unwrap().push(what);
        let version = |lease: &Value| lease["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
        match verb {
            Verb::Get => logged("GET"),
            Verb::Create(_) => logged("POST"),
            Verb::Update(_) => logged("PUT"),
            other => panic!("{other:?}"),
        }
        let next = match (verb, &*lease) {
            _ if down => return Err(Status::failure(0, reason::SERVICE_UNAVAILABLE, "down")),
            (Verb::Get, None) => return Err(Status::failure(404, reason::NOT_FOUND, "none")),
            (Verb::Get, Some(lease)) => return Ok(encode(lease)),
            (Verb::Create(_), Some(_)) => return Err(Status::failure(409, reason::ALREADY_EXISTS, "there")),
            (Verb::Create(body), None) => {
                let mut new: Value = serde_json::from_slice(body).unwrap();
                new["metadata"]["resourceVersion"] = "1".into();
                new
            }
            (Verb::Update(body), Some(old)) => {
                let mut new: Value = serde_json::from_slice(body).unwrap();
                if version(&new) != version(old) {
                    return Err(Status::failure(409, reason::CONFLICT, "changed"));
                }
                new["metadata"]["resourceVersion"] = (version(old) + 1).to_string().into();
                new
            }
            other => panic!("{other:?}"),
        };
        *lease = Some(next.clone());
        Ok(encode(&next))
    }

    fn spec(&self, field: &str) -> Value {
        self.lease.lock().unwrap().as_ref().unwrap()["spec"][field].clone()
    }

    fn log(&self) -> String {
        std::mem::take(&mut *self.log.lock().unwrap()).join(" ")
    }
}

impl Api for Server {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Bytes, Status>> {
        let answer = self.answer(&request.verb);
        Box::pin(async move { answer })
    }
}

/// The server answers at once, so nothing ever waits.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().unwrap()
}

fn candidate(identity: &str) -> Election {
    Election::new(Config { identity: identity.into(), ..Config::new("kube-scheduler") })
}

fn at(seconds: u64) -> ClockReading {
    let wall = Timestamp::from_second(1_767_225_600 + i64::try_from(seconds).unwrap()).unwrap();
    ClockReading { steady: Duration::from_secs(seconds), wall }
}

fn attempt(election: &mut Election, server: &Server, seconds: u64) -> bool {
    block_on(election.attempt(server, &move || at(seconds))).is_ok()
}

#[test]
fn the_first_candidate_creates_the_lease_and_renews_without_reading() {
    let (server, mut a) = (Server::default(), candidate("a"));
    assert!(attempt(&mut a, &server, 0));
    assert_eq!(server.log(), "GET POST");
    assert_eq!(
        server.lease.lock().unwrap().as_ref().unwrap()["spec"],
        json!({
            "holderIdentity": "a", "leaseDurationSeconds": 15, "leaseTransitions": 0,
            "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z",
        })
    );
    assert!(attempt(&mut a, &server, 2));
    assert_eq!(server.log(), "PUT");
    assert_eq!(server.spec("renewTime"), "2026-01-01T00:00:02.000000Z");
    assert_eq!(server.spec("acquireTime"), "2026-01-01T00:00:00.000000Z");
}

#[test]
fn another_candidate_waits_a_whole_lease_from_its_own_last_observation() {
    let (server, mut a, mut b) = (Server::default(), candidate("a"), candidate("b"));
    assert!(attempt(&mut a, &server, 0));
    assert!(!attempt(&mut b, &server, 10), "held");
    assert!(attempt(&mut a, &server, 12));
    assert!(!attempt(&mut b, &server, 14), "renewed");
    assert!(!attempt(&mut b, &server, 28), "seen to change at 14, valid until 29");
    server.log();
    assert!(attempt(&mut b, &server, 29));
    assert_eq!(server.log(), "GET PUT");
    assert_eq!((server.spec("holderIdentity"), server.spec("leaseTransitions")), ("b".into(), 1.into()));
    assert_eq!(server.spec("acquireTime"), "2026-01-01T00:00:29.000000Z");
}

#[test]
fn a_leader_that_lost_its_lease_finds_out_and_does_not_overwrite_it() {
    let (server, mut a, mut b) = (Server::default(), candidate("a"), candidate("b"));
    assert!(attempt(&mut a, &server, 0));
    assert!(!attempt(&mut b, &server, 1));
    assert!(attempt(&mut b, &server, 16));
    server.log();
    assert!(!attempt(&mut a, &server, 14), "its optimistic write conflicts, then it reads");
    assert_eq!(server.log(), "PUT GET");
    assert!(!a.is_leader());
    assert_eq!(server.spec("holderIdentity"), "b");
}

#[test]
fn a_leader_whose_lease_ran_out_reads_before_it_writes() {
    let (server, mut a) = (Server::default(), candidate("a"));
    assert!(attempt(&mut a, &server, 0));
    server.log();
    assert!(attempt(&mut a, &server, 15));
    assert_eq!(server.log(), "GET PUT");
    assert_eq!(server.spec("leaseTransitions"), 0, "it never changed hands");
}

#[test]
fn a_released_lease_is_free_at_once() {
    let (server, mut a, mut b) = (Server::default(), candidate("a"), candidate("b"));
    assert!(attempt(&mut a, &server, 0));
    block_on(a.release(&server, at(3))).unwrap();
    assert!(!a.is_leader());
    assert_eq!((server.spec("holderIdentity"), server.spec("leaseDurationSeconds")), (Value::Null, 1.into()));
    assert!(attempt(&mut b, &server, 3));
    assert_eq!(server.spec("leaseTransitions"), 1);
    server.log();
    block_on(a.release(&server, at(4))).unwrap();
    assert_eq!(server.log(), "", "who does not lead has nothing to release");
}

#[test]
fn an_unreachable_server_elects_nobody() {
    let (server, mut a) = (Server::default(), candidate("a"));
    *server.down.lock().unwrap() = true;
    assert!(!attempt(&mut a, &server, 0));
    assert!(!a.is_leader());
}

#[test]
fn fields_of_others_survive_a_renewal() {
    let (server, mut a) = (Server::default(), candidate("a"));
    assert!(attempt(&mut a, &server, 0));
    {
        let mut lease = server.lease.lock().unwrap();
        let lease = lease.as_mut().unwrap();
        lease["spec"]["strategy"] = "OldestEmulationVersion".into();
        lease["metadata"]["labels"] = json!({ "x": "y" });
        lease["metadata"]["resourceVersion"] = "9".into();
    }
    assert!(attempt(&mut a, &server, 2));
    let lease = server.lease.lock().unwrap().clone().unwrap();
    assert_eq!(lease["spec"]["strategy"], "OldestEmulationVersion");
    assert_eq!(lease["metadata"]["labels"]["x"], "y");
}

#[test]
fn identities_are_a_host_and_a_uuid() {
    let identity = fresh_identity();
    let (host, uuid) = identity.rsplit_once('_').unwrap();
    let groups: Vec<usize> = uuid.split('-').map(str::len).collect();
    assert!(!host.is_empty() && groups == [8, 4, 4, 4, 12], "{identity}");
    assert_eq!(&uuid[14..15], "4");
    assert_ne!(identity, fresh_identity());
}
