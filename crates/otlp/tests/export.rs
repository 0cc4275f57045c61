//! Spans on their way to a collector, and to one that is away.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod collector;

use std::time::Duration;

use bayplan_metrics::Registry;
use bayplan_model::trace::{AttributeValue, Span, SpanContext, SpanKind, Tracer};
use bayplan_otlp::{QUEUE_MAX, Service, TracingConfig, start};
use collector::Collector;

fn service() -> Service {
    Service { name: "kube-scheduler".into(), instance: "i".into() }
}

fn span(context: SpanContext, name: &'static str) -> Span {
    Span {
        context,
        parent: Some(7),
        name: name.into(),
        kind: SpanKind::Internal,
        start_nanos: 1_000,
        end_nanos: 2_000,
        attributes: vec![("text", "t".into()), ("number", AttributeValue::Number(-3))],
        links: vec![SpanContext { trace_id: 1, span_id: 2, sampled: true }],
        error: Some("why".into()),
    }
}

fn config(endpoint: String, rate: i32) -> TracingConfig {
    TracingConfig { endpoint, sampling_rate_per_million: rate }
}

fn counted(registry: &Registry, name: &str) -> u64 {
    let text = registry.render();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("bayplan_trace_spans_{name}_total ")));
    line.unwrap().parse().unwrap()
}

#[tokio::test]
async fn spans_arrive_whole_and_the_last_of_them_at_the_end() {
    let mut collector = Collector::start().await;
    let registry = Registry::default();
    let (tracer, export) = start(&config(collector.address.to_string(), 1_000_000), service(), &registry).unwrap();
    let context = tracer.begin(None).unwrap();
    tracer.end(span(context, "one"));
    // Without waiting for the batch: the end sends what is there.
    export.stop().await;
    let found = collector.find("span", |span| span.name == "one").await;
    assert_eq!(found.service, "kube-scheduler");
    assert_eq!((found.trace, found.id), (format!("{:032x}", context.trace_id), format!("{:016x}", context.span_id)));
    assert_eq!((found.parent.as_str(), found.kind, found.times), ("0000000000000007", 1, (1_000, 2_000)));
    assert_eq!(found.links, [("0".repeat(31) + "1", "0".repeat(15) + "2")]);
    assert_eq!((found.attributes["text"].as_str(), found.attributes["number"].as_str()), ("t", "-3"));
    assert!(found.failed);
    assert_eq!((counted(&registry, "exported"), counted(&registry, "dropped")), (1, 0));
}

#[tokio::test]
async fn a_collector_that_is_away_keeps_nobody_waiting_and_what_is_dropped_is_counted() {
    // A port that nobody listens on.
    let [port] = bayplan_testkit::free_ports();
    let registry = Registry::default();
    let (tracer, export) = start(&config(format!("127.0.0.1:{port}"), 1_000_000), service(), &registry).unwrap();
    let spans = 3 * QUEUE_MAX as u64;
    let started = std::time::Instant::now();
    for _ in 0..spans {
        let context = tracer.begin(None).unwrap();
        tracer.end(span(context, "lost"));
    }
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert!(counted(&registry, "dropped") >= spans - 2 * QUEUE_MAX as u64, "{}", counted(&registry, "dropped"));
    export.stop().await;
    assert_eq!(counted(&registry, "exported"), 0);
}

#[tokio::test]
async fn traces_of_others_are_sampled_as_they_say_and_our_own_by_the_rate() {
    let registry = Registry::default();
    let (never, _export) = start(&config("localhost:4317".into(), 0), service(), &registry).unwrap();
    let parent = SpanContext { trace_id: 5, span_id: 6, sampled: true };
    let child = never.begin(Some(parent)).unwrap();
    assert_eq!((child.trace_id, child.sampled), (5, true));
    assert_ne!(child.span_id, 6);
    assert_eq!(never.begin(Some(SpanContext { sampled: false, ..parent })), None);
    assert!((0..1_000).all(|_| never.begin(None).is_none()));
    let (half, _export) = start(&config("localhost:4317".into(), 500_000), service(), &registry).unwrap();
    let sampled = (0..10_000).filter(|_| half.begin(None).is_some()).count();
    assert!((4_500..5_500).contains(&sampled), "{sampled}");
}
