//! Volumes that drivers attach to nodes, and their names.

use std::fmt::Write;

use aws_lc_rs::digest;
use bayplan_model::csi_migration::{InTreePlugin, persistent_handle};
use bayplan_model::storage::PersistentVolume;

/// How the names of CSI volumes begin in the status of nodes.
const PREFIX: &str = "kubernetes.io/csi/";

/// Between the driver and its name of the volume.
const SEPARATOR: char = '^';

/// A volume that a CSI driver attaches to nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AttachableVolume {
    /// The driver.
    pub(super) driver: String,
    /// The driver's name of the volume.
    pub(super) handle: String,
    /// The PersistentVolume; empty when only the status of a node tells of the volume.
    pub(super) name: String,
    /// Whether several nodes may have it at the same time, as far as its access modes say.
    pub(super) is_shared: bool,
}

impl AttachableVolume {
    /// The volume as its driver sees it; none of one that no CSI driver serves.
    pub(super) fn of(volume: &PersistentVolume) -> Option<Self> {
        let spec = &volume.spec;
        let (driver, handle) = match &spec.csi {
            Some(csi) => (csi.driver.clone(), csi.volume_handle.clone()),
            None => (InTreePlugin::of_persistent(spec)?.driver.to_owned(), persistent_handle(volume)?),
        };
        let modes = &spec.access_modes;
        let is_shared = modes.is_empty() || modes.iter().any(|mode| mode == "ReadWriteMany" || mode == "ReadOnlyMany");
        Some(AttachableVolume { driver, handle, name: volume.metadata.name.clone(), is_shared })
    }

    /// The volume that the status of a node names.
    pub(super) fn named(unique_name: &str) -> Option<Self> {
        let (driver, handle) = unique_name.strip_prefix(PREFIX)?.split_once(SEPARATOR)?;
        let (driver, handle) = (driver.to_owned(), handle.to_owned());
        (!handle.contains(SEPARATOR)).then_some(AttachableVolume {
            driver,
            handle,
            name: String::new(),
            is_shared: true,
        })
    }

    /// Its name in the status of nodes.
    pub(super) fn unique_name(&self) -> String {
        format!("{PREFIX}{}{SEPARATOR}{}", self.driver, self.handle)
    }

    /// The name of the VolumeAttachment that asks for it on a node.
    pub(super) fn attachment_name(&self, node: &str) -> String {
        let text = format!("{}{}{node}", self.handle, self.driver);
        let hash = digest::digest(&digest::SHA256, text.as_bytes());
        hash.as_ref().iter().fold(String::from("csi-"), |mut name, byte| {
            // Writing into a string never fails.
            let _ = write!(name, "{byte:02x}");
            name
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn volume(spec: serde_json::Value) -> Option<AttachableVolume> {
        AttachableVolume::of(&serde_json::from_value(json!({"metadata": {"name": "pv"}, "spec": spec})).unwrap())
    }

    #[test]
    fn an_attachment_is_named_by_volume_driver_and_node() {
        let csi = volume(json!({"csi": {"driver": "d", "volumeHandle": "h"}})).unwrap();
        assert_eq!(csi.unique_name(), "kubernetes.io/csi/d^h");
        let name = csi.attachment_name("n");
        assert_eq!(name, "csi-9072ed11cc1acb5fa433a877ff339b6311d013f33bddd1d0092711a8ace5b16d", "SHA-256 of hdn");
        assert_ne!(name, csi.attachment_name("m"));
        assert_eq!(AttachableVolume::named("kubernetes.io/csi/d^h").unwrap().attachment_name("n"), name);
        assert_eq!(AttachableVolume::named("kubernetes.io/iscsi/a:b:0"), None);
        assert_eq!(AttachableVolume::named("kubernetes.io/csi/d^h^i"), None);
    }

    #[test]
    fn volumes_of_former_plugins_are_their_drivers() {
        let disk = volume(json!({"awsElasticBlockStore": {"volumeID": "aws://zone/vol-1"}})).unwrap();
        assert_eq!(disk.unique_name(), "kubernetes.io/csi/ebs.csi.aws.com^vol-1");
        assert_eq!(volume(json!({"nfs": {"server": "s", "path": "/"}})), None);
    }

    #[test]
    fn access_modes_say_how_many_nodes_may_have_it() {
        for (modes, is_shared) in [
            (json!([]), true),
            (json!(["ReadWriteOnce"]), false),
            (json!(["ReadWriteOncePod"]), false),
            (json!(["ReadWriteOnce", "ReadOnlyMany"]), true),
            (json!(["ReadWriteMany"]), true),
        ] {
            let spec = json!({"accessModes": modes, "csi": {"driver": "d", "volumeHandle": "h"}});
            assert_eq!(volume(spec).unwrap().is_shared, is_shared, "{modes}");
        }
    }
}
