//! Protects VolumeAttributesClasses that volumes or claims name.

use std::collections::BTreeSet;
use std::sync::Arc;

use bayplan_model::delta::Delta;
use bayplan_model::quota::VolumeClaimMeasure;
use bayplan_model::storage::PersistentVolume;
use futures::future::BoxFuture;

use super::{FinalizerAction, finalizer_action, write};
use crate::cache::{AnyDelta, Cache, Kind};
use crate::controller::{Context, Controller, Requeue, Wakeup};
use crate::error::Error;
use crate::requests::VOLUME_ATTRIBUTES_CLASSES;

const FINALIZER: &str = "kubernetes.io/vac-protection";

/// Protects VolumeAttributesClasses that volumes or claims name.
pub struct AttributesClassProtectionController {
    cache: Arc<Cache>,
}

impl AttributesClassProtectionController {
    /// A controller over this cache.
    pub fn new(cache: Arc<Cache>) -> Self {
        AttributesClassProtectionController { cache }
    }

    async fn reconcile(&self, name: &str, context: Context<'_>) -> Result<Requeue, Error> {
        let Some(class) = self.cache.volume_attributes_classes().get("", name) else { return Ok(Requeue::OnChange) };
        let due = finalizer_action(&class.metadata, FINALIZER);
        if due == FinalizerAction::Nothing || (due == FinalizerAction::Remove && self.is_used(name)) {
            return Ok(Requeue::OnChange);
        }
        write(context.api, &VOLUME_ATTRIBUTES_CLASSES, &class.metadata, FINALIZER, due).await
    }

    fn is_used(&self, name: &str) -> bool {
        self.cache.volumes().all().any(|volume| named_by_volume(volume) == Some(name))
            || self.cache.counted_volume_claims().all().any(|claim| claim.attribute_classes.contains(name))
    }
}

fn named_by_volume(volume: &PersistentVolume) -> Option<&str> {
    volume.spec.volume_attributes_class_name.as_deref().filter(|name| !name.is_empty())
}

/// The classes that a change of an object lets go.
fn let_go<T>(delta: &Delta<Arc<T>>, named: impl Fn(&T) -> BTreeSet<String>) -> Vec<Wakeup> {
    let names = match delta {
        Delta::Added(_) => BTreeSet::new(),
        Delta::Updated { old, new } => &named(old) - &named(new),
        Delta::Deleted(last) => named(last),
    };
    names.into_iter().map(Wakeup::now).collect()
}

impl Controller for AttributesClassProtectionController {
    fn name(&self) -> &'static str {
        "volumeattributesclass-protection-controller"
    }

    fn watches(&self) -> &'static [Kind] {
        &[Kind::VolumeAttributesClass, Kind::Volume, Kind::CountedVolumeClaim]
    }

    fn workers(&self) -> usize {
        1
    }

    fn observe(&self, delta: &AnyDelta) -> Vec<Wakeup> {
        match delta {
            AnyDelta::VolumeAttributesClass(Delta::Added(class) | Delta::Updated { new: class, .. })
                if finalizer_action(&class.metadata, FINALIZER) != FinalizerAction::Nothing =>
            {
                vec![Wakeup::now(class.metadata.name.clone())]
            }
            AnyDelta::Volume(delta) => {
                let_go(delta, |volume| named_by_volume(volume).map(str::to_owned).into_iter().collect())
            }
            AnyDelta::CountedVolumeClaim(delta) => {
                let_go(delta, |claim: &VolumeClaimMeasure| claim.attribute_classes.clone())
            }
            _ => Vec::new(),
        }
    }

    fn sync<'a>(&'a self, key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Requeue, Error>> {
        Box::pin(self.reconcile(key, context))
    }
}
