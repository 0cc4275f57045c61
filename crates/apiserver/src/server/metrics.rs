//! What the server counts of itself, under kube-apiserver's names and labels (`/metrics`).

use std::sync::Arc;
use std::time::Duration;

use bayplan_metrics::{Buckets, Counter, Family, Gauge, Histogram, ONES, Registry, SECONDS};
use tokio::time::Instant;

use super::ResponseBody;
use super::body::counted;
use super::flow::{FlowMetrics, WatchCount};
use super::report::Report;
use crate::measured_store::StorageMetrics;
use crate::registry;
use crate::request::{Query, RequestInfo, Verb};

/// The labels of a resource in a request, in the order in which [`Subject::values`] gives them.
const SUBJECT: &[&str] = &["verb", "group", "version", "resource", "subresource", "scope", "component"];
const WITH_DRY_RUN: &[&str] = &["verb", "group", "version", "resource", "subresource", "scope", "component", "dry_run"];
const WITH_CODE: &[&str] =
    &["verb", "group", "version", "resource", "subresource", "scope", "component", "dry_run", "code"];

/// The bounds of upstream's request durations.
const DURATIONS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];
/// The bounds of what is left of a client certificate's life: half an hour, hours, days, months of thirty days.
const CERTIFICATE_LIVES: [f64; 14] = [
    0.0,
    1_800.0,
    3_600.0,
    7_200.0,
    21_600.0,
    43_200.0,
    86_400.0,
    172_800.0,
    345_600.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
];

/// The metrics of the server.
pub(crate) struct ServerMetrics {
    registry: Registry,
    requests: Requests,
    watches: Watches,
    pub(super) flow: FlowMetrics,
    pub(crate) storage: StorageMetrics,
    certificate_lives: Arc<Histogram>,
    authentications: Family<Counter>,
}

/// Requests from their head to the last byte of their answer.
struct Requests {
    total: Family<Counter>,
    durations: Family<Histogram>,
    sli_durations: Family<Histogram>,
    sizes: Family<Histogram>,
    terminations: Family<Counter>,
    long_running: Family<Gauge>,
    in_flight: Family<Gauge>,
}

impl Requests {
    fn new(registry: &Registry) -> Requests {
        let durations = || Buckets::new(DURATIONS.to_vec(), SECONDS);
        let total = registry.family("apiserver_request_total", "[STABLE] Requests that were answered.", WITH_CODE, ());
        let requests = Requests {
            total,
            durations: registry.family(
                "apiserver_request_duration_seconds",
                "[STABLE] Time from the head of a request to the last byte of its answer.",
                WITH_DRY_RUN,
                durations(),
            ),
            sli_durations: registry.family(
                "apiserver_request_sli_duration_seconds",
                "[BETA] The same without watches and without the time spent waiting for a seat.",
                SUBJECT,
                durations(),
            ),
            sizes: registry.family(
                "apiserver_response_sizes",
                "[STABLE] Bytes of the answers to reads.",
                SUBJECT,
                Buckets::exponential(1000.0, 10.0, 7, ONES),
            ),
            terminations: registry.family(
                "apiserver_request_terminations_total",
                "[ALPHA] Requests that the server gave up in self-defence.",
                WITH_CODE_ONLY,
                (),
            ),
            long_running: registry.family("apiserver_longrunning_requests", "[STABLE] Open watches.", SUBJECT, ()),
            in_flight: registry.family(
                "apiserver_current_inflight_requests",
                "[STABLE] Requests that are being answered, watches left out.",
                &["request_kind"],
                (),
            ),
        };
        // Dashboards divide by these from the first scrape on.
        for kind in ["mutating", "readOnly"] {
            requests.in_flight.get(&[kind]).set(0.0);
        }
        requests
    }
}

/// What is sent to watches.
struct Watches {
    events: Family<Counter>,
    event_sizes: Family<Histogram>,
}

impl Watches {
    fn new(registry: &Registry) -> Watches {
        let kind = &["group", "version", "resource"];
        Watches {
            events: registry.family("apiserver_watch_events_total", "[ALPHA] Events sent to watches.", kind, ()),
            event_sizes: registry.family(
                "apiserver_watch_events_sizes",
                "[ALPHA] Bytes of the events sent to watches.",
                kind,
                Buckets::exponential(1024.0, 2.0, 8, ONES),
            ),
        }
    }
}

