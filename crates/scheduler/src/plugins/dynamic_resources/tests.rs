//! What holds a pod with claims back, which nodes do for it, and what may let a rejected pod fit.

use crate::plugins::testing::plugin;

const OBJECTS: &str = "
    Node a {labels: {zone: a}}
    Node b {labels: {zone: b}}
    DeviceClass gpu
    ResourceSlice a {driver: d, nodeName: a, pool: {name: a, resourceSliceCount: 1}, devices: [{name: g0}]}
";
const POD: &str = "{resourceClaims: [{name: c, resourceClaimName: one}]}";
const TEMPLATE: &str = "{resourceClaims: [{name: c, resourceClaimTemplateName: t}]}";
const MADE: &str = "{resourceClaims: [{name: c, resourceClaimTemplateName: t}], \
                    resourceClaimStatuses: [{name: c, resourceClaimName: one}]}";

/// A claim for one device, with more fields.
fn claim(name: &str, more: &str) -> String {
    format!(
        "ResourceClaim {name} {{devices: {{requests: [{{name: r, exactly: {{deviceClassName: gpu, \
         allocationMode: ExactCount, count: 1}}}}]}}{more}}}\n"
    )
}

/// The status of a claim that has the only device, which is on node `a`.
const ALLOCATED: &str = ", allocation: {devices: {results: [{request: r, driver: d, pool: a, device: g0}]}, \
     nodeSelector: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [a]}]}]}}";

fn rejected(node: &str, reason: &str) -> String {
    format!("{node}: UnschedulableAndUnresolvable: {reason}")
}

