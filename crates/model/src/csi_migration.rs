//! In-tree volumes as the CSI volumes they have become: which driver serves them, under which handle, from where.

use std::collections::BTreeSet;

use crate::affinity::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use crate::node::{LABEL_REGION, LABEL_REGION_BETA, LABEL_ZONE, LABEL_ZONE_BETA};
use crate::pod::Volume;
use crate::storage::{PersistentVolume, PersistentVolumeSpec};

/// The annotation of a CSINode that lists the in-tree plugins whose volumes its drivers serve.
pub const MIGRATED_PLUGINS_ANNOTATION: &str = "storage.alpha.kubernetes.io/migrated-plugins";

/// Several zones in one label value are joined by this.
const ZONE_DELIMITER: &str = "__";
/// Google's driver's name of an unspecified project or zone.
const UNSPECIFIED: &str = "UNSPECIFIED";

/// An in-tree volume plugin that a CSI driver replaced.
#[derive(Debug, PartialEq, Eq)]
pub struct InTreePlugin {
    /// Its name, which is also its provisioner.
    pub name: &'static str,
    /// The CSI driver that replaced it.
    pub driver: &'static str,
    /// The driver's own label for zones, if in-tree zones are translated.
    topology_key: Option<&'static str>,
    /// Whether limits count its volumes as the driver's on nodes with a CSINode.
    pub counted: bool,
}

const fn plugin(
    name: &'static str,
    driver: &'static str,
    topology_key: Option<&'static str>,
    counted: bool,
) -> InTreePlugin {
    InTreePlugin { name, driver, topology_key, counted }
}

static AWS_EBS: InTreePlugin =
    plugin("kubernetes.io/aws-ebs", "ebs.csi.aws.com", Some("topology.ebs.csi.aws.com/zone"), true);
static GCE_PD: InTreePlugin =
    plugin("kubernetes.io/gce-pd", "pd.csi.storage.gke.io", Some("topology.gke.io/zone"), true);
static CINDER: InTreePlugin =
    plugin("kubernetes.io/cinder", "cinder.csi.openstack.org", Some("topology.cinder.csi.openstack.org/zone"), true);
static AZURE_DISK: InTreePlugin = plugin("kubernetes.io/azure-disk", "disk.csi.azure.com", None, true);
static AZURE_FILE: InTreePlugin = plugin("kubernetes.io/azure-file", "file.csi.azure.com", None, false);
static VSPHERE: InTreePlugin = plugin("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com", None, false);
static PORTWORX: InTreePlugin = plugin("kubernetes.io/portworx-volume", "pxd.portworx.com", None, true);

impl InTreePlugin {
    /// The plugin of this name.
    pub fn named(name: &str) -> Option<&'static InTreePlugin> {
        [&AWS_EBS, &GCE_PD, &CINDER, &AZURE_DISK, &AZURE_FILE, &VSPHERE, &PORTWORX].into_iter().find(|p| p.name == name)
    }

    /// The plugin of a persistent volume.
    pub fn of_persistent(spec: &PersistentVolumeSpec) -> Option<&'static InTreePlugin> {
        None.or(spec.aws_elastic_block_store.as_ref().map(|_| &AWS_EBS))
            .or(spec.gce_persistent_disk.as_ref().map(|_| &GCE_PD))
            .or(spec.cinder.as_ref().map(|_| &CINDER))
            .or(spec.azure_disk.as_ref().map(|_| &AZURE_DISK))
            .or(spec.azure_file.as_ref().map(|_| &AZURE_FILE))
            .or(spec.vsphere_volume.as_ref().map(|_| &VSPHERE))
            .or(spec.portworx_volume.as_ref().map(|_| &PORTWORX))
    }

    /// The plugin of a volume a pod names inline.
    pub fn of_inline(volume: &Volume) -> Option<&'static InTreePlugin> {
        None.or(volume.aws_elastic_block_store.as_ref().map(|_| &AWS_EBS))
            .or(volume.gce_persistent_disk.as_ref().map(|_| &GCE_PD))
            .or(volume.cinder.as_ref().map(|_| &CINDER))
            .or(volume.azure_disk.as_ref().map(|_| &AZURE_DISK))
            .or(volume.azure_file.as_ref().map(|_| &AZURE_FILE))
            .or(volume.vsphere_volume.as_ref().map(|_| &VSPHERE))
            .or(volume.portworx_volume.as_ref().map(|_| &PORTWORX))
    }
}

