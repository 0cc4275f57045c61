//! Upstream's own dumps and hashes.

use super::*;

#[test]
fn templates_hash_as_upstreams_do() {
    let mut cases = 0;
    for line in include_str!("vectors.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let template = &case["template"];
        assert_eq!(dump::dump(template), case["dump"].as_str().unwrap());
        assert_eq!(hash(template, None), case["hash"].as_str().unwrap());
        assert_eq!(hash(template, Some(1)), case["hash_collisionCount_1"].as_str().unwrap());
        cases += 1;
    }
    assert_eq!(cases, 7);
}

#[test]
fn quantities_are_dumped_as_they_are_parsed() {
    let cases = [
        // The text, value, scale, what is kept of the text, format.
        ("", 0, 0, "", ""),
        ("0", 0, 0, "0", "DecimalSI"),
        ("250m", 250, -3, "250m", "DecimalSI"),
        ("1000", 1000, 0, "", "DecimalSI"),
        ("1e3", 1, 3, "1e3", "DecimalExponent"),
        ("8Gi", 8 << 30, 0, "", "BinarySI"),
        ("1Gi", 1 << 30, 0, "1Gi", "BinarySI"),
        ("99Ti", 99_i64 << 40, 0, "99Ti", "BinarySI"),
    ];
    for (text, value, scale, kept, format) in cases {
        let mut out = String::new();
        quantity::dump(&mut out, text);
        assert!(out.contains(&format!("value:(int64){value} scale:(resource.Scale){scale}}}")), "{text}: {out}");
        assert!(out.ends_with(&format!("s:(string){kept} Format:(resource.Format){format}}}")), "{text}: {out}");
    }
}

#[test]
fn no_quantity_stalls_or_panics() {
    let long = "9".repeat(1_000_000);
    for text in [
        &long,
        "1e2147483647",
        "-1e-2147483648",
        "1.0000000000000000001",
        "x",
        "-",
        "..",
        "1e",
        "9999999999999999999Ei",
    ] {
        quantity::dump(&mut String::new(), text);
    }
}
