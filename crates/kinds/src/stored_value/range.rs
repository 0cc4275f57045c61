//! The `RangeAllocation`: which numbers of a range are allocated, as a bitmap. It is stored, but never served, so the
//! API's schema does not have it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::unreadable;
use crate::codec;
use crate::group_version_kind::GroupVersionKind;

const RANGE: GroupVersionKind<'static> = GroupVersionKind { group: "", version: "v1", kind: "RangeAllocation" };

pub(super) fn read(stored: &[u8]) -> Result<Vec<u8>, String> {
    if stored.first() == Some(&b'{') {
        return Ok(stored.to_vec());
    }
    match codec::protobuf_kind(stored).ok_or_else(|| unreadable(stored))? {
        ("v1", "RangeAllocation") => {}
        (version, kind) => return Err(format!("it is stored as {kind} of {version}, not as a RangeAllocation of v1")),
    }
    let (range, data) = codec::read_range(stored)?;
    let data = BASE64.encode(data);
    Ok(json!({"kind": RANGE.kind, "apiVersion": "v1", "metadata": {}, "range": range, "data": data})
        .to_string()
        .into_bytes())
}

pub(super) fn write(value: &[u8]) -> Result<Vec<u8>, String> {
    let value: Value = serde_json::from_slice(value).map_err(|error| format!("it is no JSON: {error}"))?;
    let data = BASE64.decode(value["data"].as_str().unwrap_or_default());
    let data = data.map_err(|error| format!("its data is not base64: {error}"))?;
    codec::write_range(RANGE, value["range"].as_str().unwrap_or_default(), &data)
}
