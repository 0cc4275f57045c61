//! Which fields of each kind a snapshot holds, and what each of them is.
//!
//! Only what is named here enters a snapshot: what decisions read (the scheduler's views), what completes a new pod,
//! and what controllers make pods of. Environment, arguments, commands, probes and mounts are not named, nor are
//! Secrets.
//!
//! ```text
//!   spec{ nodeName, containers{ resources% } }    fields below fields; lists are entered, element by element
//!   x     names: strings that redaction replaces          x=  words and numbers that it leaves
//!   x#    labels: keys and values                         x@  keys of labels
//!   x~    images                                          x%  quantities by resource
//!   x/    names joined by slashes                         x!  annotations
//!   x^    something by name                               x?  messages, which redaction drops
//! ```

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// What the value of a field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Names,
    Words,
    Labels,
    LabelKeys,
    Images,
    Quantities,
    JoinedNames,
    Annotations,
    ByName,
    Message,
}

/// A field that is kept.
#[derive(Debug)]
pub(super) enum Field {
    /// With everything below it.
    Whole(Meaning),
    /// With these fields below it.
    Part(Fields),
}

pub(super) type Fields = BTreeMap<String, Field>;

const METADATA: &str = "metadata{name namespace generateName uid resourceVersion= generation= creationTimestamp= \
    deletionTimestamp= deletionGracePeriodSeconds= labels# annotations! finalizers@ \
    ownerReferences{apiVersion= kind= name uid controller= blockOwnerDeletion=}}";

const SELECTOR: &str = "{matchLabels# matchExpressions{key@ operator= values}}";

const NODE_SELECTOR: &str = "{nodeSelectorTerms{matchExpressions{key@ operator= values} \
    matchFields{key@ operator= values}}}";

const CONTAINER: &str = "{name image~ resources{limits% requests% claims{name request}} restartPolicy= \
    restartPolicyRules{action=} ports{name containerPort= hostPort= protocol= hostIP=}}";

const VOLUME_IDS: &str = "gcePersistentDisk{pdName partition= readOnly=} \
    awsElasticBlockStore{volumeID partition= readOnly=} azureDisk{diskName diskURI} azureFile{shareName secretName} \
    cinder{volumeID} vsphereVolume{volumePath} portworxVolume{volumeID}";

const CLAIM_SPEC: &str = "{accessModes= selector<SELECTOR> resources{requests% limits%} volumeName storageClassName \
    volumeMode= volumeAttributesClassName}";

const AFFINITY_TERM: &str = "{labelSelector<SELECTOR> namespaces namespaceSelector<SELECTOR> topologyKey@ \
    matchLabelKeys@ mismatchLabelKeys@}";

const POD_AFFINITY: &str = "{requiredDuringSchedulingIgnoredDuringExecution<AFFINITY_TERM> \
    preferredDuringSchedulingIgnoredDuringExecution{weight= podAffinityTerm<AFFINITY_TERM>}}";

const POD_SPEC: &str = "{nodeName schedulerName priority= priorityClassName preemptionPolicy= runtimeClassName \
    nodeSelector# affinity{nodeAffinity{requiredDuringSchedulingIgnoredDuringExecution<NODE_SELECTOR> \
        preferredDuringSchedulingIgnoredDuringExecution{weight= preference{matchExpressions{key@ operator= values} \
            matchFields{key@ operator= values}}}} \
      podAffinity<POD_AFFINITY> podAntiAffinity<POD_AFFINITY>} \
    tolerations{key@ operator= value effect= tolerationSeconds=} \
    topologySpreadConstraints{maxSkew= topologyKey@ whenUnsatisfiable= labelSelector<SELECTOR> minDomains= \
      nodeAffinityPolicy= nodeTaintsPolicy= matchLabelKeys@} \
    containers<CONTAINER> initContainers<CONTAINER> overhead% resources{limits% requests%} schedulingGates{name} \
    volumes{name persistentVolumeClaim{claimName readOnly=} ephemeral{volumeClaimTemplate{spec<CLAIM_SPEC>}} \
      csi{driver=} image{reference~} iscsi{iqn readOnly=} rbd{monitors pool image readOnly=} <VOLUME_IDS>} \
    resourceClaims{name resourceClaimName resourceClaimTemplateName} hostNetwork= hostUsers= restartPolicy= \
    terminationGracePeriodSeconds= activeDeadlineSeconds= schedulingGroup}";

