//! Health: named checks, and the answers of `/healthz`, `/livez` and `/readyz`.

use std::sync::Arc;

use bayplan_metrics::{Counter, Family, Gauge, Registry};

/// The health endpoints.
const ENDPOINTS: [&str; 3] = ["healthz", "livez", "readyz"];

/// The endpoints that run a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckedBy {
    /// `/healthz`.
    pub healthz: bool,
    /// `/livez`.
    pub livez: bool,
    /// `/readyz`.
    pub readyz: bool,
}

impl CheckedBy {
    /// `/healthz` alone.
    pub const HEALTHZ: CheckedBy = CheckedBy { healthz: true, livez: false, readyz: false };
    /// `/readyz` alone.
    pub const READYZ: CheckedBy = CheckedBy { healthz: false, livez: false, readyz: true };
    /// `/healthz` and `/readyz`.
    pub const HEALTHZ_AND_READYZ: CheckedBy = CheckedBy { healthz: true, livez: false, readyz: true };

    fn by(self, endpoint: &str) -> bool {
        match endpoint {
            "healthz" => self.healthz,
            "livez" => self.livez,
            _ => self.readyz,
        }
    }
}

type Test = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

#[derive(Clone)]
struct Check {
    name: String,
    asked: CheckedBy,
    test: Test,
}

/// The checks of a component; an endpoint without any runs `ping`.
#[derive(Clone)]
pub struct Health {
    checks: Vec<Check>,
    slis: Registry,
    healthy: Family<Gauge>,
    results: Family<Counter>,
}

impl Default for Health {
    fn default() -> Self {
        let slis = Registry::default();
        Health {
            checks: Vec::new(),
            healthy: slis.family(
                "kubernetes_healthcheck",
                "[STABLE] Whether a check passed when it last ran.",
                &["name", "type"],
                (),
            ),
            results: slis.family(
                "kubernetes_healthchecks_total",
                "[STABLE] Results of a check.",
                &["name", "status", "type"],
                (),
            ),
            slis,
        }
    }
}

impl Health {
    /// Adds a check; its error is shown only to a request for this check alone.
    #[must_use]
    pub fn check(
        mut self,
        name: impl Into<String>,
        asked: CheckedBy,
        test: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.checks.push(Check { name: name.into(), asked, test: Arc::new(test) });
        self
    }

    /// The metrics of `/metrics/slis`.
    pub fn slis(&self) -> &Registry {
        &self.slis
    }

    /// The status code and body of a health endpoint; none for any other path.
    pub fn answer(&self, path: &str, query: &str) -> Option<(u16, String)> {
        let path = path.trim_matches('/');
        let (endpoint, single) = path.split_once('/').map_or((path, None), |(endpoint, rest)| (endpoint, Some(rest)));
        let endpoint = ENDPOINTS.into_iter().find(|known| *known == endpoint)?;
        match single {
            Some(name) => self.answer_one(endpoint, name),
            None => Some(self.answer_all(endpoint, query)),
        }
    }

    fn checks(&self, endpoint: &'static str) -> Vec<Check> {
        let mut checks: Vec<Check> = self.checks.iter().filter(|check| check.asked.by(endpoint)).cloned().collect();
        if checks.is_empty() {
            checks.push(Check { name: "ping".into(), asked: CheckedBy::HEALTHZ, test: Arc::new(|| Ok(())) });
        }
        checks
    }

    fn run_check(&self, endpoint: &str, check: &Check) -> Result<(), String> {
        let answer = (check.test)();
        let status = if answer.is_ok() { "success" } else { "error" };
        self.healthy.get(&[&check.name, endpoint]).set(f64::from(u8::from(answer.is_ok())));
        self.results.get(&[&check.name, status, endpoint]).inc();
        answer
    }

    fn answer_one(&self, endpoint: &'static str, name: &str) -> Option<(u16, String)> {
        let check = self.checks(endpoint).into_iter().find(|check| check.name == name)?;
        Some(match self.run_check(endpoint, &check) {
            Ok(()) => (200, "ok".into()),
            Err(why) => (500, format!("internal server error: {why}\n")),
        })
    }

    fn answer_all(&self, endpoint: &'static str, query: &str) -> (u16, String) {
        let mut excluded: Vec<&str> = parameters(query, "exclude").collect();
        let mut report = String::new();
        let mut failed = false;
        for check in self.checks(endpoint) {
            let name = &check.name;
            if let Some(at) = excluded.iter().position(|excluded| excluded == name) {
                excluded.remove(at);
                report.push_str(&format!("[+]{name} excluded: ok\n"));
                continue;
            }
            match self.run_check(endpoint, &check) {
                Ok(()) => report.push_str(&format!("[+]{name} ok\n")),
                Err(why) => {
                    tracing::info!(check = name, "{endpoint} check failed: {why}");
                    failed = true;
                    report.push_str(&format!("[-]{name} failed: reason withheld\n"));
                }
            }
        }
        if !excluded.is_empty() {
            let quoted: Vec<String> = excluded.iter().map(|name| format!("{name:?}")).collect();
            let names = quoted.join(",");
            report.push_str(&format!("warn: some health checks cannot be excluded: no matches for {names}\n"));
        }
        match (failed, parameters(query, "verbose").next()) {
            (true, _) => (500, format!("{report}{endpoint} check failed\n")),
            (false, Some(_)) => (200, format!("{report}{endpoint} check passed\n")),
            (false, None) => (200, "ok".into()),
        }
    }
}

/// The values of a query parameter; names of checks need no decoding.
fn parameters<'a>(query: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.filter(move |(key, _)| *key == name).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_is_told_as_upstream_tells_it() {
        let bad = || Err("not today".to_owned());
        let health = Health::default().check("leaderElection", CheckedBy::HEALTHZ_AND_READYZ, || Ok(())).check(
            "shutdown",
            CheckedBy::READYZ,
            bad,
        );
        for (path, query, expected) in [
            ("/healthz", "", (200, "ok")),
            ("/healthz", "verbose", (200, "[+]leaderElection ok\nhealthz check passed\n")),
            ("/livez", "verbose=true", (200, "[+]ping ok\nlivez check passed\n")),
            ("/readyz", "", (500, "[+]leaderElection ok\n[-]shutdown failed: reason withheld\nreadyz check failed\n")),
            ("/readyz", "exclude=shutdown", (200, "ok")),
            (
                "/readyz",
                "exclude=shutdown&verbose",
                (200, "[+]leaderElection ok\n[+]shutdown excluded: ok\nreadyz check passed\n"),
            ),
            (
                "/healthz",
                "exclude=x&verbose",
                (
                    200,
                    "[+]leaderElection ok\n\
                 warn: some health checks cannot be excluded: no matches for \"x\"\nhealthz check passed\n",
                ),
            ),
            ("/readyz/shutdown", "", (500, "internal server error: not today\n")),
            ("/healthz/leaderElection", "", (200, "ok")),
        ] {
            let (code, body) = health.answer(path, query).unwrap();
            assert_eq!((code, body.as_str()), expected, "{path}?{query}");
        }
        assert_eq!(health.answer("/healthz/ping", ""), None);
        assert_eq!(health.answer("/metrics", ""), None);
        let slis = health.slis().render();
        assert!(slis.contains("kubernetes_healthcheck{name=\"shutdown\",type=\"readyz\"} 0\n"), "{slis}");
        let total = "kubernetes_healthchecks_total{name=\"shutdown\",status=\"error\",type=\"readyz\"} 2\n";
        assert!(slis.contains(total), "{slis}");
    }
}
