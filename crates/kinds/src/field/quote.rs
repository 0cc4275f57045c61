//! Values as upstream's messages quote them.

use bayplan_model::quoted::Quoted;
use serde_json::Value;

use super::Path;
use super::go_value;
use crate::codec::Empties;

/// Something that a message quotes.
pub(crate) trait Quote {
    /// How a message shows it that is about a path; the value stands there, and may show what the client gave empty.
    fn quote(self, path: Path<'_>, empties: &Empties) -> String;
}

impl Quote for &str {
    fn quote(self, _path: Path<'_>, _empties: &Empties) -> String {
        Quoted(self).to_string()
    }
}

impl Quote for i64 {
    fn quote(self, _path: Path<'_>, _empties: &Empties) -> String {
        self.to_string()
    }
}

/// Text is quoted, the rest is JSON.
impl Quote for &Value {
    fn quote(self, path: Path<'_>, empties: &Empties) -> String {
        match &*empties.restored_at(&path.steps(), self) {
            Value::String(text) => Quoted(text).to_string(),
            other => go_value::json(other),
        }
    }
}

/// A value, or a list of values, of the type of that full name: JSON of the struct that upstream has in memory.
pub(crate) struct GoValue<'a>(pub(crate) &'static str, pub(crate) &'a Value);

impl Quote for GoValue<'_> {
    fn quote(self, path: Path<'_>, empties: &Empties) -> String {
        let GoValue(definition, value) = self;
        go_value::shown(definition, &empties.restored_at(&path.steps(), value))
    }
}

/// A value that stands at another path than the one the message is about.
pub(crate) struct At<'p, Q>(pub(crate) Path<'p>, pub(crate) Q);

impl<Q: Quote> Quote for At<'_, Q> {
    fn quote(self, _path: Path<'_>, empties: &Empties) -> String {
        let At(path, value) = self;
        value.quote(path, empties)
    }
}

/// Makes text that is JSON already. Called when it is needed.
pub(crate) struct Json<F>(pub(crate) F);

impl<F: FnOnce() -> String> Quote for Json<F> {
    fn quote(self, _path: Path<'_>, _empties: &Empties) -> String {
        (self.0)()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_is_quoted_as_go_does_and_json_too() {
        let path = Path::root("spec");
        let shown = |value: Value| (&value).quote(path, &Empties::default());
        assert_eq!(shown(json!("a\u{7f}'<")), r#""a\x7f'<""#);
        assert_eq!(shown(json!({"b": "<&>", "a": [1, null]})), r#"{"a":[1,null],"b":"\u003c\u0026\u003e"}"#);
        assert_eq!("\u{1}".quote(path, &Empties::default()), r#""\x01""#);
    }
}
