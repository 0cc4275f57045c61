//! Renders answers in protobuf.
//!
//! Objects are kept as JSON, so each is decoded for it: a protobuf answer costs its server several times what a JSON
//! answer does. Large ones are made apart from the threads that answer everybody else ([`super::work`]).

use bayplan_model::status::Status;
use bytes::Bytes;
use serde_json::Value;

use super::pieces::Content;
use super::render::list_meta;
use crate::codec::{self, ProtobufList};
use crate::encode::Encoded;
use crate::registry::{Body, List, VersionedObject};
use crate::status_errors;

/// The body of an answer that is no `Status`; `partial` for its metadata alone.
pub(super) fn content(body: Body, partial: bool) -> Result<Content, Status> {
    match body {
        Body::Object(_, object) if partial => {
            let mut out = Vec::with_capacity(512);
            codec::write_metadata(&mut out, &metadata(&object)?).map_err(status_errors::internal)?;
            Ok(Content::Whole(out.into()))
        }
        Body::Object(resource, object) => {
            let mut out = Vec::with_capacity(object.encoded.size());
            let value = object.encoded.decode(object.revision)?;
            codec::write_object(&mut out, resource.group_version_kind(), &value).map_err(status_errors::internal)?;
            Ok(Content::Whole(out.into()))
        }
        Body::List(list) => self::list(list, partial),
        Body::Value(value) if partial => {
            let mut out = Vec::new();
            codec::write_metadata(&mut out, &value["metadata"]).map_err(status_errors::internal)?;
            Ok(Content::Whole(out.into()))
        }
        Body::Value(value) => self::value(&value).map(Content::Whole),
        Body::Status(status) => {
            let value = serde_json::to_value(&status).map_err(status_errors::internal)?;
            self::value(&value).map(Content::Whole)
        }
    }
}

/// An object of the kind that it names.
pub(super) fn value(value: &Value) -> Result<Bytes, Status> {
    let mut out = Vec::new();
    codec::write_value(&mut out, value).map_err(status_errors::internal)?;
    Ok(out.into())
}

fn metadata(object: &VersionedObject) -> Result<Value, Status> {
    versioned_metadata(&object.encoded, object.revision)
}

/// The metadata of an object with its resource version.
pub(crate) fn versioned_metadata(encoded: &Encoded, revision: Option<u64>) -> Result<Value, Status> {
    let mut metadata = encoded.decode_metadata_alone()?;
    if let (Some(revision), Some(metadata)) = (revision, metadata.as_object_mut()) {
        metadata.insert("resourceVersion".to_owned(), revision.to_string().into());
    }
    Ok(metadata)
}

fn list(list: List, partial: bool) -> Result<Content, Status> {
    let resource = list.resource;
    let mut written = if partial {
        ProtobufList::of_metadata()
    } else {
        ProtobufList::of_objects(resource.group_version_kind(), resource.list_kind())
            .map_err(status_errors::internal)?
    };
    for item in &list.items {
        let value = if partial { metadata(item) } else { item.encoded.decode(item.revision) };
        let added = value.and_then(|value| written.add(&value).map_err(status_errors::internal));
        if let Err(status) = added {
            tracing::error!(%status, "a stored object cannot be read and is left out");
        }
    }
    let parts = written.finish(&list_meta(&list)).map_err(status_errors::internal)?;
    Ok(Content::Pieces(Box::new(parts.into_iter().map(Bytes::from))))
}
