//! The cost of a request grows in a line with its size, for every list, map and text of every kind.
//!
//! The cases are made from the schema: a value of n bytes and one of 4n bytes at a place go through the request path,
//! by every verb that writes. Allocations may grow six-fold. The processor's time is a coarse second measure for what
//! allocates nothing, such as the comparison of each with each: it may grow nine-fold, where a square grows
//! sixteen-fold.
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![allow(clippy::print_stderr, reason = "the long form says how far it is")]

mod support;

use std::time::Duration;

use bayplan_model::schema::Type;
use bytes::Bytes;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value, json};
use support::places::{Place, places, sample};
use support::{Client, cluster, objects};
use tokio::runtime::Runtime;

/// The largest body, in bytes.
const BODY_MAX: usize = 3 * 1024 * 1024;
/// The first pair of sizes is this and four times this.
const BYTES_MIN: usize = 8 * 1024;
/// The second size of the second pair is at most this. What is steep and takes little even so is too long for the
/// largest bodies.
const BYTES_MAX: usize = 256 * 1024;
/// What the smaller request must take for the growth of its time to mean something. If the first does not, the second
/// pair is larger.
const TIME_MIN: Duration = Duration::from_millis(4);
/// The most that allocations, and the bytes in them, may grow when the size grows four-fold: buffers double at sizes of
/// their own, so that one of few large ones may be copied once more (5.4-fold was seen), but a square is sixteen-fold.
const ALLOCATIONS_GROW_MAX: f64 = 6.0;
/// The most that the time may grow, between a line (four-fold) and a square (sixteen-fold).
const TIME_GROWS_MAX: f64 = 9.0;
/// An answer has a message and its causes, each of which quotes what is wrong once, and then some.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// What one request took.
#[derive(Clone, Copy, Debug)]
struct Cost {
    code: u16,
    allocations: u64,
    allocated_bytes: u64,
    time: Duration,
    answer_bytes: usize,
}

impl Cost {
    /// The lower of two measurements of one request: what is more, others on the machine caused.
    fn or(self, other: Cost) -> Cost {
        Cost { time: self.time.min(other.time), ..self }
    }
}

/// A request whose body can be made in any size.
struct Case {
    title: String,
    method: &'static str,
    path: String,
    content_type: &'static str,
    body: Box<dyn Fn(usize) -> Vec<u8>>,
}

/// The server on the thread that measures.
struct Bench {
    runtime: Runtime,
    admin: Client,
}

impl Bench {
    fn new() -> Bench {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let admin = runtime.block_on(cluster()).admin;
        Bench { runtime, admin }
    }

    /// Stores an object under this name for each kind of the places.
    fn store(&self, places: &[Place], name: &str) {
        let mut done = std::collections::BTreeSet::new();
        // Events of both groups are one kind.
        for kind in places.iter().map(|place| place.kind).filter(|kind| done.insert(kind.storage_prefix)) {
            let (path, object) = (objects::collection(kind), objects::object(kind, name));
            let (code, answer) = self.runtime.block_on(self.admin.json("POST", &path, object));
            assert_eq!(code, 201, "{}: {answer}", kind.kind);
        }
    }

    fn send(&self, case: &Case, bytes: usize) -> Cost {
        let body = Bytes::from((case.body)(bytes));
        let mut answer = None;
        let started = thread_time();
        let counted = allocation_counter::measure(|| {
            let response = self.admin.send(case.method, &case.path, case.content_type, body);
            answer = Some(self.runtime.block_on(async { support::bytes(response.await).await }));
        });
        let time = thread_time().saturating_sub(started);
        let (code, answer) = answer.unwrap();
        assert!(!answer.windows(19).any(|part| part == b"apiserver to panic."), "{}: {code}", case.title);
        Cost {
            code,
            allocations: counted.count_total,
            allocated_bytes: counted.bytes_total,
            time,
            answer_bytes: answer.len(),
        }
    }

    fn pair(&self, case: &Case, bytes: usize) -> Pair {
        self.pair_of((case, bytes), (case, 4 * bytes))
    }

