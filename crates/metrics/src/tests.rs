use super::*;

#[test]
fn the_text_is_what_prometheus_reads() {
    let registry = Registry::default();
    let attempts = registry.grid::<Counter>(
        "attempts_total",
        "Attempts.",
        vec![("result", vec!["good".into(), "bad".into()]), ("profile", vec!["a\"b".into()])],
        (),
    );
    let duration = registry.one::<Histogram>("duration_seconds", "Time.", Buckets::new(vec![0.001, 0.1], SECONDS));
    let size = registry.family::<Gauge>("size", "Size,\nin things.", &["type"], ());
    registry.family::<Counter>("unseen_total", "Nothing to see.", &["x"], ());
    registry.callback("up", "Whether.", "gauge", || Some(1.0));
    registry.callback("gone", "Not there.", "gauge", || None);
    attempts.at([1, 0]).inc();
    attempts.at([1, 0]).add(2);
    for nanos in [1_000_000, 1_000_001, 500_000_000] {
        duration.observe(nanos);
    }
    size.get(&["pods"]).set(2.0);
    assert_eq!(
        registry.render(),
        "# HELP attempts_total Attempts.\n\
         # TYPE attempts_total counter\n\
         attempts_total{profile=\"a\\\"b\",result=\"bad\"} 3\n\
         # HELP duration_seconds Time.\n\
         # TYPE duration_seconds histogram\n\
         duration_seconds_bucket{le=\"0.001\"} 1\n\
         duration_seconds_bucket{le=\"0.1\"} 2\n\
         duration_seconds_bucket{le=\"+Inf\"} 3\n\
         duration_seconds_sum 0.502000001\n\
         duration_seconds_count 3\n\
         # HELP size Size,\\nin things.\n\
         # TYPE size gauge\n\
         size{type=\"pods\"} 2\n\
         # HELP up Whether.\n\
         # TYPE up gauge\n\
         up 1\n"
    );
    registry.disable(["size".into(), "up".into()]);
    registry.reset();
    let text = registry.render();
    assert!(
        text.contains("duration_seconds_count 0") && !text.contains("attempts") && !text.contains("size"),
        "{text}"
    );
}

#[test]
fn numbers_are_written_as_go_writes_them() {
    for (value, expected) in [
        (0.0, "0"),
        (1.0, "1"),
        (0.001, "0.001"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (0.000_075_937_5, "7.59375e-05"),
        (5242.88, "5242.88"),
        (16_777_216.0, "1.6777216e+07"),
        (f64::INFINITY, "+Inf"),
        (f64::NAN, "NaN"),
        (-1.5, "-1.5"),
    ] {
        assert_eq!(text::number(value), expected);
    }
}

#[test]
fn an_observation_on_a_bound_falls_under_it() {
    let histogram = Histogram::new(&Buckets::exponential(0.0001, 2.0, 12, SECONDS));
    histogram.observe(100_000);
    histogram.observe(200_000);
    let mut out = String::new();
    histogram.write("x", "", &mut out);
    assert!(out.starts_with("x_bucket{le=\"0.0001\"} 1\nx_bucket{le=\"0.0002\"} 2\n"), "{out}");
}

#[test]
fn a_family_hands_out_the_same_series_for_the_same_labels() {
    let family = Registry::default().family::<Counter>("x_total", "", &["a", "b"], ());
    family.get(&["1", "2"]).inc();
    family.get(&["1", "2"]).inc();
    family.get(&["2", "1"]).inc();
    assert_eq!((family.get(&["1", "2"]).get(), family.get(&["2", "1"]).get()), (2, 1));
}
