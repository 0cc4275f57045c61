//! Structs as messages quote them: JSON of upstream's internal Go types.
//!
//! Those have no JSON tags, so a field has its Go name and is written even when it is empty. Types of `meta/v1` keep
//! their tags, inside of others too.

use std::sync::LazyLock;

use bayplan_model::schema::{Definition, Field, Schema, Type};
use rustc_hash::FxHashMap;
use serde_json::Value;

use super::unified_diff;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// The structs of `go_structs.txt`, by the full names of their types in the API.
static STRUCTS: LazyLock<FxHashMap<String, Vec<GoField>>> = LazyLock::new(|| parsed(include_str!("go_structs.txt")));

/// A field of a struct as upstream has it in memory.
#[derive(Debug)]
struct GoField {
    /// Its name in messages.
    go: &'static str,
    /// Its name in the API.
    name: String,
    pointer: Pointer,
    /// The struct of the API that has it.
    of: Home,
}

/// Whether a field is a pointer, and so null when it is not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pointer {
    AsInApi,
    Always,
    Never,
}

/// Where the API has a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Home {
    SameStruct,
    PodSpec,
}

fn parsed(text: &'static str) -> FxHashMap<String, Vec<GoField>> {
    let mut structs: FxHashMap<String, Vec<GoField>> = FxHashMap::default();
    let mut current = String::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        if !line.starts_with(' ') {
            let name = words.next().unwrap_or_default();
            current = match name.strip_prefix("meta.v1.") {
                Some(meta) => format!("{META}{meta}"),
                None => format!("io.k8s.api.{name}"),
            };
        }
        structs.entry(current.clone()).or_default().extend(words.map(GoField::parse));
    }
    structs
}

impl GoField {
    fn parse(word: &'static str) -> GoField {
        let (named, mark) = match word.find(['*', '!', '@']) {
            Some(at) => word.split_at(at),
            None => (word, ""),
        };
        let (go, name) = match named.split_once('=') {
            Some((go, name)) => (go, name.to_owned()),
            None => (named, format!("{}{}", named[..1].to_ascii_lowercase(), &named[1..])),
        };
        let pointer = match mark {
            "*" => Pointer::Always,
            "!" => Pointer::Never,
            _ => Pointer::AsInApi,
        };
        GoField { go, name, pointer, of: if mark == "@" { Home::PodSpec } else { Home::SameStruct } }
    }

    fn shown(&self, definition: &'static Definition, object: &Value) -> String {
        let Some(field) = definition.field(&self.name) else { return format!("{:?}:null", self.go) };
        let optional = match self.pointer {
            Pointer::AsInApi => field.optional,
            Pointer::Always => true,
            Pointer::Never => false,
        };
        format!("{:?}:{}", self.go, shown_as(&field.ty, optional, &object[field.name]))
    }
}

/// JSON as Go writes it: safe within HTML.
pub(crate) fn json(value: &Value) -> String {
    let json = value.to_string();
    // All of these are inside of strings there.
    if !json.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return json;
    }
    let escape = |escaped: String, character: char| match character {
        '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => escaped + &format!("\\u{:04x}", character as u32),
        plain => {
            let mut escaped = escaped;
            escaped.push(plain);
            escaped
        }
    };
    json.chars().fold(String::with_capacity(json.len()), escape)
}

/// Shows a value, or a list of values, of the type of that full name.
pub(crate) fn shown(definition: &str, value: &Value) -> String {
    match (Schema::get().named(definition), value) {
        (Some(definition), Value::Array(values)) => list(values, |value| structure(definition, value)),
        (Some(definition), value) => structure(definition, value),
        (None, value) => json(value),
    }
}

/// What changed between two values of the type of that full name, line by line; empty if they are too large.
pub(crate) fn difference(definition: &str, old: &Value, new: &Value) -> String {
    unified_diff::unified(&indented(&shown(definition, old)), &indented(&shown(definition, new))).unwrap_or_default()
}

/// JSON over several lines, as Go indents it by one space.
fn indented(json: &str) -> String {
    let mut out = String::with_capacity(json.len() * 2);
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    let mut previous = ' ';
    for character in json.chars() {
        if in_string {
            out.push(character);
            in_string = escaped || character != '"';
            escaped = character == '\\' && !escaped;
            previous = character;
            continue;
        }
        let new_line = |out: &mut String, depth: usize| {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', depth));
        };
        if matches!(previous, '{' | '[') && !matches!(character, '}' | ']') {
            new_line(&mut out, depth);
        }
        match character {
            '{' | '[' => depth += 1,
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                if !matches!(previous, '{' | '[') {
                    new_line(&mut out, depth);
                }
            }
            _ => in_string = character == '"',
        }
        out.push(character);
        match character {
            ',' => new_line(&mut out, depth),
            ':' => out.push(' '),
            _ => {}
        }
        previous = character;
    }
    out
}

