//! Options in the query and in the body of a delete, with upstream's errors for those that are wrong.

pub(crate) use bayplan_kinds::codec::FieldValidation;
use bayplan_model::status::{Status, reason};
use serde_json::Value;

use crate::status_errors::{FieldError, invalid};

/// A parsed query string.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Splits and decodes a query string.
    pub(crate) fn parse(query: &str) -> Query {
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
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// All values of a parameter.
    pub(crate) fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// A boolean parameter as upstream reads it: true if present, unless its value is `false` or `0`.
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.get(key).is_some_and(|v| !matches!(v.to_ascii_lowercase().as_str(), "false" | "0"))
    }

    fn text(&self, key: &str) -> String {
        self.get(key).unwrap_or_default().to_owned()
    }

    fn optional_flag(&self, key: &str) -> Option<bool> {
        self.get(key).map(|_| self.flag(key))
    }

    pub(crate) fn int(&self, key: &str) -> Result<Option<i64>, Status> {
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

/// `resourceVersionMatch`: which states a list with a `resourceVersion` may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VersionMatch {
    /// A state at least as new.
    NotOlderThan,
    /// Exactly that state.
    Exact,
}

/// `metav1.ListOptions`, parsed but not yet checked against each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListOptions {
    pub(crate) label_selector: String,
    pub(crate) field_selector: String,
    /// The page size; 0 for no limit.
    pub(crate) limit: i64,
    /// Empty for the first page.
    pub(crate) continue_token: String,
    /// Empty if unset.
    pub(crate) resource_version: String,
    /// Unparsed, because the values allowed depend on the other options.
    pub(crate) version_match: String,
    /// The client can handle bookmarks.
    pub(crate) allow_bookmarks: bool,
    /// Whether a watch starts with the current state.
    pub(crate) send_initial_events: Option<bool>,
    /// How long a watch lasts.
    pub(crate) timeout_seconds: Option<i64>,
}

impl ListOptions {
    pub(crate) fn parse(query: &Query) -> Result<ListOptions, Status> {
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
pub(crate) struct GetOptions {
    /// Empty for the newest state.
    pub(crate) resource_version: String,
}

impl GetOptions {
    pub(crate) fn parse(query: &Query) -> GetOptions {
        GetOptions { resource_version: query.text("resourceVersion") }
    }
}

/// `metav1.CreateOptions`, `UpdateOptions` and `PatchOptions`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriteOptions {
    /// Run every check, write nothing.
    pub(crate) dry_run: bool,
    /// What to do with unknown fields.
    pub(crate) field_validation: FieldValidation,
    /// Who owns what is written; empty if the request does not say.
    pub(crate) manager: String,
    /// Whether what is applied takes fields from those who own them.
    pub(crate) force: bool,
}

/// The kind of options that an error names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OptionsKind {
    Create,
    Update,
    Patch,
    Apply,
    Delete,
}

impl OptionsKind {
    fn kind(self) -> &'static str {
        match self {
            OptionsKind::Create => "CreateOptions",
            OptionsKind::Update => "UpdateOptions",
            OptionsKind::Patch | OptionsKind::Apply => "PatchOptions",
            OptionsKind::Delete => "DeleteOptions",
        }
    }
}

impl WriteOptions {
    /// Reads `CreateOptions`.
    pub(crate) fn create(query: &Query) -> Result<WriteOptions, Status> {
        Self::parse(query, OptionsKind::Create)
    }

    /// Reads `UpdateOptions`.
    pub(crate) fn update(query: &Query) -> Result<WriteOptions, Status> {
        Self::parse(query, OptionsKind::Update)
    }

    /// Reads `PatchOptions` of a patch, or of an object that is applied.
    pub(crate) fn patch(query: &Query, applies: bool) -> Result<WriteOptions, Status> {
        Self::parse(query, if applies { OptionsKind::Apply } else { OptionsKind::Patch })
    }

    /// The manager that the request names, or the beginning of what the client calls itself, as upstream takes it.
    pub(crate) fn manager_or(&self, user_agent: &str) -> String {
        if !self.manager.is_empty() {
            return self.manager.clone();
        }
        let mut manager = String::new();
        let name = user_agent.split('/').next().unwrap_or_default();
        for character in name.chars().filter(|character| !character.is_control()) {
            if manager.len() + character.len_utf8() > MAX_MANAGER_LENGTH {
                break;
            }
            manager.push(character);
        }
        manager
    }