const CONDITIONS: &str = "conditions{type= status= reason= message? lastProbeTime= lastTransitionTime= \
    observedGeneration=}";

const POD_STATUS: &str = "{phase= <CONDITIONS> nominatedNodeName startTime= \
    containerStatuses{name resources{limits% requests%} allocatedResources%} \
    initContainerStatuses{name resources{limits% requests%} allocatedResources%} resources{limits% requests%} \
    allocatedResources% resourceClaimStatuses{name resourceClaimName} \
    extendedResourceClaimStatus{resourceClaimName}}";

const TEMPLATE: &str = "template{metadata{name labels# annotations!} spec<POD_SPEC>}";

const REPLICAS: &str = "replicas= readyReplicas= availableReplicas= observedGeneration=";

const VOLUME_SPEC: &str = "{capacity% accessModes= claimRef{kind= namespace name uid} storageClassName \
    persistentVolumeReclaimPolicy= volumeMode= volumeAttributesClassName nodeAffinity{required<NODE_SELECTOR>} \
    csi{driver= volumeHandle} <VOLUME_IDS>}";

const DEVICE_REQUEST: &str = "deviceClassName selectors= allocationMode= count= \
    tolerations{key@ operator= value effect= tolerationSeconds=} capacity=";

const DEVICES: &str = "devices{requests{name exactly{adminAccess= <DEVICE_REQUEST>} \
    firstAvailable{name <DEVICE_REQUEST>}} \
    constraints{requests/ matchAttribute= distinctAttribute=}}";