    /// The costs of two requests. When the time seems to grow too fast, others on the machine may have caused it: they
    /// are sent again.
    fn pair_of(&self, (few, bytes): (&Case, usize), (many, large): (&Case, usize)) -> Pair {
        let mut pair = Pair { bytes, small: self.send(few, bytes), large: self.send(many, large) };
        for _ in 0..3 {
            if pair.time_grows() <= TIME_GROWS_MAX {
                break;
            }
            pair.small = pair.small.or(self.send(few, bytes));
            pair.large = pair.large.or(self.send(many, large));
        }
        pair
    }

    /// What is wrong with how a request grows, if anything is.
    fn judge(&self, case: &Case) -> Option<String> {
        let mut pair = self.pair(case, BYTES_MIN);
        if pair.small.time < TIME_MIN {
            let times = TIME_MIN.as_nanos() / pair.small.time.as_nanos().max(1);
            let larger = BYTES_MIN.saturating_mul(usize::try_from(times).unwrap_or(usize::MAX));
            pair = self.pair(case, larger.clamp(BYTES_MIN, BYTES_MAX / 4));
        }
        // An empty struct of three bytes is answered with its required fields.
        if pair.large.answer_bytes > ANSWER_BYTES_MAX + 12 * 4 * pair.bytes {
            return Some(format!("{}: too large an answer: {pair:?}", case.title));
        }
        // A request that was refused at another step is another request.
        if pair.small.code != pair.large.code {
            return None;
        }
        if pair.allocations_grow() > ALLOCATIONS_GROW_MAX {
            let other = self.pair(case, other_size(pair.bytes));
            if other.allocations_grow() > ALLOCATIONS_GROW_MAX {
                return Some(format!("{}: allocations × {:.1}: {pair:?}", case.title, pair.allocations_grow()));
            }
        }
        let steep = pair.time_grows() > TIME_GROWS_MAX;
        steep.then(|| format!("{}: time × {:.1}: {pair:?}", case.title, pair.time_grows()))
    }
}

/// A size between this and its double. A buffer that doubles as it grows may have done so just before the end of one of
/// four times this size; it has not at the other.
fn other_size(bytes: usize) -> usize {
    bytes + bytes * 2 / 5
}

/// A request and one with four times the data.
#[derive(Debug)]
struct Pair {
    bytes: usize,
    small: Cost,
    large: Cost,
}

impl Pair {
    /// How much the allocations grow, by number or by bytes, whichever is more.
    fn allocations_grow(&self) -> f64 {
        let grows = |of: fn(&Cost) -> u64| of(&self.large) as f64 / of(&self.small).max(1) as f64;
        grows(|cost| cost.allocations).max(grows(|cost| cost.allocated_bytes))
    }

    fn time_grows(&self) -> f64 {
        self.large.time.as_secs_f64() / self.small.time.max(TIME_MIN).as_secs_f64()
    }
}

/// The processor's time that this thread has used.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

/// How the elements of a value are made.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// Nothing in them.
    Empty,
    /// All different, with what is required.
    Distinct,
    /// All equal.
    Equal,
    /// All different, with names that are not allowed.
    Bad,
}

const FORMS: [Form; 4] = [Form::Empty, Form::Distinct, Form::Equal, Form::Bad];

fn element(of: &Type, form: Form, number: usize) -> Value {
    match (form, of) {
        (Form::Empty, Type::Object(_) | Type::Raw | Type::Fields | Type::Map(..)) => json!({}),
        (Form::Empty, Type::List(..)) => json!([]),
        (Form::Empty, Type::String(_) | Type::Bytes) => json!(""),
        (Form::Equal, _) => sample(of, 1),
        (Form::Bad, _) => spoilt(sample(of, number)),
        _ => sample(of, number),
    }
}

/// The value with texts that nothing allows.
fn spoilt(value: Value) -> Value {
    match value {
        Value::String(text) => json!(format!("-{text}!")),
        Value::Array(list) => Value::Array(list.into_iter().map(spoilt).collect()),
        Value::Object(map) => Value::Object(map.into_iter().map(|(key, value)| (key, spoilt(value))).collect()),
        other => other,
    }
}

