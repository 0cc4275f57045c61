//! The store with its requests counted and timed by kind, under upstream's names (`etcd_*`, `apiserver_storage_*`).
//!
//! What upstream counts are round trips to etcd. Here they are calls of the store, embedded or etcd; a read that takes
//! what is known in memory is nobody's request.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bayplan_kinds::Kind;
use bayplan_metrics::{Buckets, Counter, Family, Gauge, Histogram, Registry, SECONDS};
use bayplan_store::{CompactionTurn, Entry, Range, ReadError, Revision, Store, Watch, WriteError};
use bytes::Bytes;
use futures::future::BoxFuture;
use tokio::time::Instant;

use crate::registry;

/// The bounds of upstream's `etcd_request_duration_seconds`.
const DURATIONS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];
/// What is asked of a store, in upstream's words.
const OPERATIONS: [&str; 5] = ["get", "list", "create", "update", "delete"];
/// Upstream's name of the first store; there is no second.
const STORAGE_CLUSTER: &str = "etcd-0";
/// How long a scrape waits for the size of the store.
const SIZE_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Clone, Copy)]
enum Operation {
    Get,
    List,
    Create,
    Update,
    Delete,
}

/// The series of one kind.
struct KindSeries {
    operations: [OperationSeries; OPERATIONS.len()],
    lists: Arc<Counter>,
    fetched: Arc<Counter>,
    unreadable: Arc<Counter>,
}

struct OperationSeries {
    total: Arc<Counter>,
    errors: Arc<Counter>,
    duration: Arc<Histogram>,
}

/// What the server counts of its store.
pub(crate) struct StorageMetrics {
    total: Family<Counter>,
    errors: Family<Counter>,
    durations: Family<Histogram>,
    lists: Family<Counter>,
    fetched: Family<Counter>,
    unreadable: Family<Counter>,
    received: Family<Counter>,
    objects: Family<Gauge>,
    objects_by_group: Family<Gauge>,
    sizes: Family<Gauge>,
    store_size: Family<Gauge>,
}

impl StorageMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let (operation, kind) = (&["operation", "group", "resource"], &["group", "resource"]);
        let gauge = |name, help| registry.family(name, help, kind, ());
        let counter = |name, help| registry.family(name, help, kind, ());
        StorageMetrics {
            total: registry.family("etcd_requests_total", "[ALPHA] Requests to the store.", operation, ()),
            errors: registry.family(
                "etcd_request_errors_total",
                "[ALPHA] Requests that the store could not answer; a conflict is an answer.",
                operation,
                (),
            ),
            durations: registry.family(
                "etcd_request_duration_seconds",
                "[ALPHA] How long the store took, embedded or etcd.",
                operation,
                Buckets::new(DURATIONS.to_vec(), SECONDS),
            ),
            lists: counter("apiserver_storage_list_total", "[ALPHA] Ranges that were read of the store."),
            fetched: counter("apiserver_storage_list_fetched_objects_total", "[ALPHA] Objects in these ranges."),
            unreadable: counter("apiserver_storage_decode_errors_total", "[ALPHA] Stored values that are unreadable."),
            received: counter("apiserver_storage_events_received_total", "[BETA] Changes that the store reported."),
            objects: registry.family("apiserver_storage_objects", "[STABLE] Stored objects.", &["resource"], ()),
            objects_by_group: gauge("apiserver_resource_objects", "[ALPHA] Stored objects."),
            sizes: gauge("apiserver_resource_size_estimate_bytes", "[ALPHA] About how large the stored objects are."),
            store_size: registry.family(
                "apiserver_storage_size_bytes",
                "[STABLE] What the store takes on disk: etcd's database, or the log of the embedded store.",
                &["storage_cluster_id"],
                (),
            ),
        }
    }

    /// The changes of a kind that the store reported.
    pub(crate) fn received(&self, kind: &Kind) -> Arc<Counter> {
        self.received.get(&[kind.group, kind.plural])
    }

    /// Brings the gauges up to date.
    pub(crate) async fn publish(&self, registry: &registry::Registry) {
        for cache in registry.caches() {
            let kind = cache.kind();
            let (objects, bytes) = cache.extent();
            let name = match kind.group {
                "" => kind.plural.to_owned(),
                group => format!("{}.{group}", kind.plural),
            };
            self.objects.get(&[&name]).set(objects as f64);
            self.objects_by_group.get(&[kind.group, kind.plural]).set(objects as f64);
            self.sizes.get(&[kind.group, kind.plural]).set((objects * bytes) as f64);
        }
        // As upstream, a size that cannot be learnt in time is left out.
        self.store_size.clear();
        let size = tokio::time::timeout(SIZE_TIMEOUT, registry.store().stored_bytes()).await;
        if let Ok(Some(bytes)) = size {
            self.store_size.get(&[STORAGE_CLUSTER]).set(bytes as f64);
        }
    }

    fn series(&self, group: &str, resource: &str) -> KindSeries {
        let kind = [group, resource];
        KindSeries {
            operations: OPERATIONS.map(|operation| {
                let labels = [operation, group, resource];
                OperationSeries {
                    total: self.total.get(&labels),
                    errors: self.errors.get(&labels),
                    duration: self.durations.get(&labels),
                }
            }),
            lists: self.lists.get(&kind),
            fetched: self.fetched.get(&kind),
            unreadable: self.unreadable.get(&kind),
        }
    }
}

