//! Prometheus' text format, version 0.0.4, as Go's client writes it.

use std::fmt::Write;

/// What the answer to a scrape is called.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Go writes numbers of more than six digits, and those below a ten-thousandth, with an exponent.
const PLAIN_EXPONENT_MAX: i32 = 5;

/// Opens a family.
pub fn head(out: &mut String, name: &str, help: &str, kind: &str) {
    let help = help.replace('\\', "\\\\").replace('\n', "\\n");
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// Writes one line.
pub fn sample(out: &mut String, name: &str, suffix: &str, labels: &str, value: f64) {
    let _ = match labels {
        "" => writeln!(out, "{name}{suffix} {}", number(value)),
        _ => writeln!(out, "{name}{suffix}{{{labels}}} {}", number(value)),
    };
}

/// Labels in the order of their names, quoted.
pub fn labels<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut pairs: Vec<_> = pairs.collect();
    pairs.sort_unstable();
    let mut out = String::new();
    for (name, value) in pairs {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let separator = if out.is_empty() { "" } else { "," };
        let _ = write!(out, "{separator}{name}=\"{value}\"");
    }
    out
}

/// The shortest number that reads back the same, in Go's `%g`.
pub fn number(value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf".into() } else { "-Inf".into() };
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value == 0.0 || (-4..=PLAIN_EXPONENT_MAX).contains(&exponent) {
        return value.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}
