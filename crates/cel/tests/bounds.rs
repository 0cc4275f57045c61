//! Whatever a user writes, compiling and running it is bounded, and nothing panics.

#![allow(clippy::unwrap_used)] // Helpers of tests, not the product.

use std::sync::Arc;

use bayplan_cel::device::Selector;
use bayplan_cel::{Error, Regexes, SELECTOR_COST_MAX};
use bayplan_model::resource_slice::Device;
use serde_json::json;

fn device() -> Device {
    let attributes = json!({"t": {"string": "a".repeat(64)}, "model": {"string": "a100"}, "numa": {"int": 1}});
    serde_json::from_value(json!({"name": "d", "attributes": attributes})).unwrap()
}

fn compile(text: &str) -> Result<Selector, Error> {
    Selector::compile(text, false, &Arc::new(Regexes::default()))
}

fn run(text: &str) -> (Result<bool, Error>, u64) {
    compile(text).unwrap().matches("d.example", &device(), u64::MAX)
}

#[test]
fn deep_nesting_is_refused() {
    let deep = [
        "(".repeat(9999),
        "!(".repeat(9999),
        "1+".repeat(9999),
        format!("device{}", ".a".repeat(9999)),
        "[".repeat(9999),
        "true ? true : ".repeat(3000),
        "[1].all(x, ".repeat(900),
    ];
    for text in deep {
        let refusal = compile(&text).unwrap_err().to_string();
        let is_known = refusal.ends_with("expression recursion limit exceeded: 250")
            || refusal.ends_with("max recursion depth exceeded");
        assert!(is_known, "{refusal}");
    }
    // A long chain is not deep.
    let chain = vec!["device.driver == 'x'"; 450].join(" || ");
    assert_eq!(run(&chain).0, Ok(false));
}

#[test]
fn the_deepest_expressions_fit_a_thread() {
    let lists = format!("{}{} == []", "[".repeat(240), "]".repeat(240));
    let loops = format!("{}true{}", "[1].all(x, ".repeat(240), ")".repeat(240));
    let sums = format!("1{} == 1", "+1".repeat(240));
    let choices = format!("{}true", "true ? true : ".repeat(240));
    for text in [lists, loops, sums, choices] {
        let thread = std::thread::Builder::new().stack_size(2 << 20);
        let answer = thread.spawn(move || run(&text).0).unwrap().join().unwrap();
        assert!(answer.is_ok(), "{answer:?}");
    }
}

#[test]
fn types_that_double_are_refused() {
    let links: String = (0..120).map(|i| format!("cel.bind(a{}, {{a{i}: a{i}}}, ", i + 1)).collect();
    let text = format!("cel.bind(a0, 1, {links}true{})", ")".repeat(120));
    let refusal = compile(&text).unwrap_err().to_string();
    assert!(refusal.ends_with("the types of the expression are too large"), "{refusal}");
}

#[test]
fn expressions_that_double_are_refused() {
    let text = format!("optional.of(1){}.hasValue()", ".optMap(x, x)".repeat(200));
    assert!(compile(&text).unwrap_err().to_string().contains("expression is too large"));
}

#[test]
fn values_that_double_cost_what_they_are() {
    // Each list has the one before twice: compared, they are 2^40 numbers.
    let links: String = (0..40).map(|i| format!("cel.bind(a{}, [a{i}, a{i}], ", i + 1)).collect();
    let compared = format!("cel.bind(a0, [1], {links}a40 == dyn(a40){})", ")".repeat(40));
    let joined: String = (0..40).map(|i| format!("cel.bind(a{}, a{i} + a{i}, ", i + 1)).collect();
    let joined = format!("cel.bind(a0, [1], {joined}a40.size() > 0{})", ")".repeat(40));
    let texts: String = (0..40).map(|i| format!("cel.bind(a{}, a{i}.replace('a', a{i}), ", i + 1)).collect();
    let texts = format!("cel.bind(a0, 'aaaaaaaaaaaaaaaa', {texts}a40.size() > 0{})", ")".repeat(40));
    let flattened: String = (0..30).map(|i| format!("cel.bind(a{}, [a{i}, a{i}].flatten(), ", i + 1)).collect();
    let flattened = format!("cel.bind(a0, [1, 2], {flattened}a30.size() > 0{})", ")".repeat(30));
    let range = "lists.range(1000000000).size() > 0".to_owned();
    for text in [compared, joined, texts, flattened, range] {
        assert_eq!(run(&text).0, Err(Error::CostLimit), "{text}");
    }
}

