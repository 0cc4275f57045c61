//! Query parameters, with upstream's errors for the ones that do not parse.

pub use bayplan_kinds::codec::FieldValidation;
use bayplan_model::status::{Status, reason};
use serde_json::Value;

/// A parsed query string; of a repeated parameter the first counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Splits and decodes a query string.
    pub fn parse(query: &str) -> Query {
        Query(
            query
                .split('&')
                .filter(|pair| !pair.is_empty())
                .map(|pair| {
                    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (percent_decode(key, true), percent_decode(value, true))
                })
                .collect(),
        )
    }

    /// The first value of a parameter.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// All values of a parameter.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// A boolean parameter as upstream reads it: present counts as true unless it says `false` or `0`.
    pub fn flag(&self, key: &str) -> bool {
        self.get(key).is_some_and(|v| !matches!(v.to_ascii_lowercase().as_str(), "false" | "0"))
    }

    fn text(&self, key: &str) -> String {
        self.get(key).unwrap_or_default().to_owned()
    }

    fn optional_flag(&self, key: &str) -> Option<bool> {
        self.get(key).map(|_| self.flag(key))
    }

    fn int(&self, key: &str) -> Result<Option<i64>, Status> {
        match self.get(key) {
            None | Some("") => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| {
                let why = if text.trim_start_matches(['-', '+']).bytes().all(|b| b.is_ascii_digit()) {
                    "value out of range"
                } else {
                    "invalid syntax"
                };
                bad_request(format!("strconv.ParseInt: parsing {text:?}: {why}"))
            }),
        }
    }
}

pub(super) fn percent_decode(text: &str, plus_is_space: bool) -> String {
    if !text.contains(['%', '+']) {
        return text.to_owned();
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = |b: Option<&u8>| b.and_then(|b| (*b as char).to_digit(16));
        match (bytes[at], hex(bytes.get(at + 1)), hex(bytes.get(at + 2))) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 3;
                continue;
            }
            (b'+', ..) if plus_is_space => out.push(b' '),
            (byte, ..) => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn bad_request(message: impl Into<String>) -> Status {
    Status::failure(400, reason::BAD_REQUEST, message)
}

/// How a list's `resourceVersion` is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionMatch {
    /// Any state at least as new.
    NotOlderThan,
    /// Exactly that state.
    Exact,
}

/// `metav1.ListOptions`, before the rules that combine its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// Label selector text.
    pub label_selector: String,
    /// Field selector text.
    pub field_selector: String,
    /// Page size, 0 for everything.
    pub limit: i64,
    /// Token of the next page.
    pub continue_token: String,
    /// Resource version text, empty when unset.
    pub resource_version: String,
    /// How the resource version is meant, as text: what it may say depends on the rest.
    pub version_match: String,
    /// Bookmarks are welcome.
    pub allow_bookmarks: bool,
    /// Start a watch with the current state.
    pub send_initial_events: Option<bool>,
    /// How long a watch may last.
    pub timeout_seconds: Option<i64>,
}

impl ListOptions {
    /// Reads the list and watch parameters.
    pub fn parse(query: &Query) -> Result<ListOptions, Status> {
        Ok(ListOptions {
            label_selector: query.text("labelSelector"),
            field_selector: query.text("fieldSelector"),
            limit: query.int("limit")?.unwrap_or(0),
            continue_token: query.text("continue"),
            resource_version: query.text("resourceVersion"),
            version_match: query.text("resourceVersionMatch"),
            allow_bookmarks: query.flag("allowWatchBookmarks"),
            send_initial_events: query.optional_flag("sendInitialEvents"),
            timeout_seconds: query.int("timeoutSeconds")?,
        })
    }
}

/// `metav1.GetOptions`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GetOptions {
    /// Resource version text, empty for the latest.
    pub resource_version: String,
}

impl GetOptions {
    /// Reads the parameters of a get.
    pub fn parse(query: &Query) -> GetOptions {
        GetOptions { resource_version: query.text("resourceVersion") }
    }
}

/// The options of create, update and patch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Do everything but write.
    pub dry_run: bool,
    /// Who manages the fields; kept for server-side apply.
    pub field_manager: String,
    /// What happens to unknown fields.
    pub field_validation: FieldValidation,
    /// Apply only: take fields from other managers.
    pub force: bool,
}

/// Which options object an error speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OptionsKind {
    Create,
    Update,
    Patch,
    Delete,
}

impl OptionsKind {
    fn kind(self) -> &'static str {
        match self {
            OptionsKind::Create => "CreateOptions",
            OptionsKind::Update => "UpdateOptions",
            OptionsKind::Patch => "PatchOptions",
            OptionsKind::Delete => "DeleteOptions",
        }
    }
}

impl WriteOptions {
    /// Reads the parameters of a create.
    pub fn create(query: &Query) -> Result<WriteOptions, Status> {
        Self::parse(query, OptionsKind::Create)
    }

    /// Reads the parameters of an update.
    pub fn update(query: &Query) -> Result<WriteOptions, Status> {
        Self::parse(query, OptionsKind::Update)
    }

    /// Reads the parameters of a patch.
    pub fn patch(query: &Query) -> Result<WriteOptions, Status> {
        Self::parse(query, OptionsKind::Patch)
    }

