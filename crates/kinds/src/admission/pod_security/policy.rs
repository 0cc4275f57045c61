//! Levels, versions, and the labels that choose them.

use std::fmt;

use serde_json::Value;

use crate::field::{ErrorList, FieldError, Path};
use crate::object::text;

/// How much a pod may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Everything.
    Privileged,
    /// What opens no known way out of its container.
    Baseline,
    /// What current practice of hardening leaves.
    Restricted,
}

impl Level {
    fn parse(text: &str) -> Option<Level> {
        [Level::Privileged, Level::Baseline, Level::Restricted].into_iter().find(|level| level.name() == text)
    }

    fn name(self) -> &'static str {
        match self {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        }
    }
}

/// Whose rules apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The newest there are.
    Latest,
    /// Those of Kubernetes 1.x.
    Minor(u32),
}

impl Version {
    fn parse(text: &str) -> Option<Version> {
        if text == "latest" {
            return Some(Version::Latest);
        }
        let digits = text.strip_prefix("v1.")?;
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        (is_number && (digits == "0" || !digits.starts_with('0')))
            .then(|| digits.parse().ok().map(Version::Minor))
            .flatten()
    }
}

/// A level by the rules of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelVersion {
    /// The level.
    pub level: Level,
    /// The version.
    pub version: Version,
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.version {
            Version::Latest => write!(formatter, "{}:latest", self.level.name()),
            Version::Minor(minor) => write!(formatter, "{}:v1.{minor}", self.level.name()),
        }
    }
}

const UNLIMITED: LevelVersion = LevelVersion { level: Level::Privileged, version: Version::Latest };

const PREFIX: &str = "pod-security.kubernetes.io/";

/// What the labels of a namespace ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// What is refused.
    pub enforce: LevelVersion,
    /// What is noted in the audit log.
    pub audit: LevelVersion,
    /// What is warned of.
    pub warn: LevelVersion,
}

impl Policy {
    /// The policy of a namespace, and what is wrong with its labels. An unknown level to enforce is the strictest; one
    /// to audit or to warn of is none.
    pub fn of(namespace: &Value) -> (Policy, Vec<FieldError>) {
        let labels = &namespace["metadata"]["labels"];
        let mut errors = ErrorList::default();
        let (enforce, known) = mode(labels, "enforce", Level::Restricted, &mut errors);
        let (audit, _) = mode(labels, "audit", Level::Privileged, &mut errors);
        let (mut warn, _) = mode(labels, "warn", Level::Privileged, &mut errors);
        let given = |name: &str| labels.get(format!("{PREFIX}{name}")).is_some();
        // What is refused in pods is warned of in their controllers.
        if known && given("enforce") && !given("warn") && enforce.level > warn.level {
            warn.level = enforce.level;
            if !given("warn-version") {
                warn.version = enforce.version;
            }
        }
        (Policy { enforce, audit, warn }, errors.into_vec())
    }

    /// Whether nothing is refused, noted or warned of.
    pub fn is_privileged(&self) -> bool {
        [self.enforce, self.audit, self.warn].iter().all(|mode| mode.level == Level::Privileged)
    }
}

/// The level and version of a mode, and whether its level is a known one.
fn mode(labels: &Value, name: &str, unknown: Level, errors: &mut ErrorList) -> (LevelVersion, bool) {
    let (mut found, mut known) = (UNLIMITED, true);
    let (level, version) = (format!("{PREFIX}{name}"), format!("{PREFIX}{name}-version"));
    let metadata = Path::root("metadata");
    let path = metadata.child("labels");
    if labels.get(&level).is_some() {
        let given = text(labels, &level);
        let parsed = Level::parse(given);
        known = parsed.is_some();
        found.level = parsed.unwrap_or(unknown);
        if !known {
            errors.invalid(path.key(&level), given, "must be one of privileged, baseline, restricted");
        }
    }
    if labels.get(&version).is_some() {
        let given = text(labels, &version);
        found.version = Version::parse(given).unwrap_or_else(|| {
            errors.invalid(path.key(&version), given, "must be \"latest\" or \"v1.x\"");
            Version::Latest
        });
    }
    (found, known)
}