#[test]
fn long_texts_and_large_numbers_cost_what_they_take() {
    // 2^17 characters: a round of each loop takes far longer than the few units that upstream counts for it.
    let links: String = (0..14).map(|i| format!("cel.bind(a{}, a{i} + a{i}, ", i + 1)).collect();
    let around =
        |body: &str| format!("cel.bind(a0, 'xxxxxxxx', {links}lists.range(2000).all(i, {body}){}", ")".repeat(15));
    let all = [
        "a14 != 'y'",
        "a14.size() > i",
        "a14.charAt(i) != ''",
        "!(a14 in {'y': 1})",
        "int('0' + a14) == 0 || true",
        "duration(a14) == duration('1s') || true",
        "isURL('/' + a14)",
        "url('/?' + a14).getQuery().size() == 1",
        "format.uri().validate(a14).hasValue()",
        "format.labelValue().validate(a14).hasValue()",
    ];
    for body in all {
        let (answer, cost) = run(&around(body));
        assert!(cost > 400_000, "{body}: {cost} {answer:?}");
    }
    let (_, cost) = run("lists.range(1000).all(i, quantity('1e1000').isGreaterThan(quantity('1')))");
    assert!(cost > 400_000, "{cost}");
}

#[test]
fn patterns_cost_what_they_stand_for() {
    let cost = |pattern: &str| run(&format!(r#"device.attributes["d.example"].t.matches("" + "{pattern}") || true"#)).1;
    let (plain, written_out) = (cost("aaaaaaaaaaaaac"), cost("(a{0,60}){0,16}c"));
    assert!(written_out > plain * 30, "{plain} {written_out}");
    // Too many repetitions are Go's error, found before anything is compiled.
    let (answer, cost) = run(r#"device.attributes["d.example"].t.matches("(a{0,60}){0,30}c" + string(1))"#);
    assert_eq!(answer, Err(Error::Runtime("error parsing regexp: invalid repeat count: `{0,30}`".into())));
    assert!(cost < 200, "{cost}");
    for pattern in ["((a{0,100}){0,100}){0,100}", r"\pL{1000}", "(x+x+)+y{1000}{1000}"] {
        let (answer, _) = run(&format!(r#""aaa".matches("" + r"{pattern}")"#));
        assert!(matches!(answer, Err(Error::Runtime(_))), "{pattern}: {answer:?}");
    }
}

#[test]
fn an_evaluation_stops_at_its_allowance() {
    let selector = compile("lists.range(900).all(x, lists.range(200).all(y, x + y >= 0))").unwrap();
    for allowance in [0, 1, 10, 1000, 100_000] {
        let (answer, cost) = selector.matches("d", &device(), allowance);
        assert_eq!(answer, Err(Error::Interrupted), "{allowance}");
        assert!(cost <= allowance + 1000, "{cost} of {allowance}");
    }
    assert_eq!(selector.matches("d", &device(), u64::MAX).0, Err(Error::CostLimit));
    assert!(selector.max_cost() > SELECTOR_COST_MAX);
}

#[test]
fn no_error_is_absorbed_that_ends_an_evaluation() {
    let selector = compile("lists.range(100).all(x, x >= 0) || true").unwrap();
    assert_eq!(selector.matches("d", &device(), 50).0, Err(Error::Interrupted));
}

/// What random texts are made of.
const PIECES: [&str; 62] = [
    "device",
    ".driver",
    ".attributes",
    "[\"d.example\"]",
    ".model",
    ".numa",
    ".?absent",
    "[?",
    "[",
    "]",
    "(",
    ")",
    "{",
    "}",
    ",",
    ":",
    "?",
    "==",
    "<",
    "&&",
    "||",
    "!",
    "-",
    "+",
    "*",
    "/",
    "%",
    " in ",
    "1",
    "9223372036854775807",
    "0",
    "1.5e9",
    "'é\\n'",
    "'",
    "\\",
    "é",
    ".",
    "size(",
    ".all(x, ",
    ".map(x, ",
    "quantity('1Gi')",
    "semver('1.0.0')",
    ".substring(",
    ".split('')",
    "cel.bind(y, ",
    ".optMap(z, ",
    "x",
    "y",
    "optional.of(",
    ".sortBy(q, ",
    ".transformMap(k, v, ",
    ".matches('a{0,9}[')",
    "b'\\xff'",
    "duration('1s')",
    "r\"\\d\"",
    ".flatten(",
    "url('http://[::1%25é]:8/%ff?a=%zz&b#')",
    ".getQuery()",
    ".getHostname()",
    "format.datetime()",
    ".validate(",
    "'2021-01-01té'",
];

#[test]
fn no_text_makes_it_panic() {
    let mut seed = 7u64;
    let mut next = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    for _ in 0..20_000 {
        let text: String = (0..1 + next(14)).map(|_| PIECES[next(PIECES.len())]).collect();
        if let Ok(selector) = compile(&text) {
            let _ = selector.matches("d.example", &device(), 100_000);
        }
    }
}
