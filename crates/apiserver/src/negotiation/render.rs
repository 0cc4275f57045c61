//! Renders answers as JSON or YAML: objects, lists, tables and metadata.

use bayplan_kinds::Kind;
use bayplan_model::status::Status;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WARNING};
use http::{Response, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Format, Media, Transform};
use crate::registry::{Answer, Body, List, VersionedObject};
use crate::request::IncludeObject;
use crate::status_errors;

/// Renders an answer in the negotiated form.
pub(crate) fn render(answer: Answer, format: Format, now: Timestamp) -> Result<Response<Bytes>, Status> {
    let body = match (answer.body, format.transform) {
        (Body::Status(status), _) => {
            return Ok(with_warnings(self::status(answer.code, &status, format), &answer.warnings));
        }
        (Body::Object(_, versioned), Transform::Object) => object(&versioned),
        (Body::Object(_, versioned), Transform::Partial) => partial(&versioned),
        (Body::Object(resource, versioned), Transform::Table(include)) => {
            to_bytes(&table(resource, &[versioned], include, now, &TableMeta::default())?)
        }
        (Body::List(list), Transform::Object) => collection(&list),
        (Body::List(list), Transform::Partial) => partial_collection(&list),
        (Body::List(list), Transform::Table(include)) => {
            let meta = TableMeta {
                revision: Some(list.revision),
                continue_token: list.continue_token.as_deref(),
                remaining: list.remaining,
                without_columns: false,
            };
            to_bytes(&table(list.resource, &list.items, include, now, &meta)?)
        }
        (Body::Value(value), Transform::Object) => to_bytes(&value),
        (Body::Value(value), Transform::Partial) => to_bytes(&json!({
            "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": value["metadata"],
        })),
        (Body::Value(value), Transform::Table(include)) => to_bytes(&plain_table(&value, include)),
    };
    Ok(with_warnings(response(answer.code, reformat(body, format)?, format), &answer.warnings))
}

/// Renders a `Status`; `code` is the code of the response, for failures that of the status.
pub(crate) fn status(code: u16, status: &Status, format: Format) -> Response<Bytes> {
    let body = Bytes::from(serde_json::to_vec(status).expect("a Status has a JSON form"));
    let body = reformat(body.clone(), format).unwrap_or(body);
    let mut response = response(code, body, format);
    if let Some(seconds) = status.details.as_ref().map(|d| d.retry_after_seconds).filter(|s| *s > 0) {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn response(code: u16, body: Bytes, format: Format) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let content_type = match format.media {
        Media::Json => "application/json",
        Media::Yaml => "application/yaml",
    };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// The most bytes of all warnings together, as upstream: clients limit the size of headers.
const WARNING_BYTES_MAX: usize = 4096;

fn with_warnings(mut response: Response<Bytes>, warnings: &[String]) -> Response<Bytes> {
    let mut total = 0;
    let mut seen: Vec<&String> = Vec::new();
    for warning in warnings {
        if seen.contains(&warning) {
            continue;
        }
        seen.push(warning);
        let clean: String = warning.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let quoted = clean.replace('\\', "\\\\").replace('"', "\\\"");
        total += quoted.len();
        if total > WARNING_BYTES_MAX {
            break;
        }
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(WARNING, value);
        }
    }
    response
}

/// Turns JSON into indented JSON or YAML, if the client wants it.
fn reformat(json: Bytes, format: Format) -> Result<Bytes, Status> {
    if format.media == Media::Json && !format.pretty {
        return Ok(json);
    }
    let value: Value = serde_json::from_slice(&json).map_err(status_errors::internal)?;
    let text = match format.media {
        Media::Json => {
            let mut text = serde_json::to_string_pretty(&value).map_err(status_errors::internal)?;
            text.push('\n');
            text
        }
        Media::Yaml => serde_saphyr::to_string(&value).map_err(status_errors::internal)?,
    };
    Ok(Bytes::from(text))
}

fn to_bytes(value: &Value) -> Bytes {
    Bytes::from(serde_json::to_vec(value).expect("a JSON value has a JSON form"))
}

fn object(object: &VersionedObject) -> Bytes {
    let mut out = Vec::with_capacity(object.encoded.size());
    object.encoded.write_object(&mut out, object.revision);
    Bytes::from(out)
}

fn partial(object: &VersionedObject) -> Bytes {
    let mut out = Vec::with_capacity(object.encoded.size());
    object.encoded.write_partial(&mut out, object.revision);
    Bytes::from(out)
}

fn list_meta(list: &List) -> Value {
    let mut meta = json!({"resourceVersion": list.revision.to_string()});
    if let Some(token) = &list.continue_token {
        meta["continue"] = json!(token);
    }
    if let Some(remaining) = list.remaining {
        meta["remainingItemCount"] = json!(remaining);
    }
    meta
}

fn collection(list: &List) -> Bytes {
    let size: usize = list.items.iter().map(|item| item.encoded.size() + 1).sum();
    let mut out = Vec::with_capacity(size + 256);
    let head = format!(
        "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{},\"items\":[",
        list.resource.list_kind(),
        list.resource.api_version(),
        list_meta(list)
    );
    out.extend_from_slice(head.as_bytes());
    for (index, item) in list.items.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        item.encoded.write_item(&mut out, item.revision);
    }
    out.extend_from_slice(b"]}");
    Bytes::from(out)
}

