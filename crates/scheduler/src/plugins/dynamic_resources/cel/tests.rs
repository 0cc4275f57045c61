//! Expressions and their results for one device.

use bayplan_model::resource_slice::Device;

use super::{Error, Program};

fn device() -> Device {
    serde_json::from_value(serde_json::json!({
        "name": "dev-0",
        "allowMultipleAllocations": true,
        "attributes": {
            "model": {"string": "a100"},
            "numa": {"int": 1},
            "healthy": {"bool": true},
            "driverVersion": {"version": "1.12.3"},
            "other.example.com/rack": {"string": "r-7"},
        },
        "capacity": {"memory": {"value": "40Gi"}},
    }))
    .unwrap()
}

fn run(expression: &str) -> Result<bool, String> {
    let program = Program::compile(expression).map_err(|error| error.to_string())?;
    program.matches("gpu.example.com", &device()).map_err(|error| error.to_string())
}

#[test]
fn expressions_that_hold() {
    let all = [
        r#"device.driver == "gpu.example.com" && device.allowMultipleAllocations"#,
        r#"device.attributes["gpu.example.com"].model == "a100""#,
        r#"device.attributes["gpu.example.com"].numa == 1 && device.attributes["gpu.example.com"].numa < 1.5"#,
        r#"device.attributes["other.example.com"].rack.startsWith("r-")"#,
        r#"device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) == 0"#,
        r#"device.capacity["gpu.example.com"].memory.add(quantity("1Gi")).isGreaterThan(quantity("40Gi"))"#,
        r#"device.attributes["gpu.example.com"].driverVersion.isGreaterThan(semver("1.9.0"))"#,
        r#"semver("v1.2", true).compareTo(semver("1.2.0")) == 0"#,
        r#"ip("10.1.2.3").family() == 4"#,
        r#"ip("::1").isLoopback()"#,
        r#"isIP("fe80::1")"#,
        r#"ip("fe80::1").isLinkLocalUnicast()"#,
        r#"!isIP("::ffff:10.0.0.1")"#,
        r#"!isIP("010.0.0.1")"#,
        r#"!isIP("")"#,
        r#"!ip.isCanonical("2001:DB8::1")"#,
        r#"ip("8.8.8.8").isGlobalUnicast()"#,
        r#"cidr("10.0.0.0/8").containsIP("10.9.9.9")"#,
        r#"!cidr("10.0.0.0/8").containsIP(ip("11.0.0.0"))"#,
        r#"cidr("0.0.0.0/0").containsIP("1.2.3.4")"#,
        r#"cidr("10.0.0.0/8").containsCIDR("10.1.0.0/16")"#,
        r#"!cidr("10.0.0.0/8").containsCIDR(cidr("0.0.0.0/0"))"#,
        r#"!isCIDR("10.0.0.0/33")"#,
        r#"string(cidr("10.1.2.3/8").masked()) == "10.0.0.0/8""#,
        r#"cidr("::/0").prefixLength() == 0"#,
        r#"cidr("10.1.2.3/8").ip() == ip("10.1.2.3")"#,
        r#"["10.0.0.1"].all(ip, ip.startsWith("10."))"#,
        // An unknown domain is an empty map, which `in` does not see.
        r#"!("absent.example.com" in device.attributes) && size(device.attributes["absent.example.com"]) == 0"#,
        r#"!has(device.attributes["gpu.example.com"].absent) && has(device.attributes["gpu.example.com"].model)"#,
        r#"device.attributes["gpu.example.com"].?absent.orValue("none") == "none""#,
        r#"device.attributes[?"absent.example.com"].hasValue() == false"#,
        r#"cel.bind(a, device.attributes["gpu.example.com"], a.model == "a100" && a.healthy)"#,
        r#"["a100", "h100"].exists(m, m == device.attributes["gpu.example.com"].model)"#,
        r#"[1, 2, 3].filter(x, x > 1).map(x, x * 2) == [4, 6]"#,
        r#"{"a": 1}.all(k, k == "a") && [1, 2].exists_one(x, x == 2)"#,
        r#"sets.contains([1, 2, 3], [3]) && "a,b".split(",").size() == 2 && "x-7".matches("^[a-z]-[0-9]+$")"#,
        // One side decides although the other fails.
        r#"device.attributes["gpu.example.com"].absent == 1 || true"#,
        r#"1 + 2 * 3 == 7 && (1 + 2) * 3 == 9 && -2 - -3 == 1 && 7 % 4 == 3 && !(1 > 2)"#,
        r#"'it''s' != "x" ? true : false"#.replace("''", "\\'").leak(),
        r#"r'\d' == "\\d" && "\u0041\x42" == "AB" && b"a" == bytes("a") // done"#,
        "int(\"7\") == 7 && string(1.5) == '1.5' && type(1) == int && 1u == uint(1) && 0x10 == 16",
    ];
    for expression in all {
        assert_eq!(run(expression), Ok(true), "{expression}");
    }
}

#[test]
fn expressions_that_fail_say_why() {
    let undeclared = |column: usize, name: &str| {
        format!("ERROR: <input>:1:{column}: undeclared reference to '{name}' (in container '')")
    };
    let all = [
        (r#"device.attributes["absent.example.com"].numa == 0"#, "no such key: numa".to_owned()),
        (r#"device.attributes["gpu.example.com"].absent == 0"#, "no such key: absent".to_owned()),
        ("device.driver", "expected bool, got string".to_owned()),
        ("device.driver > 1", "no such overload".to_owned()),
        ("1 / 0 == 1", "division by zero".to_owned()),
        ("9223372036854775807 + 1 == 0", "integer overflow".to_owned()),
        ("[1][5] == 1", "index out of bounds".to_owned()),
        ("devise.driver == 'x'", undeclared(1, "devise")),
        ("nothing(1)", undeclared(1, "nothing")),
        ("[1].all(x, y == 1)", undeclared(12, "y")),
        ("device.driver == ", "ERROR: <input>:1:18: Syntax error: mismatched input End".to_owned()),
        ("'open", "ERROR: <input>:1:1: unterminated string".to_owned()),
    ];
    for (expression, expected) in all {
        assert_eq!(run(expression), Err(expected), "{expression}");
    }
}

#[test]
fn cost_and_depth_are_bounded() {
    let ten = "[0,1,2,3,4,5,6,7,8,9]";
    let nested = (0..9).fold("true".to_owned(), |body, i| format!("{ten}.all(x{i}, {body})"));
    assert_eq!(run(&nested), Err("operation cancelled: actual cost limit exceeded".to_owned()));
    for deep in [
        "(".repeat(9999),
        "!".repeat(9999),
        "1+".repeat(9999),
        format!("device{}", ".a".repeat(9999)),
        "[".repeat(9999),
    ] {
        assert!(matches!(Program::compile(&deep), Err(Error::Compile { .. })));
    }
    let long = vec!["device.driver == 'x'"; 500].join(" || ");
    assert_eq!(run(&long), Ok(false));
}

#[test]
fn no_text_makes_it_panic() {
    const PIECES: [&str; 44] = [
        "device",
        ".driver",
        ".attributes",
        "[\"gpu.example.com\"]",
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
    ];
    let mut seed = 7u64;
    let mut next = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    for _ in 0..20_000 {
        let text: String = (0..1 + next(12)).map(|_| PIECES[next(PIECES.len())]).collect();
        let _ = run(&text);
    }
}