    fn parse(query: &Query, kind: OptionsKind) -> Result<WriteOptions, Status> {
        let mut errors = Vec::new();
        let dry_run = dry_run(query.all("dryRun"), &mut errors);
        let manager = query.text("fieldManager");
        if manager.len() > MAX_MANAGER_LENGTH {
            errors.push(crate::status_errors::FieldError::new(
                "FieldValueTooLong",
                "fieldManager",
                format!("Too long: may not be more than {MAX_MANAGER_LENGTH} bytes"),
            ));
        } else if let Some(at) = manager.chars().position(|c| c.is_control()) {
            errors.push(crate::status_errors::FieldError::new(
                "FieldValueInvalid",
                "fieldManager",
                format!(
                    "Invalid value: {manager:?}: invalid character {:?} (at position {at})",
                    manager.chars().nth(at)
                ),
            ));
        }
        let field_validation = match query.get("fieldValidation") {
            None | Some("" | "Warn") => FieldValidation::Warn,
            Some("Ignore") => FieldValidation::Ignore,
            Some("Strict") => FieldValidation::Strict,
            Some(other) => {
                errors.push(crate::status_errors::FieldError::new(
                    "FieldValueNotSupported",
                    "fieldValidation",
                    format!("Unsupported value: {other:?}: supported values: \"\", \"Ignore\", \"Strict\", \"Warn\""),
                ));
                FieldValidation::Warn
            }
        };
        if !errors.is_empty() {
            return Err(crate::status_errors::invalid("meta.k8s.io", kind.kind(), "", &errors));
        }
        Ok(WriteOptions { dry_run, field_manager: manager, field_validation, force: query.flag("force") })
    }
}

/// Upstream's limit on a field manager's name.
const MAX_MANAGER_LENGTH: usize = 128;

fn dry_run<'a>(values: impl Iterator<Item = &'a str>, errors: &mut Vec<crate::status_errors::FieldError>) -> bool {
    let values: Vec<&str> = values.collect();
    if values.iter().any(|v| *v != "All") {
        let shown: Vec<String> = values.iter().map(|v| format!("{v:?}")).collect();
        errors.push(crate::status_errors::FieldError::new(
            "FieldValueNotSupported",
            "dryRun",
            format!("Unsupported value: [{}]: supported values: \"All\"", shown.join(",")),
        ));
    }
    !values.is_empty()
}

/// `metav1.DeleteOptions`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Overrides the object's own grace period.
    pub grace_period_seconds: Option<i64>,
    /// What must still hold.
    pub preconditions: Preconditions,
    /// `Orphan`, `Background` or `Foreground`; empty when unset.
    pub propagation_policy: Option<String>,
    /// The older form of the policy.
    pub orphan_dependents: Option<bool>,
    /// Do everything but write.
    pub dry_run: bool,
}

/// What must hold for a write to happen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// The object's UID.
    pub uid: Option<String>,
    /// The object's resource version.
    pub resource_version: Option<String>,
}

impl DeleteOptions {
    /// Reads the options from the query: what counts when there is no body.
    pub fn from_query(query: &Query) -> Result<DeleteOptions, Status> {
        let mut errors = Vec::new();
        let options = DeleteOptions {
            grace_period_seconds: query.int("gracePeriodSeconds")?,
            preconditions: Preconditions::default(),
            propagation_policy: query.get("propagationPolicy").map(str::to_owned),
            orphan_dependents: query.optional_flag("orphanDependents"),
            dry_run: dry_run(query.all("dryRun"), &mut errors),
        };
        options.validated(errors)
    }

    /// Reads the options from a decoded body.
    pub fn from_body(body: &Value) -> Result<DeleteOptions, Status> {
        let mut errors = Vec::new();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let dry: Vec<&str> =
            body["dryRun"].as_array().map(|l| l.iter().filter_map(Value::as_str).collect()).unwrap_or_default();
        let options = DeleteOptions {
            grace_period_seconds: body["gracePeriodSeconds"].as_i64(),
            preconditions: Preconditions {
                uid: text(&body["preconditions"]["uid"]),
                resource_version: text(&body["preconditions"]["resourceVersion"]),
            },
            propagation_policy: text(&body["propagationPolicy"]),
            orphan_dependents: body["orphanDependents"].as_bool(),
            dry_run: dry_run(dry.into_iter(), &mut errors),
        };
        options.validated(errors)
    }

    fn validated(self, mut errors: Vec<crate::status_errors::FieldError>) -> Result<DeleteOptions, Status> {
        use crate::status_errors::FieldError;
        if self.orphan_dependents.is_some() && self.propagation_policy.is_some() {
            errors.insert(
                0,
                FieldError::new(
                    "FieldValueInvalid",
                    "propagationPolicy",
                    format!(
                        "Invalid value: {:?}: orphanDependents and deletionPropagation cannot be both set",
                        self.propagation_policy.as_deref().unwrap_or_default()
                    ),
                ),
            );
        }
        if let Some(policy) = &self.propagation_policy
            && !matches!(policy.as_str(), "Orphan" | "Background" | "Foreground")
        {
            errors.insert(
                0,
                FieldError::new(
                    "FieldValueNotSupported",
                    "propagationPolicy",
                    format!(
                        "Unsupported value: {policy:?}: supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\""
                    ),
                ),
            );
        }
        if errors.is_empty() {
            return Ok(self);
        }
        Err(crate::status_errors::invalid("meta.k8s.io", OptionsKind::Delete.kind(), "", &errors))
    }
}

/// How much of each object a Table row carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// Its metadata.
    #[default]
    Metadata,
    /// All of it.
    Object,
}

impl IncludeObject {
    /// Reads the parameter.
    pub fn parse(query: &Query) -> Result<IncludeObject, Status> {
        match query.get("includeObject") {
            None | Some("" | "Metadata") => Ok(IncludeObject::Metadata),
            Some("None") => Ok(IncludeObject::None),
            Some("Object") => Ok(IncludeObject::Object),
            Some(other) => Err(bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', 'Object', 'None', or empty"
            ))),
        }
    }
}
