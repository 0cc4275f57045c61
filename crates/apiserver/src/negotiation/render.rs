//! Renders answers: objects, lists, tables and metadata.

use std::cmp::Ordering;

use bayplan_kinds::{Column, Kind, Row, Scheme};
use bayplan_model::status::Status;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::pieces::{Content, ListPieces};
use super::{Format, Media, Transform, protobuf};
use crate::big_work::apart_now;
use crate::registry::{Answer, Body, List, VersionedObject};
use crate::request::IncludeObject;
use crate::status_errors;

/// Objects above this size are sent from the bytes that the store keeps.
const SHARED_MIN: usize = 16 * 1024;

/// Renders an answer in the negotiated form.
pub(crate) fn render(answer: Answer, format: Format, now: Timestamp) -> Result<Response<Content>, Status> {
    let body = match (answer.body, format.transform) {
        (body, Transform::Object | Transform::Partial)
            if format.media == Media::Protobuf && !matches!(body, Body::Status(_)) =>
        {
            let content = protobuf::content(body, format.transform == Transform::Partial)?;
            return Ok(response(answer.code, content, format));
        }
        (Body::Status(status), _) => {
            return Ok(self::status(answer.code, &status, format).map(Content::Whole));
        }
        (Body::Object(_, versioned), Transform::Object) => object(&versioned),
        (Body::Object(_, versioned), Transform::Partial) => Content::Whole(partial(&versioned)),
        (Body::Object(resource, versioned), Transform::Table(include)) => {
            to_bytes(&table(resource, &[versioned], include, now, &TableMeta::default())?)
        }
        (Body::List(list), Transform::Object) => collection(list),
        (Body::List(list), Transform::Partial) => partial_collection(list),
        (Body::List(list), Transform::Table(include)) => table_of_list(list, include, now),
        (Body::Value(value), Transform::Object) => to_bytes(&value),
        (Body::Value(value), Transform::Partial) => to_bytes(&json!({
            "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": value["metadata"],
        })),
        (Body::Value(value), Transform::Table(include)) => to_bytes(&table_of_unstored(value, include, now)),
    };
    let body = if plain(format) { body } else { Content::Whole(reformat(&body.whole(), format)?) };
    Ok(response(answer.code, body, format))
}

/// Renders a `Status`; `code` is the code of the response, for failures that of the status.
pub(crate) fn status(code: u16, status: &Status, format: Format) -> Response<Bytes> {
    let body = Bytes::from(serde_json::to_vec(status).expect("a Status has a JSON form"));
    let (body, format) = match reformat(&body, format) {
        _ if plain(format) => (body, format),
        Ok(reformatted) => (reformatted, format),
        Err(_) => (body, Format::JSON),
    };
    let mut response = response(code, body, format);
    if let Some(seconds) = status.details.as_ref().map(|d| d.retry_after_seconds).filter(|s| *s > 0) {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn response<B>(code: u16, body: B, format: Format) -> Response<B> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(format.media.content_type()));
    response
}

/// True if the client wants JSON as it is stored.
fn plain(format: Format) -> bool {
    format.media == Media::Json && !format.pretty
}

/// Turns JSON into indented JSON, YAML or protobuf.
fn reformat(json: &[u8], format: Format) -> Result<Bytes, Status> {
    let value: Value = serde_json::from_slice(json).map_err(status_errors::internal)?;
    let text = match format.media {
        Media::Json => {
            let mut text = serde_json::to_string_pretty(&value).map_err(status_errors::internal)?;
            text.push('\n');
            text
        }
        Media::Yaml => serde_saphyr::to_string(&value).map_err(status_errors::internal)?,
        Media::Protobuf => return protobuf::value(&value),
    };
    Ok(Bytes::from(text))
}

/// How many bytes are read to render an answer. Plain objects and lists are sent as they are stored, and lists of plain
/// JSON are written while the client reads them.
pub(crate) fn work(answer: &Answer, format: Format) -> usize {
    match (&answer.body, format.transform) {
        (Body::Object(..), Transform::Object | Transform::Partial) | (Body::List(_), _) if plain(format) => 0,
        (Body::Object(_, object), _) => object.encoded.size(),
        (Body::List(list), _) => size_of_items(list),
        (Body::Status(_) | Body::Value(_), _) => 0,
    }
}

fn size_of_items(list: &List) -> usize {
    list.items.iter().map(|item| item.encoded.size()).sum()
}

/// How much memory an answer takes until it is sent. Lists of plain JSON share the bytes of their objects.
pub(crate) fn weight(answer: &Answer, format: Format) -> usize {
    match &answer.body {
        Body::List(list) if plain(format) => list.items.len() * size_of::<VersionedObject>(),
        Body::List(list) => size_of_items(list),
        _ => 0,
    }
}

fn to_bytes(value: &Value) -> Content {
    Content::Whole(Bytes::from(serde_json::to_vec(value).expect("a JSON value has a JSON form")))
}

/// A stored object; a large one shares its bytes with the store.
fn object(object: &VersionedObject) -> Content {
    if object.encoded.size() > SHARED_MIN {
        return Content::Pieces(Box::new(object.encoded.object_parts(object.revision).into_iter()));
    }
    let mut out = Vec::with_capacity(object.encoded.size());
    object.encoded.write_object(&mut out, object.revision);
    Content::Whole(Bytes::from(out))
}

