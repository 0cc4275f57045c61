//! Hands libFuzzer's inputs to the target that `BAYPLAN_FUZZ_TARGET` names. One binary for all of them, because most of
//! the time of a short run is the building and linking.
//!
//! A test without a harness, so that cargo builds it with the features of all other tests and nothing twice.

#![no_main]

use std::sync::OnceLock;

use bayplan_fuzz::Target;

static TARGET: OnceLock<Target> = OnceLock::new();

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let target = TARGET.get_or_init(|| {
        let name = std::env::var("BAYPLAN_FUZZ_TARGET").unwrap_or_default();
        bayplan_fuzz::target(&name).unwrap_or_else(|| panic!("BAYPLAN_FUZZ_TARGET={name:?} is no target"))
    });
    (target.run)(data);
});
