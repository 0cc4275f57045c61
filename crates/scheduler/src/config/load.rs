//! Loads a file and completes it to the v1 form, with upstream's messages for what it refuses.

use serde_json::{Value, json};

use super::{API_VERSION, Error, defaults, schema, yaml};

/// The source position of upstream's scheme, which its messages name.
const SCHEME: &str = "pkg/scheduler/apis/config/scheme/scheme.go:29";
const GROUP: &str = "kubescheduler.config.k8s.io";

/// Reads a file into the v1 form that upstream would write, with all defaults.
pub fn load(text: &str) -> Result<Value, Error> {
    let document = yaml::read(text).map_err(Error::Decode)?;
    let mut strict = Vec::new();
    if !document.repeated.is_empty() {
        strict.push(format!("yaml: unmarshal errors:\n  {}", document.repeated.join("\n  ")));
    }
    complete(document.value, text, strict)
}

/// Whether a file sets `clientConnection.qps` or `burst`; 0 counts as not set, as in upstream's defaulting.
pub fn chooses_budget(text: &str) -> bool {
    let Ok(document) = yaml::read(text) else { return false };
    let connection = &document.value["clientConnection"];
    ["qps", "burst"].iter().any(|field| connection[field].as_f64().is_some_and(|number| number != 0.0))
}

/// Completes a decoded configuration; messages quote `text`.
pub(super) fn complete(mut value: Value, text: &str, mut strict: Vec<String>) -> Result<Value, Error> {
    let (version, kind) = type_of(&value);
    if kind.is_empty() {
        return Err(Error::Decode(format!("Object 'Kind' is missing in '{text}'")));
    }
    if version.is_empty() {
        return Err(Error::Decode(format!("Object 'apiVersion' is missing in '{text}'")));
    }
    if version != API_VERSION || kind != "KubeSchedulerConfiguration" {
        let args = (version == API_VERSION).then(|| schema::args(&kind)).flatten();
        let of = args.ok_or_else(|| Error::Decode(unregistered(&version, &kind)))?;
        schema::check(&value, of, &mut strict).map_err(Error::Decode)?;
        refuse_strictly(&strict)?;
        let got = format!("couldn't decode as KubeSchedulerConfiguration, got {version}, Kind={kind}: ");
        return Err(Error::Decode(got));
    }
    schema::check(&value, &schema::CONFIGURATION, &mut strict).map_err(Error::Decode)?;
    for (i, profile) in list(&mut value, "profiles").iter_mut().enumerate() {
        for (j, config) in list(profile, "pluginConfig").iter_mut().enumerate() {
            let at = |error: String| format!("decoding .profiles[{i}].pluginConfig[{j}]: {error}");
            let unknown = check_args(config).map_err(|error| Error::Decode(at(error)))?;
            strict.extend(unknown.map(|error| at(format!("strict decoding error: {error}"))));
        }
    }
    refuse_strictly(&strict)?;
    defaults::apply(&mut value);
    schema::write(&mut value, &schema::CONFIGURATION);
    Ok(value)
}

fn refuse_strictly(errors: &[String]) -> Result<(), Error> {
    if errors.is_empty() { Ok(()) } else { Err(Error::Decode(format!("strict decoding error: {}", errors.join(", ")))) }
}

fn type_of(value: &Value) -> (String, String) {
    let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    (text("apiVersion"), text("kind"))
}

fn unregistered(version: &str, kind: &str) -> String {
    format!("no kind {kind:?} is registered for version {version:?} in scheme {SCHEME:?}")
}

/// The elements of a list; none when it is absent.
pub(super) fn list<'a>(value: &'a mut Value, field: &str) -> &'a mut [Value] {
    value.get_mut(field).and_then(Value::as_array_mut).map_or(&mut [], Vec::as_mut_slice)
}

/// Checks the arguments of a plugin and completes them; returns the message about unknown fields.
fn check_args(config: &mut Value) -> Result<Option<String>, String> {
    let name = config["name"].as_str().unwrap_or_default().to_owned();
    let expected = format!("{name}Args");
    let Some(of) = schema::args(&expected) else { return Ok(None) };
    if config["args"].is_null() {
        config["args"] = json!({});
    }
    let args = &mut config["args"];
    let (mut version, mut kind) = type_of(args);
    if version.is_empty() {
        version = API_VERSION.to_owned();
    }
    if kind.is_empty() {
        kind.clone_from(&expected);
    }
    let failed = |error: String| format!("decoding args for plugin {name}: {error}");
    let given = (version == API_VERSION).then(|| schema::args(&kind)).flatten();
    let given = given.ok_or_else(|| failed(unregistered(&version, &kind)))?;
    let mut unknown = Vec::new();
    schema::check(args, given, &mut unknown).map_err(failed)?;
    if kind != expected {
        return Err(format!("args for plugin {name} were not of type {expected}.{GROUP}, got {kind}.{GROUP}"));
    }
    if let Value::Object(map) = args {
        map.insert("apiVersion".into(), json!(version));
        map.insert("kind".into(), json!(kind));
    }
    defaults::apply_args(&name, args);
    schema::write(args, of);
    Ok((!unknown.is_empty())
        .then(|| format!("decoding args for plugin {name}: strict decoding error: {}", unknown.join(", "))))
}
