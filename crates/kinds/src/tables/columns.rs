//! Which columns each kind has.

use super::Column;

const fn column(name: &'static str, column_type: &'static str, priority: i32) -> Column {
    Column { name, column_type, format: "", description: "", priority }
}

const fn text(name: &'static str) -> Column {
    column(name, "string", 0)
}

const fn wide(name: &'static str) -> Column {
    column(name, "string", 1)
}

const fn integer(name: &'static str) -> Column {
    column(name, "integer", 0)
}

const fn boolean(name: &'static str) -> Column {
    column(name, "boolean", 0)
}

const fn named(mut column: Column) -> Column {
    column.format = "name";
    column
}

const NAME: Column = named(text("Name"));
const AGE: Column = text("Age");

/// Names the columns of kinds; `NAME` and `AGE` stand in every one.
macro_rules! columns {
    ($($group:pat, $kind:pat => [$($column:expr),* $(,)?];)*) => {
        /// The columns of a kind.
        pub(super) fn of(group: &str, kind: &str) -> &'static [Column] {
            match (group, kind) {
                $(($group, $kind) => { const COLUMNS: &[Column] = &[$($column),*]; COLUMNS })*
                _ => { const COLUMNS: &[Column] = &[NAME, text("Created At")]; COLUMNS }
            }
        }
    };
}

columns! {
    "", "Pod" => [
        NAME, text("Ready"), text("Status"), text("Restarts"), AGE,
        wide("IP"), wide("Node"), wide("Nominated Node"), wide("Readiness Gates"),
    ];
    "", "PodTemplate" => [NAME, text("Containers"), text("Images"), text("Pod Labels")];
    "", "ReplicationController" => [
        NAME, integer("Desired"), integer("Current"), integer("Ready"), AGE,
        wide("Containers"), wide("Images"), wide("Selector"),
    ];
    "", "Node" => [
        NAME, text("Status"), text("Roles"), AGE, text("Version"), wide("Internal-IP"), wide("External-IP"),
        wide("OS-Image"), wide("Kernel-Version"), wide("Container-Runtime"),
    ];
    "", "Namespace" => [NAME, text("Status"), AGE];
    "", "Service" => [
        NAME, text("Type"), text("Cluster-IP"), text("External-IP"), text("Port(s)"), AGE, wide("Selector"),
    ];
    "", "Endpoints" => [NAME, text("Endpoints"), AGE];
    "" | "events.k8s.io", "Event" => [
        text("Last Seen"), text("Type"), text("Reason"), text("Object"), wide("Subobject"), wide("Source"),
        text("Message"), wide("First Seen"), wide("Count"), named(wide("Name")),
    ];
    "", "ConfigMap" => [NAME, text("Data"), AGE];
    "", "Secret" => [NAME, text("Type"), text("Data"), AGE];
    "", "ServiceAccount" => [NAME, AGE];
    "", "ResourceQuota" => [NAME, text("Request"), text("Limit"), AGE];
    "", "PersistentVolume" => [
        NAME, text("Capacity"), text("Access Modes"), text("Reclaim Policy"), text("Status"), text("Claim"),
        text("StorageClass"), text("VolumeAttributesClass"), text("Reason"), AGE, wide("VolumeMode"),
    ];
    "", "PersistentVolumeClaim" => [
        NAME, text("Status"), text("Volume"), text("Capacity"), text("Access Modes"), text("StorageClass"),
        text("VolumeAttributesClass"), AGE, wide("VolumeMode"),
    ];
    "apps", "Deployment" => [
        NAME, text("Ready"), text("Up-to-date"), text("Available"), AGE,
        wide("Containers"), wide("Images"), wide("Selector"),
    ];
    "apps", "ReplicaSet" => [
        NAME, integer("Desired"), integer("Current"), integer("Ready"), AGE,
        wide("Containers"), wide("Images"), wide("Selector"),
    ];
    "apps", "StatefulSet" => [NAME, text("Ready"), AGE, wide("Containers"), wide("Images")];
    "apps", "DaemonSet" => [
        NAME, integer("Desired"), integer("Current"), integer("Ready"), integer("Up-to-date"), integer("Available"),
        text("Node Selector"), AGE, wide("Containers"), wide("Images"), wide("Selector"),
    ];
    "apps", "ControllerRevision" => [NAME, text("Controller"), text("Revision"), AGE];
    "batch", "Job" => [
        NAME, text("Status"), text("Completions"), text("Duration"), AGE,
        wide("Containers"), wide("Images"), wide("Selector"),
    ];
    "batch", "CronJob" => [
        NAME, text("Schedule"), text("Timezone"), boolean("Suspend"), integer("Active"), text("Last Schedule"), AGE,
        wide("Containers"), wide("Images"), wide("Selector"),
    ];
    "policy", "PodDisruptionBudget" => [
        NAME, text("Min Available"), text("Max Unavailable"), integer("Allowed Disruptions"), AGE,
    ];
    "scheduling.k8s.io", "PriorityClass" => [
        NAME, integer("Value"), boolean("Global-Default"), AGE, text("PreemptionPolicy"),
    ];
    "coordination.k8s.io", "Lease" => [NAME, text("Holder"), AGE];
    "rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding" => [
        NAME, text("Role"), AGE, wide("Users"), wide("Groups"), wide("ServiceAccounts"),
    ];
    "storage.k8s.io", "StorageClass" => [
        NAME, text("Provisioner"), text("ReclaimPolicy"), text("VolumeBindingMode"), text("AllowVolumeExpansion"), AGE,
    ];
    "storage.k8s.io", "VolumeAttributesClass" => [NAME, text("DriverName"), AGE];
    "storage.k8s.io", "VolumeAttachment" => [
        NAME, named(text("Attacher")), text("PV"), text("Node"), boolean("Attached"), AGE,
    ];
    "storage.k8s.io", "CSINode" => [NAME, integer("Drivers"), AGE];
    "storage.k8s.io", "CSIDriver" => [
        NAME, boolean("AttachRequired"), boolean("PodInfoOnMount"), boolean("StorageCapacity"), text("TokenRequests"),
        boolean("RequiresRepublish"), text("Modes"), AGE,
    ];
    "storage.k8s.io", "CSIStorageCapacity" => [NAME, text("StorageClassName"), text("Capacity")];
    "resource.k8s.io", "DeviceClass" | "ResourceClaimTemplate" => [NAME, AGE];
    "resource.k8s.io", "ResourceClaim" => [NAME, text("State"), AGE];
    "resource.k8s.io", "ResourceSlice" => [NAME, text("Node"), text("Driver"), text("Pool"), AGE];
    "discovery.k8s.io", "EndpointSlice" => [NAME, text("AddressType"), text("Ports"), text("Endpoints"), AGE];
    "node.k8s.io", "RuntimeClass" => [NAME, text("Handler"), AGE];
    "networking.k8s.io", "NetworkPolicy" => [NAME, text("Pod-Selector"), AGE];
    "autoscaling", "Scale" => [text("Name"), integer("Desired"), integer("Available"), AGE];
}