    fn parse(query: &Query, kind: OptionsKind) -> Result<WriteOptions, Status> {
        let mut errors = Vec::new();
        let force = query.optional_flag("force");
        if kind == OptionsKind::Apply && query.text("fieldManager").is_empty() {
            let why = "Required value: is required for apply patch".to_owned();
            errors.push(FieldError::new("FieldValueRequired", "fieldManager", why));
        }
        if kind == OptionsKind::Patch && force.is_some() {
            let why = "Forbidden: may not be specified for non-apply patch".to_owned();
            errors.push(FieldError::new("FieldValueForbidden", "force", why));
        }
        let dry_run = dry_run(query.all("dryRun"), &mut errors);
        let manager = query.text("fieldManager");
        if manager.len() > MAX_MANAGER_LENGTH {
            errors.push(FieldError::new(
                "FieldValueTooLong",
                "fieldManager",
                format!("Too long: may not be more than {MAX_MANAGER_LENGTH} bytes"),
            ));
        } else if let Some(at) = manager.chars().position(|c| c.is_control()) {
            errors.push(FieldError::new(
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
                errors.push(FieldError::new(
                    "FieldValueNotSupported",
                    "fieldValidation",
                    format!("Unsupported value: {other:?}: supported values: \"\", \"Ignore\", \"Strict\", \"Warn\""),
                ));
                FieldValidation::Warn
            }
        };
        if !errors.is_empty() {
            return Err(invalid("meta.k8s.io", kind.kind(), "", &errors));
        }
        Ok(WriteOptions { dry_run, field_validation, manager, force: force.unwrap_or_default() })
    }
}

/// Upstream's limit on a field manager's name.
const MAX_MANAGER_LENGTH: usize = 128;

fn dry_run<'a>(values: impl Iterator<Item = &'a str>, errors: &mut Vec<FieldError>) -> bool {
    let values: Vec<&str> = values.collect();
    if values.iter().any(|v| *v != "All") {
        let shown: Vec<String> = values.iter().map(|v| format!("{v:?}")).collect();
        errors.push(FieldError::new(
            "FieldValueNotSupported",
            "dryRun",
            format!("Unsupported value: [{}]: supported values: \"All\"", shown.join(",")),
        ));
    }
    !values.is_empty()
}

/// `metav1.DeleteOptions`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeleteOptions {
    /// Overrides the grace period of the object.
    pub(crate) grace_period_seconds: Option<i64>,
    pub(crate) preconditions: Preconditions,
    /// `Orphan`, `Background` or `Foreground`.
    pub(crate) propagation_policy: Option<String>,
    /// The deprecated form of the policy.
    pub(crate) orphan_dependents: Option<bool>,
    /// Run every check, write nothing.
    pub(crate) dry_run: bool,
}

/// `metav1.Preconditions`: what must be true of the object when it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Preconditions {
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
}

impl DeleteOptions {
    /// Reads the options from the query of a request without a body.
    pub(crate) fn from_query(query: &Query) -> Result<DeleteOptions, Status> {
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
    pub(crate) fn from_body(body: &Value) -> Result<DeleteOptions, Status> {
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

    fn validated(self, mut errors: Vec<FieldError>) -> Result<DeleteOptions, Status> {
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
                        "Unsupported value: {policy:?}: supported values: \"Foreground\", \"Background\", \"Orphan\", \
                         \"nil\""
                    ),
                ),
            );
        }
        if errors.is_empty() {
            return Ok(self);
        }
        Err(invalid("meta.k8s.io", OptionsKind::Delete.kind(), "", &errors))
    }
}

/// `includeObject`: how much of each object a row of a Table carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum IncludeObject {
    /// Rows carry cells only.
    None,
    /// Its metadata.
    #[default]
    Metadata,
    /// All of it.
    Object,
}

impl IncludeObject {
    pub(crate) fn parse(query: &Query) -> Result<IncludeObject, Status> {
        match query.get("includeObject") {
            None | Some("" | "Metadata") => Ok(IncludeObject::Metadata),
            Some("None") => Ok(IncludeObject::None),
            Some("Object") => Ok(IncludeObject::Object),
            Some(other) => Err(bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', \
                 'Object', 'None', or empty"
            ))),
        }
    }
}