fn list(values: &[Value], shown: impl Fn(&Value) -> String) -> String {
    let shown: Vec<String> = values.iter().map(shown).collect();
    format!("[{}]", shown.join(","))
}

fn structure(definition: &'static Definition, value: &Value) -> String {
    match STRUCTS.get(definition.name) {
        _ if value.is_null() => "null".to_owned(),
        // A type without fields, or one that is quoted nowhere.
        None => json(value),
        Some(fields) if definition.name.starts_with(META) => {
            format!("{{{}}}", tagged(definition, fields, value).collect::<Vec<_>>().join(","))
        }
        Some(fields) => {
            let mut shown = Vec::with_capacity(fields.len());
            untagged(definition, fields, value, &mut shown);
            format!("{{{}}}", shown.join(","))
        }
    }
}

/// The fields that are given, under the names they have in requests.
fn tagged(definition: &'static Definition, fields: &'static [GoField], value: &Value) -> impl Iterator<Item = String> {
    fields.iter().filter_map(|of| {
        let field = definition.field(&of.name)?;
        let given = value.get(field.name)?;
        let left_out = field.omit_empty && !field.optional && is_empty_collection(given, &field.ty);
        (!left_out).then(|| format!("{:?}:{}", field.name, shown_as(&field.ty, false, given)))
    })
}

fn is_empty_collection(value: &Value, of: &Type) -> bool {
    match (of, value) {
        (Type::List(..), Value::Array(values)) => values.is_empty(),
        (Type::Map(..), Value::Object(values)) => values.is_empty(),
        _ => false,
    }
}

/// All fields under their Go names.
fn untagged(definition: &'static Definition, fields: &'static [GoField], value: &Value, shown: &mut Vec<String>) {
    for of in fields {
        match (definition.short_name(), of.name.as_str()) {
            // These are fields of the security context in memory, and shown with it.
            (_, _) if of.of == Home::PodSpec => {}
            ("PodSpec", "securityContext") => shown.push(pod_security_context(definition, value)),
            // Embedded: its fields are tagged, and stand among those of the template.
            (_, "metadata") => shown.extend(embedded_metadata(definition, value)),
            _ => shown.push(of.shown(definition, value)),
        }
    }
}

fn embedded_metadata(definition: &'static Definition, template: &Value) -> Vec<String> {
    let metadata = definition.field("metadata").and_then(|field| field.ty.object());
    let Some((metadata, fields)) = metadata.and_then(|of| Some((of, STRUCTS.get(of.name)?))) else {
        return Vec::new();
    };
    tagged(metadata, fields, &template["metadata"]).collect()
}

/// The security context of a pod, with what its spec says of the namespaces of the host.
fn pod_security_context(pod_spec: &'static Definition, spec: &Value) -> String {
    let context = &spec["securityContext"];
    let definition = pod_spec.field("securityContext").and_then(|field: &Field| field.ty.object());
    let Some((definition, fields)) = definition.and_then(|of| Some((of, STRUCTS.get(of.name)?))) else {
        return "\"SecurityContext\":null".to_owned();
    };
    let of_host = fields.iter().filter(|of| of.of == Home::PodSpec);
    let mut shown: Vec<String> = of_host.map(|of| of.shown(pod_spec, spec)).collect();
    untagged(definition, fields, context, &mut shown);
    format!("\"SecurityContext\":{{{}}}", shown.join(","))
}

fn shown_as(of: &Type, optional: bool, value: &Value) -> String {
    match (of, value) {
        (of, Value::Null) => not_given(of, optional),
        (Type::Object(_), value) => of.object().map_or_else(|| json(value), |of| structure(of, value)),
        (Type::List(element, _), Value::Array(values)) => list(values, |value| shown_as(element, false, value)),
        (Type::Map(element, _), Value::Object(values)) if element.object().is_some() => {
            let entries = values.iter().map(|(key, value)| {
                format!("{}:{}", json(&Value::from(key.as_str())), shown_as(element, false, value))
            });
            format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
        }
        (_, value) => json(value),
    }
}