/// A store whose requests are counted.
pub(crate) struct MeasuredStore {
    store: Arc<dyn Store>,
    /// By what follows `/registry/` in their keys: one or two parts of a path.
    kinds: HashMap<&'static str, KindSeries>,
    /// What is no object of a kind: ranges of ports, addresses of servers.
    other: KindSeries,
}

impl MeasuredStore {
    pub(crate) fn new(store: Arc<dyn Store>, metrics: &StorageMetrics) -> Self {
        let stored = bayplan_kinds::served().filter(|kind| kind.stored() && std::ptr::eq(*kind, kind.storage()));
        let kinds = stored.map(|kind| (kind.storage_prefix, metrics.series(kind.group, kind.plural))).collect();
        MeasuredStore { store, kinds, other: metrics.series("", "") }
    }

    fn series(&self, key: &str) -> &KindSeries {
        let path = key.strip_prefix("/registry/").unwrap_or_default();
        let one = path.find('/').unwrap_or(path.len());
        let two = path.get(one + 1..).and_then(|rest| rest.find('/')).map(|at| one + 1 + at);
        let longer = two.and_then(|two| self.kinds.get(&path[..two]));
        longer.or_else(|| self.kinds.get(&path[..one])).unwrap_or(&self.other)
    }

    async fn read<T>(
        &self,
        key: &str,
        operation: Operation,
        request: BoxFuture<'_, Result<T, ReadError>>,
    ) -> Result<T, ReadError> {
        let (series, started) = (self.series(key), Instant::now());
        let answer = request.await;
        // A value that cannot be read was found.
        let failed = matches!(&answer, Err(error) if !matches!(error, ReadError::Unreadable(_)));
        series.operations[operation as usize].done(started, failed);
        if let Err(ReadError::Unreadable(_)) = &answer {
            series.unreadable.inc();
        }
        answer
    }

    async fn write(
        &self,
        key: &str,
        operation: Operation,
        request: BoxFuture<'_, Result<Revision, WriteError>>,
    ) -> Result<Revision, WriteError> {
        let (series, started) = (self.series(key), Instant::now());
        let answer = request.await;
        let answered = matches!(answer, Ok(_) | Err(WriteError::Conflict { .. } | WriteError::Unreadable(_)));
        series.operations[operation as usize].done(started, !answered);
        answer
    }
}

