//! What fits, what scores how much, and what may let a rejected pod fit.

use crate::plugins::testing::{PluginTest, plugin};

const NODE: &str = "Node a {allocatable: {cpu: 4, memory: 8Gi, ephemeral-storage: 10Gi, example.com/gpu: 2, pods: 3}}";

fn fit() -> PluginTest {
    plugin("NodeResourcesFit").given(NODE)
}

#[test]
fn a_node_must_have_left_what_a_pod_requests() {
    let half = "Pod x {nodeName: a, requests: {cpu: 2, memory: 4Gi}}";
    fit().filters(&[
        ("exactly what is left fits", "{requests: {cpu: 2, memory: 4Gi}}", half, &["a: Success"]),
        (
            "a bit more does not fit, but preemption may help",
            "{requests: {cpu: 2001m}}",
            half,
            &["a: Unschedulable: Insufficient cpu"],
        ),
        (
            "preemption cannot help when the whole node is too small",
            "{requests: {cpu: 5}}",
            half,
            &["a: UnschedulableAndUnresolvable: Insufficient cpu"],
        ),
        (
            "every shortage is reported",
            "{requests: {cpu: 3, memory: 5Gi, ephemeral-storage: 10Gi}}",
            half,
            &["a: Unschedulable: Insufficient cpu, Insufficient memory"],
        ),
        (
            "one that preemption cannot help decides the code",
            "{requests: {cpu: 3, memory: 9Gi}}",
            half,
            &["a: UnschedulableAndUnresolvable: Insufficient cpu, Insufficient memory"],
        ),
        (
            "a resource the node does not have at all",
            "{requests: {example.com/fpga: 1}}",
            "",
            &["a: UnschedulableAndUnresolvable: Insufficient example.com/fpga"],
        ),
        (
            "extended resources are counted like cpu",
            "{requests: {example.com/gpu: 2}}",
            "Pod x {nodeName: a, requests: {example.com/gpu: 1}}",
            &["a: Unschedulable: Insufficient example.com/gpu"],
        ),
        (
            "a pod that requests nothing needs one of the node's pods",
            "{requests: {}}",
            "Pod x {nodeName: a, requests: {cpu: 4}}\nPod y {nodeName: a}",
            &["a: Success"],
        ),
        (
            "a full node",
            "{requests: {cpu: 1}}",
            "Pod x {nodeName: a}\nPod y {nodeName: a}\nPod z {nodeName: a, requests: {cpu: 4}}",
            &["a: Unschedulable: Too many pods, Insufficient cpu"],
        ),
    ]);
}

#[test]
fn what_a_pod_requests_is_more_than_the_sum_of_its_containers() {
    let (fits, short) = ("a: Success", "a: UnschedulableAndUnresolvable: Insufficient cpu");
    let containers = |init: &str, main: &str| format!("{{initContainers: [{init}], containers: [{main}]}}");
    let cpu =
        |name: &str, cpu: u32, more: &str| format!("{{name: {name}, resources: {{requests: {{cpu: {cpu}}}}}{more}}}");
    let sidecar = ", restartPolicy: Always";
    fit().filters(&[
        ("containers add up", &containers("", &format!("{}, {}", cpu("a", 2, ""), cpu("b", 3, ""))), "", &[short]),
        (
            "init containers run one after the other, before the others",
            &containers(&format!("{}, {}", cpu("i", 4, ""), cpu("j", 3, "")), &cpu("a", 2, "")),
            "",
            &[fits],
        ),
        ("a sidecar runs beside the containers", &containers(&cpu("i", 3, sidecar), &cpu("a", 2, "")), "", &[short]),
        (
            "and beside the init containers after it, but not before it",
            &containers(&format!("{}, {}", cpu("i", 4, ""), cpu("j", 1, sidecar)), &cpu("a", 3, "")),
            "",
            &[fits],
        ),
        ("the overhead of the sandbox comes on top", "{overhead: {cpu: 1}, requests: {cpu: 4}}", "", &[short]),
        ("pod-level requests replace the sum", "{resources: {requests: {cpu: 1}}, requests: {cpu: 5}}", "", &[fits]),
    ]);
}

#[test]
fn resources_that_others_answer_for_are_left_out() {
    let pod = "{requests: {example.com/gpu: 5}}";
    let short = "a: UnschedulableAndUnresolvable: Insufficient example.com/gpu";
    fit().filters(&[("by default nothing is ignored", pod, "", &[short])]);
    fit().args("{ignoredResources: [example.com/gpu]}").filters(&[("by name", pod, "", &["a: Success"])]);
    fit().args("{ignoredResourceGroups: [example.com]}").filters(&[
        ("by group", pod, "", &["a: Success"]),
        ("cpu is in no group", "{requests: {cpu: 5}}", "", &["a: UnschedulableAndUnresolvable: Insufficient cpu"]),
    ]);
    let class = "DeviceClass fpga {extendedResourceName: example.com/fpga}";
    fit().filters(&[
        (
            "DynamicResources answers for a resource that devices back",
            "{requests: {example.com/fpga: 1}}",
            class,
            &["a: Success"],
        ),
        ("unless the node has it itself", pod, "DeviceClass gpu {extendedResourceName: example.com/gpu}", &[short]),
    ]);
}

