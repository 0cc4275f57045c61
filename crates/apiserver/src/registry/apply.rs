//! Server-side apply: an object is merged into the live one by who owns what, or created.

use bayplan_kinds::codec::{self, Conversion};
use bayplan_model::status::Status;
use bayplan_patch::apply::{Applied, put_managed_fields};
use serde_json::Value;

use super::decode::Sent;
use super::ownership::Writer;
use super::{Answer, Call, Registry, UpdatedObject};
use crate::request::{FieldValidation, Preconditions};
use crate::status_errors;

/// True for the media type of objects that are applied.
pub(crate) fn is_apply(content_type: Option<&str>) -> bool {
    let media = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    media == "application/apply-patch+yaml"
}

/// What somebody wants to apply.
pub(crate) struct Configuration {
    pub(crate) object: Value,
    /// Take fields from those who own them.
    pub(crate) force: bool,
    /// What a strict parser says of the body.
    complaint: Option<String>,
    field_validation: FieldValidation,
}

impl Configuration {
    pub(crate) fn parse(body: &[u8], force: bool, field_validation: FieldValidation) -> Result<Configuration, Status> {
        let (object, complaint) = codec::applied_object(body)
            .map_err(|error| status_errors::bad_request(format!("error decoding YAML: {error}")))?;
        Ok(Configuration { object, force, complaint, field_validation })
    }

    /// Refuses a body with repeated keys, if it shall; upstream looks for them once the object is known to apply.
    pub(crate) fn check_syntax(&self) -> Result<(), Status> {
        match &self.complaint {
            Some(complaint) if self.field_validation == FieldValidation::Strict => {
                Err(status_errors::bad_request(format!("error strict decoding YAML: {complaint}")))
            }
            _ => Ok(()),
        }
    }

    /// The texts of warnings about the body: a line for each repeated key.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let complaint = self.complaint.as_deref().filter(|_| self.field_validation == FieldValidation::Warn);
        complaint.into_iter().flat_map(|text| text.lines().skip(1)).map(|line| line.trim().to_owned()).collect()
    }
}

impl Registry {
    /// Applies an object, to the object itself or one of its subresources.
    pub(crate) async fn apply(&self, call: Call<'_>, configuration: Configuration) -> Result<Answer, Status> {
        let kind = call.resource.group_version_kind();
        let mut compute = |live: &Value| {
            let Applied { object, managed_fields } =
                Writer::from(call).apply(live, &configuration.object, configuration.force, self.now())?;
            configuration.check_syntax()?;
            let mut sent = match object {
                None => Sent::plain(live.clone()),
                Some(merged) => {
                    let decoded = codec::converted(kind, merged, Conversion::Restored, FieldValidation::Ignore)?;
                    let mut sent = Sent { object: decoded.object, empties: decoded.empties };
                    call.resource.default(&mut sent.object);
                    sent
                }
            };
            put_managed_fields(&mut sent.object, managed_fields);
            Ok(sent)
        };
        call.warnings.extend(configuration.warnings());
        self.update(call, UpdatedObject::Applied(&mut compute), Preconditions::default()).await
    }
}
