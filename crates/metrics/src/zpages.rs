//! `/statusz` and `/flagz`: two pages for the person who debugs a component, in upstream's form (KEP-4827, KEP-4828).

use std::fmt::Write;
use std::time::Duration;

const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility \
    guarantees and is for debugging purposes only.";

/// Where upstream serves profiles.
const PROFILES: &str = "/debug/pprof";

/// What is answered there, with the code 501.
pub const NO_PROFILES: &str = "No profile is served: a profiler in the process would have to walk stacks in a signal \
    handler, which can stop or crash what it looks at. `perf record -g -p PID` takes one from outside \
    (docs/guide/metrics.md).\n";

/// True for a path of profiles.
pub fn is_profile(path: &str) -> bool {
    path.strip_prefix(PROFILES).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// What the pages say of a component. They name what started, so everything is known then but how long ago it was.
#[derive(Clone, Debug, Default)]
pub struct ZPages {
    /// The component, as upstream calls it.
    pub component: &'static str,
    /// When it started, as `date` prints it.
    pub started: String,
    /// Its own version.
    pub version: String,
    /// The release of Kubernetes it behaves as: `1.36`.
    pub emulates: &'static str,
    /// The paths that it answers.
    pub paths: &'static [&'static str],
    /// Its flags and their values.
    pub flags: Vec<(String, String)>,
}

impl ZPages {
    /// The page of a path after the component has been up for a time; `None` for other paths.
    pub fn answer(&self, path: &str, up: Duration) -> Option<String> {
        match path {
            "/statusz" => Some(self.status(up)),
            "/flagz" => Some(self.flags()),
            _ => None,
        }
    }

    fn status(&self, up: Duration) -> String {
        let seconds = up.as_secs();
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let ZPages { component, started, version, emulates, .. } = self;
        let paths = self.paths.join(" ");
        format!(
            "\n{component} statusz\n{WARNING}\n\nStarted  {started}\nUp  {hours} hr {minutes:02} min {seconds:02} sec\n\
             Binary version  {version}\nEmulation version  {emulates}\nPaths  {paths}\n"
        )
    }

    fn flags(&self) -> String {
        let mut page = format!("\n{} flagz\n{WARNING}\n\n", self.component);
        let mut flags: Vec<_> = self.flags.iter().collect();
        flags.sort();
        for (name, value) in flags {
            let _ = writeln!(page, "{name}: {value}");
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_name_the_component_its_age_and_its_flags() {
        let flags = [("v", "2"), ("leader-elect", "false")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let pages = ZPages {
            component: "kube-scheduler",
            started: "Wed Nov 18 08:10:53 UTC 2026".into(),
            version: "v1".into(),
            emulates: "1.36",
            paths: &["/healthz", "/metrics"],
            flags: flags.to_vec(),
        };
        let status = pages.answer("/statusz", Duration::from_secs(3 * 3600 + 4 * 60 + 5)).unwrap();
        assert!(status.starts_with("\nkube-scheduler statusz\nWarning: "), "{status}");
        assert!(status.contains("\nUp  3 hr 04 min 05 sec\n") && status.contains("\nPaths  /healthz /metrics\n"));
        let flags = pages.answer("/flagz", Duration::ZERO).unwrap();
        assert!(flags.ends_with("\n\nleader-elect: false\nv: 2\n"), "{flags}");
        assert!(pages.answer("/metrics", Duration::ZERO).is_none());
    }
}
