//! Ages, and the shape of rows.

use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::resources::RESOURCES;

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
    for resource in RESOURCES.iter().filter(|resource| resource.stored()) {
        let row = row(resource, &json!({ "metadata": { "name": "x" } }), Timestamp::UNIX_EPOCH);
        assert_eq!(row.cells.len(), columns(resource).len(), "{}", resource.kind);
    }
}
