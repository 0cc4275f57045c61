//! Tests that cannot run here, said so that nobody takes them for passed.

use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Names the file that collects the tests that were skipped, one line each: `test: reason`.
const LIST: &str = "BAYPLAN_SKIPPED";

/// Says that the test that is running is skipped, on standard error and in the file that `BAYPLAN_SKIPPED` names.
///
/// The test harness knows no skipped tests at run time: it counts one that returns early as passed. `.ci/run` reads the
/// file, and fails when a test was skipped that it has the means to run.
pub fn skipped(reason: &str) {
    // The harness runs each test on a thread of its name.
    test_skipped(std::thread::current().name().unwrap_or("a test"), reason);
}

/// The same for a test that says its name, because it may run on any thread.
pub(crate) fn test_skipped(test: &str, reason: &str) {
    let line = format!("{test}: {reason}\n");
    // Not by a macro: the test harness would keep it to itself.
    let _ = std::io::stderr().write_all(format!("skipped {line}").as_bytes());
    if let Some(list) = std::env::var_os(LIST) {
        note(Path::new(&list), &line);
    }
}

/// Adds a line in one write, because tests of several processes may share the file.
fn note(list: &Path, line: &str) {
    let mut file = File::options().create(true).append(true).open(list).unwrap();
    file.write_all(line.as_bytes()).unwrap();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_skipped_test_has_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("skipped");
        note(&list, "one: no etcd\n");
        note(&list, "two: no kubectl\n");
        assert_eq!(std::fs::read_to_string(&list).unwrap(), "one: no etcd\ntwo: no kubectl\n");
    }
}