/// The driver's handle of an in-tree persistent volume; none for one that has no CSI form.
pub fn persistent_handle(volume: &PersistentVolume) -> Option<String> {
    let spec = &volume.spec;
    if let Some(disk) = &spec.gce_persistent_disk {
        let labels = &volume.metadata.labels;
        let zones = labels.get(LABEL_ZONE_BETA).filter(|zone| !zone.is_empty()).or_else(|| labels.get(LABEL_ZONE));
        let zones: Vec<&str> = zones.map(|zones| zones.split(ZONE_DELIMITER).collect()).unwrap_or_default();
        return gce_handle(&disk.pd_name, &zones);
    }
    if let Some(disk) = &spec.aws_elastic_block_store {
        return ebs_handle(&disk.volume_id);
    }
    None.or(spec.cinder.as_ref().map(|disk| disk.volume_id.clone()))
        .or(spec.azure_disk.as_ref().map(|disk| disk.disk_uri.clone()))
        .or(spec.vsphere_volume.as_ref().map(|disk| disk.volume_path.clone()))
        .or(spec.portworx_volume.as_ref().map(|disk| disk.volume_id.clone()))
}

/// The driver's handle of an in-tree volume a pod names inline.
pub fn inline_handle(volume: &Volume) -> Option<String> {
    if let Some(disk) = &volume.gce_persistent_disk {
        return gce_handle(&disk.pd_name, &[]);
    }
    if let Some(disk) = &volume.aws_elastic_block_store {
        return ebs_handle(&disk.volume_id);
    }
    None.or(volume.cinder.as_ref().map(|disk| disk.volume_id.clone()))
        .or(volume.azure_disk.as_ref().map(|disk| disk.disk_uri.clone()))
        .or(volume.vsphere_volume.as_ref().map(|disk| disk.volume_path.clone()))
        .or(volume.portworx_volume.as_ref().map(|disk| disk.volume_id.clone()))
}

/// `aws://zone/vol-1` and `vol-1` are the same disk.
fn ebs_handle(id: &str) -> Option<String> {
    let Some(rest) = id.strip_prefix("aws://") else { return Some(id.to_owned()) };
    let id = rest.split_once('/')?.1.trim_matches('/');
    (id.starts_with("vol-") && !id.contains('/')).then(|| id.to_owned())
}

fn gce_handle(disk: &str, zones: &[&str]) -> Option<String> {
    Some(match zones {
        [] | [""] => format!("projects/{UNSPECIFIED}/zones/{UNSPECIFIED}/disks/{disk}"),
        [zone] => format!("projects/{UNSPECIFIED}/zones/{zone}/disks/{disk}"),
        zones => {
            let regions: Option<BTreeSet<&str>> = zones.iter().map(|zone| gce_region(zone)).collect();
            let regions = regions.filter(|regions| regions.len() == 1)?;
            format!("projects/{UNSPECIFIED}/regions/{}/disks/{disk}", regions.first()?)
        }
    })
}

/// `us-central1-b` is in `us-central1`.
fn gce_region(zone: &str) -> Option<&str> {
    let (region, _) = zone.rsplit_once('-')?;
    (region.split('-').count() == 2).then_some(region)
}

/// Where a volume can be reached once its driver serves it: in-tree zones under the driver's own label.
///
/// Other volumes, and those whose plugin does not translate zones, keep what they require.
pub fn migrated_affinity(volume: &PersistentVolume) -> Option<NodeSelector> {
    let own = volume.spec.node_affinity.as_ref().and_then(|affinity| affinity.required.clone());
    let Some(key) = InTreePlugin::of_persistent(&volume.spec).and_then(|plugin| plugin.topology_key) else {
        return own;
    };
    let mut required = own.unwrap_or_default();
    let (zone, region) = topology_labels(volume, &required);
    if expressions(&mut required).any(|e| e.key == zone && !e.values.is_empty()) {
        rename(&mut required, zone, key);
    } else if let Some(zones) = volume.metadata.labels.get(zone) {
        add_zones(&mut required, key, zones);
    }
    if region == LABEL_REGION_BETA {
        rename(&mut required, region, LABEL_REGION);
    }
    // A selector without terms matches nothing; a volume without requirements has none.
    (!required.node_selector_terms.is_empty()).then_some(required)
}

