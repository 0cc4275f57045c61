//! Device selectors: any expression compiles or is refused in words, its evaluation stays within its allowance, and
//! costs no more than was estimated.

use std::sync::{Arc, LazyLock};

use bayplan_cel::device::Selector;
use bayplan_cel::{Regexes, SELECTOR_COST_MAX};
use bayplan_model::resource_slice::Device;
use serde_json::json;

use crate::bounded;

/// Bytes allocated for each byte of an expression, besides what its evaluation may cost.
const FACTOR: u64 = 65536;
/// What an evaluation may allocate whatever the expression: some bytes for each unit of its cost.
const EVALUATION_BYTES: usize = 1 << 12;

static DEVICE: LazyLock<Device> = LazyLock::new(|| {
    let device = json!({
        "name": "d", "capacity": {"memory": {"value": "10Gi"}},
        "attributes": {"t": {"string": "aaaa"}, "n": {"int": 5}, "b": {"bool": true}, "v": {"version": "1.2.3"}},
    });
    serde_json::from_value(device).expect("a device")
});

pub(crate) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    bounded::work(text.len() + EVALUATION_BYTES, FACTOR, "an expression", || {
        let regexes: Arc<Regexes> = Arc::default();
        let selector = match Selector::compile(text, false, &regexes) {
            Ok(selector) => selector,
            Err(error) => return bounded::text(text.len(), "an expression", &error.to_string()),
        };
        let (answer, cost) = selector.matches("d.example", &DEVICE, SELECTOR_COST_MAX);
        assert!(cost <= SELECTOR_COST_MAX || answer.is_err(), "{text:?} cost {cost}");
        if let Err(error) = &answer {
            bounded::text(text.len(), "an expression", &error.to_string());
        }
        let (again, _) = selector.matches("d.example", &DEVICE, SELECTOR_COST_MAX);
        assert_eq!(again, answer, "{text:?} is not the same twice");
    });
}
