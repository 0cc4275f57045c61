//! Which fields an endpoint can make somebody own: upstream's strategies say what they reset (`GetResetFields`).

use bayplan_model::schema::Schema;
use bayplan_patch::apply::Ownership;
use serde_json::{Map, Value};

use crate::codec;
use crate::kind::Kind;
use crate::strategy::StatusRule;

const EVERYTHING: Ownership = Ownership::AllBut(&[]);
const ALL_BUT_STATUS: Ownership = Ownership::AllBut(&[&["status"]]);
const ALL_BUT_SPEC: Ownership = Ownership::AllBut(&[&["spec"]]);
const STATUS_ONLY: Ownership = Ownership::AllBut(&[&["metadata"], &["spec"]]);

/// Kinds whose status endpoint writes no metadata.
const STATUS_WITHOUT_METADATA: [&str; 7] = [
    "APIService",
    "FlowSchema",
    "PriorityLevelConfiguration",
    "ResourceClaim",
    "ServiceCIDR",
    "ValidatingAdmissionPolicy",
    "VolumeAttachment",
];

impl Kind {
    /// What writes through the object itself (`subresource` empty) or a subresource can own.
    pub fn ownership(&self, subresource: &str) -> Ownership {
        match (self.kind, subresource) {
            ("CertificateSigningRequest", "") => Ownership::AllBut(&[&["spec"], &["status"]]),
            ("CertificateSigningRequest", "status") => Ownership::AllBut(&[&["spec"], &["status", "conditions"]]),
            ("CertificateSigningRequest", "approval") => Ownership::AllBut(&[&["spec"], &["status", "certificate"]]),
            ("Deployment", "status") => Ownership::AllBut(&[&["spec"], &["metadata", "labels"]]),
            ("Namespace", "finalize") => ALL_BUT_STATUS,
            // Upstream forgets to say what these put back: whoever tries to change it owns it from then on.
            ("Pod", "ephemeralcontainers" | "resize") => EVERYTHING,
            ("Pod", "status") => {
                Ownership::AllBut(&[&["spec"], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]])
            }
            (kind, "status") if STATUS_WITHOUT_METADATA.contains(&kind) => STATUS_ONLY,
            (_, "status") => ALL_BUT_SPEC,
            (_, "") if self.strategy.status != StatusRule::None => ALL_BUT_STATUS,
            _ => EVERYTHING,
        }
    }

    /// The object that was there before a create, as upstream sees it: what is always written, and nothing else.
    pub fn empty(&self) -> Value {
        let mut object = Map::new();
        if let Some(definition) = Schema::get().definition(self.group, self.version, self.kind) {
            codec::complete(definition, &mut object);
        }
        object.insert("apiVersion".into(), self.api_version().into());
        object.insert("kind".into(), self.kind.into());
        Value::Object(object)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::find;

    #[test]
    fn an_empty_object_has_what_is_always_written() {
        let empty = find("", "v1", "pods").unwrap().empty();
        assert_eq!(
            empty,
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {"containers": null}, "status": {}})
        );
    }
}
