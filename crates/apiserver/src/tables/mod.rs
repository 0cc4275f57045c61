//! Objects as rows: what `kubectl get` prints.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

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
    let _ = resource;
    &[]
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
    let _ = (resource, object, now);
    Row { cells: Vec::new(), conditions: Value::Null }
}
