//! Objects as table rows: what `kubectl get` prints. Upstream's word: the package `printers`.

pub(crate) mod age;
mod cells;

use std::cmp::Ordering;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

pub(crate) use cells::*;

use crate::object::given;

/// One column of a Table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Column {
    /// Heading.
    pub name: &'static str,
    /// `string`, `integer`, …
    #[serde(rename = "type")]
    pub column_type: &'static str,
    /// `name` for the name column.
    pub format: &'static str,
    /// What it means.
    pub description: &'static str,
    /// 0 is always shown, more only with `-o wide`.
    pub priority: i32,
}

/// One row: its cells, and its conditions (`Completed` pods) as a JSON list or null.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// A value for each column.
    pub cells: Vec<Value>,
    /// `Value::Null` for none.
    pub conditions: Value,
}

/// The columns of a kind without columns of its own.
pub fn plain_columns() -> &'static [Column] {
    Printer::PLAIN.columns
}

/// The row of an object whose kind has no columns of its own.
pub fn plain_row(object: &Value, now: Timestamp) -> Row {
    Row { cells: (Printer::PLAIN.cells)(object, now), conditions: Value::Null }
}

/// Which of two objects comes first in a table.
pub(crate) type Order = fn(&Value, &Value) -> Ordering;

/// The columns of a kind, and the functions that fill them from an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Printer {
    pub(crate) columns: &'static [Column],
    /// A cell for each column.
    pub(crate) cells: fn(&Value, Timestamp) -> Vec<Value>,
    /// The conditions of the row; null for none.
    pub(crate) conditions: fn(&Value) -> Value,
    /// The order of the rows of a list, when it is not that of the names.
    pub(crate) order: Option<Order>,
}

impl Printer {
    /// Kinds without columns of their own show when they were created, not how long ago.
    pub(crate) const PLAIN: Printer = Printer {
        columns: &[NAME, CREATED_AT],
        cells: |object, _now| {
            let metadata = &object["metadata"];
            let created =
                if given(metadata, "creationTimestamp") { &metadata["creationTimestamp"] } else { &Value::Null };
            vec![name_of(object), created.clone()]
        },
        conditions: |_| Value::Null,
        order: None,
    };
    /// Name and age.
    pub(crate) const NAME_AND_AGE: Printer = Printer {
        columns: &[NAME, AGE],
        cells: |object, now| vec![name_of(object), age_of(object, now)],
        ..Printer::PLAIN
    };
}

const fn column(name: &'static str, column_type: &'static str, priority: i32) -> Column {
    Column { name, column_type, format: "", description: "", priority }
}

pub(crate) const fn string(name: &'static str) -> Column {
    column(name, "string", 0)
}

/// Shown only with `-o wide`.
pub(crate) const fn wide(name: &'static str) -> Column {
    column(name, "string", 1)
}

pub(crate) const fn integer(name: &'static str) -> Column {
    column(name, "integer", 0)
}

pub(crate) const fn boolean(name: &'static str) -> Column {
    column(name, "boolean", 0)
}

/// A column of names, which kubectl may prefix with the resource.
pub(crate) const fn named(mut column: Column) -> Column {
    column.format = "name";
    column
}

pub(crate) const NAME: Column = named(string("Name"));
pub(crate) const AGE: Column = string("Age");
const CREATED_AT: Column = column("Created At", "date", 0);

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::age;
    use crate::Scheme;

    #[test]
    fn ages_have_two_units_at_most() {
        let cases = [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (11_000, "3h3m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (180_000, "2d2h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
            (63_158_400, "2y1d"),
            (252_288_000, "8y"),
        ];
        let now = Timestamp::from_second(2_000_000_000).expect("in range");
        for (seconds, want) in cases {
            let then = Timestamp::from_second(2_000_000_000 - seconds).expect("in range");
            assert_eq!(age::human(now, then), want, "{seconds}");
        }
    }

    #[test]
    fn every_row_has_a_cell_for_each_column() {
        for kind in Scheme::built_in().kinds() {
            let row = kind.row(&json!({ "metadata": { "name": "x" } }), Timestamp::UNIX_EPOCH);
            // Upstream's IPAddresses have an age in their rows, and no column for it.
            let without_column = usize::from(kind.kind == "IPAddress");
            assert_eq!(row.cells.len(), kind.columns().len() + without_column, "{}", kind.kind);
        }
    }
}