/// A value of about so many bytes.
fn sized(ty: &Type, form: Form, bytes: usize) -> Value {
    match ty {
        Type::List(of, _) => {
            let each = element(of, form, 10_000).to_string().len() + 1;
            Value::Array((0..bytes / each).map(|number| element(of, form, number)).collect())
        }
        Type::Map(of, _) => {
            let key = |number: usize| match form {
                Form::Bad => format!("-{number}!"),
                _ => format!("k{number}"),
            };
            let each = element(of, form, 1).to_string().len() + key(10_000).len() + 4;
            let entries = (0..bytes / each).map(|number| (key(number), element(of, form, number)));
            Value::Object(entries.collect::<Map<_, _>>())
        }
        _ => match form {
            Form::Empty => json!("a".repeat(bytes)),
            Form::Distinct => json!("a.b-c/".repeat(bytes / 6)),
            Form::Equal => json!("\n".repeat(bytes / 2)),
            Form::Bad => json!("=%,[(!".repeat(bytes / 6)),
        },
    }
}

fn case(title: &str, place: &Place, form: Form, request: Request) -> Case {
    let title = format!("{title} {} {form:?}", place.name());
    let (collection, place) = (objects::collection(place.kind), place.clone());
    let one = format!("{collection}/{}?dryRun=All", objects::name(place.kind, "stored"));
    let (method, path, content_type) = match request {
        Request::Create(content_type) => ("POST", format!("{collection}?dryRun=All"), content_type),
        Request::Update => ("PUT", one, "application/json"),
        Request::Merge => ("PATCH", one, "application/merge-patch+json"),
        Request::Strategic => ("PATCH", one, "application/strategic-merge-patch+json"),
        Request::Json | Request::JsonOneByOne => ("PATCH", one, "application/json-patch+json"),
    };
    let body = move |bytes: usize| {
        let value = sized(place.ty, form, bytes);
        let body = match request {
            Request::Create(_) => place.object("new", value),
            Request::Update => place.object("stored", value),
            Request::Merge | Request::Strategic => place.part(value),
            Request::Json => json!([{"op": "add", "path": place.pointer(), "value": value}]),
            Request::JsonOneByOne => one_by_one(&place, value),
        };
        body.to_string().into_bytes()
    };
    Case { title, method, path, content_type, body: Box::new(body) }
}

/// A patch that adds each element at the front of the list, or each entry of the map, by an operation of its own.
fn one_by_one(place: &Place, value: Value) -> Value {
    let add = |path: String, value: Value| json!({"op": "add", "path": path, "value": value});
    let at = place.pointer();
    // The parents first, for an object that has none of them.
    let start = place.part(if value.is_array() { json!([]) } else { json!({}) });
    let mut operations: Vec<Value> =
        start.as_object().into_iter().flatten().map(|(key, part)| add(format!("/{key}"), part.clone())).collect();
    match value {
        Value::Array(list) => operations.extend(list.into_iter().map(|value| add(format!("{at}/0"), value))),
        Value::Object(map) => {
            operations.extend(map.into_iter().map(|(key, value)| add(format!("{at}/{key}"), value)));
        }
        other => operations.push(add(at, other)),
    }
    operations.into()
}

