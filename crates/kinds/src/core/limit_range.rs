//! LimitRanges.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use bayplan_model::quantity::Quantity;
use serde_json::Value;

use super::resource_names::{is_native, resource_name};
use crate::defaulting::{child, child_or_new, children, round_resource_list};
use crate::field::{ErrorList, Path};
use crate::kind::{Kind, STANDARD_VERBS, Scope};
use crate::names;
use crate::object::{Object, list, text};
use crate::pod_spec::container_resource_name;
use crate::strategy::Strategy;
use crate::validation::{MetadataRecheck, Validation};

pub(crate) static KIND: Kind = Kind {
    kind: "LimitRange",
    plural: "limitranges",
    singular: "limitrange",
    scope: Scope::Namespaced,
    short_names: &["limits"],
    verbs: STANDARD_VERBS,
    storage_prefix: "limitranges",
    defaults,
    strategy: Strategy {
        allow_create_on_update: true,
        on_create: |object, _| name_from_uid(object),
        ..Strategy::PLAIN
    },
    validation: Validation { update_metadata: MetadataRecheck::AsNew, rules, ..Validation::PLAIN },
    ..Kind::PLAIN
};

/// The largest number of which a thousandfold is kept exactly. Upstream: `resource.MaxMilliValue`.
const MILLI_MAX: i64 = i64::MAX / 1000;

fn defaults(object: &mut Object) {
    let Some(spec) = child(object, "spec") else { return };
    for item in children(spec, "limits") {
        if text(item, "type") == "Container" {
            fill(item, "default", "max");
            fill(item, "defaultRequest", "default");
            fill(item, "defaultRequest", "min");
        }
        for list in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
            round_resource_list(item, list);
        }
    }
}

/// Copies what `to` lacks from `from`.
fn fill(item: &mut Object, to: &str, from: &str) {
    let Some(Value::Object(from)) = item.get(from).cloned() else { return };
    let Some(to) = child_or_new(item, to) else { return };
    for (name, quantity) in from {
        to.entry(name).or_insert(quantity);
    }
}

/// An object without a name gets a UUID for one, as upstream: the digits of its own UID, the other way round.
fn name_from_uid(object: &mut Object) {
    let Some(metadata) = child(object, "metadata") else { return };
    if !text(metadata, "name").is_empty() {
        return;
    }
    let mut digits: Vec<char> = text(metadata, "uid").chars().rev().filter(char::is_ascii_hexdigit).collect();
    // The places of the version and the variant.
    for (place, digit) in [(12, '4'), (16, '8')] {
        if let Some(at) = digits.get_mut(place) {
            *at = digit;
        }
    }
    let mut name = String::new();
    for (place, digit) in digits.into_iter().enumerate() {
        if matches!(place, 8 | 12 | 16 | 20) {
            name.push('-');
        }
        name.push(digit);
    }
    metadata.insert("name".into(), name.into());
}

fn rules(errors: &mut ErrorList, object: &Value, _old: Option<&Value>) {
    let root = Path::root("spec");
    let path = root.child("limits");
    let mut types = BTreeSet::new();
    for (index, limit) in list(&object["spec"], "limits").iter().enumerate() {
        let (path, kind) = (path.index(index), text(limit, "type"));
        type_name(errors, path.child("type"), kind);
        if !types.insert(kind) {
            errors.duplicate(path.child("type"), kind);
        }
        limit_rules(errors, path, limit, kind);
    }
}

fn type_name(errors: &mut ErrorList, path: Path<'_>, kind: &str) {
    let problems = names::qualified_name(kind);
    let standard = matches!(kind, "Pod" | "Container" | "PersistentVolumeClaim");
    if problems.is_empty() && !kind.contains('/') && !standard {
        return errors.invalid(path, kind, "must be a standard limit type or fully qualified");
    }
    errors.all_invalid(path, kind, problems);
}

/// The amounts of one resource in the fields of a limit.
#[derive(Default)]
struct Amounts<'v> {
    min: Option<Amount<'v>>,
    max: Option<Amount<'v>>,
    default: Option<Amount<'v>>,
    request: Option<Amount<'v>>,
    ratio: Option<Amount<'v>>,
}

struct Amount<'v> {
    shown: &'v str,
    quantity: Quantity,
}

fn limit_rules(errors: &mut ErrorList, path: Path<'_>, limit: &Value, kind: &str) {
    let mut by_name: BTreeMap<&str, Amounts<'_>> = BTreeMap::new();
    for field in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        let entries = limit[field].as_object();
        let path = path.child(field);
        if kind == "Pod" && field.starts_with("default") {
            if entries.is_some_and(|entries| !entries.is_empty()) {
                errors.forbidden(path, "may not be specified when `type` is 'Pod'");
            }
            continue;
        }
        for (name, value) in entries.into_iter().flatten() {
            let check = if matches!(kind, "Pod" | "Container") { container_resource_name } else { resource_name };
            check(errors, path.key(name), name);
            let shown = value.as_str().unwrap_or_default();
            let Ok(quantity) = shown.parse() else { continue };
            let amounts = by_name.entry(name).or_default();
            let slot = match field {
                "max" => &mut amounts.max,
                "min" => &mut amounts.min,
                "default" => &mut amounts.default,
                "defaultRequest" => &mut amounts.request,
                _ => &mut amounts.ratio,
            };
            *slot = Some(Amount { shown, quantity });
        }
    }
    if kind == "PersistentVolumeClaim" && limit["min"]["storage"].is_null() && limit["max"]["storage"].is_null() {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        errors.required(path.child("limits"), detail);
    }
    for (name, amounts) in &by_name {
        amount_rules(errors, path, name, amounts);
    }
}

