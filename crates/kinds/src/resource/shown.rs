//! Claims as messages show them: with the names and the order of the fields of Go's structs.

use serde_json::Value;

/// A field of a Go struct: its name there, its name in JSON, and how it is shown.
type Field = (&'static str, &'static str, fn(&Value) -> String);

fn object(value: &Value, fields: &[Field]) -> String {
    let shown: Vec<String> =
        fields.iter().map(|(go, json, shown)| format!("\"{go}\":{}", shown(&value[*json]))).collect();
    format!("{{{}}}", shown.join(","))
}

/// Anything as it is; null when it is not there.
fn plain(value: &Value) -> String {
    value.to_string()
}

/// A text that is no pointer in Go.
fn words(value: &Value) -> String {
    Value::from(value.as_str().unwrap_or_default()).to_string()
}

fn whole(value: &Value) -> String {
    value.as_i64().unwrap_or_default().to_string()
}

fn each(value: &Value, shown: fn(&Value) -> String) -> String {
    match value {
        Value::Array(list) => format!("[{}]", list.iter().map(shown).collect::<Vec<_>>().join(",")),
        _ => "null".to_owned(),
    }
}

fn optional(value: &Value, fields: &[Field]) -> String {
    if value.is_null() { "null".to_owned() } else { object(value, fields) }
}

/// The spec of a claim.
pub(super) fn claim_spec(spec: &Value) -> String {
    object(spec, &[("Devices", "devices", devices)])
}

/// The spec of a template: its metadata shows as in JSON.
pub(super) fn template_spec(spec: &Value) -> String {
    let mut metadata = match &spec["metadata"] {
        Value::Object(metadata) if !metadata.is_empty() => {
            let fields = metadata.iter().map(|(name, value)| format!("{}:{value}", Value::from(name.as_str())));
            fields.collect::<Vec<_>>().join(",")
        }
        _ => String::new(),
    };
    if !metadata.is_empty() {
        metadata.push(',');
    }
    format!("{{{metadata}\"Spec\":{}}}", claim_spec(&spec["spec"]))
}

fn devices(devices: &Value) -> String {
    object(
        devices,
        &[
            ("Requests", "requests", |list| each(list, request)),
            ("Constraints", "constraints", |list| each(list, constraint)),
            ("Config", "config", |list| each(list, configuration)),
        ],
    )
}

fn request(request: &Value) -> String {
    const FIELDS: &[Field] = &[
        ("DeviceClassName", "deviceClassName", words),
        ("Selectors", "selectors", selectors),
        ("AllocationMode", "allocationMode", words),
        ("Count", "count", whole),
        ("AdminAccess", "adminAccess", plain),
        ("Tolerations", "tolerations", tolerations),
        ("Capacity", "capacity", capacity),
    ];
    object(
        request,
        &[
            ("Name", "name", words),
            ("Exactly", "exactly", |exactly| optional(exactly, FIELDS)),
            ("FirstAvailable", "firstAvailable", |list| each(list, alternative)),
        ],
    )
}

fn alternative(alternative: &Value) -> String {
    object(
        alternative,
        &[
            ("Name", "name", words),
            ("DeviceClassName", "deviceClassName", words),
            ("Selectors", "selectors", selectors),
            ("AllocationMode", "allocationMode", words),
            ("Count", "count", whole),
            ("Tolerations", "tolerations", tolerations),
            ("Capacity", "capacity", capacity),
        ],
    )
}

fn selectors(list: &Value) -> String {
    each(list, |selector| {
        object(selector, &[("CEL", "cel", |cel| optional(cel, &[("Expression", "expression", words)]))])
    })
}

fn tolerations(list: &Value) -> String {
    each(list, |toleration| {
        object(
            toleration,
            &[
                ("Key", "key", words),
                ("Operator", "operator", words),
                ("Value", "value", words),
                ("Effect", "effect", words),
                ("TolerationSeconds", "tolerationSeconds", plain),
            ],
        )
    })
}

fn capacity(capacity: &Value) -> String {
    optional(capacity, &[("Requests", "requests", plain)])
}

fn constraint(constraint: &Value) -> String {
    object(
        constraint,
        &[
            ("Requests", "requests", plain),
            ("MatchAttribute", "matchAttribute", plain),
            ("DistinctAttribute", "distinctAttribute", plain),
        ],
    )
}

fn opaque(opaque: &Value) -> String {
    optional(opaque, &[("Driver", "driver", words), ("Parameters", "parameters", plain)])
}

fn configuration(config: &Value) -> String {
    object(config, &[("Requests", "requests", plain), ("Opaque", "opaque", opaque)])
}

/// What was allocated.
pub(super) fn allocation(allocation: &Value) -> String {
    let devices = |devices: &Value| {
        object(
            devices,
            &[
                ("Results", "results", |list| each(list, result)),
                ("Config", "config", |list| {
                    each(list, |config| {
                        object(
                            config,
                            &[
                                ("Source", "source", words),
                                ("Requests", "requests", plain),
                                ("Opaque", "opaque", opaque),
                            ],
                        )
                    })
                }),
            ],
        )
    };
    object(
        allocation,
        &[
            ("Devices", "devices", devices),
            ("NodeSelector", "nodeSelector", plain),
            ("AllocationTimestamp", "allocationTimestamp", plain),
        ],
    )
}

fn result(result: &Value) -> String {
    object(
        result,
        &[
            ("Request", "request", words),
            ("Driver", "driver", words),
            ("Pool", "pool", words),
            ("Device", "device", words),
            ("AdminAccess", "adminAccess", plain),
            ("Tolerations", "tolerations", tolerations),
            ("BindingConditions", "bindingConditions", plain),
            ("BindingFailureConditions", "bindingFailureConditions", plain),
            ("ShareID", "shareID", plain),
            ("ConsumedCapacity", "consumedCapacity", plain),
        ],
    )
}

/// An attribute of a device.
pub(super) fn attribute(attribute: &Value) -> String {
    object(
        attribute,
        &[
            ("IntValue", "int", plain),
            ("BoolValue", "bool", plain),
            ("StringValue", "string", plain),
            ("VersionValue", "version", plain),
            ("IntValues", "ints", plain),
            ("BoolValues", "bools", plain),
            ("StringValues", "strings", plain),
            ("VersionValues", "versions", plain),
        ],
    )
}