/// The fields of each kind besides its metadata.
const KINDS: &[(&str, &str)] = &[
    (
        "Node",
        "spec{unschedulable= taints{key@ value effect= timeAdded=}} status{allocatable% capacity% \
         conditions{type= status= reason=} images{names~ sizeBytes=} declaredFeatures=}",
    ),
    ("Pod", "spec<POD_SPEC> status<POD_STATUS>"),
    ("Namespace", "status{phase=}"),
    ("Event", "involvedObject{kind= namespace name uid} reason= count= firstTimestamp= lastTimestamp= message?"),
    ("PriorityClass", "value= globalDefault= preemptionPolicy="),
    ("Service", "spec{selector#}"),
    ("ReplicationController", "spec{replicas= selector# <TEMPLATE>} status{<REPLICAS>}"),
    ("ReplicaSet", "spec{replicas= minReadySeconds= selector<SELECTOR> <TEMPLATE>} status{<REPLICAS>}"),
    (
        "StatefulSet",
        "spec{replicas= minReadySeconds= serviceName podManagementPolicy= updateStrategy= ordinals= \
         selector<SELECTOR> <TEMPLATE> volumeClaimTemplates{metadata{name labels#} spec<CLAIM_SPEC>}} \
         status{<REPLICAS> currentReplicas= updatedReplicas=}",
    ),
    (
        "Deployment",
        "spec{replicas= minReadySeconds= paused= strategy= revisionHistoryLimit= progressDeadlineSeconds= \
         selector<SELECTOR> <TEMPLATE>} status{<REPLICAS> updatedReplicas= unavailableReplicas=}",
    ),
    (
        "DaemonSet",
        "spec{minReadySeconds= updateStrategy= selector<SELECTOR> <TEMPLATE>} status{currentNumberScheduled= \
         desiredNumberScheduled= numberReady= numberAvailable= numberUnavailable= numberMisscheduled= \
         updatedNumberScheduled= observedGeneration=}",
    ),
    (
        "Job",
        "spec{parallelism= completions= completionMode= backoffLimit= suspend= manualSelector= selector<SELECTOR> \
         <TEMPLATE>} status{active= ready= succeeded= failed= terminating= completedIndexes= startTime= \
         completionTime=}",
    ),
    (
        "PodDisruptionBudget",
        "spec{minAvailable= maxUnavailable= selector<SELECTOR> unhealthyPodEvictionPolicy=} \
         status{disruptionsAllowed= currentHealthy= desiredHealthy= expectedPods= observedGeneration= disruptedPods^}",
    ),
    ("PersistentVolume", "spec<VOLUME_SPEC> status{phase=}"),
    ("PersistentVolumeClaim", "spec<CLAIM_SPEC> status{phase= accessModes= capacity%}"),
    (
        "StorageClass",
        "provisioner= volumeBindingMode= reclaimPolicy= allowVolumeExpansion= \
         allowedTopologies{matchLabelExpressions{key@ values}}",
    ),
    ("CSINode", "spec{drivers{name= nodeID topologyKeys@ allocatable=}}"),
    ("CSIDriver", "spec{storageCapacity= preventPodSchedulingIfMissing= attachRequired=}"),
    ("CSIStorageCapacity", "nodeTopology<SELECTOR> storageClassName capacity= maximumVolumeSize="),
    (
        "VolumeAttachment",
        "spec{attacher= nodeName source{persistentVolumeName inlineVolumeSpec<VOLUME_SPEC>}} status{attached=}",
    ),
    (
        "ResourceClaim",
        "spec{<DEVICES>} status{allocation{devices{results{request/ driver= pool device adminAccess= \
           tolerations{key@ operator= value effect= tolerationSeconds=} bindingConditions= \
           bindingFailureConditions= shareID consumedCapacity=}} nodeSelector<NODE_SELECTOR> allocationTimestamp=} \
         reservedFor{apiGroup= resource= name uid} \
         devices{driver= pool device shareID \
           conditions{type= status= reason= message? lastTransitionTime= observedGeneration=}}}",
    ),
    ("ResourceClaimTemplate", "spec{metadata{labels#} spec{<DEVICES>}}"),
    (
        "ResourceSlice",
        "spec{driver= pool{name generation= resourceSliceCount=} nodeName nodeSelector<NODE_SELECTOR> allNodes= \
         perDeviceNodeSelection= sharedCounters= devices{name attributes= capacity= consumesCounters= nodeName \
           nodeSelector<NODE_SELECTOR> allNodes= taints{key@ value effect= timeAdded=} bindsToNode= \
           bindingConditions= bindingFailureConditions= allowMultipleAllocations=}}",
    ),
    ("DeviceClass", "spec{selectors= extendedResourceName=}"),
    ("LimitRange", "spec{limits{type= max% min% default% defaultRequest% maxLimitRequestRatio%}}"),
    (
        "RuntimeClass",
        "handler overhead{podFixed%} scheduling{nodeSelector# tolerations{key@ operator= value effect= \
      tolerationSeconds=}}",
    ),
];

/// The parts that are written out where `<NAME>` stands.
const PARTS: &[(&str, &str)] = &[
    ("SELECTOR", SELECTOR),
    ("NODE_SELECTOR", NODE_SELECTOR),
    ("CONTAINER", CONTAINER),
    ("VOLUME_IDS", VOLUME_IDS),
    ("CLAIM_SPEC", CLAIM_SPEC),
    ("AFFINITY_TERM", AFFINITY_TERM),
    ("POD_AFFINITY", POD_AFFINITY),
    ("POD_SPEC", POD_SPEC),
    ("CONDITIONS", CONDITIONS),
    ("POD_STATUS", POD_STATUS),
    ("TEMPLATE", TEMPLATE),
    ("REPLICAS", REPLICAS),
    ("VOLUME_SPEC", VOLUME_SPEC),
    ("DEVICE_REQUEST", DEVICE_REQUEST),
    ("DEVICES", DEVICES),
];

