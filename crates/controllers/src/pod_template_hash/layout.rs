//! The Go types of a pod template: which fields each has, in the order in which they are declared.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// One field of a type.
pub(super) struct Field {
    /// Its name in Go.
    pub(super) name: &'static str,
    /// Its type as Go prints it.
    pub(super) go_type: &'static str,
    /// What it is made of: `*` pointer to, `[]` list of or `map[string]` of a plain kind or `struct`.
    pub(super) kind: &'static str,
    /// Its name in JSON, or [`INLINE`].
    pub(super) json: &'static str,
}

/// The JSON name of a field whose own fields are those of the type around it.
pub(super) const INLINE: &str = "(inline)";

/// A line for each type, followed by one for each of its fields: name, type, kind, JSON name.
const LAYOUT: &str = include_str!("layout.txt");

static TYPES: LazyLock<BTreeMap<&'static str, Vec<Field>>> = LazyLock::new(|| {
    let mut types: BTreeMap<&str, Vec<Field>> = BTreeMap::new();
    let mut current = "";
    for line in LAYOUT.lines() {
        let mut columns = line.split_whitespace();
        match (line.starts_with(' '), columns.next(), columns.next(), columns.next(), columns.next()) {
            (true, Some(name), Some(go_type), Some(kind), Some(json)) => {
                types.entry(current).or_default().push(Field { name, go_type, kind, json });
            }
            _ => current = line,
        }
    }
    types
});

/// The fields of a type.
pub(super) fn fields(go_type: &str) -> &'static [Field] {
    TYPES.get(go_type).map_or(&[], Vec::as_slice)
}