fn expressions(selector: &mut NodeSelector) -> impl Iterator<Item = &mut NodeSelectorRequirement> {
    selector.node_selector_terms.iter_mut().flat_map(|term| &mut term.match_expressions)
}

fn rename(selector: &mut NodeSelector, from: &str, to: &str) {
    for expression in expressions(selector).filter(|e| e.key == from && !e.values.is_empty()) {
        to.clone_into(&mut expression.key);
    }
}

fn add_zones(selector: &mut NodeSelector, key: &str, zones: &str) {
    let zones: BTreeSet<String> = zones.split(ZONE_DELIMITER).map(|zone| zone.trim().to_owned()).collect();
    let values: Vec<String> = zones.into_iter().filter(|zone| !zone.is_empty()).collect();
    if values.is_empty() {
        return;
    }
    if selector.node_selector_terms.is_empty() {
        selector.node_selector_terms.push(NodeSelectorTerm::default());
    }
    let requirement = NodeSelectorRequirement { key: key.to_owned(), operator: "In".to_owned(), values };
    for term in &mut selector.node_selector_terms {
        term.match_expressions.push(requirement.clone());
    }
}

/// Whether a volume's topology uses current or deprecated labels: its affinity decides, then its own labels.
fn topology_labels(volume: &PersistentVolume, required: &NodeSelector) -> (&'static str, &'static str) {
    let in_affinity =
        |key: &str| required.node_selector_terms.iter().flat_map(|t| &t.match_expressions).any(|e| e.key == key);
    let labels = &volume.metadata.labels;
    let former = !in_affinity(LABEL_ZONE)
        && (in_affinity(LABEL_ZONE_BETA) || !labels.contains_key(LABEL_ZONE) && labels.contains_key(LABEL_ZONE_BETA));
    if former { (LABEL_ZONE_BETA, LABEL_REGION_BETA) } else { (LABEL_ZONE, LABEL_REGION) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_those_the_drivers_use() {
        let cases = [
            (serde_json::json!({"awsElasticBlockStore": {"volumeID": "aws://us-east-1a/vol-7"}}), Some("vol-7")),
            (serde_json::json!({"awsElasticBlockStore": {"volumeID": "vol-7"}}), Some("vol-7")),
            (serde_json::json!({"awsElasticBlockStore": {"volumeID": "aws://us-east-1a/disk"}}), None),
            (
                serde_json::json!({"gcePersistentDisk": {"pdName": "d"}}),
                Some("projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d"),
            ),
            (serde_json::json!({"azureDisk": {"diskURI": "/subscriptions/x"}}), Some("/subscriptions/x")),
            (serde_json::json!({"nfs": {}}), None),
        ];
        for (volume, expected) in cases {
            let volume: Volume = serde_json::from_value(volume).unwrap();
            assert_eq!(inline_handle(&volume).as_deref(), expected, "{volume:?}");
        }
    }

    #[test]
    fn a_disk_in_two_zones_is_named_by_its_region() {
        let volume: PersistentVolume = serde_json::from_value(serde_json::json!({
            "metadata": {"labels": {"topology.kubernetes.io/zone": "us-central1-a__us-central1-b"}},
            "spec": {"gcePersistentDisk": {"pdName": "d"}},
        }))
        .unwrap();
        assert_eq!(persistent_handle(&volume).as_deref(), Some("projects/UNSPECIFIED/regions/us-central1/disks/d"));
    }

    #[test]
    fn zones_move_to_the_label_of_the_driver() {
        let volume: PersistentVolume = serde_json::from_value(serde_json::json!({
            "metadata": {"labels": {"topology.kubernetes.io/zone": "a"}},
            "spec": {"awsElasticBlockStore": {"volumeID": "v"}},
        }))
        .unwrap();
        let required = migrated_affinity(&volume).unwrap();
        let expression = &required.node_selector_terms[0].match_expressions[0];
        assert_eq!(
            (expression.key.as_str(), &expression.values[..]),
            ("topology.ebs.csi.aws.com/zone", &["a".into()][..])
        );
    }
}