fn partial(object: &VersionedObject) -> Bytes {
    let mut out = Vec::with_capacity(object.encoded.size());
    object.encoded.write_partial(&mut out, object.revision);
    Bytes::from(out)
}

pub(super) fn list_meta(list: &List) -> Value {
    let mut meta = json!({"resourceVersion": list.revision.to_string()});
    if let Some(token) = &list.continue_token {
        meta["continue"] = json!(token);
    }
    if let Some(remaining) = list.remaining {
        meta["remainingItemCount"] = json!(remaining);
    }
    meta
}

fn collection(list: List) -> Content {
    let head = format!(
        "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{},\"items\":[",
        list.resource.list_kind(),
        list.resource.api_version(),
        list_meta(&list)
    );
    let write = |item: &VersionedObject, out: &mut Vec<u8>| {
        item.encoded.write_item(out, item.revision);
        true
    };
    Content::of_list(ListPieces::new(head.into_bytes(), list.items, Box::new(write)))
}

fn partial_collection(list: List) -> Content {
    let head = format!(
        "{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{},\"items\":",
        list_meta(&list)
    );
    if list.items.is_empty() {
        // Upstream writes an empty list of metadata as null.
        return Content::Whole(Bytes::from(head + "null}"));
    }
    let write = |item: &VersionedObject, out: &mut Vec<u8>| {
        item.encoded.write_partial(out, item.revision);
        true
    };
    Content::of_list(ListPieces::new((head + "[").into_bytes(), list.items, Box::new(write)))
}

fn table_of_list(mut list: List, include: IncludeObject, now: Timestamp) -> Content {
    if let Some(order) = list.resource.table_order() {
        in_order(&mut list.items, order);
    }
    let head = format!(
        "{{\"apiVersion\":\"meta.k8s.io/v1\",\"columnDefinitions\":{},\"kind\":\"Table\",\"metadata\":{},\"rows\":[",
        json!(list.resource.columns()),
        list_meta(&list)
    );
    let resource = list.resource;
    let write = move |item: &VersionedObject, out: &mut Vec<u8>| match row(resource, item, include, now) {
        Ok(row) => serde_json::to_writer(out, &row).is_ok(),
        Err(status) => {
            tracing::error!(%status, "a stored object cannot be read and is left out");
            false
        }
    };
    Content::of_list(ListPieces::new(head.into_bytes(), list.items, Box::new(write)))
}

/// Sorts the items of a page; those that cannot be read come first, and are left out later.
fn in_order(items: &mut Vec<VersionedObject>, order: fn(&Value, &Value) -> Ordering) {
    let decoded = |item: VersionedObject| (item.encoded.decode(item.revision).unwrap_or_default(), item);
    let mut keyed: Vec<(Value, VersionedObject)> = items.drain(..).map(decoded).collect();
    keyed.sort_by(|(a, _), (b, _)| order(a, b));
    items.extend(keyed.into_iter().map(|(_, item)| item));
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
    let rows = items.iter().map(|item| row(resource, item, include, now)).collect::<Result<Vec<_>, _>>()?;
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

fn row(
    resource: &'static Kind,
    item: &VersionedObject,
    include: IncludeObject,
    now: Timestamp,
) -> Result<Value, Status> {
    apart_now(item.encoded.size(), || {
        let object = item.encoded.decode(item.revision)?;
        // Cells show what is stored, which another version may say in another order.
        let row = match item.encoded.stored_form() {
            Some(stored) => resource.storage().row(&stored.decode(item.revision)?, now),
            None => resource.row(&object, now),
        };
        Ok(finished_row(resource, object, row, include))
    })
}

fn finished_row(resource: &'static Kind, mut object: Value, row: Row, include: IncludeObject) -> Value {
    let mut value = json!({"cells": row.cells});
    if !row.conditions.is_null() {
        value["conditions"] = row.conditions;
    }
    value["object"] = match include {
        IncludeObject::None => Value::Null,
        IncludeObject::Object => object,
        IncludeObject::Metadata => {
            resource.show_metadata_alone(&mut object["metadata"]);
            let metadata = object["metadata"].take();
            json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
        }
    };
    value
}

/// The table of an answer that is not stored in this form. The columns are those of its kind.
fn table_of_unstored(object: Value, include: IncludeObject, now: Timestamp) -> Value {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let api_version = text("apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    match Scheme::built_in().by_kind(group, version, text("kind")) {
        Some(kind) => table_of_value(kind, object, include, now),
        None => {
            let row = bayplan_kinds::plain_row(&object, now);
            one_row(bayplan_kinds::plain_columns(), row, object, include)
        }
    }
}

/// The table of one object of a kind.
pub(crate) fn table_of_value(kind: &'static Kind, object: Value, include: IncludeObject, now: Timestamp) -> Value {
    let row = kind.row(&object, now);
    one_row(kind.columns(), row, object, include)
}

fn one_row(columns: &[Column], row: Row, object: Value, include: IncludeObject) -> Value {
    let mut meta = json!({});
    if let Some(version) = object["metadata"].get("resourceVersion") {
        meta["resourceVersion"] = version.clone();
    }
    let included = match include {
        IncludeObject::None => Value::Null,
        IncludeObject::Object => object,
        IncludeObject::Metadata => {
            json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
        }
    };
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": meta, "columnDefinitions": columns,
        "rows": [{"cells": row.cells, "object": included}],
    })
}