impl ServerMetrics {
    /// Registers the metrics.
    pub(crate) fn new(registry: &Registry) -> ServerMetrics {
        let unavailable = registry.family::<Gauge>(
            "aggregator_unavailable_apiservice",
            "[ALPHA] Groups and versions that are not served although they are known; all of ours are in this process.",
            &["name"],
            (),
        );
        for kind in bayplan_kinds::served() {
            unavailable.get(&[&format!("{}.{}", kind.version, kind.group)]).set(0.0);
        }
        ServerMetrics {
            registry: registry.clone(),
            requests: Requests::new(registry),
            watches: Watches::new(registry),
            flow: FlowMetrics::new(registry),
            storage: StorageMetrics::new(registry),
            certificate_lives: registry.one(
                "apiserver_client_certificate_expiration_seconds",
                "[ALPHA] What is left of the lives of client certificates, at each request with one.",
                Buckets::new(CERTIFICATE_LIVES.to_vec(), ONES),
            ),
            authentications: registry.family(
                "authentication_attempts",
                "[ALPHA] Requests by whether their sender could be authenticated.",
                &["result"],
                (),
            ),
        }
    }

    /// A request that begins.
    pub(super) fn begin(self: &Arc<Self>, info: &RequestInfo, query: &Query) -> Begun {
        let subject = Subject::of(info, query);
        let gauge = if info.long_running() {
            self.requests.long_running.get(&subject.values())
        } else {
            self.requests.in_flight.get(&[if info.verb.is_read() { "readOnly" } else { "mutating" }])
        };
        gauge.add(1.0);
        let is_long_running = info.long_running();
        Begun {
            metrics: self.clone(),
            subject,
            gauge,
            started: Instant::now(),
            is_long_running,
            waited: Duration::ZERO,
            report: None,
        }
    }

    /// An event that a watch sends.
    pub(crate) fn watch_series(&self, kind: &bayplan_kinds::Kind) -> WatchSeries {
        let labels = [kind.group, kind.version, kind.plural];
        let (events, sizes) = (self.watches.events.get(&labels), self.watches.event_sizes.get(&labels));
        WatchSeries { events, sizes, _counted: None }
    }

    /// A request whose sender was looked up.
    pub(super) fn authenticated(&self, result: &str) {
        self.authentications.get(&[result]).inc();
    }

    /// A request with a client certificate that is good for so long.
    pub(super) fn certificate_life(&self, left: Duration) {
        self.certificate_lives.observe(left.as_secs());
    }

    /// The text of a scrape.
    pub(super) async fn scrape(&self, registry: &registry::Registry) -> String {
        self.storage.publish(registry).await;
        self.registry.render()
    }
}

/// What is added to gauges for as long as it lives.
pub(super) struct Occupied(Box<[(Arc<Gauge>, f64)]>);

impl Occupied {
    pub(super) fn new(gauges: Box<[(Arc<Gauge>, f64)]>) -> Self {
        gauges.iter().for_each(|(gauge, by)| gauge.add(*by));
        Occupied(gauges)
    }
}

impl Drop for Occupied {
    fn drop(&mut self) {
        self.0.iter().for_each(|(gauge, by)| gauge.add(-by));
    }
}

const WITH_CODE_ONLY: &[&str] = &["verb", "group", "version", "resource", "subresource", "scope", "component", "code"];

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The series of one watch.
pub(crate) struct WatchSeries {
    events: Arc<Counter>,
    sizes: Arc<Histogram>,
    _counted: Option<WatchCount>,
}

impl WatchSeries {
    /// Counts the watch among those that writes wake, as long as it is open.
    pub(super) fn counted(self, watch: Option<WatchCount>) -> WatchSeries {
        WatchSeries { _counted: watch, ..self }
    }

    /// An event of so many bytes.
    pub(crate) fn sent(&self, bytes: usize) {
        self.events.inc();
        self.sizes.observe(bytes as u64);
    }
}

