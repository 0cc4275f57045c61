use super::*;

fn parse(text: &str) -> Quantity {
    Quantity::parse(text).unwrap()
}

#[test]
fn texts_are_printed_in_canonical_form_or_as_upstream_keeps_them() {
    for (text, printed) in [
        ("0", "0"),
        ("1.5", "1500m"),
        ("1.5Gi", "1536Mi"),
        ("0.5", "500m"),
        ("1000m", "1"),
        ("1024Ki", "1Mi"),
        ("2048", "2048"),
        ("1e3", "1e3"),
        ("1000", "1k"),
        ("+5Ki", "+5Ki"),
        ("007", "007"),
        ("1.500", "1.500"),
        ("-0", "0"),
        ("0.9n", "1n"),
        ("8Ei", "9223372036854775807"),
        ("1000E", "1e21"),
        ("1023Mi", "1023Mi"),
        ("12E2", "1200"),
    ] {
        assert_eq!(parse(text).to_string(), printed, "{text}");
    }
}

#[test]
fn bad_texts_are_refused_with_upstreams_words() {
    for (text, error) in [
        ("", Error::Format),
        ("abc", Error::Format),
        ("1 Gi", Error::Format),
        ("1.2.3", Error::Format),
        ("1K", Error::Suffix),
        ("--1", Error::Suffix),
        ("1e", Error::Suffix),
        ("1e99999999999999999999", Error::Suffix),
        ("1é", Error::Format),
    ] {
        assert_eq!(Quantity::parse(text).unwrap_err(), error, "{text}");
    }
}

#[test]
fn absurd_sizes_are_refused_at_once() {
    let long = "9".repeat(3_000_000);
    for text in ["1e999999999", "1e-999999999", "0e1025", &long] {
        assert_eq!(Quantity::parse(text).unwrap_err(), Error::Range);
    }
    let mut sum = parse("1e1024");
    sum.add(&parse("1n"));
    assert_eq!(sum.value(), i64::MAX);
}

#[test]
fn values_round_away_from_zero_and_saturate() {
    for (text, value, milli) in [
        ("1", 1, 1000),
        ("100m", 1, 100),
        ("-100m", -1, -100),
        ("1u", 1, 1),
        ("1.5Gi", 1610612736, 1610612736000),
        ("9223372036854775807", i64::MAX, i64::MAX),
        ("-1e30", i64::MIN, i64::MIN),
    ] {
        assert_eq!((parse(text).value(), parse(text).milli_value()), (value, milli), "{text}");
    }
}

#[test]
fn arithmetic_leaves_64_bits_only_when_it_must() {
    let mut sum = parse("9223372036854775807");
    sum.add(&parse("1"));
    assert_eq!(sum.to_string(), "9223372036854775808");
    sum.sub(&parse("1"));
    assert_eq!((sum.to_string().as_str(), sum.as_i64()), ("9223372036854775807", Some(i64::MAX)));

    let mut zero = Quantity::ZERO;
    zero.add(&parse("1Gi"));
    assert_eq!((zero.format(), zero.to_string().as_str()), (Format::BinarySI, "1Gi"));
}

#[test]
fn order_looks_at_the_amount_alone() {
    assert_eq!(parse("1024Mi"), parse("1Gi"));
    assert_eq!(parse("0.001"), parse("1m"));
    assert!(parse("1e100") > parse("9Ei"));
    assert!(parse("-1e100") < parse("1n"));
    assert_eq!(parse("1k").cmp_i64(1000), Ordering::Equal);
}

#[test]
fn json_may_hold_text_or_a_number() {
    for (json, printed) in [("\" 2Gi \"", "2Gi"), ("3", "3"), ("0.1", "100m"), ("null", "0"), ("-5", "-5")] {
        assert_eq!(serde_json::from_str::<Quantity>(json).unwrap().to_string(), printed, "{json}");
    }
    let error = serde_json::from_str::<Quantity>("\"1x\"").unwrap_err().to_string();
    assert!(error.starts_with("quantities must match"), "{error}");
    assert_eq!(serde_json::to_string(&parse("1500m")).unwrap(), "\"1500m\"");
}