#[test]
fn a_pod_waits_until_its_claims_are_made() {
    let deleted = claim("one", ", deletionTimestamp: '2026-01-01T00:00:00Z'");
    let owned = claim("one", ", ownerReferences: [{kind: Pod, name: pod, uid: pod, controller: true}]");
    let reason = |text: &str| format!("UnschedulableAndUnresolvable: {text}");
    plugin("DynamicResources").pre_enqueues(&[
        ("a pod without claims", "{}", "", &["Success"]),
        ("the claim is there", POD, &claim("one", ""), &["Success"]),
        ("the claim is not", POD, "", &[&reason(r#"could not find ResourceClaim "default/one""#)]),
        ("the claim is going", POD, &deleted, &[&reason(r#"resourceclaim "one" is being deleted"#)]),
        (
            "no claim was created from the template yet",
            TEMPLATE,
            "",
            &[&reason(r#"pod "default/pod": ResourceClaim not created yet"#)],
        ),
        ("it was created", MADE, &owned, &["Success"]),
        (
            "a claim of that name has another owner",
            MADE,
            &claim("one", ""),
            &[&reason("ResourceClaim default/one was not created for Pod default/pod (Pod is not owner)")],
        ),
    ]);
}

#[test]
fn a_pod_goes_where_devices_for_its_claims_are() {
    let both = "ResourceSlice b {driver: d, nodeName: b, pool: {name: b, generation: 1, resourceSliceCount: 1}, \
                devices: [{name: g0}]}\n";
    let none = "cannot allocate all claims";
    let (a, b) = (&*rejected("a", none), &*rejected("b", none));
    let elsewhere = &*rejected("b", "resourceclaim not available on the node");
    let unknown = claim("one", "").replace("gpu", "fpga");
    let selector =
        claim("one", "").replace("count: 1", "count: 1, selectors: [{cel: {expression: \"device.driver == 'x'\"}}]");
    plugin("DynamicResources").given(OBJECTS).filters(&[
        ("a pod without claims is skipped", "{}", "", &["a: Skip", "b: Skip"]),
        ("the node with the device", POD, &claim("one", ""), &["a: Success", b]),
        ("both nodes have one", POD, &format!("{}{both}", claim("one", "")), &["a: Success", "b: Success"]),
        (
            "the device is allocated to another claim",
            POD,
            &format!("{}{}", claim("one", ""), claim("two", ALLOCATED)),
            &[a, b],
        ),
        (
            "the claim is allocated, and ties the pod to its device",
            POD,
            &claim("one", ALLOCATED),
            &["a: Success", elsewhere],
        ),
        ("a selector that no device meets", POD, &selector, &[a, b]),
        (
            "a class that does not exist",
            POD,
            &unknown,
            &[&rejected("pod", "request r: device class fpga does not exist")],
        ),
    ]);
}

#[test]
fn devices_stand_in_for_extended_resources_a_node_does_not_have() {
    let pod = "{requests: {example.com/gpu: 1}}";
    let class = "DeviceClass gpu {extendedResourceName: example.com/gpu}\n";
    let own = "Node own {allocatable: {example.com/gpu: 1}}";
    plugin("DynamicResources").given(OBJECTS).filters(&[
        ("no class backs the resource", pod, "", &["a: Skip", "b: Skip"]),
        (
            "devices of the class, or the node's own",
            pod,
            &format!("{class}{own}"),
            &["a: Success", &rejected("b", "cannot allocate all claims"), "own: Success"],
        ),
    ]);
}

#[test]
fn the_first_of_several_alternatives_scores_highest() {
    let choice = "ResourceClaim one {devices: {requests: [{name: r, firstAvailable: [\
         {name: two, deviceClassName: gpu, allocationMode: ExactCount, count: 2}, \
         {name: one, deviceClassName: gpu, allocationMode: ExactCount, count: 1}]}]}}\n";
    let more = "ResourceSlice b {driver: d, nodeName: b, pool: {name: b, generation: 1, resourceSliceCount: 1}, \
                devices: [{name: g0}, {name: g1}]}\n";
    plugin("DynamicResources").given(OBJECTS).scores(&[
        ("a pod without claims", "{}", "", &["a: 0 -> 0", "b: 0 -> 0"]),
        (
            "8 for the first alternative, 7 for the second",
            POD,
            &format!("{choice}{more}"),
            &["a: 7 -> 87", "b: 8 -> 100"],
        ),
        (
            "a claim without alternatives is worth nothing",
            POD,
            &format!("{}{more}", claim("one", "")),
            &["a: 0 -> 0", "b: 0 -> 0"],
        ),
    ]);
}

#[test]
fn a_claim_that_keeps_its_pod_from_every_node_is_given_back() {
    let far = ALLOCATED.replace("values: [a]", "values: [gone]");
    let used = format!("{far}, reservedFor: [{{resource: pods, name: other, uid: other}}]");
    plugin("DynamicResources").given(OBJECTS).post_filters(&[
        (
            "no node reaches its devices",
            POD,
            &claim("one", &far),
            &[
                "Unschedulable: deallocation of ResourceClaim completed",
                "MERGE-PATCH default/resourceclaims/one/status \
                 {\"metadata\":{\"resourceVersion\":\"1\",\"uid\":\"one\"},\
                 \"status\":{\"allocation\":null,\"devices\":null,\"reservedFor\":null}}",
            ],
        ),
        ("another pod uses its devices", POD, &claim("one", &used), &["Unschedulable: still not schedulable"]),
        (
            "it has no allocation to give back",
            POD,
            &claim("one", "").replace("count: 1", "count: 9"),
            &["Unschedulable: still not schedulable"],
        ),
    ]);
}

#[test]
fn a_claim_left_over_from_an_earlier_attempt_is_deleted_without_the_finalizers_of_others() {
    let left_over = "DeviceClass gpu {extendedResourceName: example.com/gpu}
        ResourceClaim left {annotations: {resource.kubernetes.io/extended-resource-claim: 'true'}, \
        ownerReferences: [{apiVersion: v1, kind: Pod, name: pod, uid: pod, controller: true}], \
        devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}\n";
    plugin("DynamicResources").given("Node a").post_filters(&[(
        "it may be for another node",
        "{requests: {example.com/gpu: 1}}",
        left_over,
        &[
            "Unschedulable: deletion of ResourceClaim completed",
            "STRATEGIC-PATCH default/resourceclaims/left {\"metadata\":{\"$deleteFromPrimitiveList/finalizers\":\
             [\"resource.kubernetes.io/delete-protection\"],\"uid\":\"left\"}}",
            "DELETE default/resourceclaims/left {\"preconditions\":{\"uid\":\"left\"}}",
        ],
    )]);
}

#[test]
fn claims_that_change_and_devices_that_come_wake_the_pod() {
    let devices = "devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}";
    let freed = |name: &str| format!("update ResourceClaim {name} {{{devices}{ALLOCATED}}} => {{{devices}}}");
    let reserved = |name: &str| {
        format!("update ResourceClaim {name} {{{devices}}} => {{{devices}, reservedFor: [{{resource: pods, uid: x}}]}}")
    };
    plugin("DynamicResources").given(&claim("one", "")).given(&claim("two", "")).hints(&[
        ("any claim gives its devices back", POD, &freed("two"), "Queue"),
        ("the status of the pod's claim changes", POD, &reserved("one"), "Queue"),
        ("the status of another claim changes", POD, &reserved("two"), "Skip"),
        ("new devices", POD, "add ResourceSlice s {driver: d, nodeName: b}", "Queue"),
        ("a new class", POD, "add DeviceClass fpga", "Queue"),
        ("a new node", POD, "add Node c", "Queue"),
        ("a pod that leaves keeps its claim", POD, "delete Pod x {nodeName: a}", "Skip"),
        (
            "a claim was created from the template",
            POD,
            "update Pod pod {} => {resourceClaimStatuses: [{name: c, resourceClaimName: one}]}",
            "Queue",
        ),
    ]);
}