fn partial_collection(list: &List) -> Bytes {
    let mut out = Vec::with_capacity(list.items.len() * 512 + 256);
    let head = format!(
        "{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{},\"items\":",
        list_meta(list)
    );
    out.extend_from_slice(head.as_bytes());
    if list.items.is_empty() {
        // Upstream writes an empty list of metadata as null.
        out.extend_from_slice(b"null}");
        return Bytes::from(out);
    }
    out.push(b'[');
    for (index, item) in list.items.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        item.encoded.write_partial(&mut out, item.revision);
    }
    out.extend_from_slice(b"]}");
    Bytes::from(out)
}

/// The list metadata of a table.
#[derive(Default)]
pub(crate) struct TableMeta<'a> {
    pub(crate) revision: Option<u64>,
    pub(crate) continue_token: Option<&'a str>,
    pub(crate) remaining: Option<usize>,
    /// Only the first event of a watch carries the column definitions.
    pub(crate) without_columns: bool,
}

/// Objects as a table.
pub(crate) fn table(
    resource: &'static Kind,
    items: &[VersionedObject],
    include: IncludeObject,
    now: Timestamp,
    meta: &TableMeta<'_>,
) -> Result<Value, Status> {
    let mut rows = Vec::with_capacity(items.len());
    for item in items {
        let mut object = item.encoded.decode(item.revision)?;
        let row = resource.row(&object, now);
        let mut value = json!({"cells": row.cells});
        if !row.conditions.is_null() {
            value["conditions"] = row.conditions;
        }
        value["object"] = match include {
            IncludeObject::None => Value::Null,
            IncludeObject::Object => object,
            IncludeObject::Metadata => json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"].take(),
            }),
        };
        rows.push(value);
    }
    let revision = meta.revision.or_else(|| items.first().and_then(|item| item.revision));
    let mut metadata = json!({});
    if let Some(revision) = revision {
        metadata["resourceVersion"] = json!(revision.to_string());
    }
    if let Some(token) = meta.continue_token {
        metadata["continue"] = json!(token);
    }
    if let Some(remaining) = meta.remaining {
        metadata["remainingItemCount"] = json!(remaining);
    }
    let columns = if meta.without_columns { Value::Null } else { json!(resource.columns()) };
    Ok(json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": columns, "rows": rows,
    }))
}

const NAME: &str = "Name must be unique within a namespace. Is required when creating resources, although some \
    resources may allow a client to request the generation of an appropriate name automatically. Name is primarily \
    intended for creation idempotence and configuration definition. Cannot be updated. More info: \
    https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
const CREATED: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It \
    is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. \
    It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More \
    info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// The table of a kind without columns of its own: name and creation time.
fn plain_table(object: &Value, include: IncludeObject) -> Value {
    let metadata = &object["metadata"];
    let included = match include {
        IncludeObject::None => Value::Null,
        IncludeObject::Object => object.clone(),
        IncludeObject::Metadata => {
            json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
        }
    };
    let mut meta = json!({});
    if let Some(version) = metadata.get("resourceVersion") {
        meta["resourceVersion"] = version.clone();
    }
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": meta,
        "columnDefinitions": [
            {"name": "Name", "type": "string", "format": "name", "description": NAME, "priority": 0},
            {"name": "Created At", "type": "date", "format": "", "description": CREATED, "priority": 0},
        ],
        "rows": [{"cells": [metadata["name"], metadata["creationTimestamp"]], "object": included}],
    })
}