/// What a request is about, as labels. Names that no kind has become empty: clients choose them, and each would be a
/// series of its own.
struct Subject {
    verb: &'static str,
    group: &'static str,
    version: &'static str,
    resource: &'static str,
    subresource: &'static str,
    scope: &'static str,
    component: &'static str,
    dry_run: &'static str,
}

impl Subject {
    fn of(info: &RequestInfo, query: &Query) -> Subject {
        let kind = info.resource();
        let verb = label_of(&info.verb);
        let dry_run = if query.all("dryRun").any(|value| value == "All") { "All" } else { "" };
        let Some(kind) = kind else {
            let subresource = NON_RESOURCE.iter().find(|path| is_below(&info.path, path)).copied().unwrap_or_default();
            let (group, version, resource, scope, component) = ("", "", "", "", "");
            return Subject { verb, group, version, resource, subresource, scope, component, dry_run };
        };
        let subresource = kind.subresource(&info.subresource).map_or("", |subresource| subresource.name);
        // As upstream's `CleanScope`.
        let scope = match () {
            () if !info.name.is_empty() || info.verb == Verb::Create => "resource",
            () if !info.namespace.is_empty() => "namespace",
            () => "cluster",
        };
        let (group, version, resource, component) = (kind.group, kind.version, kind.plural, "apiserver");
        Subject { verb, group, version, resource, subresource, scope, component, dry_run }
    }

    fn values(&self) -> [&'static str; 7] {
        [self.verb, self.group, self.version, self.resource, self.subresource, self.scope, self.component]
    }
}

/// The paths without a resource that have series of their own.
const NON_RESOURCE: [&str; 10] = [
    "/healthz",
    "/livez",
    "/readyz",
    "/metrics",
    "/version",
    "/openapi",
    "/apis",
    "/api",
    "/openid/v1/jwks",
    "/.well-known/openid-configuration",
];

fn is_below(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The verb as upstream's metrics name it: the method, or what a GET or DELETE of a collection is.
fn label_of(verb: &Verb) -> &'static str {
    match verb.as_str() {
        "get" => "GET",
        "list" => "LIST",
        "watch" => "WATCH",
        "create" | "post" => "POST",
        "update" | "put" => "PUT",
        "patch" => "PATCH",
        "delete" => "DELETE",
        "deletecollection" => "DELETECOLLECTION",
        "head" => "HEAD",
        "options" => "OPTIONS",
        _ => "other",
    }
}

/// A request between its head and the last byte of its answer.
pub(super) struct Begun {
    metrics: Arc<ServerMetrics>,
    subject: Subject,
    gauge: Arc<Gauge>,
    started: Instant,
    is_long_running: bool,
    waited: Duration,
    /// What the log or a trace is told of it, if they are.
    pub(super) report: Option<Box<Report>>,
}

