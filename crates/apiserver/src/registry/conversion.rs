//! Converts stored bytes between the versions of a kind: events are of the core and of `events.k8s.io`, and
//! HorizontalPodAutoscalers of `autoscaling/v1` and `v2`.

use bayplan_kinds::Kind;
use bayplan_model::status::Status;

use crate::encode::Encoded;

/// Converts stored bytes; the storage version needs no conversion.
pub(super) fn view(resource: &'static Kind, encoded: Encoded) -> Result<Encoded, Status> {
    if std::ptr::eq(resource, resource.storage()) {
        return Ok(encoded);
    }
    let mut object = encoded.decode(None)?;
    resource.convert_from_storage(&mut object);
    Ok(Encoded::new(resource, &object).converted_from(encoded))
}