static FIELDS: LazyLock<BTreeMap<&'static str, Fields>> = LazyLock::new(|| {
    let fields = |text: &str| {
        let whole = written_out(&format!("apiVersion= kind= {METADATA} {text}"));
        parse(&mut tokens(&whole).into_iter())
    };
    KINDS.iter().map(|(kind, text)| (*kind, fields(text))).collect()
});

/// The fields of a kind that a snapshot holds.
pub(super) fn fields_of(kind: &str) -> Option<&'static Fields> {
    FIELDS.get(kind)
}

/// Replaces each `<NAME>`, also in what replaces it.
fn written_out(text: &str) -> String {
    let mut text = text.to_owned();
    for _ in 0..PARTS.len() {
        for (name, part) in PARTS {
            text = text.replace(&format!("<{name}>"), part);
        }
    }
    text
}

/// Names with their marks, and braces.
fn tokens(text: &str) -> Vec<String> {
    text.replace('{', " { ").replace('}', " } ").split_whitespace().map(str::to_owned).collect()
}

fn parse(tokens: &mut std::vec::IntoIter<String>) -> Fields {
    let mut fields = Fields::new();
    let mut last = String::new();
    while let Some(token) = tokens.next() {
        match token.as_str() {
            "{" => _ = fields.insert(std::mem::take(&mut last), Field::Part(parse(tokens))),
            "}" => break,
            _ => {
                let (name, meaning) = meaning_of(&token);
                last = name.to_owned();
                fields.insert(last.clone(), Field::Whole(meaning));
            }
        }
    }
    fields
}

fn meaning_of(token: &str) -> (&str, Meaning) {
    let marks = [
        ('=', Meaning::Words),
        ('#', Meaning::Labels),
        ('@', Meaning::LabelKeys),
        ('~', Meaning::Images),
        ('%', Meaning::Quantities),
        ('/', Meaning::JoinedNames),
        ('!', Meaning::Annotations),
        ('^', Meaning::ByName),
        ('?', Meaning::Message),
    ];
    let marked = marks.iter().find_map(|(mark, meaning)| Some((token.strip_suffix(*mark)?, *meaning)));
    marked.unwrap_or((token, Meaning::Names))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RESOURCES;

    #[test]
    fn every_resource_has_its_fields_and_every_field_is_one_of_its_kind() {
        use bayplan_model::schema::{Definition, Schema, Type};
        fn check(fields: &Fields, definition: &'static Definition, path: &str) {
            for (name, field) in fields {
                let known = definition.field(name).unwrap_or_else(|| panic!("{path} has no field {name}"));
                let mut ty = &known.ty;
                while let Type::List(of, _) | Type::Map(of, _) = ty {
                    ty = of;
                }
                if let (Field::Part(below), Type::Object(id)) = (field, ty) {
                    check(below, Schema::get().at(*id), &format!("{path}.{name}"));
                }
            }
        }
        for resource in RESOURCES {
            let fields = fields_of(resource.kind).unwrap_or_else(|| panic!("{}", resource.kind));
            let (group, version) = resource.api_version.split_once('/').unwrap_or(("", resource.api_version));
            check(fields, Schema::get().decoded(group, version, resource.kind).unwrap(), resource.kind);
        }
    }

    #[test]
    fn nothing_that_may_be_secret_is_named() {
        let all: String = KINDS.iter().map(|(_, text)| written_out(text)).collect();
        let words: Vec<String> = tokens(&all).iter().map(|token| meaning_of(token).0.to_owned()).collect();
        for secret in ["env", "envFrom", "args", "command", "value?", "secret", "configMap", "parameters", "config"] {
            assert!(!words.iter().any(|word| word == secret), "{secret}");
        }
        assert!(!all.contains('<'), "{all}");
    }
}