/// One amount that must not exceed another: (less, what it is, more, what that is, the field, whether it shows the
/// less).
type Bound<'a, 'v> = (&'a Option<Amount<'v>>, &'a str, &'a Option<Amount<'v>>, &'a str, &'a str, bool);

fn amount_rules(errors: &mut ErrorList, path: Path<'_>, name: &str, amounts: &Amounts<'_>) {
    let Amounts { min, max, default, request, ratio } = amounts;
    let bounds: [Bound<'_, '_>; 6] = [
        (min, "min", max, "max", "min", true),
        (min, "min", request, "default request", "defaultRequest", false),
        (request, "default request", max, "max", "defaultRequest", true),
        (request, "default request", default, "default limit", "defaultRequest", true),
        (min, "min", default, "default", "default", true),
        (default, "default", max, "max", "default", false),
    ];
    for (less, less_name, more, more_name, field, shows_less) in bounds {
        let (Some(less), Some(more)) = (less, more) else { continue };
        if less.quantity > more.quantity {
            let value = if shows_less { less.shown } else { more.shown };
            let detail = format!("{less_name} value {} is greater than {more_name} value {}", less.shown, more.shown);
            errors.invalid(path.child(field).key(name), value, &detail);
        }
    }
    if let Some(ratio) = ratio {
        let path = path.child("maxLimitRequestRatio");
        ratio_rules(errors, path.key(name), ratio, min.as_ref(), max.as_ref());
    }
    let fixed = !is_native(name) || name.starts_with("hugepages-");
    if let (true, Some(default), Some(request)) = (fixed, default, request)
        && default.quantity != request.quantity
    {
        let (default, request) = (default.shown, request.shown);
        let detail = format!("default value {default} must equal to defaultRequest value {request} in {name}");
        errors.invalid(path.child("defaultRequest").key(name), request, &detail);
    }
}

fn ratio_rules(
    errors: &mut ErrorList,
    path: Path<'_>,
    ratio: &Amount<'_>,
    min: Option<&Amount<'_>>,
    max: Option<&Amount<'_>>,
) {
    if ratio.quantity.cmp_i64(1) == Ordering::Less {
        errors.invalid(path, ratio.shown, &format!("ratio {} is less than 1", ratio.shown));
    }
    let (Some(min), Some(max)) = (min, max) else { return };
    let small = [ratio, min, max].into_iter().all(|amount| amount.quantity.value() < MILLI_MAX);
    #[expect(clippy::cast_precision_loss, reason = "upstream compares floating point numbers, too")]
    let number = |amount: &Amount<'_>| match small {
        true => amount.quantity.milli_value() as f64 / 1000.0,
        false => amount.quantity.value() as f64,
    };
    let most = number(max) / number(min);
    if number(ratio) > most {
        errors.invalid(path, ratio.shown, &format!("ratio {} is greater than max/min = {most:.6}", ratio.shown));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_without_a_name_gets_one() {
        let mut object = json!({"metadata": {"uid": "01234567-89ab-cdef-0123-456789abcdef"}});
        KIND.prepare_for_create(&mut object, jiff::Timestamp::UNIX_EPOCH);
        assert_eq!(object["metadata"]["name"], "fedcba98-7654-4210-8edc-ba9876543210");
    }

    #[test]
    fn amounts_of_a_limit_fit_each_other() {
        for (limit, expected) in [
            (json!({"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "1"}}), &[][..]),
            (
                json!({"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "2"}}),
                &["defaultRequest[cpu]: Invalid value: \"2\": default request value 2 is greater than default limit \
                     value 1"],
            ),
            (
                json!({
                    "type": "Pod", "max": {"cpu": "1"}, "min": {"cpu": "1"}, "maxLimitRequestRatio": {"cpu": "500m"},
                }),
                &["maxLimitRequestRatio[cpu]: Invalid value: \"500m\": ratio 500m is less than 1"],
            ),
            (
                json!({
                    "type": "Pod", "max": {"cpu": "1"}, "min": {"cpu": "400m"}, "maxLimitRequestRatio": {"cpu": "3"},
                }),
                &["maxLimitRequestRatio[cpu]: Invalid value: \"3\": ratio 3 is greater than max/min = 2.500000"],
            ),
            (
                json!({"type": "Pod", "default": {"cpu": "1"}}),
                &["default: Forbidden: may not be specified when `type` is 'Pod'"],
            ),
            (json!({"type": "x.io/Gate", "max": {"storage": "1"}}), &[]),
            (
                json!({"type": "Gate", "max": {"gates": "1"}}),
                &[
                    "type: Invalid value: \"Gate\": must be a standard limit type or fully qualified",
                    "max[gates]: Invalid value: \"gates\": must be a standard resource type or fully qualified",
                ],
            ),
            (
                json!({"type": "Container", "default": {"x.io/a": "2"}, "defaultRequest": {"x.io/a": "1"}}),
                &["defaultRequest[x.io/a]: Invalid value: \"1\": default value 2 must equal to defaultRequest \
                     value 1 in x.io/a"],
            ),
        ] {
            let mut object = json!({"metadata": {"name": "a", "namespace": "b"}, "spec": {"limits": [limit]}});
            KIND.default(&mut object);
            let found: Vec<String> = KIND.validate_create(&object).iter().map(ToString::to_string).collect();
            let expected: Vec<String> = expected.iter().map(|error| format!("spec.limits[0].{error}")).collect();
            assert_eq!(found, expected, "{limit}");
        }
    }
}