impl OperationSeries {
    fn done(&self, started: Instant, failed: bool) {
        self.total.inc();
        if failed {
            self.errors.inc();
        }
        self.duration.observe(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
}

impl Store for MeasuredStore {
    fn revision(&self) -> BoxFuture<'_, Result<Revision, ReadError>> {
        self.store.revision()
    }

    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Entry>, ReadError>> {
        Box::pin(self.read(key, Operation::Get, self.store.get(key)))
    }

    fn range<'a>(
        &'a self,
        start: &'a str,
        end: &'a str,
        at: Option<Revision>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Range, ReadError>> {
        Box::pin(async move {
            let range = self.read(start, Operation::List, self.store.range(start, end, at, limit)).await?;
            let series = self.series(start);
            series.lists.inc();
            series.fetched.add(range.entries.len() as u64);
            series.unreadable.add(range.unreadable.len() as u64);
            Ok(range)
        })
    }

    fn create<'a>(&'a self, key: &'a str, value: Bytes) -> BoxFuture<'a, Result<Revision, WriteError>> {
        Box::pin(self.write(key, Operation::Create, self.store.create(key, value)))
    }

    fn update<'a>(
        &'a self,
        key: &'a str,
        value: Bytes,
        expected: Revision,
    ) -> BoxFuture<'a, Result<Revision, WriteError>> {
        Box::pin(self.write(key, Operation::Update, self.store.update(key, value, expected)))
    }

    fn delete<'a>(&'a self, key: &'a str, expected: Revision) -> BoxFuture<'a, Result<Revision, WriteError>> {
        Box::pin(self.write(key, Operation::Delete, self.store.delete(key, expected)))
    }

    fn watch<'a>(
        &'a self,
        start: &'a str,
        end: &'a str,
        after: Revision,
    ) -> BoxFuture<'a, Result<Box<dyn Watch>, ReadError>> {
        self.store.watch(start, end, after)
    }

    fn compact(&self, oldest: Revision) -> BoxFuture<'_, Result<(), ReadError>> {
        self.store.compact(oldest)
    }

    fn get_recent<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Entry>, ReadError>> {
        self.store.get_recent(key)
    }

    fn range_recent<'a>(
        &'a self,
        start: &'a str,
        end: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<Range, ReadError>> {
        self.store.range_recent(start, end, limit)
    }

    fn create_expiring<'a>(
        &'a self,
        key: &'a str,
        value: Bytes,
        time_to_live: Duration,
    ) -> BoxFuture<'a, Result<Revision, WriteError>> {
        Box::pin(self.write(key, Operation::Create, self.store.create_expiring(key, value, time_to_live)))
    }

    fn update_expiring<'a>(
        &'a self,
        key: &'a str,
        value: Bytes,
        expected: Revision,
        time_to_live: Duration,
    ) -> BoxFuture<'a, Result<Revision, WriteError>> {
        Box::pin(self.write(key, Operation::Update, self.store.update_expiring(key, value, expected, time_to_live)))
    }

    fn expires_keys(&self) -> bool {
        self.store.expires_keys()
    }

    fn compact_turn(&self, last: CompactionTurn) -> BoxFuture<'_, Result<CompactionTurn, ReadError>> {
        self.store.compact_turn(last)
    }

    fn writable(&self) -> BoxFuture<'_, Result<(), WriteError>> {
        self.store.writable()
    }

    fn warning(&self) -> Option<String> {
        self.store.warning()
    }

    fn stored_bytes(&self) -> BoxFuture<'_, Option<u64>> {
        self.store.stored_bytes()
    }
}

#[cfg(test)]
mod tests {
    use bayplan_store::LogStore;

    use super::*;

    #[tokio::test]
    async fn requests_are_counted_by_the_kind_of_their_key() {
        let registry = Registry::default();
        let metrics = StorageMetrics::new(&registry);
        let store = MeasuredStore::new(Arc::new(LogStore::in_memory().unwrap()), &metrics);
        let (endpoints, service) = ("/registry/services/endpoints/a/b", "/registry/services/specs/a/b");
        let first = store.create(endpoints, Bytes::from_static(b"{}")).await.unwrap();
        store.create(service, Bytes::from_static(b"{}")).await.unwrap();
        store.create(service, Bytes::from_static(b"{}")).await.unwrap_err();
        store.update(endpoints, Bytes::from_static(b"{}"), first).await.unwrap();
        store.range("/registry/services/specs/", "/registry/services/specs0", None, 0).await.unwrap();
        store.range("/registry/services/specs/", "/registry/services/specs0", Some(999), 0).await.unwrap_err();
        store.get("/registry/ranges/servicenodeports").await.unwrap();
        store.get("/registry/deployments/a/b").await.unwrap();
        store.get_recent("/registry/deployments/a/b").await.unwrap();
        let text = registry.render();
        for line in [
            r#"etcd_requests_total{group="",operation="create",resource="endpoints"} 1"#,
            r#"etcd_requests_total{group="",operation="create",resource="services"} 2"#,
            r#"etcd_requests_total{group="",operation="update",resource="endpoints"} 1"#,
            r#"etcd_requests_total{group="",operation="list",resource="services"} 2"#,
            r#"etcd_requests_total{group="",operation="get",resource=""} 1"#,
            r#"etcd_requests_total{group="apps",operation="get",resource="deployments"} 1"#,
            r#"etcd_request_errors_total{group="",operation="list",resource="services"} 1"#,
            r#"etcd_request_duration_seconds_count{group="",operation="create",resource="services"} 2"#,
            r#"apiserver_storage_list_total{group="",resource="services"} 1"#,
            r#"apiserver_storage_list_fetched_objects_total{group="",resource="services"} 1"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
        assert!(!text.contains(r#"etcd_request_errors_total{group="",operation="create""#), "a conflict is an answer");
    }
}