impl Begun {
    /// The verb as metrics and the log name it.
    pub(super) fn verb(&self) -> &'static str {
        self.subject.verb
    }

    /// The request waited for a seat.
    pub(super) fn waited(&mut self, time: Duration) {
        self.waited = time;
    }

    /// The answer is known; its body counts and ends the measurement.
    pub(super) fn answered(self, code: u16, body: ResponseBody) -> ResponseBody {
        let (number, code) = (code, code.to_string());
        let [verb, group, version, resource, subresource, scope, component] = self.subject.values();
        let dry_run = self.subject.dry_run;
        let labels = [verb, group, version, resource, subresource, scope, component, dry_run, &code];
        self.metrics.requests.total.get(&labels).inc();
        if matches!(code.as_str(), "429" | "504") {
            let labels = [verb, group, version, resource, subresource, scope, component, &code];
            self.metrics.requests.terminations.get(&labels).inc();
        }
        counted(body, move |bytes| self.sent(number, bytes))
    }

    fn sent(mut self, code: u16, bytes: u64) {
        if let Some(report) = self.report.take() {
            report.end(code, bytes);
        }
        let [verb, group, version, resource, subresource, scope, component] = self.subject.values();
        let labels = [verb, group, version, resource, subresource, scope, component, self.subject.dry_run];
        let taken = self.started.elapsed();
        self.metrics.requests.durations.get(&labels).observe(nanos(taken));
        if !self.is_long_running {
            self.metrics.requests.sli_durations.get(&labels[..7]).observe(nanos(taken.saturating_sub(self.waited)));
        }
        if matches!(verb, "GET" | "LIST") {
            self.metrics.requests.sizes.get(&labels[..7]).observe(bytes);
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.gauge.add(-1.0);
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use http_body_util::{BodyExt, Full};

    use super::*;

    fn begin(metrics: &Arc<ServerMetrics>, method: Method, path: &str) -> Begun {
        let uri: http::Uri = path.parse().unwrap();
        let query = Query::parse(uri.query().unwrap_or_default());
        metrics.begin(&RequestInfo::parse(&method, uri.path(), &query), &query)
    }

    const WATCHED_PODS: [&str; 7] = ["WATCH", "", "v1", "pods", "", "cluster", "apiserver"];

    fn body(text: &'static str) -> ResponseBody {
        Full::from(text).boxed_unsync()
    }

    #[tokio::test]
    async fn requests_are_counted_under_upstreams_labels() {
        let registry = Registry::default();
        let metrics = Arc::new(ServerMetrics::new(&registry));
        let cases = [
            (Method::GET, "/api/v1/namespaces/a/pods", 200),
            (Method::POST, "/api/v1/namespaces/a/pods?dryRun=All", 201),
            (Method::PATCH, "/apis/apps/v1/namespaces/a/deployments/d/scale", 200),
            (Method::GET, "/api/v1/pods", 504),
            (Method::GET, "/readyz/etcd", 200),
            (Method::GET, "/apis/chosen.example/v1/by-a-client", 404),
        ];
        for (method, path, code) in cases {
            drop(begin(&metrics, method, path).answered(code, body("twelve bytes")));
        }
        let text = registry.render();
        let requests = |labels: [&str; 9]| metrics.requests.total.get(&labels).get();
        let pods = ["", "v1", "pods", ""];
        let of_pods = |verb, scope, dry_run, code| {
            requests([verb, pods[0], pods[1], pods[2], pods[3], scope, "apiserver", dry_run, code])
        };
        assert_eq!(of_pods("LIST", "namespace", "", "200"), 1);
        assert_eq!(of_pods("POST", "resource", "All", "201"), 1);
        assert_eq!(requests(["PATCH", "apps", "v1", "deployments", "scale", "resource", "apiserver", "", "200"]), 1);
        assert_eq!(requests(["GET", "", "", "", "/readyz", "", "", "", "200"]), 1);
        let given_up = ["LIST", "", "v1", "pods", "", "cluster", "apiserver", "504"];
        assert_eq!(metrics.requests.terminations.get(&given_up).get(), 1);
        assert_eq!(metrics.requests.in_flight.get(&["readOnly"]).get(), 0.0);
        assert!(!text.contains("chosen.example") && !text.contains("by-a-client"), "{text}");
    }

    #[tokio::test]
    async fn a_request_is_in_flight_until_its_last_byte_is_sent() {
        let registry = Registry::default();
        let metrics = Arc::new(ServerMetrics::new(&registry));
        let in_flight = metrics.requests.in_flight.get(&["readOnly"]);
        let answer = begin(&metrics, Method::GET, "/api/v1/pods").answered(200, body("twelve bytes"));
        assert_eq!(in_flight.get(), 1.0);
        assert_eq!(answer.collect().await.unwrap().to_bytes().len(), 12);
        assert_eq!(in_flight.get(), 0.0);
        let sizes = metrics.requests.sizes.get(&["LIST", "", "v1", "pods", "", "cluster", "apiserver"]);
        assert_eq!((sizes.count(), registry.render().contains("verb=\"LIST\",version=\"v1\"} 12\n")), (1, true));
        let watch = begin(&metrics, Method::GET, "/api/v1/pods?watch=1").answered(200, body(""));
        assert_eq!(metrics.requests.long_running.get(&WATCHED_PODS).get(), 1.0);
        drop(watch);
        assert_eq!(metrics.requests.long_running.get(&WATCHED_PODS).get(), 0.0);
        // A watch lasts as long as its client wants: it is no promise that the server made.
        assert_eq!(metrics.requests.sli_durations.get(&WATCHED_PODS).count(), 0);
    }
}