#[test]
fn least_allocated_prefers_the_node_with_most_left() {
    let half = "Pod x {nodeName: a, requests: {cpu: 2, memory: 4Gi}}";
    fit().scores(&[
        ("three quarters are left", "{requests: {cpu: 1, memory: 2Gi}}", "", &["a: 75 -> 75"]),
        ("other pods count", "{requests: {cpu: 1, memory: 2Gi}}", half, &["a: 25 -> 25"]),
        ("cpu (0) and memory (75) make the mean", "{requests: {cpu: 4, memory: 2Gi}}", "", &["a: 37 -> 37"]),
        // 3900m of 4 and 7.8Gi of 8Gi are left: both 97 when cut off.
        ("a container that requests nothing counts as 100m and 200Mi", "{requests: {}}", "", &["a: 97 -> 97"]),
        ("so does each container on the node", "{requests: {}}", "Pod x {nodeName: a, requests: {}}", &["a: 95 -> 95"]),
        ("a request of 0 is a request", "{requests: {cpu: 0, memory: 0}}", "", &["a: 100 -> 100"]),
        (
            "pod-level requests are ignored here, as upstream does",
            "{resources: {requests: {cpu: 4, memory: 8Gi}}, requests: {cpu: 1, memory: 2Gi}}",
            "",
            &["a: 75 -> 75"],
        ),
    ]);
}

#[test]
fn other_strategies_score_otherwise() {
    let most =
        "{scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 3}, {name: memory, weight: 1}]}}";
    fit().args(most).scores(&[
        // (3 * 50 + 25) / 4 = 43.75, cut off.
        ("used shares, weighted", "{requests: {cpu: 2, memory: 2Gi}}", "", &["a: 43 -> 43"]),
    ]);
    let ratio = "{scoringStrategy: {type: RequestedToCapacityRatio, resources: [{name: cpu}, {name: example.com/gpu, \
                 weight: 3}], requestedToCapacityRatio: {shape: [{utilization: 0, score: 0}, \
                 {utilization: 50, score: 10}, {utilization: 100, score: 4}]}}}";
    fit().args(ratio).scores(&[
        ("a point of the curve, times ten", "{requests: {cpu: 2}}", "", &["a: 100 -> 100"]),
        ("between two points the curve is a line", "{requests: {cpu: 1}}", "", &["a: 50 -> 50"]),
        // (70 + 3 * 100) / 4 = 92.5, rounded.
        ("the mean is rounded here", "{requests: {cpu: 3, example.com/gpu: 1}}", "", &["a: 93 -> 93"]),
        ("a score of 0 does not weigh", "{requests: {cpu: 0, example.com/gpu: 1}}", "", &["a: 100 -> 100"]),
    ]);
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    plugin("NodeResourcesFit").refuses(&[
        ("{ignoredResources: [example.com/gpu]}", "scoringStrategy: Required value: ScoringStrategy field is required"),
        (
            "{scoringStrategy: {type: RequestedToCapacityRatio, resources: [{name: cpu, weight: 1}]}}",
            "scoringStrategy.requestedToCapacityRatio: Required value: must be specified when type is \
             RequestedToCapacityRatio",
        ),
    ]);
}

#[test]
fn room_that_grows_wakes_the_pod() {
    let pod = "{requests: {cpu: 2}}";
    plugin("NodeResourcesFit").hints(&[
        ("a pod leaves a node", pod, "delete Pod x {nodeName: a}", "Queue"),
        ("a pod that had no node leaves", pod, "delete Pod x {requests: {cpu: 2}}", "Skip"),
        (
            "a pod shrinks what this one wants",
            pod,
            "update Pod x {nodeName: a, requests: {cpu: 2}} => {nodeName: a, requests: {cpu: 1}}",
            "Queue",
        ),
        (
            "a pod shrinks something else",
            pod,
            "update Pod x {nodeName: a, requests: {memory: 2Gi}} => {nodeName: a, requests: {memory: 1Gi}}",
            "Skip",
        ),
        ("the pod itself shrinks", pod, "update Pod pod {requests: {cpu: 3}} => {requests: {cpu: 2}}", "Queue"),
        ("a new node is large enough", pod, "add Node b {allocatable: {cpu: 2, pods: 1}}", "Queue"),
        ("a new node is too small", pod, "add Node b {allocatable: {cpu: 1, pods: 1}}", "Skip"),
        (
            "a node grows",
            pod,
            "update Node b {allocatable: {cpu: 1, pods: 1}} => {allocatable: {cpu: 2, pods: 1}}",
            "Queue",
        ),
        (
            "a node grows in what the pod does not want",
            pod,
            "update Node b {allocatable: {cpu: 2, pods: 1}} => {allocatable: {cpu: 2, memory: 1Gi, pods: 1}}",
            "Skip",
        ),
        (
            "a class of devices backs what the pod requests",
            "{requests: {example.com/gpu: 1}}",
            "add DeviceClass gpu {extendedResourceName: example.com/gpu}",
            "Queue",
        ),
        (
            "a class of other devices does not help",
            "{requests: {example.com/gpu: 1}}",
            "add DeviceClass fpga {extendedResourceName: example.com/fpga}",
            "Skip",
        ),
    ]);
}
