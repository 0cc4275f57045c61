//! `--logging-format=json`: a line of the log as one JSON object, in the fields of upstream's JSON format.
//!
//! ```text
//!   {"ts":1763477000123.4567,"caller":"scheduler/binding.rs:66","msg":"pod bound","v":4,"level":"DEBUG","pod":"d/web"}
//! ```
//!
//! `ts` is in milliseconds since 1970, `v` upstream's verbosity; errors have `err` and no `v`. `level` is ours alone.

use std::fmt;

use jiff::Timestamp;
use serde_json::{Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// The fields that every line has; one of an event with such a name gets another.
const RESERVED: [&str; 5] = ["ts", "caller", "msg", "v", "level"];

/// Writes events as JSON.
pub(crate) struct JsonLines;

#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<(String, Value)>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: Value) {
        let name = match field.name() {
            // Upstream's name.
            "error" => "err".to_owned(),
            name if RESERVED.contains(&name) => format!("field_{name}"),
            name => name.to_owned(),
        };
        self.others.push((name, value));
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        match field.name() {
            "message" => self.message = text,
            _ => self.add(field, text.into()),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            _ => self.add(field, value.into()),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, json!(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }
}

/// The verbosity at which `-v` shows a level; errors have none.
fn verbosity(level: Level) -> Option<u8> {
    match level {
        Level::ERROR => None,
        Level::WARN | Level::INFO => Some(0),
        Level::DEBUG => Some(4),
        Level::TRACE => Some(6),
    }
}

/// A file as people name it: without the folders that every crate has.
fn short(file: &str) -> &str {
    file.rsplit_once("src/").map_or(file, |(_, rest)| rest)
}

fn line(now: Timestamp, event: &Event<'_>) -> String {
    let mut fields = Fields::default();
    event.record(&mut fields);
    let meta = event.metadata();
    let caller = meta.file().map(|file| format!("{}:{}", short(file), meta.line().unwrap_or(0)));
    let milliseconds = now.as_nanosecond() as f64 / 1e6;
    let text = |value: &str| Value::from(value).to_string();
    let mut line = format!("{{\"ts\":{milliseconds:.4}");
    if let Some(caller) = caller {
        line += &format!(",\"caller\":{}", text(&caller));
    }
    line += &format!(",\"msg\":{}", text(&fields.message));
    if let Some(verbosity) = verbosity(*meta.level()) {
        line += &format!(",\"v\":{verbosity}");
    }
    line += &format!(",\"level\":\"{}\"", meta.level());
    for (name, value) in fields.others {
        line += &format!(",{}:{value}", text(&name));
    }
    line.push('}');
    line
}

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        writeln!(writer, "{}", line(Timestamp::now(), event))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_is_one_object_with_upstreams_fields() {
        let kept = Kept::default();
        let writer = kept.clone();
        let log = tracing_subscriber::fmt().event_format(JsonLines).with_max_level(Level::DEBUG);
        tracing::subscriber::with_default(log.with_writer(move || writer.clone()).finish(), || {
            tracing::info!(pod = "d/\"web\"", attempt = 2, v = 9, "pod bound");
            tracing::error!(error = "broken\npipe", "it failed");
        });
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(text.starts_with("{\"ts\":1") && text.contains(",\"caller\":\"json_log.rs:"), "{text}");
        assert_eq!(
            (&lines[0]["msg"], &lines[0]["v"], &lines[0]["level"]),
            (&json!("pod bound"), &json!(0), &json!("INFO"))
        );
        assert_eq!(
            (&lines[0]["pod"], &lines[0]["attempt"], &lines[0]["field_v"]),
            (&json!("d/\"web\""), &json!(2), &json!(9))
        );
        assert_eq!((&lines[1]["err"], &lines[1]["v"]), (&json!("broken\npipe"), &Value::Null));
    }
}
