//! The file handles of the process, of which each connection takes one.

use rustix::process::{Resource, getrlimit, setrlimit};

/// The share of the file handles that is kept for everything but connections: segments of the store, connections to
/// other servers, connections that are being closed.
const RESERVED_SHARE: u64 = 4;
/// More than this is never needed for them.
const RESERVED_MAX: u64 = 1024;

/// Raises the number of files that the process may open as far as the system lets it, as Go's programs do on start.
pub fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}

/// How many of the connections that are wanted the process can hold.
pub(crate) fn connections_max(wanted: usize) -> usize {
    within(wanted, getrlimit(Resource::Nofile).current)
}

fn within(wanted: usize, files: Option<u64>) -> usize {
    let Some(files) = files else { return wanted };
    let free = files - (files / RESERVED_SHARE).min(RESERVED_MAX);
    wanted.min(usize::try_from(free).unwrap_or(usize::MAX)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_file_handles_for_the_rest_of_the_process() {
        for (wanted, files, expected) in [
            (10_000, None, 10_000),
            (10_000, Some(1_048_576), 10_000),
            (10_000, Some(20_000), 10_000),
            (10_000, Some(10_240), 9_216),
            (10_000, Some(1_024), 768),
            (256, Some(1_024), 256),
            (256, Some(0), 1),
        ] {
            assert_eq!(within(wanted, files), expected, "{wanted} of {files:?}");
        }
    }
}
