//! The scheduler's configuration file.

use bayplan_scheduler::config::{Configuration, load};

use crate::bounded;

/// Bytes allocated for each byte of a configuration: `- {}` is a profile with all plugins and their arguments, about
/// 20 KB, and it is completed three times.
const FACTOR: u64 = 65536;

pub(crate) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    bounded::work(text.len(), FACTOR, "a configuration", || {
        let completed = match load(text) {
            Ok(completed) => completed,
            Err(error) => return bounded::text(text.len(), "a configuration", &error.to_string()),
        };
        // What `--write-config-to` writes is read as the same.
        let written = completed.to_string();
        let again = load(&written).unwrap_or_else(|error| panic!("written and refused: {error}: {written}"));
        assert_eq!(again, completed, "completed twice");
        match Configuration::from_completed(completed) {
            Ok(configuration) => {
                for profile in &configuration.profiles {
                    assert!(
                        profile.scheduler_name.as_ref().is_some_and(|name| !name.is_empty()),
                        "a profile of nobody"
                    );
                }
                for extender in &configuration.extenders {
                    assert!(!extender.timeout().is_zero(), "an extender without a moment to answer");
                }
            }
            Err(error) => bounded::text(written.len(), "a configuration", &error.to_string()),
        }
    });
}