/// What Go's encoder writes for a field that was not given.
fn not_given(of: &Type, optional: bool) -> String {
    let shown = match of {
        _ if optional => "null",
        Type::String(_) => "\"\"",
        Type::Boolean => "false",
        Type::Int32 | Type::Int64 | Type::Double | Type::IntOrString => "0",
        Type::Quantity => "\"0\"",
        Type::Object(_) => {
            return of.object().map_or_else(String::new, |of| structure(of, &Value::Object(Default::default())));
        }
        _ => "null",
    };
    shown.to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_have_their_go_names_and_order_and_empty_ones_are_written() {
        let rule = json!({ "rules": [{ "action": "FailJob", "onExitCodes": { "operator": "In", "values": [1] } }] });
        assert_eq!(
            shown("io.k8s.api.batch.v1.PodFailurePolicy", &rule),
            r#"{"Rules":[{"Action":"FailJob","OnExitCodes":{"ContainerName":null,"Operator":"In","Values":[1]},"#
                .to_owned()
                + r#""OnPodConditions":null}]}"#
        );
        let context = json!({ "capabilities": { "drop": ["ALL"] }, "privileged": true });
        let shown = shown("io.k8s.api.core.v1.SecurityContext", &context);
        assert!(
            shown.starts_with(r#"{"Capabilities":{"Add":null,"Drop":["ALL"]},"Privileged":true,"SELinux"#),
            "{shown}"
        );
    }

    #[test]
    fn the_metadata_of_a_template_is_embedded_and_what_the_host_shares_is_in_the_security_context() {
        let template = json!({
            "metadata": { "labels": { "a": "b" }, "annotations": {} },
            "spec": { "hostPID": true, "securityContext": {}, "containers": [] },
        });
        let shown = shown("io.k8s.api.core.v1.PodTemplateSpec", &template);
        let start = r#"{"labels":{"a":"b"},"Spec":{"Volumes":null,"InitContainers":null,"Containers":[],"#;
        assert!(shown.starts_with(start), "{shown}");
        assert!(shown.contains(r#""SecurityContext":{"HostNetwork":false,"HostPID":true,"#), "{shown}");
    }

    #[test]
    fn pointers_are_those_of_the_types_in_memory() {
        let shown = |kind: &str, value: Value| shown(&format!("io.k8s.api.{kind}"), &value);
        assert_eq!(
            shown("apps.v1.StatefulSetUpdateStrategy", json!({"type": "x", "rollingUpdate": {}})),
            r#"{"Type":"x","RollingUpdate":{"Partition":0,"MaxUnavailable":null}}"#
        );
        assert_eq!(
            shown("apps.v1.DeploymentStrategy", json!({"rollingUpdate": {"maxSurge": "25%"}})),
            r#"{"Type":"","RollingUpdate":{"MaxUnavailable":0,"MaxSurge":"25%"}}"#
        );
        assert_eq!(shown("core.v1.PodIP", json!([{"ip": "10.0.0.1"}])), r#"[{"IP":"10.0.0.1"}]"#);
        assert_eq!(shown("core.v1.PodIP", json!([])), "[]");
    }

    #[test]
    fn a_difference_is_that_of_indented_json() {
        let spec = |volume: &str| json!({"volumeName": volume, "resources": {"requests": {"storage": "1Gi"}}});
        let shown = difference("io.k8s.api.core.v1.PersistentVolumeClaimSpec", &spec("a\"{"), &spec("b"));
        let lines = [
            "@@ -7,7 +7,7 @@",
            r#"    "storage": "1Gi""#,
            "   }",
            "  },",
            r#"- "VolumeName": "a\"{","#,
            r#"+ "VolumeName": "b","#,
            r#"  "StorageClassName": null,"#,
            r#"  "VolumeMode": null,"#,
            r#"  "DataSource": null,"#,
            "",
        ];
        assert_eq!(shown, lines.join("\n"));
        assert_eq!(
            indented(r#"{"a":[],"b":{},"c":[1,{"d":null}]}"#),
            "{\n \"a\": [],\n \"b\": {},\n \"c\": [\n  1,\n  {\n   \"d\": null\n  }\n ]\n}"
        );
    }

    /// Whatever a quoted struct holds is known, under names that the API has.
    #[test]
    fn every_field_is_one_of_the_api_and_every_struct_within_is_listed() {
        let pod_spec = Schema::get().named("io.k8s.api.core.v1.PodSpec").unwrap();
        for (name, fields) in &*STRUCTS {
            let definition = Schema::get().named(name).unwrap_or_else(|| panic!("no type {name}"));
            for of in fields {
                let home = if of.of == Home::PodSpec { pod_spec } else { definition };
                let field = home.field(&of.name).unwrap_or_else(|| panic!("{name} has no field {}", of.name));
                let mut ty = &field.ty;
                while let Some(element) = ty.element() {
                    ty = element;
                }
                if let Some(inner) = ty.object().filter(|inner| !inner.fields.is_empty()) {
                    assert!(STRUCTS.contains_key(inner.name), "{name}.{} is of {}", of.name, inner.name);
                }
            }
        }
    }
}