#[derive(Clone, Copy)]
enum Request {
    Create(&'static str),
    Update,
    Merge,
    Strategic,
    Json,
    JsonOneByOne,
}

const REQUESTS: [(&str, Request); 7] = [
    ("create", Request::Create("application/json")),
    ("create from YAML", Request::Create("application/yaml")),
    ("update", Request::Update),
    ("merge patch", Request::Merge),
    ("strategic merge patch", Request::Strategic),
    ("JSON patch", Request::Json),
    ("JSON patch one by one", Request::JsonOneByOne),
];

fn is_list_or_map(ty: &Type) -> bool {
    matches!(ty, Type::List(..) | Type::Map(..))
}

fn grows(ty: &Type) -> bool {
    is_list_or_map(ty) || matches!(ty, Type::String(_) | Type::Bytes)
}

#[track_caller]
fn report(failures: &[String], tried: usize) {
    assert!(tried > 100, "only {tried} cases were tried");
    assert!(failures.is_empty(), "{} of {tried} cases grow too fast:\n{}", failures.len(), failures.join("\n"));
}

/// Each list and map where the schema has it first, created; the other requests take turns.
#[test]
fn requests_with_four_times_the_data_cost_at_most_four_times_as_much_and_some() {
    let places = places(false, is_list_or_map);
    let bench = Bench::new();
    bench.store(&places, "stored");
    let mut failures = Vec::new();
    for (number, place) in places.iter().enumerate() {
        failures.extend(bench.judge(&case("create", place, FORMS[number % FORMS.len()], REQUESTS[0].1)));
        if number.is_multiple_of(3) {
            let (title, request) = REQUESTS[1 + number / 3 % (REQUESTS.len() - 1)];
            failures.extend(bench.judge(&case(title, place, FORMS[number / 7 % FORMS.len()], request)));
        }
    }
    report(&failures, places.len());
}

/// The smaller of the sizes of the stored objects that are compared.
const STORED_BYTES: usize = 32 * 1024;

/// Small changes of an object, which is as large as it is.
fn changes(path: &str, object: &Value) -> Vec<Case> {
    let label = json!({"metadata": {"labels": {"changed": "yes"}}});
    let mut replaced = object.clone();
    replaced["metadata"]["labels"] = json!({"changed": "yes"});
    let added = json!([{"op": "add", "path": "/metadata/annotations", "value": {"changed": "yes"}}]);
    let requests = [
        ("update", "PUT", "application/json", replaced),
        ("merge patch", "PATCH", "application/merge-patch+json", label.clone()),
        ("strategic merge patch", "PATCH", "application/strategic-merge-patch+json", label),
        ("JSON patch", "PATCH", "application/json-patch+json", added),
    ];
    let case = |(title, method, content_type, body): (&str, _, _, Value)| {
        let (title, path, body) = (title.to_owned(), format!("{path}?dryRun=All"), body.to_string().into_bytes());
        Case { title, method, path, content_type, body: Box::new(move |_| body.clone()) }
    };
    requests.into_iter().map(case).collect()
}

/// Every list and map that can be large in an object that is stored.
#[test]
fn a_change_of_a_stored_object_four_times_as_large_costs_at_most_four_times_as_much_and_some() {
    let places = places(false, is_list_or_map);
    let bench = Bench::new();
    let (mut failures, mut tried) = (Vec::new(), 0);
    for (number, place) in places.iter().enumerate() {
        let changes = |bytes: usize| stored_changes(&bench, place, &format!("s{number}-{bytes}"), bytes);
        let pairs = |bytes: usize| -> Option<Vec<Pair>> {
            let (few, many) = (changes(bytes)?, changes(4 * bytes)?);
            let pair = |(few, many): (&Case, &Case)| bench.pair_of((few, bytes), (many, 4 * bytes));
            Some(few.iter().zip(&many).map(pair).collect())
        };
        let is_steep = |pair: &Pair| {
            pair.small.code == pair.large.code
                && (pair.allocations_grow() > ALLOCATIONS_GROW_MAX || pair.time_grows() > TIME_GROWS_MAX)
        };
        let Some(first) = pairs(STORED_BYTES) else { continue };
        tried += first.len();
        if first.iter().any(is_steep) {
            let again = pairs(other_size(STORED_BYTES)).unwrap_or_default();
            let steep = first.iter().zip(&again).filter(|(first, again)| is_steep(first) && is_steep(again));
            failures.extend(steep.map(|(pair, _)| format!("a change of {}: {pair:?}", place.name())));
        }
    }
    report(&failures, tried);
}

/// Stores an object with a value of so many bytes; the changes of it that are tried, unless it is refused.
fn stored_changes(bench: &Bench, place: &Place, name: &str, bytes: usize) -> Option<Vec<Case>> {
    let object = place.object(name, sized(place.ty, Form::Distinct, bytes));
    let collection = objects::collection(place.kind);
    let (code, object) = bench.runtime.block_on(bench.admin.json("POST", &collection, object));
    (code == 201).then(|| changes(&format!("{collection}/{}", objects::name(place.kind, name)), &object))
}

#[test]
fn a_service_costs_the_same_beside_many_others() {
    let bench = Bench::new();
    let services = "/api/v1/namespaces/default/services";
    let create = |name: &str| {
        let service = json!({"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
        let body = service.to_string().into_bytes();
        let case = Case {
            title: "a service".into(),
            method: "POST",
            path: services.into(),
            content_type: "application/json",
            body: Box::new(move |_| body.clone()),
        };
        let cost = bench.send(&case, 0);
        assert_eq!(cost.code, 201, "{name}");
        cost.allocations
    };
    create("first");
    let among_few = create("second");
    for number in 0..500 {
        create(&format!("s{number}"));
    }
    let among_many = create("last");
    assert!(among_many < 2 * among_few, "{among_few} allocations among few, {among_many} among many");
}

/// Every list, map and text, made in each form and sent by each request that can carry it. Each processor takes every
/// so-manieth place, with a server of its own.
#[test]
#[ignore = "minutes in a release build: cargo test --release -p bayplan-apiserver --test growth -- --ignored"]
fn every_request_about_every_field_grows_in_a_line() {
    let places = places(false, grows);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let judged = std::thread::scope(|scope| {
        let places = &places;
        let threads: Vec<_> = (0..cores).map(|core| scope.spawn(move || judge_each(places, core, cores))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let tried = judged.iter().map(|(_, tried)| tried).sum();
    let failures: Vec<String> = judged.into_iter().flat_map(|(failures, _)| failures).collect();
    report(&failures, tried);
}

/// What is wrong with the places that are one processor's, and the number of cases.
fn judge_each(places: &[Place], core: usize, cores: usize) -> (Vec<String>, usize) {
    let bench = Bench::new();
    bench.store(places, "stored");
    let (mut failures, mut tried) = (Vec::new(), 0);
    for (number, place) in places.iter().enumerate().skip(core).step_by(cores) {
        if (number - core).is_multiple_of(100 * cores) {
            eprintln!("{number} of {} places, at {}", places.len(), place.name());
        }
        // One by one is nothing else for a text.
        let requests = if is_list_or_map(place.ty) { &REQUESTS[..] } else { &REQUESTS[..REQUESTS.len() - 1] };
        for (title, request) in requests {
            for form in FORMS {
                tried += 1;
                if let Some(failure) = bench.judge(&case(title, place, form, *request)) {
                    eprintln!("{failure}");
                    failures.push(failure);
                }
            }
        }
    }
    (failures, tried)
}

#[test]
#[ignore = "ten minutes, and means something in a release build only: see above"]
fn the_largest_bodies_take_less_than_a_second() {
    let places = places(false, grows);
    let bench = Bench::new();
    bench.store(&places, "stored");
    let (mut failures, mut tried) = (Vec::new(), 0);
    for place in &places {
        let few = [(Form::Empty, REQUESTS[0])];
        let many = [Form::Empty, Form::Distinct].map(|form| [(form, REQUESTS[0]), (form, REQUESTS[4])]);
        let requests = if is_list_or_map(place.ty) { many.as_flattened() } else { &few };
        for (form, (title, request)) in requests {
            let case = case(title, place, *form, *request);
            tried += 1;
            let mut took = bench.send(&case, BODY_MAX - 64 * 1024).time;
            for _ in 0..2 {
                if took > Duration::from_secs(1) {
                    took = took.min(bench.send(&case, BODY_MAX - 64 * 1024).time);
                }
            }
            if took > Duration::from_secs(1) {
                eprintln!("{}: {took:?}", case.title);
                failures.push(format!("{}: {took:?}", case.title));
            }
        }
    }
    report(&failures, tried);
}

/// The bodies that took minutes, each with four times of what a second was too little for.
#[test]
fn small_bodies_cost_little() {
    let bench = Bench::new();
    let pods = places(false, is_list_or_map);
    let at = |name: &str| pods.iter().find(|place| place.name() == name).unwrap_or_else(|| panic!("no {name}"));
    for (place, form) in [
        ("Pod.metadata.ownerReferences", Form::Distinct),
        ("Pod.metadata.ownerReferences", Form::Empty),
        ("Pod.spec.containers", Form::Empty),
        ("Pod.metadata.labels", Form::Bad),
    ] {
        let case = case("create", at(place), form, REQUESTS[0].1);
        assert_eq!(bench.judge(&case), None);
        let cost = bench.send(&case, 256 * 1024);
        // A debug build beside others: a release build takes a twentieth of it.
        assert!(cost.time < Duration::from_secs(20), "{}: {cost:?}", case.title);
        assert!(cost.answer_bytes < ANSWER_BYTES_MAX, "{}: {cost:?}", case.title);
    }
}
