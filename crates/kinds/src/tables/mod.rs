//! Objects as rows: what `kubectl get` prints.
//!
//! A kind has a row of columns in [`columns`] and a function that fills them; kinds without either show their name and
//! when they were created.

mod age;
mod cells;
mod columns;
mod pod;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::codec::Kind;
use crate::resources::Resource;

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

/// The columns of a resource.
pub fn columns(resource: &'static Resource) -> &'static [Column] {
    columns_of(Kind::of(resource))
}

/// The columns of a kind.
pub fn columns_of(kind: Kind<'_>) -> &'static [Column] {
    columns::of(kind.group, kind.kind)
}

/// One row: its cells, and its conditions (`Completed` pods and jobs) as a JSON list or null.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// A value for each column.
    pub cells: Vec<Value>,
    /// `Value::Null` for none.
    pub conditions: Value,
}

/// The row of an object.
pub fn row(resource: &'static Resource, object: &Value, now: Timestamp) -> Row {
    row_of(Kind::of(resource), object, now)
}

/// The row of an object of a kind.
pub fn row_of(kind: Kind<'_>, object: &Value, now: Timestamp) -> Row {
    if (kind.group, kind.kind) == ("", "Pod") {
        return Row { cells: pod::cells(object, now), conditions: pod::conditions(object) };
    }
    Row { cells: cells::of(kind.group, kind.kind, object, now), conditions: Value::Null }
}
