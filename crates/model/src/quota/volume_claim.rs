//! What a PersistentVolumeClaim counts for.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::{Scope, Usage, number};
use crate::meta::ObjectMeta;
use crate::quantity::Quantity;

const CLAIMS: &str = "persistentvolumeclaims";
const STORAGE: &str = "requests.storage";
const BY_CLASS: &str = ".storageclass.storage.k8s.io/";

pub(super) fn is_counted_by(name: &str) -> bool {
    let name = name.split_once(BY_CLASS).map_or(name, |(_, rest)| rest);
    matches!(name, CLAIMS | STORAGE)
}

/// A claim as quotas see it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "wire::Claim")]
pub struct VolumeClaimMeasure {
    /// Which one it is.
    pub metadata: ObjectMeta,
    /// The larger of what it asks for and what it was given, in whole bytes.
    pub storage: Option<Quantity>,
    /// Its storage class; empty for none.
    pub class: String,
    /// The VolumeAttributesClasses that it refers to.
    pub attribute_classes: BTreeSet<String>,
}

impl VolumeClaimMeasure {
    /// What it counts for.
    pub fn usage(&self) -> Usage {
        let mut used: Usage = [CLAIMS, "count/persistentvolumeclaims"].map(|name| (name.to_owned(), number(1))).into();
        let by_class = |name: &str| (!self.class.is_empty()).then(|| format!("{}{BY_CLASS}{name}", self.class));
        used.extend(by_class(CLAIMS).map(|name| (name, number(1))));
        if let Some(storage) = &self.storage {
            used.insert(STORAGE.into(), storage.clone());
            used.extend(by_class(STORAGE).map(|name| (name, storage.clone())));
        }
        used
    }

    /// Whether it is in a scope.
    pub fn is_in(&self, scope: &Scope) -> bool {
        if scope.scope_name != "VolumeAttributesClass" {
            return false;
        }
        match self.attribute_classes.is_empty() {
            true => scope.accepts(None),
            false => self.attribute_classes.iter().any(|class| scope.accepts(Some(class))),
        }
    }
}

mod wire {
    use crate::meta::ObjectMeta;
    use crate::quantity::Quantity;
    use crate::resources::{ResourceList, ResourceRequirements};
    use crate::storage::BETA_STORAGE_CLASS_ANNOTATION;
    use crate::view::views;

    views! {
        /// The JSON form of what is read.
        struct Claim {
            metadata: ObjectMeta,
            spec: ClaimSpec,
            status: ClaimStatus,
        }

        struct ClaimSpec {
            resources: ResourceRequirements,
            storage_class_name: String,
            volume_attributes_class_name: String,
        }

        struct ClaimStatus {
            allocated_resources: ResourceList,
            current_volume_attributes_class_name: String,
            modify_volume_status: ModifyVolumeStatus,
        }

        struct ModifyVolumeStatus {
            target_volume_attributes_class_name: String,
        }
    }

    fn whole_bytes(amount: &Quantity) -> Quantity {
        let mut rounded = amount.clone();
        // An amount that is whole already keeps how it is written.
        if rounded.round_up(0) { amount.clone() } else { rounded }
    }

    impl From<Claim> for super::VolumeClaimMeasure {
        fn from(Claim { metadata, spec, status }: Claim) -> Self {
            let asked = spec.resources.requests.get("storage").map(whole_bytes);
            let given = status.allocated_resources.get("storage");
            let storage = asked.map(|asked| match given {
                Some(given) if *given > asked => whole_bytes(given),
                _ => asked,
            });
            let class = metadata.annotations.get(BETA_STORAGE_CLASS_ANNOTATION).cloned();
            let names = [
                spec.volume_attributes_class_name,
                status.current_volume_attributes_class_name,
                status.modify_volume_status.target_volume_attributes_class_name,
            ];
            super::VolumeClaimMeasure {
                storage,
                metadata: super::super::identity(metadata),
                class: class.unwrap_or(spec.storage_class_name),
                attribute_classes: names.into_iter().filter(|name| !name.is_empty()).collect(),
            }
        }
    }
}
